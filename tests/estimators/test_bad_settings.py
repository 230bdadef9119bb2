"""Settings and rows that make no sense, and what each estimator says of them."""

import numpy as np
import pytest

import deconflow
from deconflow.noise import laplace, split_normal, student_t

RNG = np.random.default_rng(0)
W = RNG.normal(size=(30, 2))
ONE = W[:, :1]
SD = RNG.uniform(0.2, 0.6, size=W.shape)
RESOLVED = "bandwidth as one number or 2, .* that a grid can resolve"
THIRD = np.arange(30)[:, None] == 3
BAD = {
    "XDGMM": [
        ({"method": "newton"}, {}, "method to be one of"),
        ({"method": {"minibatch": {"rate": 0.1}}}, {}, "an option of minibatches to be one"),
        ({"method": {"minibatch": {"epochs": 0}}}, {}, "epochs as a whole number of at least 1"),
        ({"method": {"em": {}}}, {}, 'method as a name, or as {"minibatch"'),
        ({"init": "zeros"}, {}, "init to be one of"),
        ({"init": {"mean": [[0.0, 0.0]]}}, {}, "a part in init to be one of"),
        ({"n_components": 0}, {}, "n_components as a whole number of at least 1; got 0"),
        ({"n_components": [1, 2]}, {}, r"whole number of at least 1; got \[1, 2\]"),
        ({"tol": -1.0}, {}, r"tol in \[0, inf\); got -1.0"),
        ({"floor": np.nan}, {}, r"floor in \[0, inf\); got nan"),
        ({"floor": [0.1, 0.2]}, {}, r"floor in \[0, inf\); got \[0.1, 0.2\]"),
        ({"n_components": 2, "init": {"means": np.zeros((3, 2))}}, {}, r"means.* \(2, 2\)"),
        ({"init": {"covariances": [[[1, 2], [2, 1]]]}}, {}, "positive semi-definite"),
        ({"init": {"weights": [-1.0]}}, {}, r'init\["weights"\] of at least 0'),
        ({"n_components": 2, "fixed": {"means": [True] * 3}}, {}, r'fixed\["means"\] as a boolean'),
        ({"fixed": {"mean": True}}, {}, "a part in fixed to be one of"),
        ({"method": "minibatch", "n_init": 3}, {}, "n_init=1 with method"),
        ({"n_jobs": 0}, {}, "n_jobs"),
        ({"n_jobs": "a"}, {}, "n_jobs"),
        ({"bounds": {0: (50, None)}}, {}, "hold most of the truth"),
        ({"atoms": [[np.nan, 0.0]]}, {}, "finite atoms"),
        ({"atoms": []}, {}, "Expected atoms as points"),
        ({"atoms": "a"}, {}, "Expected numbers as atoms"),
        ({"atoms": [[1.0, 1.0]] * 2}, {}, "each of the atoms once"),
        ({"atoms": {"v0": [0.0]}}, {}, "Expected atoms as"),
        ({"atoms": [[0.0, 0.0, 0.0]]}, {}, "Expected atoms as"),
        ({"atoms": [[-1.0, 0.0]], "bounds": {0: (-0.5, None)}}, {}, "atoms within the bounds"),
        ({"background": "flat"}, {}, 'Expected background as "uniform"'),
        ({"background": 3}, {}, 'Expected background as "uniform"'),
        ({"background": lambda w: np.zeros(3)}, {}, "a log density for each of"),
        ({"background": "uniform"}, {"w": np.c_[ONE, np.ones(30)]}, "alone in column 1"),
        (
            {"background": lambda w: -np.ones(len(w))},
            {"w": np.where(THIRD & [True, False], np.nan, W)},
            "Expected complete rows with a background",
        ),
        ({}, {"w": 1e160 * W}, r"Expected w of at most 1e\+152 in size; got .* at row 0, column 0"),
        ({}, {"noise": np.where(THIRD, 1e300, SD)}, "Expected noise of .* at row 3"),
        ({}, {"w": 1e-200 * W, "noise": 1e-200}, "Expected columns of w that scatter by 1e-152"),
        ({}, {"w": np.where(THIRD, 1e150, W)}, r"Expected w (and noise )?within .* row 3"),
        ({}, {"noise": split_normal(SD, 25 * SD)}, "within a factor of 20"),
    ],
    "BayesianXDGMM": [
        ({"n_chains": 0}, {}, "n_chains as a whole number of at least 1; got 0"),
        ({"n_sweeps": 2}, {}, "n_sweeps as a whole number of at least 3; got 2"),
        ({"floor": []}, {}, "at least one value of floor; got none"),
        ({"floor": -1.0}, {}, r"floor .*got -1"),
        ({"n_snapshots": 0}, {}, "n_snapshots as a whole number of at least 1; got 0"),
        ({"checkpoint": "x"}, {}, "integer random_state for a checkpoint"),
    ],
    "DeconvolvingKDE": [
        ({"bandwidth": 0.0}, {}, RESOLVED),
        ({"bandwidth": []}, {}, RESOLVED),
        ({"bandwidth": float("nan")}, {}, RESOLVED),
        ({"bandwidth": [0.1] * 3}, {}, RESOLVED),
        ({"bandwidth": 1e-9}, {}, RESOLVED),
        ({"bandwidth": 1e300}, {}, RESOLVED),
        ({"bandwidth": "plug_in"}, {}, "Expected numbers as bandwidth; got"),
        ({"bandwidth": True}, {}, "Expected numbers as bandwidth; got"),
        ({}, {"w": np.ones((9, 4))}, "column.* in w.*got 4. Use XDGMM"),
        ({}, {"w": np.ones((9, 1))}, "differ in every column"),
        ({}, {"w": W[:1]}, "at least 2 rows.*n_samples = 1"),
        ({}, {"sample_weight": np.zeros(30)}, "at least one positive weight"),
        ({}, {"w": np.r_[W, [[0.0, np.inf]]]}, "got inf at row 30, column 1"),
        ({}, {"noise": -0.1}, "standard deviations .* of at least zero"),
        ({}, {"w": 1e160 * W}, r"Expected w of at most 1e\+152 in size"),
    ],
    "WaveletDeconvolver": [
        ({"level": 0}, {"w": ONE}, "level as a whole number of at least 1"),
        ({"level": 11}, {"w": ONE}, "level as a whole number of at least 1 and at most 10; got 11"),
        ({}, {}, "column.* in w.*got 2. Use XDGMM"),
        ({}, {"w": np.r_[ONE, [[np.nan]]]}, "only NaN or masked cells in row 30"),
    ],
    "FlowDeconvolver": [
        ({"posterior_family": "vae"}, {}, "posterior_family to be one of .*'exact'.*got 'vae'"),
        ({"posterior_family": "exact"}, {}, "flow='gaussian_mixture' .*got flow='mixture'"),
        (
            {"posterior_family": "mixture", "objective": "iw"},
            {},
            r"objective to be one of \['coupled', 'roulette'\].*no derivatives; got 'iw'",
        ),
        ({"objective": "coupled", "n_draws": 1}, {}, "n_draws of at least 2 .*got 1"),
        (
            {"posterior_family": "exact", "flow": "gaussian_mixture", "objective": "elbo"},
            {"noise": student_t(SD, 3.0)},
            "Expected Gaussian noise.*got TableNoise",
        ),
        (
            {},
            {"noise": 0.1, "projection": np.eye(2) * 1e200},
            "Expected projection of at most",
        ),
        ({}, {"noise": laplace(np.where(THIRD, 1e100, SD))}, "and noise within .* row 3"),
    ],
    "Deconvolver": [
        ({"quick": 1}, {}, "quick as True or False; got 1"),
        ({"n_members": 0}, {}, "n_members"),
        ({"quick": True, "n_members": 3}, {}, "no n_members with quick=True"),
        ({"n_jobs": 0}, {}, "n_jobs"),
        ({"checkpoint": "x"}, {}, "integer random_state for a checkpoint"),
        ({}, {"w": np.zeros((5, 2))}, "at least 10 rows .*got n_samples = 5"),
        ({}, {"noise": [-1.0, 1.0]}, "got -1"),
    ],
}


@pytest.mark.parametrize(
    ("estimator", "settings", "call", "message"),
    [(name, *case) for name, cases in BAD.items() for case in cases],
)
def test_what_makes_no_sense_is_refused(estimator, settings, call, message):
    model = getattr(deconflow, estimator)(**settings)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(**{"w": W, "noise": 0.3} | call)
