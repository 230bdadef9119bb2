"""Cases of the golden tests in which more is known than measurements with usual noise.

Each fact goes through a mixture, most of them through a quick ``Deconvolver`` as well, and some
through other estimators. Everything comes from ``RandomState``.
"""

import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from comparing import differences
from golden_cases import ASKED, DRAWN, FLOW, TIGHT

import deconflow
from deconflow import noise

N = 150
SD = 0.4


@dataclass(frozen=True)
class Table:
    """Rows with what else is known of them; ``on_disk``, they come from a file.

    ``rows`` are options that questions about rows need again, ``fit`` those that only a fit takes,
    ``settings`` those of the estimator.
    """

    w: Any
    noise: Any
    rows: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    on_disk: bool = False

    def fit_to(self, model):
        """Fit an estimator to all rows."""
        if not self.on_disk:
            return model.fit(self.w, noise=self.noise, **self.rows, **self.fit)
        names = [f"w{d}" for d in range(self.w.shape[1])]
        columns = dict(zip(names, self.w.T, strict=True))
        columns |= {f"{name}_err": sd for name, sd in zip(names, self.noise.T, strict=True)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            pq.write_table(pa.table(columns), path)
            return model.fit(deconflow.open_rows(path, names))

    def some(self, n):
        """Return measurements of the first rows, and the options that go with them."""
        options = {"noise": self.noise} | self.rows
        return self.w[:n], {key: _first(value, n) for key, value in options.items()}


def _first(value, n):
    one_for_all = isinstance(value, noise.Reading) or getattr(value, "shared", False)
    return value if one_for_all else value[:n]


def _random(seed, nudged):
    """Return a source of numbers, and what makes measurements one bit larger if that is wanted."""
    return np.random.RandomState(seed), lambda w: np.nextafter(w, np.inf) if nudged else w


def _clumps(rng, dim=2):
    """Draw true values of two clumps."""
    first = rng.uniform(size=(N, 1)) < 0.6
    centres = np.where(first, [[-1.0, 0.5]], [[2.0, -1.0]])
    spread = np.where(first, [[0.6, 0.9]], [[0.8, 0.5]])
    return (centres + spread * rng.normal(size=(N, 2)))[:, :dim]


def _errors(rng, shape):
    return rng.uniform(0.2, 0.6, size=shape)


def plain(nudged, dim=2):
    """Measurements with usual noise."""
    rng, nudge = _random(1, nudged)
    v = _clumps(rng, dim)
    sd = _errors(rng, v.shape)
    return Table(nudge(v + sd * rng.normal(size=v.shape)), sd)


def one_column(nudged):
    """Measurements of one column."""
    return plain(nudged, 1)


def missing(nudged):
    """Values of which a quarter was not measured."""
    table = plain(nudged)
    rng = np.random.RandomState(2)
    gone = rng.uniform(size=N) < 0.4
    w = table.w.copy()
    w[gone, rng.randint(2, size=gone.sum())] = np.nan
    return replace(table, w=w)


def weighted(nudged):
    """Rows that count differently."""
    weights = np.random.RandomState(3).uniform(0.2, 2.0, size=N)
    return replace(plain(nudged), fit={"sample_weight": weights})


def student_t(nudged):
    """Noise with heavy tails."""
    table = plain(nudged)
    return replace(table, noise=noise.student_t(0.8 * table.noise, df=4.0))


def limits(nudged, dim=1):
    """Values below a limit, and above another, in whose place the limit stands."""
    table = plain(nudged, dim)
    low, high = -1.2, 2.5
    flags = np.where(table.w < low, -1, np.where(table.w > high, 1, 0))
    w = np.clip(table.w, low, high)
    return replace(table, w=w, rows={"limits": flags})


def limits_two_columns(nudged):
    """The same in two columns."""
    return limits(nudged, 2)


def samples(nudged):
    """Rows known by draws of a Gaussian posterior."""
    rng, nudge = _random(4, nudged)
    v = _clumps(rng)
    sd = _errors(rng, v.shape)
    w = v + sd * rng.normal(size=v.shape)
    draws = nudge(w[:, None] + sd[:, None] * rng.normal(size=(N, 40, 2)))
    w, law = noise.from_samples(draws)
    return Table(w, law)


def samples_skew(nudged):
    """Rows known by draws of a skew posterior, which takes a mixture."""
    rng, nudge = _random(5, nudged)
    v = _clumps(rng, 1)
    draws = v[:, None] + SD * (rng.gamma(1.5, size=(N, 200, 1)) - 1.5)
    w, law = noise.from_samples(nudge(draws))
    return Table(w, law)


def _replicates(nudged, how, dim):
    rng, nudge = _random(6, nudged)
    v = _clumps(rng, dim)
    values = v[:, None] + SD * rng.normal(size=(N, 3, dim))
    w, law = noise.from_replicates(nudge(values), how)
    return Table(w, law)


def replicates(nudged):
    """Rows measured three times, with errors of one size."""
    return _replicates(nudged, "pooled", 2)


def replicates_by_row(nudged):
    """Rows measured three times, each with errors of its own size."""
    return _replicates(nudged, "rows", 1)


def counts(nudged):
    """Numbers of events."""
    del nudged  # counts are whole
    rng = np.random.RandomState(7)
    return Table(rng.poisson(rng.gamma(4.0, size=(N, 1))).astype(float), noise.poisson())


def learned_errors(nudged):
    """Errors that are all too small by one factor."""
    table = plain(nudged)
    return replace(table, noise=noise.gaussian(sd=0.7 * table.noise, scale="fit"))


def selection_measured(nudged):
    """Rows that were seen only where the measured value is large enough."""
    table = plain(nudged, 1)
    seen = table.w[:, 0] > -1.0
    return replace(
        table, w=table.w[seen], noise=table.noise[seen], fit={"selection": "w0 > -1"}
    )  # fmt: skip


def _chance(points):
    return 0.2 + 0.8 / (1 + np.exp(-points[:, 0]))


def selection_truth(nudged):
    """Rows that were seen with a chance that depends on the truth."""
    rng, nudge = _random(8, nudged)
    v = _clumps(rng, 1)
    v = v[rng.uniform(size=N) < _chance(v)]
    sd = _errors(rng, v.shape)
    fit = {"selection": _chance, "selection_of": "truth"}
    return Table(nudge(v + sd * rng.normal(size=v.shape)), sd, fit=fit)


def bounds(nudged):
    """A truth that cannot be negative."""
    rng, nudge = _random(9, nudged)
    v = np.abs(np.where(rng.uniform(size=(N, 1)) < 0.6, 0.5, 3.0) + 0.6 * rng.normal(size=(N, 1)))
    settings = {"bounds": [(0, None)]}
    return Table(nudge(v + SD * rng.normal(size=v.shape)), np.full(v.shape, SD), settings=settings)


def bounds_two_columns(nudged):
    """A truth between two bounds in one column, and free in another."""
    rng, nudge = _random(10, nudged)
    v = np.column_stack([rng.beta(1.0, 3.0, size=N), rng.normal(size=N)])
    settings = {"bounds": [(0, 1), (None, None)]}
    sd = np.column_stack([np.full(N, 0.1), np.full(N, SD)])
    return Table(nudge(v + sd * rng.normal(size=v.shape)), sd, settings=settings)


def atoms(nudged):
    """A truth that is exactly zero for some rows."""
    rng, nudge = _random(11, nudged)
    v = np.where(rng.uniform(size=(N, 1)) < 0.3, 0.0, 2.0 + rng.normal(size=(N, 1)))
    settings = {"atoms": [0.0]}
    return Table(nudge(v + SD * rng.normal(size=v.shape)), np.full(v.shape, SD), settings=settings)


def background(nudged):
    """Rows of which some are not of the population."""
    rng, nudge = _random(12, nudged)
    w = 2.0 + rng.normal(size=(N, 1)) + SD * rng.normal(size=(N, 1))
    lost = rng.uniform(size=N) < 0.15
    w[lost, 0] = rng.uniform(-15, 15, size=lost.sum())
    return Table(nudge(w), np.full(w.shape, SD), settings={"background": "uniform"})


def atoms_bounds_background(nudged):
    """All three together."""
    rng, nudge = _random(13, nudged)
    v = np.where(rng.uniform(size=(N, 1)) < 0.3, 0.0, rng.exponential(size=(N, 1)))
    w = v + SD * rng.normal(size=v.shape)
    lost = rng.uniform(size=N) < 0.1
    w[lost, 0] = rng.uniform(-12, 12, size=lost.sum())
    settings = {"bounds": [(0, None)], "atoms": [0.0], "background": "uniform"}
    return Table(nudge(w), np.full(w.shape, SD), settings=settings)


def covariates(nudged):
    """A truth whose location and width depend on what is known exactly.

    Under noise that is not Gaussian the curves are all that depends on it.
    """
    rng, nudge = _random(14, nudged)
    x = rng.uniform(-2, 2, size=N // 2)
    v = (np.sin(x) + np.exp(0.3 * x - 1) * rng.normal(size=len(x)))[:, None]
    w = nudge(v + rng.laplace(scale=0.2, size=v.shape))
    return Table(w, noise.laplace(np.full(v.shape, 0.2)), rows={"given": x[:, None]})


def stream(nudged):
    """Measurements that stay on disk."""
    return replace(plain(nudged), on_disk=True)


FACTS = {
    fact.__name__: fact
    for fact in (
        limits, limits_two_columns, samples, samples_skew, replicates, replicates_by_row, counts,
        learned_errors, selection_measured, selection_truth, bounds, bounds_two_columns, atoms,
        background, atoms_bounds_background, covariates,
    )
}  # fmt: skip
TABLES = FACTS | {
    table.__name__: table for table in (plain, one_column, missing, weighted, student_t, stream)
}
#: Facts that a mixture alone is asked about.
LONG = {"limits_two_columns", "samples_skew", "replicates_by_row", "bounds_two_columns"}

SETTINGS = {
    "XDGMM": {"n_components": 2} | TIGHT,
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 20, "random_state": 0, "n_jobs": 1},
    "LogSplineDeconvolver": {},
    "FlowDeconvolver": FLOW,
}
TOLERANCES = {"FlowDeconvolver": 1e-6}
#: A case that moves by more if its measurements are one bit larger says nothing elsewhere.
UNSTEADY = 1e-3


@dataclass(frozen=True)
class FactCase:
    """An estimator, and the table it is fitted to."""

    estimator: str
    table: str
    nudged: bool = False

    @property
    def tolerance(self):
        """Relative and absolute."""
        return TOLERANCES.get(self.estimator, 1e-10)

    def elsewhere(self, answers):
        """Return the tolerance on other processors: a hundred times what the last bit changes."""
        found = replace(self, nudged=True).answers()
        for tolerance in np.geomspace(1e-12, UNSTEADY, 10):
            if not differences(found, answers, tolerance):
                return max(self.tolerance, 100 * float(tolerance))
        return None

    @cached_property
    def rows(self):
        """The rows and what is known of them."""
        return TABLES[self.table](self.nudged)

    @cached_property
    def model(self):
        """The fitted estimator."""
        settings = SETTINGS[self.estimator] | self.rows.settings
        return self.rows.fit_to(getattr(deconflow, self.estimator)(**settings))

    def answers(self):
        """What the model learned and answers."""
        model, rows = self.model, self.rows
        w, options = rows.some(ASKED)
        posterior = model.posterior(w, **options)
        whole, all_options = rows.some(len(rows.w))
        points = np.linspace(0.1, 0.9, ASKED * w.shape[1]).reshape(ASKED, -1)
        found = {
            "score_samples": model.score_samples(points),
            "score_observations": model.score_observations(w, **options),
            "score": model.score(whole, **all_options),
            "mean": posterior.mean,
            "sd": posterior.sd,
            **_shares(model),
            **_learned(model),
        }
        if "given" in rows.rows:
            at = zip(rows.rows["given"], points, strict=False)
            found["score_samples_given"] = [
                float(model.density_.given(x).log_prob(v[None])[0]) for x, v in at
            ]
        if self.estimator != "FlowDeconvolver":
            found["sample"] = model.sample(DRAWN, random_state=0)
        if self.estimator == "XDGMM":
            figures = vars(model.statistics().truth).values()
            found["statistics"] = np.concatenate([np.ravel(each) for each in figures])
        return found


def _shares(model):
    """What is learned of parts, rows that were not seen, and errors."""
    found = {"seen_share_": model.seen_share_}
    if len(model.atom_weights_):
        found["atom_weights_"] = model.atom_weights_
    if model.background_share_:
        found["background_share_"] = model.background_share_
    if model.errors_ is not None:
        found["scale"] = model.errors_.scale
    return found


def _learned(model):
    """The mixture that an XDGMM has found; under bounds it would have mirror images."""
    if type(model).__name__ != "XDGMM" or model.bounds is not None:
        return {}
    (mix,) = model.mixtures_
    names = ("weights", "means", "covariances")
    return {f"{name}_": np.asarray(getattr(mix, name)) for name in names}


def _cases(estimator, tables):
    return {f"{estimator}-{name}": FactCase(estimator, name) for name in tables}


FACT_CASES = {
    **_cases("XDGMM", [*FACTS, "stream"]),
    **_cases("Deconvolver", [name for name in FACTS if name not in LONG]),
    **_cases(
        "BayesianXDGMM",
        ["plain", "one_column", "missing", "weighted", "student_t", "limits", "bounds", "atoms",
         "background", "selection_truth"],
    ),
    **_cases(
        "LogSplineDeconvolver",
        ["plain", "one_column", "missing", "weighted", "student_t", "bounds", "atoms",
         "background"],
    ),
    **_cases("FlowDeconvolver", ["limits", "bounds", "selection_truth", "stream"]),
}  # fmt: skip
