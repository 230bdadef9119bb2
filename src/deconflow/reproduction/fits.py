"""The fits by the names that rows give them."""

from __future__ import annotations

from collections.abc import Callable

from deconflow.estimators import Deconvolver
from deconflow.reproduction.jobs import Job, Outcome
from deconflow.reproduction.scoring import toy_outcome, wine_outcome
from deconflow.reproduction.toy_fits import after_pretraining, pretrained, toy_flow, toy_xd
from deconflow.reproduction.wine_fits import (
    grid_point,
    wine_flow,
    wine_plain,
    wine_xd,
    wine_xd_average,
)


def default(job: Job) -> Outcome:
    """Fit our default, on the toy or on a wine."""
    toy = job.task.dataset == "toy"
    sample = job.toy() if toy else job.wine()
    rows = job.protocol.train_rows if toy else len(sample.train)
    model = Deconvolver(random_state=job.seed, n_jobs=1, checkpoint=job.checkpoint())
    model.fit(sample.train.w[:rows], noise=sample.noise)
    details = {"method": model.method_, "summary": model.summary()}
    return (toy_outcome if toy else wine_outcome)(job, model, sample, {}, details)


FITS: dict[str, Callable[[Job], Outcome]] = {
    fit.__name__: fit
    for fit in (
        after_pretraining,
        default,
        grid_point,
        pretrained,
        toy_flow,
        toy_xd,
        wine_flow,
        wine_plain,
        wine_xd,
        wine_xd_average,
    )
}
