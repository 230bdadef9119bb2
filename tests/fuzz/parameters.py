"""Parameters of the estimators, by their signatures: right values and wrong ones."""

import inspect

from deconflow.estimators import ESTIMATORS

from .values import (
    BAD_COUNTS,
    BAD_NUMBERS,
    BAD_STATES,
    BAD_WORDS,
    FLAGS,
    GOOD_STATES,
    NO_FLAGS,
    PATHS,
)

BY_TYPE = {bool: NO_FLAGS, int: BAD_COUNTS, float: (*BAD_NUMBERS, "1e200", "1e-300")}
"""What is wrong for a parameter whose default is of a type; for others, bad words."""
GOOD = {
    "n_components": ("1", "2", "3", "'auto'"),
    "method": ("'anderson'", "'em'", "{'minibatch': {'batch_size': 7, 'epochs': 3}}"),
    "init": ("'kmeans'", "'random'", "{}", "{'weights': [0.5, 0.5]}", "{'means': np.zeros((2, d))}",
        "{'covariances': np.stack([np.eye(d)] * 2)}"),
    "fixed": ("None", "{}", "{'weights': True}", "{'means': [True, False]}"),
    "n_init": ("1", "2"),
    "tol": ("1e-6", "0.0", "1e-3"),
    "max_iter": ("1", "20", "200"),
    "floor": ("0.0", "0.1", "1e100"),
    "bounds": ("None", "{0: (-9, None)}", "[(-9, 9)] * d", "{0: (None, 9.0)}"),
    "atoms": ("None", "np.zeros((1, d))"),
    "background": ("None", "'uniform'"),
    "random_state": GOOD_STATES,
    "n_jobs": ("1",),
    "checkpoint": ("None",),
    "n_chains": ("1", "2", "5"),
    "n_sweeps": ("3", "10"),
    "n_snapshots": ("1", "4"),
    "n_members": ("None",),
    "quick": ("True",),
    "flow": ("'maf'", "'made'", "'spline'", "'coupling'", "'mixture'", "'gaussian_mixture'"),
    "objective": ("'iw'", "'elbo'", "'roulette'", "'coupled'"),
    "posterior_family": ("'flow'", "'exact'"),
    "n_draws": ("1", "2"),
    "n_layers": ("1",),
    "hidden": ("4", "8"),
    "base_components": ("1", "2"),
    "epochs": ("1", "2"),
    "batch_size": ("5", "256"),
    "learning_rate": ("2e-3", "1.0", "1e30"),
    "validation_fraction": ("0.0", "0.1", "0.9"),
    "bandwidth": ("None", "0.5", "np.full(d, 0.5)", "1e100"),
    "level": ("None", "2", "5"),
}  # fmt: skip
"""Right values, by the name of a parameter; for others, the default."""
BAD = {
    "method": ("'a'", "3", "{}", "{'em': {}}", "{'minibatch': 3}"),
    "init": ("'a'", "3", "None", "{'means': None, 'a': 1}", "{'means': np.full((2, d), np.nan)}"),
    "fixed": ("'a'", "3", "{'a': True}", "{'means': 'a'}", "{'weights': [1.5, 0.0]}"),
    "bounds": ("3", "'a'", "(1, 0)", "{'z': (0, 1)}", "np.nan", "[(0, 'a')] * d", "np.array(0.0)"),
    "atoms": ("'a'", "np.nan", "[]", "np.ones((1, 9))", "{'z': 0}"),
    "background": ("'flat'", "3", "np.nan", "[]"),
    "random_state": BAD_STATES,
    "n_jobs": ("0", "-2", "1.5", "'a'", "True", "np.nan", "[1]"),
    "checkpoint": PATHS,
    "epochs": ("0", "-1", "1.5", "'a'", "True", "[1]"),
    "n_components": BAD_COUNTS,
    "n_chains": BAD_COUNTS,
    "n_sweeps": BAD_COUNTS,
    "n_snapshots": BAD_COUNTS,
    "n_members": BAD_COUNTS,
    "bandwidth": (*BAD_NUMBERS, "0.0", "1e-12", "1e300", "'unknown'", "np.ones(9)"),
    "level": BAD_COUNTS,
    "n_intervals": BAD_COUNTS,
    "floor": (*BAD_NUMBERS, "1e200"),
}
"""Wrong values of parameters whose default does not say their type."""


def choices(name, default):
    """Return right and wrong values of a parameter."""
    usual = FLAGS if isinstance(default, bool) else (repr(default),)
    return GOOD.get(name, usual), BAD.get(name, BY_TYPE.get(type(default), BAD_WORDS))


PARAMETERS = {
    name: {p.name: choices(p.name, p.default) for p in inspect.signature(cls).parameters.values()}
    for name, cls in ESTIMATORS.items()
}
"""By estimator and parameter: expressions that are right, and some that are not."""

TINY = {
    "XDGMM": {"n_components": "2", "max_iter": "50", "random_state": "0", "n_jobs": "1"},
    "BayesianXDGMM": {"n_chains": "2", "n_sweeps": "6", "random_state": "0", "n_jobs": "1"},
    "FlowDeconvolver": {
        "epochs": "1", "hidden": "8", "n_layers": "1", "n_draws": "2", "random_state": "0",
    },
    "DeconvolvingKDE": {},
    "WaveletDeconvolver": {},
    "Deconvolver": {"quick": "True", "random_state": "0", "n_jobs": "1"},
}  # fmt: skip
"""Settings that make a fit short."""

COMPAT = {
    "projection": ("None", "np.eye(d)", "np.stack([np.eye(d)] * n)", "'a'", "np.ones((n, d))"),
    "weight": ("None", "np.ones(n)", "-np.ones(n)", "np.ones(n + 1)", "'a'", "np.full(n, np.nan)"),
    "fixamp": ("None", "True", "[True, False]", "'a'", "[True] * 5", "3"),
    "fixmean": ("None", "True", "[True, False]", "'a'", "[True] * 5", "np.nan"),
    "fixcovar": ("None", "True", "[True, False]", "'a'", "[True] * 5", "[]"),
    "tol": ("1e-6", "0.0", "np.nan", "-1.0", "'a'", "None", "np.inf"),
    "maxiter": ("10", "1e9", "0", "-1", "np.nan", "'a'", "None", "np.inf", "1.5", "True"),
    "w": ("0.0", "0.1", "1e100", "-1.0", "np.nan", "'a'", "None", "np.inf"),
    "logfile": ("None", "str(folder / 'log')", "'/proc/nothing/log'", "3", "''"),
    "splitnmerge": ("0", "1", "-1", "1.5", "'a'", "None", "np.nan"),
    "maxsnm": ("False", "True", "'a'"),
    "likeonly": ("False", "True", "'a'"),
    "logweight": ("False", "True"),
}
"""Arguments of the C library's front, beside the arrays."""

COMPAT_ARRAYS = {
    "ydata": ("w",),
    "ycovar": ("sd**2", "sd[:, :, None] * sd[:, None, :] * np.eye(d)", "sd[0]", "-sd", "0 * sd",
        "np.full((n, d), np.nan)", "1e100 * sd", "1e300 * sd", "'a'", "None", "sd[1:]"),
    "xamp": ("np.ones(2) / 2", "np.ones(1)", "np.ones(3)", "[0.5, 0.5]", "np.float64(1)",
        "np.array(1.0)", "np.array([-1.0, 2.0])", "np.zeros(2)", "np.ones(2, int)", "None",
        "np.array([np.nan, 1.0])", "np.ones((2, 1))", "np.empty(0)"),
    "xmean": ("g.normal(size=(2, d))", "np.zeros((2, d))", "np.zeros((2, d + 1))", "None", "'a'",
        "np.full((2, d), np.inf)", "1e100 * g.normal(size=(2, d))"),
    "xcovar": ("np.stack([np.eye(d)] * 2)", "np.zeros((2, d, d))", "-np.stack([np.eye(d)] * 2)",
        "1e100 * np.stack([np.eye(d)] * 2)", "np.ones((2, d, d))", "np.stack([np.eye(d)] * 3)",
        "np.full((2, d, d), np.nan)", "None"),
}  # fmt: skip
