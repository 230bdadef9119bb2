"""Penalised log densities in one and two columns: B-splines, smoothed by marginal likelihood.

``fit_log_spline`` fits rows in any units; its answer has the density on a grid, as a mixture of
Gaussians, and draws of it for bands.
"""

from deconflow.splines.fit import MOST_COLUMNS, LogSplineFit, fit_log_spline, work_of_fit

__all__ = ["MOST_COLUMNS", "LogSplineFit", "fit_log_spline", "work_of_fit"]
