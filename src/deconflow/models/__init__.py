"""Fits of rows by any engine, and the methods that every fit has."""

from deconflow.models.certifying import CHECKING, certificate, certified
from deconflow.models.files import read_model, write_model
from deconflow.models.fit import Engine, Fit, fit_rows, refuse_beyond_memory, restored
from deconflow.models.questions import (
    Draws,
    check_draws,
    condition,
    criterion,
    fitted_rows,
    measured_values,
    p_values,
    posteriors_in_chunks,
    posteriors_of_stream,
    ready,
    refitted_rows,
    refuse_changed,
    seen_share,
    simulated_rows,
)

__all__ = [
    "CHECKING",
    "Draws",
    "Engine",
    "Fit",
    "certificate",
    "certified",
    "check_draws",
    "condition",
    "criterion",
    "fit_rows",
    "fitted_rows",
    "measured_values",
    "p_values",
    "posteriors_in_chunks",
    "posteriors_of_stream",
    "read_model",
    "ready",
    "refitted_rows",
    "refuse_beyond_memory",
    "refuse_changed",
    "restored",
    "seen_share",
    "simulated_rows",
    "write_model",
]
