"""Searches of scikit-learn, as GridSearchCV, that would score without the noise."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from sklearn import get_config


def refuse_search_without_routing(estimator: Any, noise: Any) -> None:
    """Raise once if scikit-learn fits with noise, and would then ask for a score without.

    It would swallow the error of every single score, and choose by none of them.
    """
    if noise is None or get_config()["enable_metadata_routing"]:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _scores_itself(frame, estimator):
        frame = frame.f_back
    if frame is not None:
        raise ValueError(
            "Expected scikit-learn's metadata routing for a search or cross-validation with noise, "
            "because otherwise noise reaches fit but not score; got it switched off. Run this line "
            "first: sklearn.set_config(enable_metadata_routing=True). "
            f"{type(estimator).__name__} asks for noise by itself, as after "
            "set_fit_request(noise=True)."
        )


def _scores_itself(frame: FrameType, estimator: Any) -> bool:
    """Whether scikit-learn fits here, to ask the estimator itself, no scorer, for a score."""
    if frame.f_code.co_name != "_fit_and_score":
        return False
    asked, scorer = (frame.f_locals.get(name) for name in ("estimator", "scorer"))
    scorers = getattr(scorer, "_scorers", {"score": scorer}).values()
    own = all(type(each).__name__ == "_PassthroughScorer" for each in scorers)
    return own and getattr(asked, "_final_estimator", asked) is estimator
