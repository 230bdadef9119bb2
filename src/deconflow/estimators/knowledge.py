"""What is known of the truth beside its measurements, and how a fit takes it.

Rows are changed before an estimator sees them, and its answer is changed back: covariates by curves
of location and scale; bounds by mirrors; atoms and a background by the weights of rows that are
neither. So an estimator knows of none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from deconflow._types import Array
from deconflow.fits import FittedDensity, GivenFit, PartsFit, folded, log_densities_of_parts
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.saving import refuse
from deconflow.truth import (
    MOST_MIRRORS,
    Background,
    Bounds,
    Covariates,
    GivenBackground,
    LocationScale,
    as_atoms,
    as_background,
    as_bounds,
)
from deconflow.xd import (
    fit_with_known_parts,
    lay_out,
    log_p,
    memberships,
    row_weights,
    shares_of_parts,
)

LEAST_MEMBERSHIP = 1e-3
"""Rows that are less likely than this to be of the continuous part are not fitted."""
MOST_KEPT = 200
"""Rows of covariates that a model keeps: the mix of them that answers without any are about."""
CURVE_ROUNDS = 8
"""Rounds of curves and memberships, for atoms or a background beside covariates."""


def bounds_of(model: Any, data: Observations) -> Bounds | None:
    """Return the bounds that an estimator was told, and those that what was measured implies."""
    names = model._names
    told, ends = as_bounds(getattr(model, "bounds", None), names), data.noise.truth_ends
    if ends is None:
        return told
    free = np.full(len(names), np.inf)
    return (Bounds(-free, free) if told is None else told).with_ends(ends, names)


def _refuse_counts(model: Any, data: Observations) -> None:
    """Raise for rows with a likelihood where it would be taken for something else."""
    if data.noise.truth_ends is not None and model._bounds_itself:
        raise ValueError(
            f"Expected noise that is added to the truth with {type(model).__name__}; got values "
            "with a likelihood, as counts. Use XDGMM, BayesianXDGMM, FlowDeconvolver or "
            "Deconvolver."
        )
    if not data.noise.additive and getattr(model, "background", None) is not None:
        raise ValueError(
            "Expected no background beside values with a likelihood, as counts, whose density is "
            "that of what was measured; got one. Leave it out."
        )


@dataclass
class Knowledge:
    """What is known, and what a fit has learned of it.

    Attributes
    ----------
    bounds : Bounds or None
        Ends of the truth, if the estimator leaves them to mirrors.
    covariates : Covariates or None
        How covariates become numbers.
    curves : LocationScale or None
        Location and scale of the truth as functions of these.
    kept : array
        ``(R, C)`` covariates of some of the fitted rows.
    atoms, atom_weights : array
        ``(A, D)`` and ``(A,)``.
    background : callable or None
        Log density of rows that are background.
    background_share : float
        Their share.
    """

    bounds: Bounds | None
    covariates: Covariates | None
    atoms: Array
    background: Background | None
    curves: LocationScale | None = None
    kept: Array = field(default_factory=lambda: np.empty((0, 0)))
    atom_weights: Array = field(default_factory=lambda: np.empty(0))
    background_share: float = 0.0
    _density: FittedDensity | None = None

    def validate(self) -> None:
        """Raise unless this can be known: of what a file says, or what it is to hold."""
        if isinstance(self.background, GivenBackground):
            raise ValueError(
                'Expected background="uniform" in a model that is saved; got a density of your '
                "own, which JSON cannot hold."
            )
        shares = self.atom_weights
        fits = self.atoms.ndim == 2 and shares.shape == (len(self.atoms),) and (shares >= 0).all()
        refuse("atom_weights", not fits, "one for each atom")

    @classmethod
    def of(cls, model: Any, covariates: Covariates | None, data: Observations) -> Knowledge | None:
        """Check what an estimator was told; None if that is nothing."""
        names = model._names
        bounds = bounds_of(model, data)
        if covariates is not None and (bounds is not None or data.projection is not None):
            what = "projection" if bounds is None else "bounds"
            raise ValueError(
                f"Expected no {what} with covariates, whose curves move the rows; got both. Leave "
                "out one of them."
            )
        background = getattr(model, "background", None)
        _refuse_counts(model, data)
        if data.noise.flags is not None:
            _refuse_beside_limits(bounds, background)
        if bounds is not None:
            bounds.check_rows(data, names, background=background is not None)
        atoms = as_atoms(getattr(model, "atoms", None), names, bounds)
        background = as_background(background, data)
        mirrored = None if model._bounds_itself else bounds
        if mirrored is None and covariates is None and not len(atoms) and background is None:
            return None
        return cls(mirrored, covariates, atoms, background)

    @property
    def has_parts(self) -> bool:
        """Whether there are atoms or a background."""
        return len(self.atoms) > 0 or self.background is not None

    def known(self, data: Observations) -> Array:
        """Log density ``(J, N)`` of rows under the parts."""
        return log_densities_of_parts(data, self.atoms, self.background)

    def fit(self, model: Any, data: Observations) -> None:
        """Fit an estimator to rows, with what is known."""
        rng, threads = model._means()
        self._refuse_starts(model)
        rows = self._weighted(data, rng, threads) if self.has_parts else data
        if self.covariates is not None:
            rows = self._straightened(rows, rng)
        if self.bounds is not None:
            self.bounds.refuse_many()
            rows = self.bounds.mirrored(rows, int(rng.randint(2**30)))
            model._images = min(len(self.bounds.mirrors()), MOST_MIRRORS)
        model._fit(rows)
        model.parameters_ = model.get_params()  # its density may be asked from here on
        if self.has_parts:
            self._settle_shares(model, data)

    def _weighted(
        self, data: Observations, rng: np.random.RandomState, threads: int | None
    ) -> Observations:
        """Weigh rows by how likely they are of the continuous part."""
        known = self.known(data)
        pilot = fit_with_known_parts(data, known, rng, threads)
        rest = log_p(pilot.mixture, lay_out(data), threads)
        shares = pilot.shares
        q, own = memberships(shares, known, rest)
        if self.covariates is not None:
            shares, q = self._given_covariates(data, known, shares, q, own, threads)
        self._take_shares(shares)
        weights = row_weights(data) * q[-1]
        keep = q[-1] > LEAST_MEMBERSHIP
        if not keep.any():
            raise ValueError(
                "Expected rows that are neither at an atom nor background; got none. Leave out "
                "the atoms, or the background."
            )
        weights = torch.from_numpy(weights[keep] / weights[keep].mean())
        return replace(data[torch.from_numpy(keep)], weights=weights)

    def _given_covariates(
        self,
        data: Observations,
        known: Array,
        shares: Array,
        q: Array,
        log_p_without: Array,
        threads: int | None,
    ) -> tuple[Array, Array]:
        """Return shares and memberships by curves of the covariates, where rows are likelier so."""
        assert self.covariates is not None
        x, weights, without = np.asarray(data.given), row_weights(data), (shares, q)
        unit = GaussianMixture(np.ones(1), np.zeros((1, data.dim)), np.eye(data.dim)[None])
        for _ in range(CURVE_ROUNDS):
            by_rest = torch.from_numpy(np.maximum(weights * q[-1], 1e-6))
            weighted = replace(data, weights=by_rest)
            curves = LocationScale.fit(weighted, x, self.covariates.continuous)
            rows = lay_out(curves.standardised(data, x))
            rest = log_p(unit, rows, threads) - curves.log_volume(data, x)
            shares = shares_of_parts(shares, known, rest, weights)
            q, found = memberships(shares, known, rest)
        return (shares, q) if weights @ found > weights @ log_p_without else without

    def _take_shares(self, shares: Array) -> None:
        """Take shares of the rows, ``(J,)``; those of atoms become shares of the truths."""
        self.background_share = float(shares[-1]) if self.background is not None else 0.0
        own = shares[: len(self.atoms)]
        self.atom_weights = own / max(1.0 - self.background_share, 1e-300)

    def _settle_shares(self, model: Any, data: Observations) -> None:
        """Find the shares that go with the density that was fitted."""
        density = self.density(model._own_density)
        assert isinstance(density, PartsFit)
        rest = density.inner.log_marginal(data).log_p
        found = shares_of_parts(density.shares, self.known(data), rest, row_weights(data))
        self._take_shares(found)
        self._density = None

    def _straightened(self, data: Observations, rng: np.random.RandomState) -> Observations:
        """Take location and scale out of the rows."""
        assert self.covariates is not None
        x = np.asarray(data.given)
        self.kept = x[np.sort(rng.permutation(len(data))[:MOST_KEPT])]
        self.curves = LocationScale.fit(data, x, self.covariates.continuous)
        return self.curves.standardised(data, x)

    def _refuse_starts(self, model: Any) -> None:
        """Raise for starts and fixed parameters: rows in other units, or mirrored, have others."""
        if self.covariates is None and self.bounds is None:
            return
        for name in ("init", "fixed"):  # parameters of components, in the units of ``w``
            if not isinstance(getattr(model, name, None), str | None):
                raise ValueError(
                    f"Expected no {name} with covariates or bounds, which change the rows that "
                    f"components are fitted to; got {getattr(model, name)!r}. Leave it out."
                )

    def density(self, own: FittedDensity) -> FittedDensity:
        """Return the density of the truth, made once from that which the estimator learned."""
        if self._density is None:
            self._density = self.density_from(own)
        return self._density

    def density_from(self, own: FittedDensity) -> FittedDensity:
        """Return the density of the truth, from one of the rows that the estimator saw."""
        density = self._continuous_part(own)
        if not self.has_parts:
            return density
        answer = self._with_parts(density)
        if density.replicates is not None:
            answer.replicates = density.replicates.changed(self._with_parts)
        return answer

    def _with_parts(self, density: Any) -> PartsFit:
        share = self.background_share
        return PartsFit(density, self.atoms, self.atom_weights, self.background, share)

    def _continuous_part(self, own: FittedDensity) -> FittedDensity:
        """Return the continuous part."""
        density = own if self.bounds is None else folded(own, self.bounds)
        if self.covariates is None or self.curves is None:
            return density
        return GivenFit(density, self.curves, self.covariates, self.kept)

    def for_checks(self, model: Any, data: Observations) -> tuple[FittedDensity, Observations]:
        """Return a density to check, and the rows that it is about.

        With covariates, what the curves leave of the rows; with a background, rows by how likely
        they are none, and so with atoms beside curves.
        """
        answer, rows = self.density(model._own_density), data
        atoms_apart = len(self.atoms) > 0 and self.curves is not None
        if self.background is not None or atoms_apart:
            assert isinstance(answer, PartsFit)
            of_atoms, of_background = answer.memberships(data)
            signal = 1.0 - of_background
            if atoms_apart:  # they lie elsewhere in every row that is moved
                signal = signal * (1.0 - of_atoms.sum(1))
            weights = torch.from_numpy(row_weights(data) * np.maximum(signal, 1e-6))
            rows = replace(data, weights=weights / weights.mean())
        density = answer.inner if isinstance(answer, PartsFit) else answer
        if isinstance(density, GivenFit):
            rows, density = density.standardised(rows), density.inner
        if len(self.atoms) and not atoms_apart:
            density = PartsFit(density, self.atoms, self.atom_weights)
        return density, rows

    @property
    def keeps_mixture(self) -> bool:
        """Whether the estimator's own mixture is one of the rows that checks look at."""
        return self.bounds is None and not self.has_parts

    def in_words(self) -> list[str]:
        """Say what covariates, atoms and background came to."""
        said = []
        if self.covariates is not None:
            names = ", ".join(self.covariates.names)
            said.append(f"Location and spread of the true values are curves of {names}.")
        for atom, share in zip(self.atoms, self.atom_weights, strict=True):
            place = ", ".join(f"{value:g}" for value in atom)
            said.append(f"An estimated {share:.1%} of the true values are exactly {place}.")
        if self.background is not None:
            said.append(f"{self.background_share:.1%} of the rows are background.")
        return said


def _refuse_beside_limits(bounds: Bounds | None, background: Any) -> None:
    """Raise for what cannot be said of limits."""
    if background is not None:
        raise ValueError(
            "Expected values without limits beside a background, which is a density of measured "
            "values; got limits. Leave out the background."
        )
    if bounds is not None:  # the mirror image of a row with a limit would reach through the bound
        raise ValueError(
            "Expected values without limits beside bounds; got limits. Leave out the bounds, or "
            "take logarithms of w."
        )
