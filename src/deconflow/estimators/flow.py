"""FlowDeconvolver: one flow, one objective, in scikit-learn's shape."""

from pathlib import Path
from typing import Any

from deconflow.checks import check_choice
from deconflow.engines import OBJECTIVES, Flow
from deconflow.estimators.base import DensityEstimator
from deconflow.extras import need_flows
from deconflow.randomness import RandomState

POSTERIORS = ("flow", "mixture", "exact")
NEED_DERIVATIVES = ("elbo", "iw")


class FlowDeconvolver(DensityEstimator):
    r"""Density deconvolution with one normalizing flow and an amortised posterior.

    The density :math:`p(v)` of the truth is a flow; a second, conditional flow
    :math:`q(v | w, n)` stands in for the posterior of each row; both are trained on a lower
    bound of :math:`\sum_i \log p(w_i)` with :math:`w_i = v_i + n_i`, or on an estimate of it.

    Parameters
    ----------
    flow : {"maf", "made", "spline", "coupling", "mixture", "gaussian_mixture"}
        Architecture of the density; see :mod:`deconflow.densities.flows`. The last is no
        flow but a plain mixture of ``base_components`` Gaussians.
    objective : {"iw", "elbo", "roulette", "coupled"}
        The importance-weighted bound; the evidence lower bound; the unbiased roulette; unbiased
        coupled chains. See :mod:`deconflow.objectives`.
    n_draws : int
        Posterior draws ``K`` per row and step.
    posterior_family : {"flow", "mixture", "exact"}
        The recognition flow; a network that gives Gaussian mixtures, for objectives that need no
        derivatives of draws; the closed form, for the Gaussian mixture under Gaussian noise.
    n_layers, hidden
        Layers of the density, and the width of their networks. The recognition flow has one layer
        more, networks of the same width, and an embedding of ``w`` and its noise of that size.
    base_components : int
        1 for a standard normal base of the flow, more for a Gaussian mixture.
    epochs : int or None
        Passes through the rows; None for as many as make about 4,000 steps, at most 300.
    batch_size, learning_rate
        Rows per step, and Adam's step size at the start, which falls along a cosine.
    validation_fraction : float
        Share of the rows that chooses the best epoch; 0 to train on all rows and keep the last.
    bounds : dict, sequence or None
        Where the truth can be at all: ``{"x": (0, None)}``, or a pair ``(low, high)`` per column,
        None for no bound.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    device : str
        ``"cpu"``, ``"cuda"``, or ``"auto"`` for the best there is. Networks are trained there, and
        give their answers from there, in single precision. On a GPU products are rounded to tf32
        if ``torch.backends.cuda.matmul.allow_tf32`` says so: it is left as you have it, and torch
        has it off.
    checkpoint : path or None
        A file to write after every epoch; if it is there, an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    density_ : FittedDensity
        The density of the truth, in the units of the data; ``density_.density`` is the network.
    posterior_ : PosteriorModel
        The posterior, in standardised units.
    standardiser_ : Standardiser
        The change of units.
    history_ : History
        What happened in training.
    parameters_ : dict
        The parameters the model was fitted with.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Dockhorn, Ritchie, Yu, Murray (2020), "Density Deconvolution with Normalizing Flows",
    https://arxiv.org/abs/2006.09396

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(200, 2)) + rng.normal(size=(200, 2)) * [0.3, 0.6]
    >>> model = FlowDeconvolver(epochs=2, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.sample(5).shape
    (5, 2)
    """

    _engine_type = Flow

    def __init__(
        self,
        flow: str = "mixture",
        *,
        objective: str = "iw",
        n_draws: int = 10,
        posterior_family: str = "flow",
        n_layers: int = 2,
        hidden: int = 64,
        base_components: int = 1,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        validation_fraction: float = 0.1,
        bounds: Any = None,
        random_state: RandomState = None,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            bounds=bounds,
            random_state=random_state,
            device=device,
            checkpoint=checkpoint,
            verbose=verbose,
        )
        self.flow = flow
        self.objective = objective
        self.n_draws = n_draws
        self.posterior_family = posterior_family
        self.n_layers = n_layers
        self.hidden = hidden
        self.base_components = base_components
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction

    def _check_together(self) -> None:
        need_flows()
        from deconflow.densities import DENSITIES

        check_choice("flow", self.flow, DENSITIES)
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("posterior_family", self.posterior_family, POSTERIORS)
        if self.posterior_family == "exact" and self.flow != "gaussian_mixture":
            raise ValueError(
                "Expected flow='gaussian_mixture' for posterior_family='exact', because no other "
                f"density has an exact posterior; got flow={self.flow!r}."
            )
        if self.posterior_family == "mixture" and self.objective in NEED_DERIVATIVES:
            others = sorted(set(OBJECTIVES) - set(NEED_DERIVATIVES))
            raise ValueError(
                f"Expected objective to be one of {others} for posterior_family='mixture', whose "
                f"draws have no derivatives; got {self.objective!r}."
            )
        if self.objective == "coupled" and self.n_draws < 2:
            raise ValueError(
                f"Expected n_draws of at least 2 for objective='coupled'; got {self.n_draws}."
            )
