"""The engine of BayesianXDGMM: Dirichlet mixtures by Gibbs sampling."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from deconflow._limits import cpus
from deconflow._types import Array
from deconflow.checks import warn_caller
from deconflow.core import EVERYTHING, Run
from deconflow.engines.shared import Engine
from deconflow.files import replacing
from deconflow.fits import MixtureFit, Replicates
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.saving import from_json, to_json
from deconflow.xd import (
    Chain,
    ChainSettings,
    CrossFits,
    PreparedData,
    lay_out,
    log_p,
    row_weights,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)

FOLDS = 5
#: Nats per row by which chains may differ on held-out rows before a fit warns.
FARTHEST_APART = 0.1
SAMPLING = "sampling Bayesian mixtures"


@dataclass(frozen=True)
class BayesSolution:
    """Snapshots of chains, and how well the chains agree.

    Attributes
    ----------
    snapshots : list of lists of GaussianMixture
        Mixtures of each chain.
    floors, n_used : array
        The floor of each chain, and its mean number of components with rows.
    n_components, n_sweeps, n_rows : int
        Most components, number of sweeps, and rows that were sampled.
    held_out_score, chain_spread : float or None
        See :class:`BayesianXDGMM`.
    """

    snapshots: list[list[GaussianMixture]]
    floors: Array
    n_used: Array
    n_components: int
    n_sweeps: int
    n_rows: int
    held_out_score: float | None
    chain_spread: float | None

    @property
    def mixtures(self) -> list[GaussianMixture]:
        """The average of each chain's snapshots."""
        return [mix(chain) for chain in self.snapshots]

    def density(self, names: list[str], threads: int | None) -> MixtureFit:
        """Return the average, with all snapshots as replicates."""
        density = MixtureFit(self.mixtures, names, threads)
        each = [snapshot for chain in self.snapshots for snapshot in chain]
        if len(each) > 1:
            density.replicates = Replicates(
                [MixtureFit([mixture], names, threads) for mixture in each], "draws"
            )
        return density

    def words(self) -> str:
        """Return what was fitted."""
        count = len(self.snapshots)
        chains = f"{count} chains" if count > 1 else "one chain"
        return (
            f"Bayesian Gaussian mixture: average of {chains} of {self.n_sweeps} sweeps, with "
            f"{np.mean(self.n_used):.0f} of {self.n_components} components in use."
        )

    def attributes(self) -> dict[str, Any]:
        """Return what BayesianXDGMM shows."""
        shown = (
            "floors", "n_used", "n_components", "n_sweeps", "n_rows", "held_out_score",
            "chain_spread", "mixtures",
        )  # fmt: skip
        return {f"{name}_": getattr(self, name) for name in shown}


#: The rows of some chains, and those that they leave out.
Part = tuple[PreparedData, Observations]


class Bayes(Engine):
    """Gibbs sampling with the settings of an estimator."""

    name = "BayesianXDGMM"
    solution = BayesSolution
    takes = EVERYTHING - {"beyond memory"}

    def fit(self, rows: Observations, run: Run) -> BayesSolution:
        """Sample chains of mixtures."""
        lay_out(rows)  # so that an error counts the rows of all data
        rows = rows[telling_rows(rows)].with_weight()
        rng = run.generator()
        settings = self._settings(rows)
        parts = self._parts(rows, rng)
        chains = self._sample(rows, parts, settings, rng, run)
        score, spread = self._judged(parts, chains, run.threads)
        if spread is not None and spread > FARTHEST_APART:
            judged = "all rows" if score is None else "rows that none of them has seen"
            warn_caller(
                f"Chains differ by {spread:.2f} nats per row on {judged}. "
                "Raise n_sweeps, or n_chains, whose average hides less of it.",
                ConvergenceWarning,
            )
        together = [chain for these in chains for chain in these]
        return BayesSolution(
            [list(chain.snapshots) for chain in together],
            np.array([chain.floor for chain in together]),
            np.array([chain.used[settings.burn_in :].mean() for chain in together]),
            settings.n_components,
            settings.sweeps,
            len(rows),
            score,
            spread,
        )

    def _settings(self, rows: Observations) -> ChainSettings:
        given, sweeps = self.settings, self.settings.n_sweeps
        most = None if given.n_components is None else int(given.n_components)
        settings = ChainSettings.plan(lay_out(rows), most)
        if sweeps is not None:
            settings = replace(settings, sweeps=int(sweeps), burn_in=int(sweeps) // 3)
        most = settings.sweeps - settings.burn_in
        return replace(settings, snapshots=min(int(given.n_snapshots), most))

    def _parts(self, rows: Observations, rng: np.random.RandomState) -> list[Part]:
        """Prepare the rows but for each fold; all of them where folds would be too few or small."""
        folds, used = min(FOLDS, len(rows) // 4), min(FOLDS, self.settings.n_chains // 2)
        if rows.group_codes() is not None:
            folds = min(folds, rows.fewest_groups())
        seen = np.abs(np.asarray(rows.projections())).sum(1) > 0
        fewest = np.broadcast_to(seen, (len(rows), seen.shape[1])).sum(0).min()
        if min(folds, used) < 2 or fewest < 2 * folds:
            return [(PreparedData(single_rows(rows)), rows)]
        parts = CrossFits(rows, folds, rng).folds[:used]
        return [(PreparedData(single_rows(rows[fold.kept])), rows[fold.held]) for fold in parts]

    def _sample(
        self,
        rows: Observations,
        parts: list[Part],
        settings: ChainSettings,
        rng: np.random.RandomState,
        run: Run,
    ) -> list[list[Chain]]:
        """Sample the chains of every part, those in a file left as they are."""
        given = self.settings
        floors = [float(value) for value in np.ravel(given.floor)]
        finished = _FinishedChains(
            given.checkpoint, rows, repr((settings, floors, given.n_chains, given.random_state))
        )
        seeds = rng.randint(2**31 - 1, size=given.n_chains).tolist()
        own = [seeds[p :: len(parts)] for p in range(len(parts))]
        workers = cpus(run.threads)
        side_by_side = max(1, min(len(parts), workers // len(own[0])))
        run.progress.begin(SAMPLING, "sweeps", settings.sweeps * given.n_chains)

        def sampled(p: int) -> list[Chain]:
            chains = finished.done.get(p)
            if chains is not None:
                run.progress.advance(len(chains) * settings.sweeps)
                return chains
            (prepared, _), first = parts[p], floors[p % len(floors)]
            each = [first if len(parts) > 1 else f for f, _ in zip(cycle(floors), own[p])]
            starts = starts_of_chains(prepared, first, settings, own[p])
            chains = sample_chains(
                prepared, starts, each, settings, own[p],
                threads=-(-workers // side_by_side), progress=run.progress.advance,
            )  # fmt: skip
            finished.add(p, chains)
            return chains

        with ThreadPoolExecutor(side_by_side) as pool:
            return list(pool.map(sampled, range(len(parts))))

    def _judged(
        self, parts: list[Part], chains: list[list[Chain]], threads: int | None
    ) -> tuple[float | None, float | None]:
        """Score the rows left out by each chain: how good they are, and how far apart."""
        score, spread, total = 0.0, 0.0, 0.0
        for (prepared, held), these in zip(parts, chains, strict=True):
            rows, weights = lay_out(held, prepared.rows.units), row_weights(held)
            each = [log_p(mix(chain.snapshots), rows, threads) for chain in these]
            means = np.average(each, axis=1, weights=weights)
            score += float(weights @ (np.logaddexp.reduce(each, axis=0) - np.log(len(each))))
            spread += float(weights.sum() * np.var(means, ddof=1)) if len(these) > 1 else 0.0
            total += float(weights.sum())
        own = float(np.sqrt(spread / total)) if self.settings.n_chains > 1 else None
        return (score / total if len(parts) > 1 else None), own


class _FinishedChains:
    """The chains of a fit by the number of their fold; kept in a file, if there is a path."""

    def __init__(self, path: str | Path | None, data: Observations, settings: str) -> None:
        self._lock, self._path = Lock(), None if path is None else Path(path)
        self._identity = "" if path is None else _identity(data, settings)
        self.done = {} if self._path is None else self._read(self._path)

    def add(self, fold: int, chains: list[Chain]) -> None:
        """Keep the chains of one more fold."""
        with self._lock:
            self.done[fold] = chains
            if self._path is not None:
                arrays: dict[str, Any] = {}
                text = json.dumps([self._identity, to_json(self.done, arrays, "folds")])
                with replacing(self._path) as part, part.open("wb") as file:
                    np.savez(file, text=np.array(text), **arrays)

    def _read(self, path: Path) -> dict[int, list[Chain]]:
        """Read a file of the same fit; there are no chains without one."""
        if path.is_dir():
            raise ValueError(f"Expected a file as checkpoint; got the folder {path}.")
        if not path.exists():
            return {}
        try:
            with np.load(path, allow_pickle=False) as arrays:
                identity, packed = json.loads(str(arrays["text"]))
                found = from_json(packed, dict[int, list[Chain]], dict(arrays), "folds")
        except Exception as error:
            raise ValueError(
                f"Expected a checkpoint in {path}; got a file that cannot be read. "
                "Delete it to start anew."
            ) from error
        if identity != self._identity:
            raise ValueError(
                f"Expected a checkpoint of the same model, settings and rows in {path}; "
                "got one of another fit. Delete it, or choose another path."
            )
        return found


def _identity(data: Observations, settings: str) -> str:
    """Digest of the settings and of the rows as the kernel sees them."""
    digest = hashlib.sha256(settings.encode())
    if data.groups is not None:  # they make the folds
        digest.update(np.asarray(data.groups).tobytes())
    rows = lay_out(data)
    for block in rows.blocks:
        index = np.arange(rows.n_rows)[block.index]
        arrays = [index, block.w, block.s, block.log_share, block.omega, block.projection]
        for array in (*arrays, *(block.common or ()), rows.units.scale):
            said = np.ascontiguousarray([] if array is None else array)
            digest.update(repr((block.kind, said.shape)).encode() + said.tobytes())
    return digest.hexdigest()
