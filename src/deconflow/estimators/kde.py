"""DeconvolvingKDE: kernel density deconvolution in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow.checks import as_floats, check_choice
from deconflow.classical import KERNELS, MOST_ORDERS, RULES, fit_kde
from deconflow.estimators.grid import GridEstimator, fourier_rows, in_usual_units, measured_spread
from deconflow.estimators.saved_values import refuse
from deconflow.model_files import check_form
from deconflow.observations import Observations
from deconflow.standardising import Standardiser

WIDEST = 1e6
"""Largest bandwidth, in spreads of the measurements: one would see nothing but the kernel."""


class DeconvolvingKDE(GridEstimator):
    r"""The deconvolving kernel density estimator, in one to three dimensions.

    .. math:: \hat f(x) = (2 \pi)^{-D} \int e^{-i t \cdot x} \prod_d \phi_K(h_d t_d) \,
              \frac{\sum_j a_j \, \bar\phi_j(t) \, e^{i t \cdot w_j}}{\sum_j a_j |\phi_j(t)|^2} dt

    with :math:`\phi_j` the characteristic function of row j's noise and :math:`a_j` its weight.
    What is negative is cut off and the rest scaled to one.

    Parameters
    ----------
    bandwidth : {"plug_in", "normal_reference", "cv"}, float or sequence of float
        Rule for the bandwidth ``h``: plug-in after Delaigle and Gijbels, normal reference, or
        least-squares cross-validation. A number, or one for each dimension, is taken as it is; the
        kernel lets frequencies up to ``1 / h`` through.
    kernel : {"smooth", "sinc", "flat_top"}
        Characteristic function of the kernel: ``(1 - t^2)^3``, one up to the edge, or one up to a
        half and then a line to zero.
    background : float
        Share of a normal law as wide as the measurements, which keeps log densities finite where
        the estimate is zero.
    bounds : dict, sequence or None
        Where the truth can be at all: ``{"x": (0, None)}``, or a pair ``(low, high)`` per column,
        None for no bound.

    Attributes
    ----------
    bandwidth_ : array
        ``(D,)`` bandwidths.
    density_ : FittedDensity
        The density; ``density_.grid`` has its values.
    relative_error_ : float
        Integrated squared error that the noise causes, over the integrated square of the density.
        Above 0.5, the fit warns.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Stefanski and Carroll (1990), "Deconvolving kernel density estimators", Statistics 21.
    Fan (1991), "On the optimal rates of convergence for nonparametric deconvolution problems",
    Annals of Statistics 19.
    Delaigle and Gijbels (2004), "Practical bandwidth selection in deconvolution kernel density
    estimation", Computational Statistics and Data Analysis 45.
    Delaigle and Meister (2008), "Density estimation with heteroscedastic error", Bernoulli 14.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v = rng.choice([-1.0, 1.0], size=(5000, 1)) + 0.3 * rng.normal(size=(5000, 1))
    >>> w = v + rng.laplace(scale=0.2, size=v.shape)
    >>> from deconflow import noise
    >>> model = DeconvolvingKDE().fit(w, noise=noise.laplace([0.2]))
    >>> np.exp(model.score_samples([[-1.0], [0.0], [1.0]])).round(1)  # the truth has 0.7, 0.0, 0.7
    array([0.6, 0. , 0.6])
    """

    def __init__(
        self,
        bandwidth: str | float | Sequence[float] = "plug_in",
        *,
        kernel: str = "smooth",
        background: float = 1e-3,
        bounds: Any = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.background = background
        self.bounds = bounds

    def describe(self) -> str:
        """Say in one line what was fitted."""
        widths = ", ".join(f"{h:.3g}" for h in self.bandwidth_)
        return f"Kernel estimate with bandwidth {widths}."

    def _check_parameters(self) -> None:
        check_choice("kernel", self.kernel, KERNELS)
        if isinstance(self.bandwidth, str) and self.bandwidth not in RULES:
            raise ValueError(
                f"Expected bandwidth as one of {sorted(RULES)} or a positive number; "
                f"got {self.bandwidth!r}."
            )
        self._check_background()

    def _fit(self, data: Observations) -> None:
        data, units = in_usual_units(data)
        rows = fourier_rows(data, type(self).__name__, max(MOST_ORDERS))
        truth = Standardiser.fit(data)
        spread = measured_spread(data, truth)
        bandwidth = self._checked_bandwidth(spread, units)
        chosen, fit = fit_kde(rows, truth.scale.numpy(), spread, self.kernel, bandwidth)
        self.bandwidth_ = chosen * units
        self._take(fit, truth.location.numpy(), spread, units)

    def _checked_bandwidth(
        self, spread: NDArray[np.float64], units: NDArray[np.float64]
    ) -> str | NDArray[np.float64]:
        """Return a rule, or one number per dimension, in ``units``, that a grid can resolve."""
        if isinstance(self.bandwidth, str):
            return self.bandwidth
        dim = len(spread)
        if isinstance(self.bandwidth, bool) or self.bandwidth is None:
            raise ValueError(f"Expected bandwidth as a positive number; got {self.bandwidth!r}.")
        values = as_floats(self.bandwidth, "bandwidth")
        if values.ndim == 0:
            values = np.full(dim, float(values))
        if values.shape != (dim,) or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                f"Expected bandwidth as a positive number, or {dim} of them, one for each column "
                f"of w; got {self.bandwidth!r}."
            )
        smallest = 6 * spread / (2 * np.pi * MOST_ORDERS[dim])
        values = values / units
        if (values < smallest).any():
            raise ValueError(
                "Expected a bandwidth that a grid can resolve, of at least "
                f"{[float(f'{h:.3g}') for h in smallest * units]}; got {self.bandwidth!r}."
            )
        if (values > WIDEST * spread).any():
            raise ValueError(
                f"Expected a bandwidth of at most {WIDEST:g} times the spread of w, which is "
                f"{[float(f'{h:.3g}') for h in spread * units]}; got {self.bandwidth!r}."
            )
        return values

    def _learned(self) -> dict[str, Any]:
        return {"bandwidth": self.bandwidth_.tolist()}

    def _learn(self, learned: dict[str, Any]) -> None:
        check_form(learned, {"bandwidth": [float]}, "learned")
        self.bandwidth_ = np.array(learned["bandwidth"])
        fits = self.bandwidth_.shape == (self.n_latent_,) and (self.bandwidth_ > 0).all()
        refuse("bandwidth", not fits, "a positive number for each column")
