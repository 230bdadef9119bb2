"""What ``Deconvolver`` does: a plan, stacks of flows, the choice between flows and mixtures."""

from deconflow.auto.fit import Fitted, Resources, blend_of, fit_density
from deconflow.auto.plan import FLOW_SHARE, Plan, make_plan
from deconflow.auto.training import Member

__all__ = [
    "FLOW_SHARE",
    "Fitted",
    "Member",
    "Plan",
    "Resources",
    "blend_of",
    "fit_density",
    "make_plan",
]
