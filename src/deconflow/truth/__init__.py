"""What is known of the truth beside its measurements: bounds, covariates, atoms, a background."""

from deconflow.truth.bounds import MOST_MIRRORS, Bounds, as_bounds
from deconflow.truth.covariates import Column, Covariates, Given
from deconflow.truth.location_scale import LocationScale, Spline
from deconflow.truth.parts import (
    Background,
    GivenBackground,
    UniformBackground,
    as_atoms,
    as_background,
)

__all__ = [
    "MOST_MIRRORS",
    "Background",
    "Bounds",
    "Column",
    "Covariates",
    "Given",
    "GivenBackground",
    "LocationScale",
    "Spline",
    "UniformBackground",
    "as_atoms",
    "as_background",
    "as_bounds",
]
