"""Cases of the golden tests: rows, kinds of noise, and which estimator takes which.

Everything comes from ``RandomState``, whose numbers numpy promises never to change.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import deconflow
from deconflow import XDGMM, noise
from deconflow.compat import extreme_deconvolution

#: Rows that are fitted; those that the recorded answers are about; draws of ``sample``.
N, ASKED, DRAWN = 200, 12, 4

SHIFTS = np.array([[-0.3, 0.1, 0.2], [0.3, -0.1, -0.2]])


def _full(sd):
    dim = sd.shape[1]
    correlation = 0.5 * np.eye(dim) + 0.5
    return sd[:, :, None] * sd[:, None, :] * correlation


def _mixture_law(sd):
    n, dim = sd.shape
    weights = np.tile([0.7, 0.3], (n, 1))
    means = np.tile(0.5 * SHIFTS[:, :dim], (n, 1, 1))
    covariances = _full(sd)[:, None] * np.array([0.5, 1.5])[:, None, None]
    return noise.gaussian_mixture(weights, means, covariances)


#: From standard deviations ``(n, D)`` to what users give as noise.
KINDS = {
    "shared": lambda sd: np.full(sd.shape[1], 0.3),
    "shared_full": lambda sd: _full(np.full((1, sd.shape[1]), 0.3))[0],
    "per_row": lambda sd: sd,
    "full": _full,
    "student_t": lambda sd: noise.student_t(0.8 * sd, df=4.0),
    "laplace": lambda sd: noise.laplace(sd / np.sqrt(2)),
    "uniform": lambda sd: noise.uniform(np.sqrt(3) * sd),
    "split_normal": lambda sd: noise.split_normal(0.7 * sd, 1.3 * sd),
    "gaussian_mixture": _mixture_law,
}


@dataclass(frozen=True)
class Rows:
    """Measurements of three clusters, or of an exponential law, and how they came about."""

    kind: str = "per_row"
    dim: int = 2
    missing: bool = False
    #: How many combinations of the true values a row measures; 0 for the values themselves.
    projected: int = 0
    weighted: bool = False
    truth: str = "clusters"
    n: int = N
    #: Whether every measurement is one bit larger: a case that minds is not for recording.
    nudged: bool = False

    @cached_property
    def parts(self):
        """True values, standard deviations, projection, measurements and weights."""
        if self.truth == "exponential":
            return _exponential(self.n)
        rng = np.random.RandomState(0)
        which = rng.choice(3, size=self.n, p=[0.5, 0.3, 0.2])
        centres = np.array([[-2.0, 0.0, 1.0], [1.5, 2.0, -1.0], [2.0, -2.5, 0.5]])
        spread = np.array([[0.8, 0.5, 0.7], [0.4, 0.9, 0.5], [0.6, 0.4, 0.8]])
        v = centres[which] + spread[which] * rng.normal(size=(self.n, 3))
        sd = rng.uniform(0.15, 0.5, size=(self.n, 3))
        projection = rng.normal(size=(self.n, 3, 3)) + 2 * np.eye(3)
        white = rng.normal(size=(self.n, 3))
        gone = rng.uniform(size=(self.n, 3)) < 0.25
        gone[np.arange(self.n), rng.randint(self.measured, size=self.n)] = False
        weights = rng.uniform(0.2, 2.0, size=self.n)
        v, seen = v[:, : self.dim], sd[:, : self.measured]
        projection = projection[:, : self.measured, : self.dim]
        centre = np.einsum("nmd,nd->nm", projection, v) if self.projected else v
        w = centre + seen * white[:, : self.measured]
        if self.missing:
            w[gone[:, : self.measured]] = np.nan
        if self.nudged:
            w = np.nextafter(w, np.inf)
        return v, seen, projection, w, weights

    @property
    def measured(self):
        """Number of measured values."""
        return self.projected or self.dim

    def given(self, rows=slice(None)):
        """Measurements of some rows, and the options that go with them."""
        _, sd, projection, w, _ = self.parts
        options = {"noise": KINDS[self.kind](sd[rows])}
        if self.projected:
            options["projection"] = projection[rows]
        return w[rows], options

    def points(self):
        """True values to ask for, the last of them far out."""
        v = self.parts[0]
        return np.concatenate([v[:ASKED], 1.5 * np.abs(v).max(0, keepdims=True)])

    def fit(self, model):
        """Fit an estimator to these rows."""
        w, options = self.given()
        if self.weighted:
            options |= weight_argument(model, self.parts[-1])
        return model.fit(w, **options)


def _exponential(n):
    """One column with an edge that mixtures blur: flows win by three standard errors."""
    rng = np.random.RandomState(1)
    v = rng.exponential(size=(n, 1))
    sd = 0.05 * rng.uniform(0.5, 1.5, size=(n, 1))
    return v, sd, None, v + sd * rng.normal(size=(n, 1)), None


def weight_argument(model, weights):
    """Row weights under the name that ``fit`` has for them."""
    return {"sample_weight": weights}


@dataclass(frozen=True)
class Case:
    """An estimator with settings, and the rows it is fitted to."""

    estimator: str
    rows: Rows
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-10

    @property
    def nudged(self):
        """The same case with measurements that are one bit larger."""
        return replace(self, rows=replace(self.rows, nudged=True))

    @cached_property
    def model(self):
        """The fitted estimator."""
        return self.rows.fit(getattr(deconflow, self.estimator)(**self.settings))


def ask(model, rows, *, drawn=True):
    """All that every estimator answers."""
    w, options = rows.given(slice(0, ASKED))
    whole, all_options = rows.given()
    posterior = model.posterior(w, **options)
    covariance = np.diagonal(posterior.covariance, axis1=1, axis2=2)
    assert np.allclose(posterior.sd**2, covariance, rtol=1e-6)
    answers = {
        "score_samples": model.score_samples(rows.points()),
        "score_observations": model.score_observations(w, **options),
        "score": model.score(whole, **all_options),
        "mean": posterior.mean,
        "sd": np.sqrt(covariance),
    }
    return answers | ({"sample": model.sample(DRAWN, random_state=0)} if drawn else {})


LEARNED = {
    "XDGMM": ("weights_", "means_", "covariances_", "lower_bound_", "converged_", "selection_"),
    "DeconvolvingKDE": ("bandwidth_", "relative_error_"),
    "WaveletDeconvolver": ("level_", "n_wavelets_", "relative_error_"),
    "FlowDeconvolver": (),
}


def answers(case):
    """What a case's model learned and answers."""
    model = case.model
    learned = {n: getattr(model, n) for n in LEARNED[case.estimator] if hasattr(model, n)}
    if "selection_" in learned:  # entropies are those of draws, which jump with the last bit
        learned["selection_"] = {k: v for k, v in model.selection_.items() if k != "entropy"}
    drawn = case.estimator != "FlowDeconvolver"
    return learned | ask(model, case.rows, drawn=drawn)


#: EM that stops far above rounding, so that the number of steps is the same on every machine.
TIGHT = {"floor": 0.1, "tol": 1e-9, "max_iter": 5000, "random_state": 0}

XD = {"n_components": 3} | TIGHT
XD_CASES = {f"kind_{kind}": (Rows(kind), XD) for kind in KINDS}
XD_CASES |= {
    "one_column": (Rows(dim=1), XD | {"n_components": 2}),
    "one_column_student_t": (Rows("student_t", dim=1), XD | {"n_components": 2}),
    "three_columns": (Rows(dim=3), XD),
    "three_columns_full": (Rows("full", dim=3), XD),
    "missing": (Rows(missing=True), XD),
    "missing_full": (Rows("full", dim=3, missing=True), XD),
    "missing_student_t": (Rows("student_t", missing=True), XD),
    "projected": (Rows(dim=3, projected=2), XD | {"method": "em"}),
    "projected_full": (Rows("full", dim=3, projected=2), XD | {"method": "em"}),
    "projected_laplace": (Rows("laplace", dim=3, projected=2), XD | {"method": "em"}),
    "projected_missing": (Rows(dim=3, projected=2, missing=True), XD | {"method": "em"}),
    "weighted": (Rows(weighted=True), XD),
    "weighted_missing_full": (Rows("full", missing=True, weighted=True), XD),
    "no_floor": (Rows(), XD | {"floor": 0.0}),
    "plain_em": (Rows(), XD | {"method": "em"}),
    "random_starts": (Rows(), XD | {"init": "random", "n_init": 3}),
    "minibatch": (
        Rows(),
        XD | {"method": {"minibatch": {"batch_size": 50, "epochs": 5}}, "tol": 0.0},
    ),
    "given_start": (
        Rows(),
        XD
        | {
            "init": {"means": np.array([[-2.0, 0.0], [1.5, 2.0], [2.0, -2.5]])},
            "fixed": {"means": True},
        },
    ),
}

KDE_CASES = {f"kind_{kind}": (Rows(kind, dim=1), {}) for kind in KINDS}
KDE_CASES |= {f"two_columns_{kind}": (Rows(kind), {}) for kind in ("per_row", "full", "laplace")}
KDE_CASES |= {
    "three_columns": (Rows("shared", dim=3), {"bandwidth": 0.6}),
    "weighted": (Rows(weighted=True), {}),
    "given_bandwidth": (Rows(dim=1), {"bandwidth": 0.3}),
}

WAVELET_CASES = {f"kind_{kind}": (Rows(kind, dim=1), {}) for kind in KINDS}
WAVELET_CASES |= {
    "weighted": (Rows(dim=1, weighted=True), {}),
    "level": (Rows(dim=1), {"level": 4}),
}

FLOW = {
    "epochs": 2, "hidden": 8, "batch_size": 64, "n_draws": 4, "random_state": 0,
}  # fmt: skip
FLOW_CASES = {f"kind_{kind}": (Rows(kind), FLOW) for kind in KINDS}
FLOW_CASES |= {
    "one_column": (Rows(dim=1), FLOW),
    "three_columns": (Rows("full", dim=3), FLOW),
    "missing": (Rows(missing=True), FLOW),
    "missing_student_t": (Rows("student_t", missing=True), FLOW),
    "projected": (Rows(dim=3, projected=2), FLOW),
    "weighted": (Rows(weighted=True), FLOW),
    **{f"flow_{name}": (Rows(), FLOW | {"flow": name}) for name in ("maf", "made", "spline")},
    "flow_coupling": (Rows(), FLOW | {"flow": "coupling", "base_components": 2}),
    **{
        f"objective_{name}": (Rows(), FLOW | {"objective": name})
        for name in ("elbo", "roulette", "coupled")
    },
    "exact_posterior": (
        Rows(),
        FLOW | {"flow": "gaussian_mixture", "base_components": 3, "posterior_family": "exact"},
    ),
    "mixture_posterior": (Rows(), FLOW | {"objective": "coupled", "posterior_family": "mixture"}),
    "no_validation": (Rows(), FLOW | {"validation_fraction": 0.0, "flow": "maf"}),
}

CASES = {
    f"{estimator}-{name}": Case(estimator, rows, settings, tolerance)
    for estimator, tolerance, cases in (
        ("XDGMM", 1e-10, XD_CASES),
        ("DeconvolvingKDE", 1e-10, KDE_CASES),
        ("WaveletDeconvolver", 1e-10, WAVELET_CASES),
        ("FlowDeconvolver", 1e-6, FLOW_CASES),
    )
    for name, (rows, settings) in cases.items()
}


def _xd_extras():
    """Closed forms that XDGMM alone has."""
    rows = Rows("full", dim=3)
    model = Case("XDGMM", rows, XD).model
    w, options = rows.given(slice(0, ASKED))
    known, noisy = (
        model.condition(w[:, [2, 0]], [2, 0]),
        model.condition(w[:, :1], [0], noise=[0.3]),
    )
    answers = {
        "condition_mean": known.mean, "condition_sd": known.sd,
        "noisy_condition_mean": noisy.mean, "noisy_condition_sd": noisy.sd,
        "marginal": model.density_.marginal([2, 0]).log_prob(rows.points()[:, [2, 0]]),
        "predict_proba": model.predict_proba(w, **options),
        "predict": model.predict(w, **options),
        "bic": model.bic(w, **options), "aic": model.aic(w, **options),
    }  # fmt: skip
    for kind in ("shared", "shared_full", "student_t", "gaussian_mixture"):
        law = one_law(kind, rows.dim)
        answers[f"convolve_{kind}"] = model.mixture_.convolve(law).log_prob(rows.points())
    return answers


def one_law(kind, dim):
    """Noise of one law for all rows."""
    sd = np.full(dim, 0.3)
    if kind == "student_t":
        return noise.student_t(sd, df=4.0)
    if kind == "gaussian_mixture":
        covariances = np.stack([0.05 * np.eye(dim), 0.2 * np.eye(dim)])
        return noise.gaussian_mixture([0.7, 0.3], SHIFTS[:, :dim], covariances)
    return KINDS[kind](sd[None])


def _bovy(rows, **options):
    """A run of the C library's function, with the start that it overwrites."""
    _, sd, projection, w, weights = rows.parts
    if rows.projected:
        options["projection"] = projection
    if rows.weighted:
        options["weight"] = np.log(weights) if options.get("logweight") else weights
    centres = np.array([[-2.0, 0.0, 1.0], [1.5, 2.0, -1.0], [2.0, -2.5, 0.5]])[:, : rows.dim]
    xamp, xmean, xcovar = np.full(3, 1 / 3), 0.5 * centres, np.stack([np.eye(rows.dim)] * 3)
    ycovar = KINDS["full"](sd) if rows.kind == "full" else sd**2
    value = extreme_deconvolution(w, ycovar, xamp, xmean, xcovar, **options)
    return {"value": value, "xamp": xamp, "xmean": xmean, "xcovar": xcovar}


EXTRAS = {
    "xd_closed_forms": _xd_extras,
    "bovy": lambda: _bovy(Rows()),
    "bovy_full": lambda: _bovy(Rows("full", dim=3)),
    "bovy_projected_weighted": lambda: _bovy(Rows(dim=3, projected=2, weighted=True)),
    "bovy_log_weights": lambda: _bovy(Rows(weighted=True), logweight=True),
    "bovy_regularised": lambda: _bovy(Rows(), w=0.05),
    "bovy_fixed": lambda: _bovy(Rows(), fixamp=True, fixmean=[True, False, False]),
    "bovy_split_merge": lambda: _bovy(Rows(), splitnmerge=3),
    "bovy_likelihood": lambda: _bovy(Rows(), likeonly=True),
}

AUTO = {"quick": True, "random_state": 0}
MIXTURES_WIN = Case(
    "Deconvolver", Rows("student_t", projected=2, weighted=True), AUTO, tolerance=1e-6
)
EXPONENTIAL = Rows(dim=1, truth="exponential", n=400)
#: A fit takes ten seconds, so there are two; questions of every kind are asked of a saved model.
FLOWS_WIN = Case("Deconvolver", Rows(dim=3), {"n_members": 1, "random_state": 0}, tolerance=1e-6)

#: A Deconvolver that chose mixtures.
SAVED = Path(__file__).parent / "golden" / "deconvolver"
QUESTIONS = {kind: Rows(kind) for kind in KINDS} | {
    "missing": Rows("full", missing=True),
    "projected": Rows("full", projected=2),
}


def density_answers(model, rows):
    """What a Deconvolver says of the density, and how it chose."""
    return {
        "weights_": model.weights_,
        "selection_": model.selection_,
        "score_samples": model.score_samples(rows.points()),
        "mixtures": model.candidates_["mixtures"].log_prob(rows.points()),
    }


def row_answers(model, rows):
    """What a model says of rows."""
    answers = ask(model, rows, drawn=False)
    return {name: answers[name] for name in ("score_observations", "score", "mean", "sd")}


def fitted_answers(case):
    """What a Deconvolver says of the density and of the rows that it was fitted to."""
    return density_answers(case.model, case.rows) | row_answers(case.model, case.rows)


def mixture_answers(case):
    """The same for one that chose mixtures, of the rows in closed form."""
    exact = row_answers(closed_form(case.model, case.rows), case.rows)
    return {"density": density_answers(case.model, case.rows), "closed_form": exact}


def closed_form(model, rows):
    """Answer in closed form: an XDGMM that keeps the average of a Deconvolver's mixtures."""
    parts = model.mixtures_
    start = deconflow.GaussianMixture(
        np.concatenate([part.weights for part in parts]) / len(parts),
        np.concatenate([part.means for part in parts]),
        np.concatenate([part.covariances for part in parts]),
    )
    kept = dict.fromkeys(("weights", "means", "covariances"), True)
    return rows.fit(XDGMM(start.n_components, init=start, fixed=kept))
