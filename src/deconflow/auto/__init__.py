"""The work of ``Deconvolver``: candidates of several kinds, and their weights."""

from deconflow.auto.candidates import Member, Part, Plan, ensemble_of, fixed
from deconflow.auto.fit import KINDS, MIXTURES, Fitted, Standing, fit_density

__all__ = [
    "KINDS",
    "MIXTURES",
    "Fitted",
    "Member",
    "Part",
    "Plan",
    "Standing",
    "ensemble_of",
    "fit_density",
    "fixed",
]
