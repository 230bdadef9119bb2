"""Bad calls and what each must say: the argument, the place, and the way out."""

import re
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from torch.distributions import Gumbel, Laplace, Normal

from deconflow import XDGMM, FlowDeconvolver, GaussianMixture, Observations
from deconflow.fitting import Training
from deconflow.noise import (
    from_law,
    gaussian,
    gaussian_mixture,
    laplace,
    same_for_all,
    split_normal,
    student_t,
    uniform,
)

N, D = 30, 2
W = np.random.default_rng(0).normal(size=(N, D))
TINY = {
    "epochs": 1,
    "hidden": 8,
    "n_layers": 1,
    "n_draws": 2,
    "random_state": 0,
}


def gumbel(scale):
    return Gumbel(0.0 * scale, scale)


def with_value(array, position, value):
    changed = np.array(array, dtype=float)
    changed[position] = value
    return changed


def masked(array, position):
    mask = np.zeros(np.shape(array), dtype=bool)
    mask[position] = True
    return np.ma.masked_array(array, mask)


def observe(noise=0.1, w=W, **arrays):
    return Observations.from_arrays(w, noise, **arrays)


def fit(w=W, noise=0.1, projection=None, sample_weight=None, groups=None, **parameters):
    model = FlowDeconvolver(**TINY | parameters)
    rows = {"projection": projection, "sample_weight": sample_weight, "groups": groups}
    return model.fit(w, noise=noise, **rows)


@pytest.fixture(scope="module")
def model():
    return fit()


IN_OUR_FORM = re.compile("^Expected .+; got .+", re.DOTALL)
#: What scikit-learn says or asks for, and Python's words for len().
GIVEN_FORMS = re.compile(
    r"is expecting \d features|is not fitted yet|^Complex data not supported|and no length"
)


def check(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    said = str(caught.value)
    assert IN_OUR_FORM.search(said) or GIVEN_FORMS.search(said), said


FIELDS = np.zeros(N, dtype=[("a", float), ("b", float)])
CELLS = np.array([[[1.0, 2.0], 1.0]], dtype=object)
COVARIANCES = np.stack([np.eye(D)] * N)
MIX = (np.full((N, 1), 1.0), np.zeros((N, 1, D)), COVARIANCES[:, None])


NORMAL = GaussianMixture(np.ones(1), np.zeros((1, D)), np.eye(D)[None])


def answers():
    return XDGMM(1).fit(W, noise=0.1).posterior(W, noise=0.1)


BAD_NOISE = {
    # arrays at the door
    "negative sd": (lambda: observe(with_value(np.ones((N, D)), (3, 1), -1)),
        ValueError, r"at least zero.*got -1 at row 3, column 1"),
    "negative shared sd": (lambda: observe([0.1, -0.2]),
        ValueError, r"at least zero.*got -0\.2 at dimension 1"),
    "negative number": (lambda: observe(-0.5), ValueError, r"at least zero.*got -0\.5"),
    "NaN sd": (lambda: observe(with_value(np.ones((N, D)), (4, 0), np.nan)),
        ValueError, r"finite.*noise.*nan at row 4, column 0"),
    "infinite sd": (lambda: observe(with_value(np.ones((N, D)), (4, 0), np.inf)),
        ValueError, r"finite.*noise.*inf at row 4, column 0"),
    "no noise": (lambda: observe(None), (TypeError, ValueError), r"noise.*None"),
    "text": (lambda: observe("gaussian"), TypeError, r"Expected noise as .*; got 'gaussian'"),
    "text cell": (lambda: observe([[0.1, "a"]] * N), ValueError,
        r"numbers in noise.*'a'.* at row 0, column 1"),
    "too short": (lambda: observe(np.ones((N - 1, D))), ValueError,
        r"N = 30 and D = 2; got shape \(29, 2\)"),
    "too wide": (lambda: observe(np.ones(D + 1)), ValueError, r"D = 2; got shape \(3,\)"),
    "four axes": (lambda: observe(np.ones((1, N, D, D))), ValueError, r"got shape \(1, 30, 2, 2\)"),
    "ragged": (lambda: observe([[0.1, 0.2], [0.3]]), ValueError, r"rectangular.*noise"),
    "ambiguous": (lambda: observe(np.eye(2), w=W[:2]), ValueError,
        r"could be standard deviations or one covariance.*gaussian\(sd="),
    "not symmetric": (lambda: observe(with_value(COVARIANCES, (5, 0, 1), 0.5)),
        ValueError, r"symmetric.*row 5"),
    "shared, not symmetric": (lambda: observe([[1, 0.5], [0, 1]]), ValueError,
        r"symmetric.*dimension 0,? and 1"),
    "not semi-definite": (lambda: observe(with_value(COVARIANCES, 6, [[1, 2], [2, 1]])),
        ValueError, r"semi-definite.*eigenvalue -1.*row 6"),
    "NaN covariance": (lambda: observe(with_value(COVARIANCES, (7, 0, 0), np.nan)),
        ValueError, r"finite covariances.*nan at row 7"),
    "Noise of other rows": (lambda: observe(gaussian(sd=np.ones((N - 1, D)))),
        ValueError, r"noise for 30 rows.*got 29"),
    "Noise of other width": (lambda: observe(laplace([1.0, 1.0, 1.0])),
        ValueError, r"noise for 2 values per row; got 3"),
    "distribution by row": (lambda: observe(Normal(torch.zeros(N, D), torch.ones(N, D))),
        ValueError, r"over shape \(D,\); got \(30, 2\).*from_law"),
    # constructors
    "gaussian of nothing": (lambda: gaussian(), ValueError, r"exactly one of sd and covariance"),
    "gaussian of both": (lambda: gaussian(sd=[1.0], covariance=[[1.0]]),
        ValueError, r"exactly one of sd and covariance"),
    "gaussian of a number": (lambda: gaussian(sd=1.0), ValueError, r"\(D,\) or \(N, D\); got \(\)"),
    "gaussian of no square": (lambda: gaussian(covariance=np.ones((3, 2))),
        ValueError, r"\(D, D\) or \(N, D, D\); got \(3, 2\)"),
    "a table in a law": (lambda: laplace(pd.DataFrame({"y_err": [0.1], "x_err": [0.2]})),
                         TypeError, r"plain numbers as scale.*y_err, x_err.*to_numpy"),
    "complex": (lambda: gaussian(sd=[1j]), ValueError, r"[Cc]omplex.*sd"),
    "a number as a distribution": (lambda: same_for_all(3.0), TypeError, r"distribution.*got 3\.0"),
    "a law of no width": (lambda: laplace(np.full((N, D), 1e-300)),
        ValueError, r"noise.*wider than 1e-152; got the scale 1e-300 at row 0, column 0"),
    "a law that single precision does not hold": (lambda: fit(1e-80 * W,
        from_law(gumbel, shared=True, scale=[[1e-80] * 2])),
        ValueError, r"spread of w between 1e-30 and 1e\+30, for single precision; got"),
    "a law too narrow for the data": (lambda: fit(W, laplace([1e-20] * 2)),
        ValueError, r"noise wider than 1e-15 times the spread of w"),
    "rows by a broken number": (lambda: gaussian(sd=np.ones((N, D)))[1.5],
        TypeError, r"rows as numbers, flags or a slice; got 1\.5"),
    "zero scale": (lambda: laplace(with_value(np.ones((N, D)), (2, 0), 0)),
        ValueError, r"positive.*scale.*got 0 at row 2, column 0"),
    "zero shared scale": (lambda: laplace([1.0, 0.0]), ValueError, r"positive.*scale.*got 0"),
    "negative df": (lambda: student_t([1.0, 1.0], -3), ValueError, r"positive.*df.*got -3"),
    "NaN half width": (lambda: uniform([np.nan]), ValueError, r"finite.*half_width.*got nan"),
    "negative upper": (lambda: split_normal([1.0], [-1.0]), ValueError, r"positive.*upper.*got -1"),
    "unequal sides": (lambda: split_normal([1.0, 1.0], [1.0, 1.0, 1.0]),
        ValueError, r"Expected.*lower.*upper"),
    "scale as a number": (lambda: laplace(0.1), ValueError, r"scale.*\(D,\) or \(N, D\); got \(\)"),
    "scale in a cube": (lambda: laplace(np.ones((2, 2, 2))), ValueError, r"scale.*got \(2, 2, 2\)"),
    "weights of no sum": (lambda: gaussian_mixture(with_value(MIX[0], (4, 0), 0.7), *MIX[1:]),
        ValueError, r"weights that sum to one.*row 4"),
    "weights as a number": (lambda: gaussian_mixture(1.0, [[0.0]], [[[1.0]]]),
        ValueError, r"Expected.*weights"),
    "means of other shape": (lambda: gaussian_mixture([1.0], [0.0, 0.0], [np.eye(2)]),
        ValueError, r"weights \(J,\), means \(J, D\)"),
    "mixture, not semi-definite": (
        lambda: gaussian_mixture(*MIX[:2], with_value(MIX[2], (8, 0), [[1, 2], [2, 1]])),
        ValueError, r"definite.*row 8"),
    "mixture, singular": (lambda: gaussian_mixture([1.0], [[0, 0]], [np.ones((2, 2))]),
        ValueError, r"positive definite"),
    "mixture, not symmetric": (lambda: gaussian_mixture([1.0], [[0, 0]], [[[1, 0.5], [0, 1]]]),
        ValueError, r"symmetric"),
    "mixture, NaN covariance": (
        lambda: gaussian_mixture([1.0], [[0, 0]], [[[np.nan, 0.0], [0.0, 1.0]]]),
        ValueError, r"finite.*covariance"),
    "law of a number": (lambda: from_law(lambda scale: Laplace(0 * scale, scale), scale=0.1),
        ValueError, r"Expected.*scale"),
    "law with NaN": (
        lambda: from_law(
            lambda scale: Laplace(0 * scale, scale), scale=with_value(W, (9, 0), np.nan)),
        ValueError, r"finite.*scale.*row 9"),
    "law that fails": (lambda: from_law(lambda scale: Laplace(0 * scale, scale), width=[[1.0]]),
        ValueError, r"law that takes \['width'\].*unexpected keyword"),
    "law of no distribution": (lambda: from_law(lambda scale: scale, scale=[[1.0]]),
        TypeError, r"returns a torch distribution; got"),
    "law of no rows": (lambda: from_law(lambda scale: Normal(0.0, scale.sum()), scale=[[1.0]]),
        ValueError, r"law over shape \(N, D\); got batch shape \(\)"),
    # not numbers, though numpy would take some of them for such
    "true": (lambda: observe(True), TypeError, r"numbers as noise; got True"),
    "booleans": (lambda: observe(W > 0), TypeError, r"numbers in noise; got booleans"),
    "a dict": (lambda: observe({"x": 1.0}), TypeError, r"numbers in noise; got dict"),
    "a generator": (lambda: observe(x for x in W), TypeError, r"numbers in noise; got generator"),
    "fields": (lambda: observe(FIELDS), TypeError, r"plain array.*noise.*fields a, b"),
    "mixture of a number": (lambda: gaussian_mixture(np.ones((4, 2)), 0.0, np.ones(2)),
        ValueError, r"means \(J, D\).*got \(4, 2\), \(\) and \(2,\)"),
    "masked where a value is": (lambda: observe(masked(np.ones((N, D)), (4, 0))),
        ValueError, r"finite.*noise.*nan at row 4, column 0"),
    "masked scale": (lambda: laplace(masked(np.ones((N, D)), (4, 0))),
        ValueError, r"scale.*nan at row 4, column 0"),
    "noise with no length": (lambda: len(gaussian(sd=[1.0])), TypeError, r"any number of rows"),
}  # fmt: skip

BAD_OBSERVATIONS = {
    "one axis": (lambda: observe(w=W[:, 0]), ValueError, r"w of shape \(N, D\).*reshape\(-1, 1\)"),
    "three axes": (lambda: observe(w=W[None]), ValueError,
        r"w of shape \(N, D\); got \(1, 30, 2\)"),
    "no rows": (lambda: observe(w=W[:0]), ValueError, r"at least one row.*\(0, 2\)"),
    "no columns": (lambda: observe(w=W[:, :0]), ValueError, r"one column.*\(30, 0\)"),
    "infinite": (lambda: observe(w=with_value(W, (2, 1), np.inf)),
        ValueError, r"finite.*w.*row 2, column 1"),
    "empty row": (lambda: observe(w=with_value(W, 3, np.nan)),
        ValueError, r"at least one measured value.*row 3\. Drop"),
    "text": (lambda: observe(w=[["1.0", "n/a"]]), ValueError, r"w; got.*n/a.*row 0, column 1.*NaN"),
    "ragged": (lambda: observe(w=[[1.0, 2.0], [3.0]]), ValueError, r"rectangular.*w"),
    "complex": (lambda: observe(w=W + 1j), ValueError, r"[Cc]omplex.*w"),
    "sparse": (lambda: observe(w=sparse.csr_array(W)), TypeError, r"w as a dense.*toarray"),
    "objects": (lambda: observe(w=[[{}, 1.0]]), TypeError, r"numbers in w"),
    "booleans": (lambda: observe(w=W > 0), TypeError, r"numbers in w; got booleans"),
    "dates": (lambda: observe(w=np.ones((N, D), "M8[D]")), TypeError, r"w; got dates"),
    "times": (lambda: observe(w=np.ones((N, D), "m8[s]")), TypeError, r"w; got times"),
    "a date": (lambda: observe(w=[[1.0, date(2020, 1, 1)]]), TypeError,
        r"numbers in w; got date at row 0, column 1"),
    "a boolean": (lambda: observe(w=np.array([[1.0, True]], dtype=object)), TypeError,
        r"numbers in w; got bool at row 0, column 1"),
    "a boolean column": (lambda: observe(w=pd.DataFrame({"x": [1.0], "y": [True]})), TypeError,
        r"w; got booleans in column 1"),
    "fields": (lambda: observe(w=FIELDS), TypeError, r"plain array.*w.*fields a, b"),
    "a sparse tensor": (lambda: observe(w=torch.tensor(W).to_sparse()), TypeError,
        r"w as a dense array.*to_dense"),
    "cells of several values": (lambda: observe(w=CELLS), ValueError,
        r"rectangular.*w; got 2 values at row 0"),
    "all masked": (lambda: observe(w=masked(W, 3)), ValueError, r"only NaN or masked.*row 3"),
    "masked projection": (lambda: observe(projection=masked(np.ones((D, D)), (1, 0))),
        ValueError, r"finite values in projection"),
    "masked weight": (lambda: observe(weights=masked(np.ones(N), 5)), ValueError,
        r"sample_weight.*nan in row 5"),
    "short weights": (lambda: observe(weights=np.ones(3)), ValueError,
        r"sample_weight of shape \(30,\); got \(3,\)"),
    "negative weight": (lambda: observe(weights=with_value(np.ones(N), 5, -1)),
        ValueError, r"sample_weight.*got -1 in row 5"),
    "NaN weight": (lambda: observe(weights=with_value(np.ones(N), 5, np.nan)),
        ValueError, r"sample_weight.*got nan in row 5"),
    "zero weights": (lambda: observe(weights=np.zeros(N)), ValueError, r"one positive weight"),
    "short groups": (lambda: observe(groups=[1, 2, 3]), ValueError,
        r"groups of shape \(30,\); got \(3,\)"),
    "groups in a table": (lambda: observe(groups=pd.DataFrame({"g": range(N)})), ValueError,
        r"groups of shape \(30,\); got \(30, 1\)"),
    "groups of another index": (
        lambda: observe(w=pd.DataFrame(W), groups=pd.Series(range(N), index=range(1, N + 1))),
        ValueError, r"groups with the index of w; got another"),
    "a NaN group": (lambda: observe(groups=with_value(np.arange(N), 5, np.nan)), ValueError,
        r"a label for every row in groups; got nan in row 5"),
    "no group": (lambda: observe(groups=["a"] * 7 + [None] * 23), ValueError,
        r"a label for every row in groups; got None in row 7"),
    "an NA group": (lambda: observe(groups=pd.Series([1, pd.NA] * 15, dtype="Int64")), ValueError,
        r"a label for every row in groups; got <NA> in row 1"),
    "a group that is no time": (lambda: observe(groups=pd.Series([pd.NaT] * N)), ValueError,
        r"a label for every row in groups; got NaT in row 0"),
    "a masked group": (lambda: observe(groups=masked(np.arange(N), 4)), ValueError,
        r"a label for every row in groups; got None in row 4"),
    "text as groups": (lambda: observe(groups="a" * N), TypeError, r"groups as a label.*got 'aaa"),
    "a number as groups": (lambda: observe(groups=3), TypeError, r"groups as a label.*got 3"),
    "groups by nothing": (lambda: observe(groups=np.array(3)), (TypeError, ValueError),
        r"Expected groups"),
    "groups without order": (lambda: observe(groups={*range(N)}), TypeError, r"groups as a label"),
    "groups that are lists": (lambda: observe(groups=[[1]] * N), TypeError,
        r"groups as one label for each row.*got list in row 0"),
    "one group to split": (lambda: observe(groups=[1] * N).split(0.1), ValueError,
        r"at least 2 groups.*got 1 group"),
    "projection of other rows": (lambda: observe(projection=np.ones((N - 1, D, 3))),
        ValueError, r"projection of shape \(30, 2, D\).*got \(29, 2, 3\)"),
    "projection of other width": (lambda: observe(projection=np.ones((3, 2))),
        ValueError, r"projection of shape \(30, 2, D\) or \(2, D\); got \(3, 2\)"),
    "NaN projection": (
        lambda: observe(projection=with_value(np.ones((N, D, 3)), (4, 1, 2), np.nan)),
        ValueError, r"finite values in projection.*row 4, column 1"),
    "missing under a joint law": (
        lambda: observe(gaussian_mixture([1.0], [[0, 0]], [np.eye(2)]),
            w=with_value(W, (0, 0), np.nan)),
        ValueError, r"independent, because w has missing values"),
    "split of everything": (lambda: observe().split(1.0), ValueError, r"enough rows.*got 30 rows"),
    "chunks of nothing": (lambda: list(observe().chunks(0)), ValueError, r"size.*got 0"),
}  # fmt: skip

BAD_PARAMETERS = {
    "flow": ({"flow": "glow"}, r"flow to be one of .*'maf'.*got 'glow'"),
    "objective": ({"objective": "mle"}, r"objective to be one of .*'elbo'.*got 'mle'"),
    "device": ({"device": "tpu"}, r"device to be 'cpu', 'cuda', 'cuda:0' or 'auto'; got 'tpu'"),
    "no device": ({"device": None}, r"device to be .*got None"),
    "n_draws": ({"n_draws": 0}, r"n_draws as a whole .* 1; got 0"),
    "broken n_draws": ({"n_draws": 2.5}, r"n_draws.*got 2\.5"),
    "n_layers": ({"n_layers": 0}, r"n_layers as a whole .* 1; got 0"),
    "hidden": ({"hidden": -8}, r"hidden as a whole .* 1; got -8"),
    "hidden as text": ({"hidden": "8"}, r"hidden.*got '8'"),
    "base_components": ({"base_components": 0}, r"base_components as a whole .* 1; got 0"),
    "base of the mixture flow": ({"base_components": 3}, r"base_components=1 for the mixture"),
    "validation_fraction": ({"validation_fraction": 1.0},
        r"validation_fraction in \[0, 1\); got 1"),
    "epochs": ({"epochs": 0}, r"epochs as a whole .* 1; got 0"),
    "broken epochs": ({"epochs": 1.5}, r"epochs.*got 1\.5"),
    "batch_size": ({"batch_size": -1}, r"batch_size as a whole .* 1; got -1"),
    "broken batch_size": ({"batch_size": 2.5}, r"batch_size.*got 2\.5"),
    "learning_rate": ({"learning_rate": 0.0}, r"learning_rate in \(0, inf\); got 0"),
    "NaN learning_rate": ({"learning_rate": float("nan")}, r"learning_rate in \(0, inf\); got nan"),
}  # fmt: skip

BAD_TRAINING = {
    **{name: BAD_PARAMETERS[name] for name in (
        "epochs", "broken epochs", "batch_size", "broken batch_size", "learning_rate",
    )},
    "schedule": ({"schedule": "step"}, r"schedule to be one of .*'cosine'.*got 'step'"),
    "averaging": ({"averaging": 1.0}, r"averaging in \[0, 1\); got 1"),
    "clip_norm": ({"clip_norm": -1.0}, r"clip_norm.*got -1"),
    "zero clip_norm": ({"clip_norm": 0.0}, r"clip_norm.*got 0"),
    "weight_decay": ({"weight_decay": -1.0}, r"weight_decay.*-1"),
    "patience": ({"patience": 0}, r"patience.*got 0"),
    "plateau_factor": ({"plateau_factor": 2.0, "schedule": "plateau"}, r"plateau_factor.*got 2"),
    "plateau_patience": ({"plateau_patience": -1, "schedule": "plateau"},
        r"plateau_patience.*got -1"),
}  # fmt: skip

BAD_CALLS = {
    "fit: one row": (lambda m: fit(W[:1]), ValueError, r"at least 2 rows.*n_samples = 1"),
    "fit: unseen column": (lambda m: fit(np.where([True, False], W, np.nan)),
        ValueError, r"every dimension to be measured.*column 1\. Drop it"),
    "fit: too few rows to hold out": (lambda m: fit(W[:3], validation_fraction=0.9),
        ValueError, r"enough rows in w to hold out 0\.9 of them; got 3"),
    "fit: no rows": (lambda m: fit(W[:0]), ValueError, r"one column in w; got 0 sample"),
    "fit: no columns": (lambda m: fit(W[:, :0]), ValueError, r"column in w; got 0 feature"),
    "fit: one axis": (lambda m: fit(W[:, 0]), ValueError, r"w of shape.*got \(30,\).*Reshape"),
    "fit: a column twice": (lambda m: fit(pd.DataFrame(W, columns=[0, 0])),
        ValueError, r"each column once in w; got 0 twice"),
    "fit: a number as checkpoint": (lambda m: fit(checkpoint=3), TypeError, r"checkpoint.*got 3"),
    "fit: a checkpoint's name that is too long": (lambda m: fit(checkpoint="x" * 300),
        ValueError, r"checkpoint.*got 'xx.*: File name too long"),
    "save: nowhere": (lambda m: m.save(""), TypeError, r"path as.*got ''"),
    "save: no text": (lambda m: m.save("\0"), ValueError, r"path as.*got.*null byte"),
    "load: None": (lambda m: FlowDeconvolver.load(None), TypeError, r"path as.*got None"),
    "load: bytes": (lambda m: FlowDeconvolver.load(b"x"), TypeError, r"path as.*got b'x'"),
    "score: other names": (lambda m: XDGMM(1).fit(pd.DataFrame(W, columns=["a", "b"]), noise=0.1)
        .score(pd.DataFrame(W, columns=["a", "c"]), noise=0.1),
        ValueError, r"Expected w with the columns.*feature names should match"),
    "posterior: no such row": (lambda m: answers()[99], IndexError, r"rows between 0 and 29"),
    "posterior: two indices": (lambda m: answers()[0, 0], TypeError, r"rows as.*got \(0, 0\)"),
    "posterior: shares": (lambda m: answers().to_frame([0.5, "a"]), ValueError, r"numbers in q"),
    "posterior: bounds": (lambda m: answers().probability(1.0, 0.0),
        ValueError, r"lower bounds of at most the upper ones; got 1\.0 and 0\.0"),
    "posterior: no bound": (lambda m: answers().probability(upper=np.nan),
        ValueError, r"upper as a number.*got nan"),
    "fit: several tolerances": (lambda m: XDGMM(tol=[1.0]).fit(W, noise=0.1),
        ValueError, r"tol in \[0, inf\); got \[1\.0\]"),
    "mixture: rows": (lambda m: NORMAL[0],
        TypeError, r"mixture per row to take rows of; got a single"),
    "mixture: quantile": (lambda m: NORMAL.quantile(1.0), ValueError, r"share in \(0, 1\); got 1"),
    "mixture: sample": (lambda m: NORMAL.sample(2.5), ValueError, r"n as a whole.*got 2\.5"),
    "mixture: seed": (lambda m: NORMAL.sample(2, -1), ValueError, r"random_state.*got -1"),
    "mixture: marginal": (lambda m: NORMAL.marginal([7]), ValueError, r"dimensions.*0 and 1; got"),
    "mixture: NaN": (lambda m: NORMAL.log_prob([[0.0, np.nan]]), ValueError, r"in v; got NaN"),
    "mixture: width": (lambda m: NORMAL.log_prob(np.zeros((3, 5))),
        ValueError, r"v of shape \(\.\.\., 2,?\); got \(3, 5\)"),
    "mixture: far": (lambda m: NORMAL.log_prob([[0.0, 1e200]]), ValueError, r"v of at most"),
    "fit: text": (lambda m: fit([["a", "b"]] * 3), ValueError, r"numbers in w; got.*a.*row 0"),
    "fit: bad noise": (lambda m: fit(noise=with_value(np.ones((N, D)), (3, 1), -1)),
        ValueError, r"got -1 at row 3, column 1"),
    "fit: weights": (lambda m: fit(sample_weight=[1.0]), ValueError,
        r"sample_weight of shape \(30,\)"),
    "fit: groups": (lambda m: XDGMM(1).fit(W, noise=0.1, groups=[1.0]), ValueError,
        r"groups of shape \(30,\)"),
    "fit: one group": (lambda m: fit(groups=[1] * N, validation_fraction=0.2), ValueError,
        r"at least 2 groups.*got 1 group"),
    "fit: bounded noise with missing values": (
        lambda m: fit(with_value(W, (0, 0), np.nan), noise=uniform([1.0, 1.0])),
        ValueError, r"complete rows.*bounded support"),
    "score: other width": (lambda m: m.score(np.ones((3, 3)), noise=0.1),
        ValueError, r"3 features, but FlowDeconvolver is expecting 2"),
    "score: no draws": (lambda m: m.score(W, noise=0.1, n_samples=0),
        ValueError, r"at least (one draw|1).*got 0"),
    "score: another kind of law": (lambda m: m.score(W, noise=laplace([0.1, 0.1])),
        ValueError, r"as in training.*noise law"),
    "score: another truth": (lambda m: m.score(W, noise=0.1, projection=np.ones((2, 3))),
        ValueError, r"true values of 2 dimensions, as in fit; got a projection from 3"),
    "score_samples: NaN": (lambda m: m.score_samples(with_value(W, (4, 1), np.nan)),
        ValueError, r"finite values in v.*row 4, column 1"),
    "score_samples: other width": (lambda m: m.score_samples(np.ones((3, 3))),
        ValueError, r"3 features.*expecting 2"),
    "score_samples: text": (lambda m: m.score_samples([["a", "b"]]), ValueError,
        r"numbers in v; got.*a.*row 0, column 0"),
    "sample: none": (lambda m: m.sample(0), ValueError, r"n_samples as a whole .* 1; got 0"),
    "sample: broken": (lambda m: m.sample(2.5), (TypeError, ValueError), r"n_samples.*2\.5"),
    "posterior: no samples": (lambda m: m.posterior(W, noise=0.1, n_samples=0),
        ValueError, r"n_samples.*at least 1; got 0"),
    "posterior: no proposals": (lambda m: m.posterior(W, noise=0.1, n_proposals=0),
        ValueError, r"at least (one draw|1).*got 0"),
    "sample: None": (lambda m: m.sample(None), ValueError, r"n_samples.*got None"),
    "sample: a list": (lambda m: m.sample([3]), ValueError, r"n_samples.*got \[3\]"),
    "sample: true": (lambda m: m.sample(True), ValueError, r"n_samples.*got True"),
    "density: no samples": (lambda m: m.density_.sample(0), ValueError, r"n as a whole.*got 0"),
    "posterior: no draws": (lambda m: m.posterior(W, noise=0.1, n_proposals=50).sample(0),
        ValueError, r"n_samples.*got 0"),
    "fit: weight": (lambda m: fit(sample_weight=-np.ones(N)), ValueError, r"sample_weight.*got -1"),
    "fit: ragged": (lambda m: fit([[1.0], [1.0, 2.0]]), ValueError, r"rectangular.*w"),
    "fit: objects": (lambda m: fit([[{}, 1.0]] * 3), TypeError, r"numbers in w; got dict at row 0"),
    "score: no noise": (lambda m: m.score(W), ValueError,
        r"noise, because .*; got none\..*deconflow\.observe"),
    "score_samples: masked": (lambda m: m.score_samples(masked(W, (4, 1))),
        ValueError, r"finite values in v.*row 4, column 1"),
    "condition: nothing known": (lambda m: m.condition([[1.0], [np.nan]], [0]),
        ValueError, r"measured value in every row of w; .*row 1"),
    "regress: itself": (lambda m: m.regress(0, on=[0]), ValueError, "not the target; got 'v0'"),
    "regress: nothing": (lambda m: m.regress(0, on=[]), ValueError, r"columns in on; got \[\]"),
    "regress: a name": (lambda m: m.regress("z", on=0), ValueError, "target among.*got 'z'"),
    "regress: one refit": (lambda m: m.regress(1, on=0, n_refits=1), ValueError, "n_refits"),
    "regress: no w": (lambda m: m.regress(1, on=0, noise=0.1), ValueError, "w with noise; got"),
    "not fitted: sample": (lambda m: FlowDeconvolver().sample(), NotFittedError, "not fitted"),
    "not fitted: score": (lambda m: FlowDeconvolver().score(W, noise=0.1),
        NotFittedError, "not fitted"),
    "not fitted: posterior": (lambda m: FlowDeconvolver().posterior(W, noise=0.1),
        NotFittedError, "not fitted"),
    "not fitted: save": (lambda m: FlowDeconvolver().save("nowhere"), NotFittedError, "not fitted"),
}  # fmt: skip

SEEDS = [-1, 2**33, "x", np.random.default_rng(0), True, 1.5]
SEEDED = {
    "fit": lambda m, seed: fit(random_state=seed),
    "sample": lambda m, seed: m.sample(2, random_state=seed),
    "score": lambda m, seed: m.score_observations(W, 0.1, random_state=seed),
    "p_values": lambda m, seed: m.p_values(W, 0.1, random_state=seed),
    "posterior": lambda m, seed: m.posterior(W, 0.1, random_state=seed),
    "condition": lambda m, seed: m.condition([[1.0]], [0], random_state=seed),
    "regress": lambda m, seed: m.regress(1, on=0, random_state=seed),
    "marginal": lambda m, seed: m.density_.marginal([0]).sample(2, random_state=seed),
}

BAD_ROWS = [*BAD_NOISE.values(), *BAD_OBSERVATIONS.values()]


@pytest.mark.parametrize("case", BAD_ROWS, ids=[*BAD_NOISE, *BAD_OBSERVATIONS])
def test_bad_rows(case):
    check(*case)


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters_are_stored_and_refused_by_fit(name):
    parameters, message = BAD_PARAMETERS[name]
    stored = FlowDeconvolver(**parameters).get_params()
    assert all(stored[key] is value for key, value in parameters.items())
    check(lambda: fit(**parameters), (TypeError, ValueError), message)


@pytest.mark.parametrize("name", BAD_TRAINING)
def test_bad_training(name):
    parameters, message = BAD_TRAINING[name]
    check(lambda: Training(**parameters), (TypeError, ValueError), message)


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name, model):
    call, kind, message = BAD_CALLS[name]
    check(lambda: call(model), kind, message)


@pytest.mark.parametrize("seed", SEEDS, ids=str)
@pytest.mark.parametrize("name", SEEDED)
def test_bad_seeds(name, seed, model):
    check(lambda: SEEDED[name](model, seed), ValueError, r"random_state as None, a whole number")


def test_numbers_of_other_kinds_are_taken():
    wanted = observe(np.full((N, D), 0.5)).noise.factor
    found = observe(torch.full((N, D), 0.5, dtype=torch.bfloat16)).noise.factor
    assert np.array_equal(found, wanted)
    assert observe(w=[["1.5", None], [Decimal(2), b"3"]]).measured()[1].tolist() == [2.0, 3.0]
    frame = pd.DataFrame({"x": pd.array([1, None], dtype="Int64"), "y": [1.0, 2.0]})
    assert np.isnan(observe(w=frame).measured()[1, 0])


# -- saved models -------------------------------------------------------------------------------


def test_saving_over_something_else_is_refused(model, tmp_path):
    file = tmp_path / "thesis.tex"
    file.write_text("years of work")
    check(lambda: model.save(file), FileExistsError, r"Choose another path")
    assert file.read_text() == "years of work"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "photo").write_text("")
    check(lambda: model.save(folder), FileExistsError, r"Choose another path")
    assert (folder / "photo").exists()


# -- calls that look odd and are good -----------------------------------------------------------


def test_a_single_number_is_no_table():
    model = XDGMM(1, random_state=0).fit(np.arange(9.0)[:, None], noise=0.5)
    with pytest.raises(ValueError, match=r"Expected v of shape \(N, 1\); got \(\)"):
        model.score_samples(np.float64(2.0))
    with pytest.raises(ValueError, match=r"Expected w of shape \(N, D\); got \(\)"):
        XDGMM(1).fit(np.float64(2.0), noise=0.5, sample_weight=np.ones(9))
