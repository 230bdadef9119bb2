"""How rows came to be measured: what makes a row be seen."""

from deconflow.measuring.selection import (
    Chances,
    Efficiency,
    Rule,
    Selection,
    as_rule,
    said_errors,
    seen_rows,
)

__all__ = [
    "Chances",
    "Efficiency",
    "Rule",
    "Selection",
    "as_rule",
    "said_errors",
    "seen_rows",
]
