"""What ``Deconvolver`` does: a plan, candidates of several kinds, and their weights."""

from deconflow.auto.candidates import NAMES, Part, Resources
from deconflow.auto.fit import Fitted, Standing, fit_density
from deconflow.auto.flows import ensemble_of
from deconflow.auto.plan import Plan, make_plan
from deconflow.auto.training import Member

__all__ = [
    "NAMES",
    "Fitted",
    "Member",
    "Part",
    "Plan",
    "Resources",
    "Standing",
    "ensemble_of",
    "fit_density",
    "make_plan",
]
