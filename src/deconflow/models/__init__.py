"""Fits of rows by any engine, and the methods that every fit has."""

from deconflow.models.files import read_model, write_model
from deconflow.models.fit import Engine, Fit, fit_rows, refuse_beyond_memory, restored
from deconflow.models.questions import (
    CHECKING,
    certificate,
    certified,
    condition,
    criterion,
    fitted_rows,
    measured_values,
    p_values,
    posteriors,
    ready,
    refitted_rows,
    refuse_changed,
    simulated_rows,
    stream_of_fit,
)

__all__ = [
    "CHECKING",
    "Engine",
    "Fit",
    "certificate",
    "certified",
    "condition",
    "criterion",
    "fit_rows",
    "fitted_rows",
    "measured_values",
    "p_values",
    "posteriors",
    "read_model",
    "ready",
    "refitted_rows",
    "refuse_beyond_memory",
    "refuse_changed",
    "restored",
    "simulated_rows",
    "stream_of_fit",
    "write_model",
]
