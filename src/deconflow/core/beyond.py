"""Rows beyond memory: a sample of them that any engine can fit, with a way to all of them."""

from dataclasses import replace
from typing import Any

from deconflow.core.door import observe
from deconflow.core.run import Run
from deconflow.labels import Labels
from deconflow.observations import Observations
from deconflow.streams import RowStream

#: Measured values of the sample that is in memory while all rows are passed over.
SAMPLE_VALUES = 3_000_000
COUNTING = "counting and sampling rows"


def sampled(stream: RowStream, noise: Any, facts: dict[str, Any], run: Run) -> Observations:
    """Pass over all rows once, and return some of them, checked as any rows to fit."""
    for name, value in facts.items():
        if value is not None:
            raise ValueError(
                f"Expected no {name} with a RowStream, whose rows have all that is known of "
                "them; got some. open_rows takes weights= and errors=."
            )
    if noise is not None:
        stream = stream.with_errors(noise)
    if stream.reader.columns.fit_errors:
        raise ValueError(
            "Expected errors that are known for rows beyond memory; got some to learn. Learn "
            "them from a sample, and give what was learned."
        )
    run.progress.begin(COUNTING, "rows", stream.n_rows)
    n_sample = max(1, SAMPLE_VALUES // len(stream.names))
    overview = stream.overview(n_sample, run.stream_seed(), run.progress.advance)
    assert overview.sample is not None
    run.beyond = stream, overview
    rows = observe(overview.sample.w, **overview.sample.facts)
    units = list(stream.units.values())
    return replace(rows, labels=Labels(tuple(stream.names), units if any(units) else None))
