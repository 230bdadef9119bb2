"""``deconflow denoise`` and ``score``, which go through a table in chunks; ``sample`` makes one."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from tqdm.auto import tqdm

from deconflow._types import AnyArray, Array, ArrowTable
from deconflow.extras import need
from deconflow.program.messages import note, one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Chunk, Model, Output, Prefix, Quiet, Seed, Table
from deconflow.ranges import Range, parse_ranges
from deconflow.refusals import refuse_if
from deconflow.tables import (
    STANDARD,
    RowReader,
    Rows,
    Source,
    described,
    finite_number,
    format_of,
    open_table,
    split_list,
    writing,
)

#: From ``n`` rows to ``(n, C)`` new columns.
Compute = Callable[[Rows], Array]

ROWS_AT_ONCE = 5000
MOST_FAILURES = 1000
#: Text that begins so is a formula to a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class NewColumn:
    """A column that the program adds to a table."""

    name: str
    description: str
    unit: str | None = None
    kind: str = "double"


STATUS = NewColumn("deconflow_status", "ok, or why the row could not be used", kind="string")


def open_for(table: Path, output: Path | None) -> Source:
    """Open a table whose rows will go to ``output``; text that goes to text stays as it is."""
    source = open_table(table, typed=output is None or not format_of(output).delimiter)
    is_new = output is None or STANDARD in (table, output) or not output.exists()
    refuse_if(
        not is_new and any(file.samefile(str(output)) for file in source.files),
        f"Expected another output than the table itself; got {output} for both.",
    )
    return source


def append_columns(
    reader: RowReader,
    output: Path | None,
    columns: Sequence[NewColumn],
    compute: Compute,
    *,
    prefix: str,
    chunk: int,
    progress: bool,
    watch: Callable[[Array], None] = lambda values: None,
) -> Counter[str]:
    """Write the table, if there is an ``output``, with new columns and a status for each row.

    ``watch`` is shown the new columns of each chunk, NaN for unusable rows. Returned are counts of
    rows by status.
    """
    source, counts, first_row = reader.source, Counter[str](), 0
    needed = reader.needed if output is None else None
    opened = (
        _written_to(output, reader, columns, prefix) if output else nullcontext(lambda *chunk: None)
    )
    with tqdm(total=source.n_rows, unit=" rows", disable=not progress) as bar, opened as write:
        for table in source.chunks(chunk, needed):
            values, status = _compute_rows(reader, table, first_row, len(columns), compute)
            write(table, values, status)
            watch(values)
            counts.update(status)
            first_row += table.num_rows
            bar.update(table.num_rows)
        refuse_if(not counts, f"Expected one or more rows in {source.name}; got none.")
        refuse_if(
            "ok" not in counts,
            f"Expected a row of {source.name} that can be used; got none: "
            f"{counts.most_common(1)[0][0]}",
        )
    return counts


@contextmanager
def _written_to(
    output: Path, reader: RowReader, columns: Sequence[NewColumn], prefix: str
) -> Iterator[Callable[[ArrowTable, Array, AnyArray], None]]:
    """Give what writes a chunk with its new columns and status."""
    arrow: Any = need("pyarrow")
    kept = reader.source.kept or reader.source.names
    schema = arrow.schema([reader.source.schema.field(name) for name in kept])
    for field in new_fields([*columns, STATUS], output, prefix):
        refuse_if(
            field.name in schema.names,
            f"Expected no column {field.name!r} in {reader.source.name} yet; got one. "
            "Give --prefix for the names of new columns.",
        )
        schema = schema.append(field)
    harmless = _harmless if format_of(output).delimiter else str
    with writing(output, schema) as append:

        def write(table: ArrowTable, values: Array, status: AnyArray) -> None:
            arrays = [arrow.array(column, from_pandas=True) for column in values.T]
            arrays.append(arrow.array(map(harmless, status), arrow.string()))
            append(arrow.table([*table.select(kept).columns, *arrays], schema=schema))

        yield write


def _compute_rows(
    reader: RowReader, table: ArrowTable, first_row: int, width: int, compute: Compute
) -> tuple[Array, AnyArray]:
    """Return new columns ``(N, width)``, NaN for unusable rows, and each row's status.

    Where some rows cannot be computed, they are halved until the row that fails is alone.
    """
    rows = reader(table, first_row)
    status, places = rows.status.copy(), rows.places
    values, n_failed = np.full((len(rows), width), np.nan), 0
    starts = range(0, len(places), ROWS_AT_ONCE)
    parts = [places[start : start + ROWS_AT_ONCE] for start in reversed(starts)]
    while parts:
        part = parts.pop()
        first, half = np.searchsorted(places, part[0]), len(part) // 2
        try:
            values[part] = compute(rows.rows[first : first + len(part)])
        except ValueError as error:
            if half:
                parts += [part[half:], part[:half]]
                continue
            status[part] = " ".join(str(error).split())
            n_failed += 1
            if n_failed > MOST_FAILURES:
                raise
    return values, status


def report_counts(counts: Counter[str]) -> str:
    """Say how many rows were used, and why others were not."""
    others = [f"{n} marked {reason!r}" for reason, n in counts.items() if reason != "ok"]
    return f"{counts['ok']} rows" + (f"; {', '.join(others)}" if others else "")


def new_fields(columns: Sequence[NewColumn], output: Path, prefix: str = "") -> list[Any]:
    """Return the fields of new columns, under names that are no formulas to a spreadsheet."""
    names = [prefix + column.name for column in columns]
    harmless = [_harmless(name) for name in names] if format_of(output).delimiter else names
    if harmless != names:
        note("deconflow: note: names of new columns that begin like a formula get a ' first")
    return [
        described(name, column.kind, column.unit, column.description)
        for name, column in zip(harmless, columns, strict=True)
    ]


def _harmless(text: str) -> str:
    """Keep a spreadsheet from taking text of ours, made of names in a file, for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


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


SCORES = (
    NewColumn("log_density", "log density of the measurement, log p(w)"),
    NewColumn("p_value", "probability of a measurement as unusual as this, given its error"),
)


def score(
    model: Model,
    table: Table,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Also write the table, with each row's log density and p-value."
        ),
    ] = None,
    prefix: Prefix = "",
    chunk: Chunk = 50_000,
    quiet: Quiet = False,
) -> None:
    """Give the log density of measurements, and how unusual each is.

    A larger log density is better, on rows that were not fitted. A small p-value says that a row
    is unusual, given its error; of many rows a few are so by chance, and the last line says how
    many of these to expect.

    Example: deconflow score model stars.csv -o scored.csv
    """
    with one_line_errors():
        from deconflow.evaluation import PValueCounts

        saved, p_values, parts = load(model), PValueCounts(), []
        ask = saved.estimator

        def scores(rows: Rows) -> Array:
            """Log density and p-value of each measurement, ``(n, 2)``."""
            p, found = rows.ask(ask.p_values), rows.ask(ask.score_observations)
            parts.append((len(found), found.mean(), found.var()))
            return np.column_stack([found, p])

        counts = append_columns(
            saved.reader(open_for(table, output)), output, SCORES, scores, prefix=prefix,
            chunk=chunk, progress=not quiet, watch=lambda values: p_values.add(values[:, 1]),
        )  # fmt: skip
        sizes, means, variances = np.array(parts).T
        mean = np.average(means, weights=sizes)
        error = np.sqrt(sizes @ (variances + (means - mean) ** 2)) / sizes.sum()
        words = f"mean log p(w) {mean:.6f} +- {error:.6f}; {report_counts(counts)}"
        say(words, str(p_values), table=output)


DRAWN_AT_ONCE = 100_000


def sample(
    model: Model,
    output: Output,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows.")] = 1000,
    seed: Seed = 0,
) -> None:
    """Draw true values from the deconvolved density.

    Draws of a model with covariates are over the mix that the fitted rows have.

    Example: deconflow sample model -n 100 -o draws.csv
    """
    with one_line_errors():
        saved, pa = load(model), need("pyarrow")
        columns = [
            NewColumn(name, f"draw of the true {name}", unit) for name, unit in saved.units.items()
        ]
        schema = pa.schema(new_fields(columns, output))
        with writing(output, schema) as write:
            for start in range(0, number, DRAWN_AT_ONCE):
                count = min(DRAWN_AT_ONCE, number - start)
                own_seed = seed + start // DRAWN_AT_ONCE
                drawn = saved.estimator.sample(count, random_state=own_seed)
                write(pa.table(list(drawn.T), schema=schema))
        say(f"{number} rows written to {output}.", table=output)
