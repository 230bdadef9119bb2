"""What was learned of the errors: numbers with their standard errors, and words for them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.certificate import Finding
from deconflow.checks import refuse_if, refuse_where
from deconflow.errors.likelihood import Values, covariances
from deconflow.noise import FreeErrors, GaussianNoise, gaussian, in_call
from deconflow.observations import Observations, check_groups
from deconflow.saving import refuse

#: Larger standard errors leave as good as everything open: shares of a factor, of the usual error
#: for a jitter, and of the spread of the column for a zero point.
UNKNOWN = {"scale": 0.25, "jitter": 0.5, "correlation": 0.25, "shifts": 0.25}
#: Correlation of two estimates from which on only their sum is known.
TIED = 0.95
WORDS = {
    "scale": "Best-fitting factors on the stated errors",
    "jitter": "Additional scatter (jitter)",
    "correlation": "Correlation of the errors",
}
#: Zero points that are written out in a line.
MOST_LABELS = 8


@dataclass(frozen=True)
class LearnedErrors(Values):
    """What a fit has learned of the errors, in the units of the data: a model's ``errors_``.

    Attributes
    ----------
    names : tuple of str
        The measured columns.
    kinds : tuple of str
        What was learned: of ``"scale"``, ``"jitter"``, ``"correlation"`` and ``"groups"``.
    scale, scale_error : array
        ``(D,)`` factors on the errors that were said, and their standard errors; ones and zeros if
        they were not learned.
    jitter, jitter_error : array
        ``(D,)`` standard deviations that are added in quadrature; a jitter that may be zero has an
        error as large as itself.
    correlation, correlation_error : array
        ``(D, D)`` correlations of the errors of different columns.
    groups : tuple
        Labels of the groups, sorted where they have an order.
    shifts, shifts_error : array
        ``(G, D)`` zero points: what a group measures too much. They sum to zero over the groups.
    tied : array
        ``(D,)`` correlation of the estimates of scale and jitter; zeros unless both were learned.
    usual : array
        ``(D,)`` usual size of the errors as they were said.
    spread : array
        ``(D,)`` standard deviation of the measured values.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    scale_error: Array
    jitter_error: Array
    correlation_error: Array
    groups: tuple[Hashable, ...]
    shifts_error: Array
    tied: Array
    usual: Array
    spread: Array

    def validate(self) -> None:
        """Raise unless these can be learned: of what a file says, or what it is to hold."""
        for label in self.groups:
            refuse_if(
                not isinstance(label, str | int | float),
                "Expected numbers or text as groups of the noise in a model that is saved; got "
                f"{label!r}, which JSON cannot hold.",
            )
        dim, groups = len(self.names), len(self.groups)
        shapes = {"correlation": (dim, dim), "correlation_error": (dim, dim)}
        shapes |= dict.fromkeys(("shifts", "shifts_error"), (groups, dim))
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                fits = values.shape == shapes.get(name, (dim,)) and np.isfinite(values).all()
                refuse(name, not fits, "of finite numbers, one for each column")
        refuse("scale", (self.scale <= 0).any(), "positive")
        refuse("jitter", (self.jitter < 0).any(), "at least zero")
        refuse("correlation", np.linalg.eigvalsh(self.correlation)[0] <= 0, "positive definite")
        refuse("groups", len({*self.groups}) < groups, "of different labels")

    def applied(self, free: FreeErrors, data: Observations) -> Observations:
        """Return rows with the errors as they were learned, and without zero points.

        ``data`` are the rows with the errors as they were said, in the order of ``free``.
        """
        refuse_if(
            free.kinds != self.kinds,
            f"Expected noise of the same form as in fit, {in_call(self.kinds)}; "
            f"got {free.as_said()}.",
        )
        refuse_other_laws(free, data)
        law = self.law(free.said).bind(len(data), data.observed)
        if not self.groups:
            return replace(data, noise=law)
        w = data.w - self.shifts[self._codes(free, data)]
        return replace(data, w=w if data.observed is None else w * data.observed, noise=law)

    def law(self, said: GaussianNoise) -> GaussianNoise:
        """Return the law of errors that were said so."""
        if said.diagonal and "correlation" not in self.kinds:
            return replace(said, factor=np.hypot(said.factor * self.scale, self.jitter))
        found = covariances(said.covariance(), self)
        return gaussian(covariance=found[0] if said.shared else found)

    def missing(self) -> str:
        """Say what noise a question must have."""
        return (
            f"Expected the errors as in fit, {in_call(self.kinds)}, so that what was learned of "
            "them is used; got errors that are taken as they are."
        )

    def _codes(self, free: FreeErrors, data: Observations) -> IntArray:
        """Find the groups of rows among those of the fit."""
        assert free.groups is not None
        check_groups(data.w, free.groups, "groups of the noise")
        known = {label: code for code, label in enumerate(self.groups)}
        said = ", ".join(repr(each) for each in self.groups[:MOST_LABELS])
        more = ", ..." if len(self.groups) > MOST_LABELS else ""
        refuse_where(
            np.array([label not in known for label in free.groups], dtype=bool),
            f"groups of the noise whose zero points the fit has learned, {said}{more}",
            free.groups,
            "{!r}",
        )
        return np.array([known[label] for label in free.groups], dtype=np.int64)

    def in_words(self) -> list[str]:
        """Say what was learned, a line for each kind."""
        said = [f"{WORDS[kind]}: {_listed(*told)}." for kind, told in self._told()]
        if self.groups:
            shown = zip(self.groups[:MOST_LABELS], self.shifts, self.shifts_error, strict=False)
            lines = "; ".join(f"{label} {_listed(self.names, *each)}" for label, *each in shown)
            left = len(self.groups) - MOST_LABELS
            more = f"; {left} more in errors_.shifts" if left > 0 else ""
            said.append(f"Zero points: {lines}{more}.")
        return said

    def __str__(self) -> str:
        return "\n".join(self.in_words())

    def _told(self) -> Iterator[tuple[str, tuple[Sequence[str], Array, Array]]]:
        """Walk through kinds with a number for each column or pair: names, values, errors."""
        first, second = np.triu_indices(len(self.names), 1)
        for kind in WORDS:
            names, values, errors = self.names, getattr(self, kind), getattr(self, f"{kind}_error")
            if kind == "correlation":
                names = tuple(f"{names[i]} and {names[j]}" for i, j in np.c_[first, second])
                values, errors = values[first, second], errors[first, second]
            if kind in self.kinds:
                yield kind, (names, values, errors)

    def finding(self) -> Finding:
        """Say what can hardly be told, for the certificate."""
        numbers: dict[str, float] = {}
        for kind, told in self._told():
            for name, value, error in zip(*told, strict=True):
                numbers[f"{kind} of {name}"] = float(value)
                numbers[f"error of {kind} of {name}"] = float(error)
        if self.groups:
            numbers["groups"] = float(len(self.groups))
            numbers["largest zero point"] = float(np.abs(self.shifts / self.spread).max())
        if {"scale", "jitter"} <= {*self.kinds}:
            numbers["tied"] = float(self.tied[np.abs(self.tied).argmax()])
        doubtful = tuple(self.doubtful())
        return Finding(p=float(not doubtful), columns=doubtful, numbers=numbers)

    def doubtful(self) -> list[str]:
        """Name what can hardly be told from the rows, one thing for each column or pair."""
        usual = np.hypot(self.scale * self.usual, self.jitter)
        bars: dict[str, Any] = {
            "scale": UNKNOWN["scale"] * self.scale,
            "jitter": UNKNOWN["jitter"] * usual,
            "correlation": UNKNOWN["correlation"],
        }
        of_name = {
            name: f"scale and jitter of {name} apart" if abs(tied) > TIED else ""
            for name, tied in zip(self.names, self.tied, strict=True)
        }
        for kind, (names, _, errors) in self._told():
            for name, wide in zip(names, errors > bars[kind], strict=True):
                of_name[name] = of_name.get(name) or (f"{kind} of {name}" if wide else "")
        open_shifts = np.argwhere(self.shifts_error > UNKNOWN["shifts"] * self.spread)
        points = [f"zero point of {self.groups[g]} in {self.names[d]}" for g, d in open_shifts]
        return [*filter(None, of_name.values()), *points]


def refuse_other_laws(free: FreeErrors, data: Observations) -> None:
    """Raise where rows have no Gaussian noise any more, as those with limits: it would be lost."""
    refuse_if(
        not isinstance(data.noise, GaussianNoise),
        f"Expected rows that are values with Gaussian errors for {free.as_said()}; got "
        f"{data.noise!r}. Leave out limits.",
    )


def _listed(names: Sequence[str], values: Array, errors: Array) -> str:
    return ", ".join(
        f"{name} {value:.3g} +- {error:.2g}"
        for name, value, error in zip(names, values, errors, strict=True)
    )
