"""Deconvolver: candidates of several kinds, averaged by weights that noisy rows teach."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from deconflow import models
from deconflow.checks import warn_caller
from deconflow.core import Run
from deconflow.engines import Auto
from deconflow.estimators.base import DensityEstimator
from deconflow.fits import FittedDensity
from deconflow.models import Fit
from deconflow.observations import Observations
from deconflow.randomness import RandomState


class UntrustedFitWarning(UserWarning):
    """The certificate of a fit has found a reason for doubt."""


class Deconvolver(DensityEstimator):
    r"""Density deconvolution with nothing to set.

    Fits several kinds of densities: averages of Gaussian mixtures (Extreme Deconvolution), Bayesian
    mixtures, penalised log-densities in one and two columns, and normalizing flows in more, by
    chains that leave no bias from inexact posteriors. Each is fitted without every fold of the
    rows and scored on it; the answer is their average

    .. math:: p(v) = \sum_c a_c \, p_c(v),

    with weights learned on these noisy rows, near even where the rows cannot tell, and none for a
    kind that does not help. ``certificate_`` says how far to trust the answer.

    Parameters
    ----------
    quick : bool
        Whether to be content with a first answer, without flows and with fewer fits.
    n_members : int or None
        Number of flows, over all folds; None for the usual number. More are better, and take
        longer.
    bounds, atoms, background
        What is known of the truth: see :class:`XDGMM`.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Processors to use, for threads of the mixtures and processes of the flows; None or -1 for
        all that the process was allowed. The answer does not depend on it, but for rounding.
    device : str
        Where flows are trained, in float32: ``"cpu"``, ``"cuda"``, or ``"auto"`` for the best there
        is. Mixtures and all answers are computed on the processor. On a GPU, products are rounded
        to tf32 if ``torch.backends.cuda.matmul.allow_tf32`` says so: it is left as you have it, and
        torch has it off.
    checkpoint : path or None
        A folder to save flows in while they are trained; an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    density_ : FittedDensity
        The density of the truth, in the units of the data.
    weights_ : dict of float
        The share of each kind of candidate in the answer, by its name: ``"mixtures"``,
        ``"bayes"``, ``"spline"``, ``"flows"``.
    candidates_ : dict of FittedDensity
        Every candidate by itself. Those without a share are not saved with the model.
    certificate_ : Certificate
        How far to trust it; :meth:`summary` prints it.
    selection_ : dict of arrays
        How the mixtures' components and floors were weighed.
    mixtures_ : list of GaussianMixture
        The candidates that are mixtures, averaged by their weights, one for each fold left out,
        in the units of the data.
    histories_ : list of dict
        What happened in the training of each flow.
    standardiser_ : Standardiser
        The change of units.
    n_features_in_ : int
        Number of columns of ``w``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(300, 2)) + rng.normal(size=(300, 2)) * [0.3, 0.6]
    >>> model = Deconvolver(quick=True, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.sample(5).shape
    (5, 2)
    """

    _engine_type = Auto

    def __init__(
        self,
        *,
        quick: bool = False,
        n_members: int | None = None,
        bounds: Any = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            bounds=bounds,
            atoms=atoms,
            background=background,
            random_state=random_state,
            n_jobs=n_jobs,
            device=device,
            checkpoint=checkpoint,
            verbose=verbose,
        )
        self.quick = quick
        self.n_members = n_members

    def _check_together(self) -> None:
        if not isinstance(self.quick, bool):
            raise ValueError(f"Expected quick as True or False; got {self.quick!r}.")
        if self.quick and self.n_members is not None:
            raise ValueError(
                f"Expected no n_members with quick=True, which has no flows; got {self.n_members}."
            )

    @property
    def candidates_(self) -> dict[str, FittedDensity]:
        """Every candidate by itself, also those without a share until the model is saved."""
        alone = self.fit_.solution.candidates(self.fit_.names, self.fit_.threads)
        return {name: models.restored(each, self.fit_.learned) for name, each in alone.items()}

    def summary(self) -> str:
        """Return what was fitted, which candidate got which share, and how far to trust it."""
        solution = self.fit_.solution
        lines = [self.describe(), *self.known_, *solution.standings(), *solution.fitted.notes]
        return "\n".join([*lines, self.certificate_.in_words()])

    def _finished(self, fit: Fit, rows: Observations, run: Run) -> Fit:
        """Add a certificate."""
        run.progress.begin(models.CHECKING)
        solution = fit.solution
        checked = models.fitted_rows(fit, rows, solution.seed)
        own = models.certified(fit, checked, solution.seed, solution.fitted.certificate)
        for warning in own.warnings:
            warn_caller(f"Do not trust this fit blindly: {warning}.", UntrustedFitWarning)
        fitted = replace(solution.fitted, certificate=own)
        return replace(fit, solution=replace(solution, fitted=fitted))
