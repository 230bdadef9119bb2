"""How rows came to be measured: what makes a row be seen."""

from deconflow.measuring.chances import Chances, said_errors, seen_rows
from deconflow.measuring.selection import Efficiency, Rule, Selection, as_rule

__all__ = [
    "Chances",
    "Efficiency",
    "Rule",
    "Selection",
    "as_rule",
    "said_errors",
    "seen_rows",
]
