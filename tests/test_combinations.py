"""Every estimator with every fact about its rows: finite answers of the right shape, or a refusal.

The tables of refusals are complete: what they do not name must work.
"""

import inspect
import pickle
import re
from functools import cache
from itertools import combinations, permutations
from operator import attrgetter

import numpy as np
import pytest

import deconflow
from deconflow import noise

N, ASKED = 60, 6
SETTINGS = {
    "XDGMM": {"n_components": 1, "random_state": 0},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 9, "random_state": 0, "n_jobs": 1},
    "LogSplineDeconvolver": {},
    "DeconvolvingKDE": {},
    "WaveletDeconvolver": {},
    "FlowDeconvolver": {"epochs": 1, "hidden": 8, "n_layers": 1, "n_draws": 2, "random_state": 0},
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
}
ONE_COLUMN = ("WaveletDeconvolver", "Deconvolver", "BayesianXDGMM")
WITH_BANDS = ("BayesianXDGMM", "LogSplineDeconvolver", "Deconvolver")


def chance(points):
    return 0.2 + 0.8 / (1 + np.exp(-points[:, 0]))


@cache
def facts(dim):
    """Return for each fact its rows, noise, options of rows, options of fits, and settings."""
    rng = np.random.default_rng(0)
    v = 2.0 + 0.7 * rng.normal(size=(N, dim))
    v[::4] = 1.0
    sd = rng.uniform(0.2, 0.4, size=(N, dim))
    w = np.maximum(v + sd * rng.normal(size=v.shape), 0.1)
    w[-4:] = rng.uniform(0, 9, size=(4, dim))
    samples, of_samples = noise.from_samples(w[:, None] + 0.3 * rng.normal(size=(N, 30, dim)))
    means, of_means = noise.from_replicates(w[:, None] + 0.3 * rng.normal(size=(N, 3, dim)))
    holes = np.where(np.arange(N * dim).reshape(N, dim) % 9 == 0, np.nan, w)
    return {
        "plain": {"w": w, "noise": sd},
        "covariances": {"noise": sd[:, :, None] * sd[:, None] * (0.5 + 0.5 * np.eye(dim))},
        "student_t": {"noise": noise.student_t(sd, df=4.0)},
        "samples": {"w": samples, "noise": of_samples},
        "replicates": {"w": means, "noise": of_means},
        "counts": {"w": np.round(w), "noise": noise.poisson()},
        "learned": {"noise": noise.gaussian(sd=sd, scale="fit")},
        "missing": {"w": holes},
        "limits": {"rows": {"limits": np.where(w < 1.0, -1, 0)}},
        "projection": {"rows": {"projection": 0.1 * rng.normal(size=(N, dim, dim)) + np.eye(dim)}},
        "covariates": {"rows": {"given": rng.normal(size=N)}},
        "weights": {"fit": {"sample_weight": rng.uniform(0.5, 2.0, size=N)}},
        "groups": {"fit": {"groups": np.arange(N) // 3}},
        "selection": {"fit": {"selection": "w0 > -1"}},
        "selected": {"fit": {"selection": chance, "selection_of": "truth"}},
        "bounds": {"settings": {"bounds": [(0, None)] * dim}},
        "atoms": {"settings": {"atoms": np.full((1, dim), 1.0)}},
        "background": {"settings": {"background": "uniform"}},
    }


SPLINES = {"counts", "limits", "projection", "covariates"}
REFUSED = {
    "LogSplineDeconvolver": SPLINES,
    "DeconvolvingKDE": SPLINES | {"missing"},
    "WaveletDeconvolver": SPLINES,
}
NOT_TOGETHER = {
    "limits": "covariances student_t samples replicates counts learned missing covariates "
    "selection selected bounds background",
    "selection": "counts learned missing projection covariates atoms background",
    "selected": "counts learned missing projection covariates atoms background",
    "projection": "counts learned covariates",
    "covariates": "counts bounds",
    "background": "counts",
}
UNANSWERED = {
    "condition": {"covariates"},
    "self_test": {"covariates", "selection", "selected"},
    "band": {"covariates"},
    "predict_proba": {"counts", "covariates", "bounds", "atoms", "background"},
    "bic": {"counts", "covariates", "bounds", "atoms", "background"},
}


def p_values(certificate):
    return [each.p for each in certificate.findings if each.p is not None]


def means_of_chunks(chunks):
    return np.concatenate([part.mean for _, part in chunks])


QUESTIONS = {
    "score_samples": ({"v": 1.5}, np.asarray, ("rows",)),
    "score_observations": ({}, np.asarray, ("rows",)),
    "score": ({}, np.asarray, ()),
    "p_values": ({"n_draws": 9}, np.asarray, ("rows",)),
    "posterior": ({"n_proposals": 50}, attrgetter("mean"), ("rows", "columns")),
    "posterior_in_chunks": ({"chunk": 4}, means_of_chunks, ("rows", "columns")),
    "sample": ({"n_samples": ASKED}, np.asarray, ("rows", "columns")),
    "condition": ({"values": [[1.0]], "columns": [0]}, attrgetter("mean"), (1, 1)),
    "regress": ({"target": 1, "on": 0}, attrgetter("slope"), (1,)),
    "band": ({"column": 0}, attrgetter("upper"), (200,)),
    "statistics": ({}, attrgetter("truth.mean"), ("columns",)),
    "certify": ({}, p_values, None),
    "self_test": ({"n_tables": 1}, attrgetter("excess"), None),
    "predict_proba": ({}, attrgetter("T"), (1, "rows")),
    "bic": ({}, np.asarray, ()),
}
"""Calls, numbers of their answers, and the shapes of these."""
WHOLE = ("certify", "self_test")
LONG = {"statistics", "self_test"}
"""Not of every estimator with every fact."""


class Case:
    """A fit to rows of which some facts are known."""

    def __init__(self, estimator, *known):
        self.dim = 1 if estimator in ONE_COLUMN else 2
        parts = {"rows": {}, "fit": {}, "settings": {}}
        for name in ("plain", *known):
            for key, value in facts(self.dim)[name].items():
                parts[key] = parts[key] | value if isinstance(value, dict) else value
        self.known, self.w, self.of_fit = set(known), parts["w"], parts["fit"]
        self.options = {"noise": parts["noise"]} | parts["rows"]
        model = getattr(deconflow, estimator)(**SETTINGS[estimator], **parts["settings"])
        self.model = model.fit(self.w, **self.options, **self.of_fit)

    def ask(self, name):
        """Call a method with those options of the rows that its signature has."""
        more, read, _ = QUESTIONS[name]
        method, rows = getattr(self.model, name), N if name in WHOLE else ASKED
        taken = inspect.signature(method).parameters
        known = {"w": self.w} | self.options | (self.of_fit if name in WHOLE else {})
        options = {key: first(value, rows) for key, value in known.items() if key in taken}
        if name == "score_samples":
            more = {"v": np.full((rows, self.dim), more["v"])}
        if name in ("condition", "regress", "statistics"):
            options = {}
        return read(method(**options, **more))

    def shape(self, name):
        """Return the shape of an answer, None where it differs."""
        sizes = {"rows": ASKED, "columns": self.dim}
        wanted = QUESTIONS[name][2]
        return None if wanted is None else tuple(sizes.get(n, n) for n in wanted)


def first(value, rows):
    """Take some rows of an option, unless it is the same for all."""
    same = isinstance(value, noise.Reading) or getattr(value, "shared", callable(value))
    return value if same or isinstance(value, str) else value[:rows]


def words_of_refusal(call, *arguments):
    """Return what a refusal says, None if there is an answer."""
    try:
        call(*arguments)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


CASES = [
    (estimator, fact)
    for estimator in SETTINGS
    for fact in facts(1)
    if not (fact == "missing" and estimator in ONE_COLUMN)
    and facts(1)[fact].get("settings", {}).keys()
    <= inspect.signature(getattr(deconflow, estimator)).parameters.keys()
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "fact"), CASES)
def test_a_fact_is_taken_or_refused(estimator, fact, tmp_path):
    if fact in REFUSED.get(estimator, ()):
        assert re.match("Expected .*; got ", words_of_refusal(Case, estimator, fact))
        return
    case = Case(estimator, fact)
    for name in asked(case, estimator, fact):
        if fact in UNANSWERED.get(name, ()):
            assert (words_of_refusal(case.ask, name) or "").startswith("Expected"), name
            continue
        answer = np.asarray(case.ask(name), dtype=float)
        assert np.isfinite(answer).all(), name
        assert case.shape(name) in (None, answer.shape), name
    case.model.save(tmp_path / "model")
    expected = case.ask("posterior")
    for again in (deconflow.load(tmp_path / "model"), pickle.loads(pickle.dumps(case.model))):
        assert again.known_ == case.model.known_
        assert again.describe() == case.model.describe()
        case.model = again
        np.testing.assert_array_equal(case.ask("posterior"), expected)


def asked(case, estimator, fact):
    """Return names of the questions that an estimator is asked."""
    names = {name for name in QUESTIONS if hasattr(case.model, name)}
    if case.dim == 1:
        names -= {"condition", "regress"}
    if estimator not in WITH_BANDS:
        names -= {"band"}
    return names if estimator == "XDGMM" or fact == "plain" else names - LONG


PAIRS = [
    pair
    for pair in combinations(list(facts(2))[1:], 2)
    if not set.intersection(*({"w", "noise"} & facts(2)[name].keys() for name in pair))
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_facts_go_together_or_are_refused(pair):
    if any(other in NOT_TOGETHER.get(one, "").split() for one, other in permutations(pair)):
        assert re.match("Expected .*; got ", words_of_refusal(Case, "XDGMM", *pair))
        return
    case = Case("XDGMM", *pair)
    for name in ("score_observations", "posterior", "p_values", "sample"):
        assert np.isfinite(case.ask(name)).all(), name
