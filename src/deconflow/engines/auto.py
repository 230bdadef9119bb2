"""The engine of Deconvolver: candidates of several kinds, averaged by learned weights."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deconflow import ranks
from deconflow._limits import cpus
from deconflow.auto import Fitted, Plan, ensemble_of, fit_density, fixed
from deconflow.core import EVERYTHING, Run
from deconflow.engines.shared import Engine, beyond_sample, refuse_rows
from deconflow.fits import (
    BlendFit,
    FittedDensity,
    MixtureFit,
    Replicates,
)
from deconflow.guests import check_device
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.standardising import Standardiser, log_volume, refuse_far, standardised
from deconflow.xd import who_chose

if TYPE_CHECKING:
    from deconflow.densities import Density
    from deconflow.fits import WeightedFit

FEWEST_ROWS, ROWS_FOR_UNITS = 10, 200_000
#: Kinds of candidates in words.
WORDS = {
    "mixtures": "Gaussian mixtures (Extreme Deconvolution)",
    "bayes": "Bayesian Gaussian mixtures",
    "spline": "log-splines",
    "flows": "normalizing flows",
}


@dataclass(frozen=True)
class AutoSolution:
    """Candidates and their weights, in standardised units.

    Attributes
    ----------
    fitted : Fitted
        The candidates, fold by fold, and how they did.
    standardiser : Standardiser
        The change of units.
    seed : int
        Seed of the certificate.
    """

    fitted: Fitted
    standardiser: Standardiser
    seed: int = 0

    @property
    def working(self) -> GaussianMixture:
        """One fit of Gaussian mixtures to all rows, in the user's units."""
        return self.standardiser.mixture_from_standard(self.fitted.proposing)

    def density(self, names: list[str], threads: int | None) -> FittedDensity:
        """Return the average, with the averages without each fold as replicates."""
        named = _Named(self, names, threads)
        found: FittedDensity = named.mixture_fit(self.fitted.mixtures_by_fold())
        if self.fitted.members:
            share = self.fitted.shares["flows"]
            found = BlendFit([1 - share, share], [found, named.alone("flows")])
        shares, parts = self.fitted.shares, self.fitted.parts
        folds = max(len(parts[name]) for name in shares)
        # With fewer flows than folds it is not known how much they vary.
        if all(len(parts[name]) == folds for name in shares):
            weights, alone = list(shares.values()), named.alone
            blends = [BlendFit(weights, [alone(n, f) for n in shares]) for f in range(folds)]
            found.replicates = Replicates(
                blends, "folds", [(share, alone(name)) for name, share in shares.items()]
            )
        return found

    def candidates(self, names: list[str], threads: int | None) -> dict[str, FittedDensity]:
        """Return every candidate by itself."""
        named = _Named(self, names, threads)
        return {name: named.alone(name) for name in self.fitted.parts}

    def lean(self) -> "AutoSolution":
        """Return what is saved: candidates without a share have only their standing."""
        parts = {
            name: [
                [replace(member, refresh_rate=None) for member in part]
                if isinstance(part, list) else part
                for part in self.fitted.parts[name]
            ]
            for name in self.fitted.shares
        }  # fmt: skip
        return replace(self, fitted=replace(self.fitted, parts=parts))

    def words(self) -> str:
        """Return what was fitted."""
        shares = sorted(self.fitted.shares.items(), key=lambda item: -item[1])
        parts = [f"{share:.0%} {WORDS[name]}" for name, share in shares]
        return f"Average of {', '.join(parts)}.{who_chose(self.fitted.table)}"

    def standings(self) -> list[str]:
        """Return for every candidate how it did on rows that it had not seen."""
        lines = []
        for name, each in self.fitted.standings.items():
            rank = "the best"
            if each.behind > 0:
                rank = f"{each.behind:.4f} +- {each.error:.4f} behind the best"
            share = f"{each.share:.0%}" if each.share > 0 else "left out"
            lines.append(f"{name:<24}{share}; held-out log p(w) {rank}")
        return lines

    def attributes(self) -> dict[str, Any]:
        """Return what Deconvolver shows."""
        return {
            "weights_": {name: each.share for name, each in self.fitted.standings.items()},
            "mixtures_": [
                self.standardiser.mixture_from_standard(each)
                for each in self.fitted.mixtures_by_fold()
            ],
            "selection_": self.fitted.table,
            "histories_": [member.history for member in self.fitted.members],
            "standardiser_": self.standardiser,
            "certificate_": self.fitted.certificate,
        }


@dataclass(frozen=True)
class _Named:
    """Densities of a solution, with names of columns and a number of threads."""

    solution: AutoSolution
    names: list[str]
    threads: int | None

    def alone(self, name: str, fold: int | None = None) -> FittedDensity:
        """Return one candidate as if there were no other, or what it has learned without a fold."""
        parts = self.solution.fitted.parts[name]
        parts = parts if fold is None else parts[fold : fold + 1]
        mixtures = [part for part in parts if isinstance(part, GaussianMixture)]
        if mixtures:
            return self.mixture_fit(mixtures)
        members = [member for part in parts if isinstance(part, list) for member in part]
        return self._by_draws(ensemble_of(members, len(self.names)))

    def mixture_fit(self, mixtures: list[GaussianMixture]) -> MixtureFit:
        """Average mixtures in standardised units; under other noise draws are weighed."""
        members = map(self.solution.standardiser.mixture_from_standard, mixtures)
        return MixtureFit(list(members), self.names, self.threads, partial(self._weighed, mixtures))

    def _weighed(self, mixtures: list[GaussianMixture]) -> "WeightedFit | None":
        """Return what weighs draws of mixtures; None without torch: noise as Gaussians, then."""
        density = fixed(mixtures)
        return None if density is None else self._by_draws(density)

    def _by_draws(self, density: "Density") -> "WeightedFit":
        from deconflow.fits import WeightedFit

        units, proposing = self.solution.standardiser, self.solution.fitted.proposing
        return WeightedFit(density, units, proposing, self.names, self.threads)


class Auto(Engine):
    """Candidates of every kind with the settings of an estimator."""

    name = "Deconvolver"
    solution = AutoSolution
    takes = EVERYTHING

    def fit(self, rows: Observations, run: Run) -> AutoSolution:
        """Fit candidates without every fold, and weigh them on it."""
        given = self.settings
        refuse_rows(rows, FEWEST_ROWS, " Use XDGMM for so few.")
        checkpoint = ranks.from_first(given.checkpoint)  # the first process alone has it
        plan = Plan(
            cpus(run.n_jobs), given.quick, given.n_members, checkpoint and Path(checkpoint),
            run.progress, check_device(given.device),
        )  # fmt: skip
        # Of many complete rows some are enough to find the units.
        complete = rows.observed is None and rows.projection is None
        units = Standardiser.fit(rows[:: -(-len(rows) // ROWS_FOR_UNITS) if complete else 1])
        beyond = beyond_sample(rows, plan.folds, run, units)
        seed = ranks.from_first(run.generator().randint(2**30))
        with isolated_rng(seed):
            volume = log_volume(units, rows)
            ready = standardised(units, rows)
            refuse_far(ready, "float32")
            fitted = fit_density(ready, volume, plan, seed, **beyond)
        return AutoSolution(fitted, units, seed)
