"""Functions of a fit and rows: statistics, components, regression, self-test."""

from deconflow.answers.completing import completed
from deconflow.answers.components import Components, components_of
from deconflow.answers.refits import run_self_test
from deconflow.answers.regression import Regression, regression_of
from deconflow.answers.self_test import Refit, SelfTest
from deconflow.answers.statistics import Figures, Statistics, statistics_of

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
