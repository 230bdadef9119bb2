"""The whole way from standardised rows to a density: candidates, their weights, the certificate."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import AnyArray, Array, IntArray
from deconflow.auto.candidates import (
    FEWEST_COLUMNS,
    Candidate,
    Member,
    Part,
    Plan,
    Task,
    compared,
    ensemble_of,
    fit_chains,
    fit_splines,
    fixed,
    weigh,
)
from deconflow.certificate import Certificate
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.saving import refuse
from deconflow.xd import (
    Everything,
    FitSettings,
    Fold,
    PreparedData,
    Stopping,
    fit_averaged,
    log_average,
    paired,
    row_weights,
)

if TYPE_CHECKING:
    from deconflow.densities import Density

MIXTURES = "mixtures"


def try_flows(task: Task) -> Candidate | None:
    """Fit flows where they can help, if torch and zuko are installed."""
    if task.plan.quick:
        return None
    if task.data.latent_dim < FEWEST_COLUMNS:
        if task.plan.n_flows is not None:
            task.notes.append(
                f"There are no flows: in fewer than {FEWEST_COLUMNS} columns they add next to "
                "nothing. Use FlowDeconvolver for one of them."
            )
        return None
    try:
        from deconflow.auto.flows import fit_flows
    except ModuleNotFoundError as error:
        task.notes.append(
            f"There are no flows: {error.name} is not installed. "
            "Run: pip install 'deconflow[flows]'."
        )
        return None
    return fit_flows(task)


#: What is averaged with the mixtures; a kind that cannot be fitted here returns None.
KINDS: dict[str, Callable[[Task], Candidate | None]] = {
    "spline": fit_splines,
    "bayes": fit_chains,
    "flows": try_flows,
}

#: How many rows, with how many draws, the certificate looks at.
CHECKED_ROWS, CHECKED_DRAWS = 100, 128
#: What mixtures get at least beside flows: they keep the tails in check.
SMALLEST_BESIDE_FLOWS = 0.05


@dataclass(frozen=True)
class Standing:
    """How a candidate did on rows that it had not seen.

    Attributes
    ----------
    held_out : float
        Mean ``log p(w)``, in the user's units.
    behind, error : float
        How far it is behind the best candidate, and the standard error of that.
    share : float
        Its share of the average.
    """

    held_out: float
    behind: float
    error: float
    share: float


@dataclass(frozen=True)
class Fitted:
    """What a fit has learned, in standardised units.

    Attributes
    ----------
    parts : dict of lists
        For each candidate by its name what it has learned without each fold.
    standings : dict of Standing
        How each did, in the order in which they were fitted.
    proposing : GaussianMixture
        One XD fit of all rows: where draws come from.
    table : dict of arrays
        How XD's components and floor were weighed.
    certificate : Certificate
        How far to trust it.
    notes : list of str
        What users should know of candidates that were left out.
    """

    parts: dict[str, list[Part]]
    standings: dict[str, Standing]
    proposing: GaussianMixture
    table: dict[str, AnyArray]
    certificate: Certificate
    notes: list[str]

    def validate(self) -> None:
        """Raise unless the candidates fit together: of what a file says."""
        shares, of_flows = self.shares, self.parts.get("flows", [])
        refuse("standings", any(not 0 <= s.share <= 1 for s in self.standings.values()), "shares")
        refuse("shares", abs(sum(shares.values()) - 1) > 1e-6, "of sum one")
        known = shares.keys() <= {MIXTURES, *KINDS} and self.parts.keys() == shares.keys()
        refuse("parts", not known, "those of the candidates")
        mixtures = [part for name, part in self.parts.items() if name != "flows"]
        single = all(isinstance(each, GaussianMixture) for part in mixtures for each in part)
        refuse("folds", not single or len({*map(len, mixtures)}) != 1, "the same for all mixtures")
        wrong = any(isinstance(each, GaussianMixture) or not each for each in of_flows)
        refuse("flows", wrong, "some for each fold")
        refuse("table", len({len(column) for column in self.table.values()}) > 1, "of one length")

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the candidates that have one."""
        return {name: each.share for name, each in self.standings.items() if each.share > 0}

    @property
    def members(self) -> list[Member]:
        """All flows, if they have a share."""
        parts = self.parts["flows"] if "flows" in self.shares else []
        return [member for part in parts if isinstance(part, list) for member in part]

    def mixtures_by_fold(self) -> list[GaussianMixture]:
        """Average those candidates that are mixtures, fold by fold."""
        names = [name for name in self.shares if name != "flows"]
        weights = np.array([self.shares[name] for name in names])
        weights /= weights.sum()
        folds = zip(*(self.parts[name] for name in names), strict=True)
        return [mix([cast(GaussianMixture, part) for part in fold], weights) for fold in folds]


def fit_density(
    data: Observations,
    log_volume: ArrayLike,
    plan: Plan,
    seed: int,
    *,
    folds: list[Fold] | None = None,
    everything: Everything | None = None,
) -> Fitted:
    """Fit all candidates to standardised rows; let noisy held-out rows weigh them.

    ``log_volume``, one number or one per row, brings log densities back to the user's units. If
    there is ``everything``, rows beyond memory, ``data`` is a sample of it with its ``folds``: the
    mixtures are fitted to all rows, the other candidates to the sample.
    """
    rng = np.random.RandomState(seed)
    tol = 1e-5 if plan.quick else 1e-6
    stopping = Stopping(tol, max_iter=300, accelerate=True, threads=plan.n_jobs)
    settings = FitSettings(1, stopping=stopping)
    averaged = fit_averaged(
        data, settings, rng,
        folds=plan.folds if folds is None else folds, starts=1 if plan.quick else 2,
        progress=plan.progress, everything=everything,
    )  # fmt: skip
    first = Candidate(MIXTURES, averaged.held_out, list(averaged.mixtures))
    task = Task(data, averaged, plan, seed, [first])
    for kind in KINDS.values():
        found = kind(task)
        if found is not None:
            task.so_far.append(found)
    standings, certificate = _weigh(task, np.broadcast_to(np.asarray(log_volume), len(data)), rng)
    start = None if averaged.all_chose else averaged.singles[0]
    proposing = PreparedData(data).fit(averaged.settings, rng, start).mixture
    parts = {each.name: each.parts for each in task.so_far}
    fitted = Fitted(parts, standings, proposing, averaged.table, certificate, task.notes)
    return replace(fitted, certificate=_certified(fitted, data))


def _weigh(
    task: Task, volume: Array, rng: np.random.RandomState
) -> tuple[dict[str, Standing], Certificate]:
    """Weigh the candidates on rows that none has seen, in the user's units.

    Those that are left out have the figures of the rows that they were scored on, which may be
    few; then the others are weighed again on all of theirs.
    """
    standings, log_p, rows = _compare(task.so_far, task.data, volume, rng)
    used = [each for each in task.so_far if standings[each.name].share > 0]
    if len(used) < len(task.so_far):
        again, log_p, rows = _compare(used, task.data, volume, rng)
        standings |= again
    together = log_average(log_p, np.array([standings[each.name].share for each in used]))
    gain = together - (task.so_far[0].held_out - volume)[rows]
    shares = row_weights(task.data)[rows]
    shares = shares / shares.sum()
    value, gained = (float(shares @ values) for values in (together, gain))
    error, gain_error = (
        float(np.sqrt(np.sum((shares * (values - mean)) ** 2)))
        for values, mean in ((together, value), (gain, gained))
    )
    return standings, Certificate(value, error, gained, gain_error)


def _compare(
    candidates: list[Candidate], data: Observations, volume: Array, rng: np.random.RandomState
) -> tuple[dict[str, Standing], Array, IntArray]:
    """Standings of candidates, and the log-likelihoods of the rows that all were scored on."""
    log_p, rows = compared(candidates)
    weights = row_weights(data)[rows]
    shares = weigh(candidates, row_weights(data), data.latent_dim, rng)
    flows, most = np.array([each.name == "flows" for each in candidates]), 1 - SMALLEST_BESIDE_FLOWS
    if shares[flows].sum() > most:  # flows never stand alone
        others = shares * ~flows if shares[~flows].any() else np.eye(len(shares))[0]
        shares = most * shares * flows / shares[flows].sum() + (1 - most) * others / others.sum()
    log_p = log_p - volume[rows]
    behind, error = paired(log_p, weights)
    means = np.average(log_p, axis=1, weights=weights)
    names = [each.name for each in candidates]
    figures = np.stack([means, behind, error, shares], 1).tolist()
    return {n: Standing(*each) for n, each in zip(names, figures, strict=True)}, log_p, rows


def _certified(fitted: Fitted, data: Observations) -> Certificate:
    """Look at draws too, unless all answers are closed forms."""
    members = fitted.members
    density: Density | None = None
    if members:
        density = ensemble_of(members, fitted.proposing.dim)
    elif not isinstance(data.noise, GaussianNoise):
        density = fixed(fitted.mixtures_by_fold())
    if density is None:
        return fitted.certificate
    import torch

    from deconflow.evaluation import certify
    from deconflow.randomness import own_generator

    some = torch.randperm(len(data), generator=own_generator())[:CHECKED_ROWS]
    return certify(
        density,
        fitted.proposing,
        replace(data[some], weights=None),
        fitted.certificate,
        draws=CHECKED_DRAWS,
        refresh_rate=members[0].refresh_rate if members else None,
    )
