"""``deconflow denoise`` and ``score``, which go through a table in chunks; ``sample`` makes one."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import typer

from deconflow._types import Array
from deconflow.checks import refuse_if
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Chunk, Model, Output, Prefix, Quiet, Seed, Table
from deconflow.program.streaming import NewColumn, append_columns, open_for, report_counts
from deconflow.ranges import Range, parse_ranges
from deconflow.tables import (
    Rows,
    Source,
    finite_number,
    split_list,
)

#: Draws that weighted answers keep per row: as many as in Python, or more for their quantiles and
#: for probabilities, which are shares of them.
USUAL_DRAWS, DRAWS_FOR_SHARES = 100, 400


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
        shares, ranges = parse_shares(quantiles), parse_ranges(prob or [], saved.names)
        exact = saved.estimator.density_.exact(gaussian_noise=reader.columns.law == "gaussian")
        parts = list(
            new_columns(
                saved, reader.source, shares, ranges, samples,
                correlations=correlations, signs=signs, exact=exact,
            )
        )  # fmt: skip
        n_draws = max(DRAWS_FOR_SHARES if shares or signs or ranges else USUAL_DRAWS, samples)
        seeds = itertools.count(seed)

        def answers(rows: Rows) -> Array:
            """Describe the posteriors of rows, ``(n, C)``."""
            own = next(seeds)
            answer = rows.ask(
                saved.estimator.posterior, n_samples=n_draws, n_proposals=max(1000, n_draws),
                random_state=own,
            )  # fmt: skip
            return np.concatenate([read(answer, own) for _, read in parts], axis=1)

        counts = append_columns(
            reader, output, [column for columns, _ in parts for column in columns], answers,
            prefix=prefix, chunk=chunk, progress=not quiet,
        )  # fmt: skip
        say(f"{report_counts(counts)}; written to {output}", table=output)


def new_columns(
    saved: ModelFolder,
    source: Source,
    shares: Sequence[float],
    ranges: Sequence[Range],
    samples: int,
    *,
    correlations: bool,
    signs: bool,
    exact: bool,
) -> Iterator[tuple[list[NewColumn], Callable[..., Array]]]:
    """Give the new columns in their order, each with what reads it off posteriors, with a seed.

    Units are those of the fit, or else of the table.
    """
    names, known = saved.names, saved.estimator.fit_.known
    here = {name: source.unit(name) for name in names if name in source.names}

    def of_each(endings: Mapping[str, str]) -> list[NewColumn]:
        return [
            NewColumn(f"{name}_{ending}", f"{words} of {name}", saved.units[name] or here.get(name))
            for ending, words in endings.items()
            for name in names
        ]

    yield of_each({"mean": "posterior mean"}), lambda answer, seed: answer.mean
    yield of_each({"sd": "posterior standard deviation"}), lambda answer, seed: answer.sd
    if shares:
        words = {
            "q" + f"{100 * share:g}".replace(".", "_"): f"posterior quantile {share:g}"
            for share in shares
        }
        yield of_each(words), lambda answer, seed: np.hstack(answer.quantile(shares))
    if correlations and len(names) > 1:
        i, j = np.triu_indices(len(names), 1)
        found = [
            NewColumn(f"{a}_{b}_posterior_corr", f"posterior correlation of {a} and {b}")
            for a, b in itertools.combinations(names, 2)
        ]
        yield found, lambda answer, seed: answer.correlation[:, i, j]
    if signs:
        about = "probability that the sign is wrong, of"
        found = [NewColumn(f"{name}_sign_error", f"{about} {name}") for name in names]
        yield found, lambda answer, seed: answer.sign_error
    for asked in ranges:
        about = f"posterior probability of {asked.name} {asked.ending.replace('_', ' ')}"
        yield (
            [NewColumn(asked.column, about)],
            lambda answer, seed, d=names.index(asked.name), asked=asked: answer.marginal(
                d
            ).probability(asked.lower, asked.upper),
        )
    if "atoms" in known.traits:
        found = [_of_atom(names, atom) for atom in known.atoms]
        yield found, lambda answer, seed: answer.probability_of_atoms
    if "background" in known.traits:
        found = [NewColumn("prob_background", "probability that the row is background")]
        yield found, lambda answer, seed: answer.probability_of_background[:, None]
    if samples:
        yield (
            of_each({f"sample_{k}": f"posterior draw {k}" for k in range(1, samples + 1)}),
            lambda answer, seed: answer.sample(samples, random_state=seed).reshape(
                len(answer.mean), -1
            ),
        )
    if not exact:
        about = "number of exact draws that the posterior is worth"
        found = [NewColumn("effective_sample_size", about)]
        yield found, lambda answer, seed: answer.effective_sample_size[:, None]


def _of_atom(names: Sequence[str], atom: Array) -> NewColumn:
    """Name the column of an atom, as ``prob_x_at_0``, with as many digits as tell it apart."""
    ending = "_".join(
        f"{name}_at_{np.format_float_positional(value, trim='-')}"
        for name, value in zip(names, atom, strict=True)
    )
    place = ", ".join(f"{value:g}" for value in atom)
    return NewColumn(f"prob_{ending}", f"probability that the truth is exactly {place}")


def parse_shares(text: str) -> list[float]:
    """Read quantiles, such as ``0.16,0.5,0.84``."""
    shares = {part: finite_number(part) for part in split_list([text])}
    for part, share in shares.items():
        refuse_if(not 0 < share < 1, f"Expected --quantiles between 0 and 1; got {part!r}.")
    return list(dict.fromkeys(shares.values()))
