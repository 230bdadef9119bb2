"""Saving and loading what was learned of the errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from deconflow.errors import LearnedErrors
from deconflow.estimators.saved_values import prefixed, refuse, under
from deconflow.saving import check_form

PREFIX = "errors"
"""What the names of its arrays begin with."""
KINDS = ("scale", "jitter", "correlation", "groups")
BY_COLUMN = (
    "scale", "scale_error", "jitter", "jitter_error", "tied", "usual", "spread",
)  # fmt: skip
BY_PAIR = ("correlation", "correlation_error")
BY_GROUP = ("shifts", "shifts_error")
LABELS = (str, int, float, bool)
SAVED = {"kinds": [str], "groups": [object]}


def errors_state(errors: LearnedErrors) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is saved: details for JSON, and arrays."""
    odd = [label for label in errors.groups if not isinstance(label, LABELS)]
    if odd:
        raise ValueError(
            "Expected numbers or text as groups of the noise in a model that is saved; got "
            f"{odd[0]!r}, which JSON cannot hold."
        )
    arrays = {name: getattr(errors, name) for name in (*BY_COLUMN, *BY_PAIR, *BY_GROUP)}
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    details = {"kinds": list(errors.kinds), "groups": list(errors.groups)}
    return details, prefixed(PREFIX, tensors)


def saved_errors(
    names: list[str], details: dict[str, Any], arrays: dict[str, Tensor]
) -> LearnedErrors:
    """Take what :func:`errors_state` gave; ``names`` are those of the measured columns."""
    check_form(details, SAVED, "errors")
    own = {name: array.double().numpy() for name, array in under(arrays, PREFIX).items()}
    dim, groups = len(names), tuple(details["groups"])
    shapes: dict[str, tuple[int, ...]] = {name: (dim,) for name in BY_COLUMN}
    shapes |= {name: (dim, dim) for name in BY_PAIR}
    shapes |= {name: (len(groups), dim) for name in BY_GROUP}
    for name, shape in shapes.items():
        refuse(f"errors.{name}", own[name].shape != shape, "one for each column")
        refuse(f"errors.{name}", not np.isfinite(own[name]).all(), "finite")
    refuse("errors.scale", (own["scale"] <= 0).any(), "positive")
    refuse("errors.jitter", (own["jitter"] < 0).any(), "at least zero")
    lowest = np.linalg.eigvalsh(own["correlation"])[0]
    refuse("errors.correlation", lowest <= 0, "positive definite")
    refuse("errors.kinds", not {*details["kinds"]} <= {*KINDS}, f"among {', '.join(KINDS)}")
    odd = any(not isinstance(label, LABELS) for label in groups) or len({*groups}) < len(groups)
    refuse("errors.groups", odd, "different numbers or texts")
    return LearnedErrors(
        tuple(names), tuple(details["kinds"]), groups=groups,
        **{name: own[name] for name in shapes},
    )  # fmt: skip
