"""Errors that are not quite known: their size, correlation and zero points, from the rows."""

from deconflow.errors.learn import learn_errors
from deconflow.errors.learned import LearnedErrors

__all__ = ["LearnedErrors", "learn_errors"]
