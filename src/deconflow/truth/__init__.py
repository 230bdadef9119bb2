"""What is known of the truth beside its measurements: bounds, covariates, atoms, a background."""

from deconflow.truth.bounds import MOST_MIRRORS, Bounds, as_bounds
from deconflow.truth.covariates import NOISE, Column, Covariates, columns_by_name, given_parts
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
    "NOISE",
    "Background",
    "Bounds",
    "Column",
    "Covariates",
    "GivenBackground",
    "LocationScale",
    "Spline",
    "UniformBackground",
    "as_atoms",
    "as_background",
    "as_bounds",
    "columns_by_name",
    "given_parts",
]
