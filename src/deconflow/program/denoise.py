"""``deconflow denoise``: the posterior of each row's true value, beside what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import typer

from deconflow._types import Array
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Chunk, Model, Output, Prefix, Quiet, Seed, Table
from deconflow.program.streaming import (
    NewColumn,
    append_columns,
    open_for,
    report_counts,
    units_of,
)
from deconflow.ranges import Range, parse_ranges
from deconflow.tables import Rows, split_list

USUAL_DRAWS, DRAWS_FOR_SHARES = 100, 400
"""Draws that weighted answers keep per row: as many as in Python, or more for their quantiles and
for probabilities, which are shares of them."""


def denoise(
    model: Model,
    table: Table,
    output: Output,
    quantiles: Annotated[
        str, typer.Option("--quantiles", help="Posterior quantiles, such as 0.16,0.5,0.84.")
    ] = "",
    correlations: Annotated[
        bool, typer.Option("--correlations", help="Also the posterior correlations.")
    ] = False,
    signs: Annotated[
        bool, typer.Option("--signs", help="Also how likely each value's sign is wrong.")
    ] = False,
    prob: Annotated[
        list[str] | None,
        typer.Option(
            "--prob",
            metavar="RANGE",
            help="Also the probability of a range, such as 'x>0', 'x<=2' or '0<y<2'; may be given "
            "several times.",
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Also as many draws per row.")
    ] = 0,
    prefix: Prefix = "",
    chunk: Chunk = 20_000,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Append each row's posterior to the table.

    Its mean and standard deviation, and what else is asked for, come after the table's columns.
    Rows that could not be used keep their place; the column deconflow_status says why.

    Example: deconflow denoise model stars.csv -o out.csv --quantiles 0.16,0.84
    """
    with one_line_errors():
        saved = load(model)
        reader = saved.reader(open_for(table, output))
        summary = PosteriorColumns(
            saved.estimator, reader.columns.law, saved.names, parse_shares(quantiles),
            correlations, samples, signs=signs, ranges=parse_ranges(prob or [], saved.names),
            seed=seed, units=units_of(saved, reader.source),
        )  # fmt: skip
        counts = append_columns(
            reader, output, summary.columns, summary,
            prefix=prefix, chunk=chunk, progress=not quiet,
        )  # fmt: skip
        say(f"{report_counts(counts)}; written to {output}", table=output)


@dataclass
class PosteriorColumns:
    """Columns that describe posteriors.

    Attributes
    ----------
    law : str
        Kind of the noise: some models are exact under Gaussian noise only.
    names : sequence of str
        Names of all dimensions.
    shares : sequence of float
        Quantiles.
    correlations : bool
        Whether to add correlations.
    samples : int
        Number of draws to add.
    signs : bool
        Whether to add how likely each sign is wrong.
    ranges : sequence of Range
        Ranges whose probabilities to add.
    units : mapping
        Unit of each dimension, where it is known.
    """

    estimator: Any
    law: str
    names: Sequence[str]
    shares: Sequence[float] = ()
    correlations: bool = False
    samples: int = 0
    signs: bool = False
    ranges: Sequence[Range] = ()
    seed: int = 0
    units: Mapping[str, str | None] = field(default_factory=dict)
    _seeds: Any = field(init=False)

    def __post_init__(self) -> None:
        self._seeds = itertools.count(self.seed)
        dims = range(len(self.names))
        self._pairs = list(itertools.combinations(dims, 2)) if self.correlations else []
        self._exact = self.estimator.density_.exact(gaussian_noise=self.law == "gaussian")
        known = self.estimator._knowledge
        self._atoms = () if known is None else known.atoms
        self._background = known is not None and known.background is not None
        shares = self.shares or self.signs or self.ranges
        fewest = DRAWS_FOR_SHARES if shares else USUAL_DRAWS
        self._n_samples = max(fewest, self.samples)

    @property
    def columns(self) -> list[NewColumn]:
        """The new columns, in the order of the answers."""
        endings = {"mean": "posterior mean", "sd": "posterior standard deviation"}
        endings |= {f"q{_percent(s)}": f"posterior quantile {s:g}" for s in self.shares}
        found = self._of_each(endings)
        for i, j in self._pairs:
            first, second = self.names[i], self.names[j]
            words = f"posterior correlation of {first} and {second}"
            found.append(NewColumn(f"{first}_{second}_posterior_corr", words))
        if self.signs:
            words = "probability that the sign is wrong, of"
            found += [NewColumn(f"{name}_sign_error", f"{words} {name}") for name in self.names]
        for asked in self.ranges:
            words = asked.ending.replace("_", " ")
            found.append(NewColumn(asked.column, f"posterior probability of {asked.name} {words}"))
        found += self._of_parts()
        draws = {f"sample_{k}": f"posterior draw {k}" for k in range(1, self.samples + 1)}
        found += self._of_each(draws)
        words = "number of exact draws that the posterior is worth"
        return found if self._exact else [*found, NewColumn("effective_sample_size", words)]

    def _of_each(self, endings: Mapping[str, str]) -> list[NewColumn]:
        """Columns in the unit of a dimension, for all of them under each ending."""
        return [
            NewColumn(f"{name}_{ending}", f"{words} of {name}", self.units.get(name))
            for ending, words in endings.items()
            for name in self.names
        ]

    def _of_parts(self) -> list[NewColumn]:
        """Columns of the probabilities of atoms and background, in this order."""
        found = []
        for name, atom in zip(self._atom_names(), self._atoms, strict=True):
            place = ", ".join(f"{value:g}" for value in atom)
            found.append(NewColumn(name, f"probability that the truth is exactly {place}"))
        if self._background:
            found.append(NewColumn("prob_background", "probability that the row is background"))
        return found

    def _atom_names(self) -> list[str]:
        """Name columns of atoms, as ``prob_x_at_0``, with as many digits as tell them apart."""
        written = [[np.format_float_positional(v, trim="-") for v in atom] for atom in self._atoms]
        pairs = (zip(self.names, atom, strict=True) for atom in written)
        return ["prob_" + "_".join(f"{name}_at_{v}" for name, v in each) for each in pairs]

    def __call__(self, rows: Rows) -> Array:
        """Describe the posteriors of rows, ``(n, C)``."""
        seed = next(self._seeds)
        answer = self.estimator.posterior(
            rows.w, **rows.arguments, n_samples=self._n_samples,
            n_proposals=max(1000, self._n_samples), random_state=seed,
        )  # fmt: skip
        quantiles = answer.quantile(self.shares) if self.shares else ()
        columns = [answer.mean, answer.sd, *quantiles, *self._extra(answer, seed)]
        return np.concatenate(columns, axis=1)

    def _extra(self, answer: Any, seed: int) -> list[Array]:
        columns = []
        if self._pairs:
            i, j = np.array(self._pairs).T
            columns.append(answer.correlation[:, i, j])
        if self.signs:
            columns.append(answer.sign_error)
        for asked in self.ranges:
            value = answer.marginal(self.names.index(asked.name))
            columns.append(value.probability(asked.lower, asked.upper))
        if len(self._atoms):
            columns.append(answer.probability_of_atoms)
        if self._background:
            columns.append(answer.probability_of_background[:, None])
        if self.samples:
            drawn = answer.sample(self.samples, random_state=seed)
            columns.append(drawn.reshape(len(drawn), -1))
        if not self._exact:
            columns.append(answer.effective_sample_size[:, None])
        return columns


def parse_shares(text: str) -> list[float]:
    """Read quantiles, such as ``0.16,0.5,0.84``."""
    shares = []
    for part in split_list([text]):
        try:
            share = float(part)
        except ValueError:
            share = np.nan
        if not 0 < share < 1:
            raise ValueError(f"Expected --quantiles between 0 and 1; got {part!r}.")
        shares.append(share)
    return list(dict.fromkeys(shares))


def _percent(share: float) -> str:
    return f"{100 * share:g}".replace(".", "_")
