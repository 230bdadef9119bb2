"""Functions of a fit and rows: statistics, components, regression, self-test."""

from deconflow.answers.regression import Regression, regression_of
from deconflow.answers.self_test import Refit, SelfTest, completed, run_self_test
from deconflow.answers.statistics import (
    Components,
    Figures,
    Statistics,
    components_of,
    statistics_of,
)

__all__ = [
    "Components",
    "Figures",
    "Refit",
    "Regression",
    "SelfTest",
    "Statistics",
    "completed",
    "components_of",
    "regression_of",
    "run_self_test",
    "statistics_of",
]
