"""What a model of ``Deconvolver`` is saved as: its candidates, fold by fold."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import numpy as np
from torch import Tensor

from deconflow.auto import KINDS, MIXTURES, Fitted, Member, Part, Standing
from deconflow.certificate import Certificate
from deconflow.estimators.saved_values import (
    PARTS,
    SAVED_HISTORY,
    joined,
    parted,
    refuse,
    saved_mixture,
    saved_table,
    under,
)
from deconflow.mixtures import GaussianMixture
from deconflow.saving import NUMBERS, SAVED_CERTIFICATE, check_form

SAVED_DETAILS = {
    "size": {str: float},
    "certificate": SAVED_CERTIFICATE,
    "selection": {"n_components": NUMBERS, "share": NUMBERS, str: object},
    "histories": [SAVED_HISTORY],
    "candidates": {
        str: {
            "held_out": float,
            "behind": float,
            "error": float,
            "share": float,
            "sizes": [int],
        }
    },
    "notes": [str],
}


def state_of(fitted: Fitted) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return details that JSON holds, and arrays; of candidates without a share their standing."""
    candidates: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, standing in fitted.standings.items():
        carried = fitted.parts[name] if standing.share > 0 else []
        mixtures = [part for part in carried if isinstance(part, GaussianMixture)]
        sizes = [
            part.n_components if isinstance(part, GaussianMixture) else len(part)
            for part in carried
        ]
        candidates[name] = {**asdict(standing), "sizes": sizes}
        if mixtures:
            tensors |= _named(name, mixtures)
    tensors |= _named("proposing", [fitted.proposing])
    for m, member in enumerate(fitted.members):
        tensors |= {f"flow{m}.{name}": tensor for name, tensor in member.state.items()}
    details = {
        "size": fitted.members[0].size if fitted.members else {},
        "candidates": candidates,
        "certificate": fitted.certificate.as_dict(),
        "selection": {k: v.tolist() for k, v in fitted.table.items()},
        "histories": [member.history for member in fitted.members],
        "notes": fitted.notes,
    }
    return details, tensors


def fitted_of(details: dict[str, Any], tensors: dict[str, Tensor], dim: int) -> Fitted:
    """Take what :func:`state_of` gave."""
    check_form(details, SAVED_DETAILS, "details")
    members = [
        Member(details["size"], under(tensors, f"flow{m}"), history)
        for m, history in enumerate(details["histories"])
    ]
    parts, standings = _of_candidates(details["candidates"], tensors, dim, members)
    return Fitted(
        parts,
        standings,
        saved_mixture(under(tensors, "proposing"), PARTS, dim),
        saved_table(details["selection"]),
        Certificate.from_dict(details["certificate"]),
        details["notes"],
    )


def _of_candidates(
    saved: dict[str, Any], tensors: dict[str, Tensor], dim: int, members: list[Member]
) -> tuple[dict[str, list[Part]], dict[str, Standing]]:
    parts: dict[str, list[Part]] = {}
    standings = {}
    for name, said in saved.items():
        sizes = said["sizes"]
        refuse("candidates", name not in (MIXTURES, *KINDS), f"known: {name}")
        standings[name] = Standing(*(said[each.name] for each in fields(Standing)))
        refuse("share", not 0 <= standings[name].share <= 1, "a share")
        if standings[name].share == 0:
            continue
        if name == "flows":
            parts[name] = _flows_by_fold(members, sizes)
        else:
            parts[name] = list(parted(under(tensors, name), sizes, dim))
    total = sum(each.share for each in standings.values())
    refuse("shares", abs(total - 1) > 1e-6, "of sum one")
    folds = {len(part) for part in parts.values() if isinstance(part[0], GaussianMixture)}
    refuse("candidates", len(folds) != 1, "fitted without the same folds")
    refuse("flows", ("flows" in parts) != bool(members), "those of its histories")
    return parts, standings


def _flows_by_fold(members: list[Member], sizes: list[int]) -> list[Part]:
    right = min(sizes, default=0) > 0 and sum(sizes) == len(members)
    refuse("sizes", not right, "those of its flows")
    ends = np.cumsum(sizes)
    return [members[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _named(name: str, mixtures: list[GaussianMixture]) -> dict[str, Tensor]:
    return {f"{name}.{part}": array for part, array in joined(mixtures).items()}
