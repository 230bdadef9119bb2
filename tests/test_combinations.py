"""Every estimator with every fact about its rows: finite answers of the right shape, or a refusal.

The tables of refusals are complete: what they do not name must work.
"""

import inspect
import pickle
import re
from functools import cache, partial
from itertools import combinations, permutations
from operator import attrgetter

import numpy as np
import pytest
from scipy import stats

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
    """Return for each fact its rows, noise, other facts of rows, and settings."""
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
        "counts": {"w": np.round(3 * w), "noise": noise.poisson()},
        "learned": {"noise": noise.gaussian(sd=sd, scale="fit")},
        "missing": {"w": holes},
        "limits": {"rows": {"limits": np.where(w < 1.0, -1, np.where(w > 3.0, 1, 0))}},
        "projection": {"rows": {"projection": 0.1 * rng.normal(size=(N, dim, dim)) + np.eye(dim)}},
        "covariates": {"rows": {"given": rng.normal(size=N)}},
        "weights": {"rows": {"sample_weight": rng.uniform(0.5, 2.0, size=N)}},
        "groups": {"rows": {"groups": np.arange(N) // 3}},
        "selection": {"rows": {"selection": "w0 > -1"}},
        "selected": {"rows": {"selection": chance, "selection_of": "truth"}},
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
    "self_test": {"limits", "covariates", "selection", "selected"},
    "band": {"covariates"},
    "predict_proba": {"counts", "covariates", "bounds", "atoms", "background"},
    "bic": {"counts", "covariates", "bounds", "atoms", "background"},
}


def p_values(certificate):
    return [each.p for each in certificate.findings if each.p is not None]


def means_of_chunks(chunks):
    return np.concatenate([part.mean for _, part in chunks])


#: Calls, numbers of their answers, and the shapes of these.
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
WITHOUT_ROWS = ("score_samples", "sample", "condition", "regress", "band", "statistics")
WHOLE = ("certify", "self_test")
#: Not of every estimator with every fact.
LONG = {"statistics", "self_test"}


class Case:
    """A fit to rows of which some facts are known."""

    def __init__(self, estimator, *known, dim=2):
        self.dim = 1 if estimator in ONE_COLUMN else dim
        parts = {"rows": {}, "settings": {}}
        for name in ("plain", *known):
            for key, value in facts(self.dim)[name].items():
                parts[key] = parts[key] | value if isinstance(value, dict) else value
        self.known, self.w = set(known), parts["w"]
        self.options = {"noise": parts["noise"]} | parts["rows"]
        model = getattr(deconflow, estimator)(**SETTINGS[estimator], **parts["settings"])
        self.model = model.fit(self.w, **self.options)

    def rows(self, n):
        """Return the first rows, with all that is known of them."""
        return {"w": self.w[:n]} | {key: first(value, n) for key, value in self.options.items()}

    def posterior(self, **more):
        """Return the posterior of some rows."""
        return self.model.posterior(**self.rows(ASKED), **more)

    def method(self, name):
        """Return what answers a question."""
        if name == "self_test":
            return partial(deconflow.self_test, self.model)
        return getattr(self.model.density_ if name == "band" else self.model, name)

    def ask(self, name):
        """Ask a question, about rows with all their facts where it is about rows."""
        more, read, _ = QUESTIONS[name]
        rows = N if name in WHOLE else ASKED
        if name == "score_samples":
            more = {"v": np.full((rows, self.dim), more["v"])}
        about = {} if name in WITHOUT_ROWS else self.rows(rows)
        return read(self.method(name)(**about, **more))

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
    names = set(QUESTIONS) - (set() if estimator == "XDGMM" else {"predict_proba", "bic"})
    names -= {"condition", "regress"} if case.dim == 1 else set()
    names -= set() if estimator in WITH_BANDS else {"band"}
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


@pytest.mark.parametrize("fact", ["covariates", "learned"])
def test_what_a_fit_had_is_asked_for_again(fact):
    """And what it had not is refused."""
    plain, case = Case("XDGMM"), Case("XDGMM", fact)
    plain.options, case.options = case.options, plain.options
    for each in (plain, case):
        for name in ("score_observations", "posterior", "p_values", "certify"):
            assert (words_of_refusal(each.ask, name) or "").startswith("Expected"), name


@pytest.mark.parametrize(
    ("fact", "questions"),
    [
        ("limits", ("score_observations", "posterior", "p_values", "certify")),
        ("selection", ("certify",)),
        ("selected", ("certify",)),
    ],
)
def test_limits_and_selections_are_asked_for_again(fact, questions):
    plain, case = Case("XDGMM"), Case("XDGMM", fact)
    case.options = plain.options
    for name in questions:
        assert (words_of_refusal(case.ask, name) or "").startswith("Expected"), name


def test_rows_may_be_said_to_have_no_limits(tmp_path):
    """By flags of zeros; and by the cells of a table, which would show them."""
    case = Case("XDGMM", "limits", dim=1)
    w, sd = 2.0 + case.w[:ASKED], case.options["noise"][:ASKED]
    zeros = np.zeros(w.shape, int)
    rows = deconflow.observe(w, sd, limits=zeros)
    expected = case.model.posterior(rows).mean
    np.testing.assert_array_equal(case.model.posterior(w, sd, limits=zeros).mean, expected)
    cells = "".join(f"{x!r},{e!r}\n" for x, e in np.c_[w, sd].tolist())
    (tmp_path / "rows.csv").write_text(f"w0,w0_err\n{cells}")
    stream = deconflow.open_rows(tmp_path / "rows.csv", ["w0"])
    found = means_of_chunks(case.model.posterior_in_chunks(stream))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# -- brute force in one column ------------------------------------------------------------------

GRID = np.linspace(-10, 40, 25_001)


def likelihood(case, w, v):
    """Return ``p(w | v)``, by scipy."""
    sd = facts(1)["plain"]["noise"][:ASKED]
    if "counts" in case.known:
        return stats.poisson.pmf(w, np.maximum(v, 0))
    if "student_t" in case.known:
        return stats.t(4, v, sd).pdf(w)
    if "limits" in case.known:
        side = case.options["limits"][:ASKED]
        beyond = stats.norm.cdf(side * (v - w) / sd)
        return np.where(side != 0, beyond, stats.norm(v, sd).pdf(w))
    return stats.norm(v, sd).pdf(w)


def densities(case):
    """Return the density of the rest on the grid, for each row."""
    model = case.model
    if "covariates" not in case.known:
        return np.exp(model.score_samples(GRID[:, None]))
    given = [model.density_.given(x) for x in case.options["given"][:ASKED]]
    return np.exp([density.log_prob(GRID[:, None]) for density in given])


FEW = ("plain", "student_t", "limits", "counts", "covariates", "bounds", "atoms")
INTEGRALS = [case for case in CASES if case[1] in FEW and case[1] not in REFUSED.get(case[0], ())]
INTEGRALS += [
    ("XDGMM", "student_t", "bounds"),
    ("XDGMM", "covariates", "atoms"),
    ("XDGMM", "limits", "atoms"),
    ("XDGMM", "bounds", "atoms"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", INTEGRALS, ids=" ".join)
def test_answers_are_integrals(case):
    """Of the model's own density, which may have an atom, and the likelihood of each row."""
    rough = 0.4 if case == ("FlowDeconvolver", "student_t") else 0.1
    case = Case(*case, dim=1)
    w = case.w[:ASKED]
    rest = densities(case) * likelihood(case, w, GRID)
    at = sum(case.model.atom_weights_) * likelihood(case, w, 1.0)[:, 0]
    total = np.trapezoid(rest, GRID) + at
    mean = (np.trapezoid(rest * GRID, GRID) + at) / total
    sd = np.sqrt((np.trapezoid(rest * GRID**2, GRID) + at) / total - mean**2)
    found = case.posterior(n_samples=1000, n_proposals=4000)
    exact = np.isinf(found.effective_sample_size).all()
    close = 1e-3 if exact else rough
    np.testing.assert_allclose(case.ask("score_observations"), np.log(total), atol=close)
    np.testing.assert_allclose((found.mean[:, 0] - mean) / sd, 0.0, atol=close)
    np.testing.assert_allclose(found.sd[:, 0], sd, rtol=close)
    assert np.abs((found.mean[:, 0] - np.roll(mean, 1)) / sd).max() > 2 * close  # the twin
    inside = (np.trapezoid(rest * ((GRID > 0.9) & (GRID < 2)), GRID) + at) / total
    np.testing.assert_allclose(found.probability(0.9, 2.0)[:, 0], inside, atol=0.08)
    below = np.cumsum(rest, 1) * (GRID[1] - GRID[0]) + at[:, None] * (GRID >= 1)
    for end, sign in ((5e-3, 1), (-5e-3, -1)):  # a step, where there is an atom
        place = np.searchsorted(GRID, found.quantile(0.3)[:, 0] + end)
        share = below[np.arange(ASKED), place] / total
        assert (sign * (share - 0.3) > -0.08).all()
    if "atoms" in case.known:
        np.testing.assert_allclose(found.probability_of_atoms[:, 0], at / total, atol=close)
