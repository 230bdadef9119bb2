"""The work of ``Deconvolver``: a plan, candidates of several kinds, and their weights."""

from deconflow.auto.candidates import Member, Part, Resources, ensemble_of, fixed
from deconflow.auto.fit import KINDS, MIXTURES, Fitted, Standing, fit_density
from deconflow.auto.plan import make_plan

__all__ = [
    "KINDS",
    "MIXTURES",
    "Fitted",
    "Member",
    "Part",
    "Resources",
    "Standing",
    "ensemble_of",
    "fit_density",
    "fixed",
    "make_plan",
]
