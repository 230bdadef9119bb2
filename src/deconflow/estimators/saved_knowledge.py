"""What is known of the truth, as a model's files hold it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from deconflow.estimators.knowledge import Knowledge
from deconflow.estimators.saved_values import prefixed, refuse, under
from deconflow.truth import (
    Covariates,
    GivenBackground,
    LocationScale,
    UniformBackground,
    as_atoms,
    as_bounds,
)

PREFIX = "known"
"""What the names of its arrays begin with."""


def knowledge_state(known: Knowledge) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is saved: details for JSON, and arrays."""
    if isinstance(known.background, GivenBackground):
        raise ValueError(
            'Expected background="uniform" in a model that is saved; got a density of your own, '
            "which JSON cannot hold."
        )
    details: dict[str, Any] = {
        "covariates": None if known.covariates is None else known.covariates.as_dict(),
        "background_share": known.background_share,
        "mirrored": known.bounds is not None,
        "bounds": None if known.bounds is None else known.bounds.pairs(),
    }
    arrays = {"kept": known.kept, "atom_weights": known.atom_weights}
    if known.background is not None:
        arrays |= {"low": known.background.low, "high": known.background.high}
    if known.curves is not None:
        arrays |= prefixed("curves", known.curves.state())
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return details, prefixed(PREFIX, tensors)


def saved_knowledge(model: Any, details: dict[str, Any], arrays: dict[str, Tensor]) -> Knowledge:
    """Take what :func:`knowledge_state` gave."""
    own, names = under(arrays, PREFIX), model._names
    told = getattr(model, "bounds", None)
    bounds = as_bounds(details.get("bounds") or told, names)  # some were implied by the noise
    background = None
    if "low" in own:
        background = UniformBackground(own["low"].numpy(), own["high"].numpy())
    covariates = details["covariates"]
    found = Knowledge(
        bounds if details["mirrored"] else None,
        None if covariates is None else Covariates.from_dict(covariates),
        as_atoms(getattr(model, "atoms", None), names, bounds),
        background,
        kept=own["kept"].numpy(),
        atom_weights=own["atom_weights"].numpy(),
        background_share=float(details["background_share"]),
    )
    refuse("atom_weights", len(found.atom_weights) != len(found.atoms), "one for each atom")
    if covariates is not None:
        found.curves = LocationScale.from_state(
            {name: tensor.numpy() for name, tensor in under(own, "curves").items()}
        )
    return found
