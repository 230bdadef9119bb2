"""The paper's data: its mixture of three Gaussians, and the two wines."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow import GaussianMixture, Observations
from deconflow.xd import posterior
from paper.protocols import FILE_ORDER

Array = NDArray[np.float64]

MEANS = np.array([[-2.0, 0.0], [0.0, -2.0], [0.0, 2.0]])
COVARIANCES = np.array([np.diag([0.09, 1.0]), np.diag([1.0, 0.09]), np.diag([1.0, 0.09])])
TOY_NOISE = np.diag([0.1, 1.0])
TRUTH = GaussianMixture(np.full(3, 1 / 3), MEANS, COVARIANCES)
BLURRED = GaussianMixture(np.full(3, 1 / 3), MEANS, COVARIANCES + TOY_NOISE)
TOY_SEED = 0
#: A measurement whose exact posterior has two isolated modes.
TEST_POINT = np.array([[0.0, 0.3]])

WINE_VARIANCE, TEST_SHARE = 0.1, 0.1
OPENML = {"white": 44971, "red": 44972}
#: All but the two integer-valued ones, the sulfur dioxides.
ATTRIBUTES = (
    "fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "density",
    "pH", "sulphates", "alcohol",
)  # fmt: skip

DATA_VARIABLE = "DECONFLOW_DATA"


@dataclass(frozen=True)
class Rows:
    """True values ``v``, and measurements ``w`` of them."""

    v: Array
    w: Array

    def __len__(self) -> int:
        return len(self.v)

    def __getitem__(self, rows: Any) -> "Rows":
        return Rows(self.v[rows], self.w[rows])


@dataclass(frozen=True)
class Sample:
    """Rows to fit, rows to score with, and the noise of both; clean test rows are for scores."""

    train: Rows
    test: Rows
    noise: Array


def toy(train_rows: int, test_rows: int) -> Sample:
    """Draw the mixture of three Gaussians with its noise: the same rows for every run."""
    rng = np.random.default_rng(TOY_SEED)
    return Sample(_toy_rows(train_rows, rng), _toy_rows(test_rows, rng), TOY_NOISE)


def _toy_rows(n: int, rng: np.random.Generator) -> Rows:
    part = rng.integers(3, size=n)
    sd = np.sqrt(np.diagonal(COVARIANCES, axis1=1, axis2=2))
    v = MEANS[part] + sd[part] * rng.normal(size=(n, 2))
    return Rows(v, v + np.sqrt(np.diag(TOY_NOISE)) * rng.normal(size=(n, 2)))


def exact_posterior(w: Array) -> GaussianMixture:
    """Return the posterior of each row of the toy under the true density."""
    return posterior(TRUTH, Observations.from_arrays(w, TOY_NOISE))


def wine(dataset: str, seed: int, folder: Path | None) -> Sample:
    """Split a wine's rows nine to one, shuffled or in file order, and blur them."""
    rows = wine_rows(dataset.removesuffix(FILE_ORDER), folder)
    rng = np.random.default_rng(seed)
    if not dataset.endswith(FILE_ORDER):
        rows = rows[rng.permutation(len(rows))]
    n = round((1 - TEST_SHARE) * len(rows))
    sd = np.full(rows.shape[1], np.sqrt(WINE_VARIANCE))
    train = Rows(rows[:n], rows[:n] + sd * rng.normal(size=rows[:n].shape))
    test = Rows(rows[n:], rows[n:] + sd * rng.normal(size=rows[n:].shape))
    return Sample(train, test, sd)


def without_copy(sample: Sample) -> NDArray[np.bool_]:
    """Say which test rows have no exact copy among the training rows."""
    known = {row.tobytes() for row in sample.train.v}
    return np.array([row.tobytes() not in known for row in sample.test.v])


def wine_rows(name: str, folder: Path | None) -> Array:
    """Read a wine's standardised attributes from a folder, or fetch them from OpenML."""
    path = folder and folder / f"wine_{name}.npy"
    if path and path.is_file():
        return np.load(path)
    try:
        values = _fetched(name)
    except Exception as error:  # whatever a download can raise
        where = f"in {folder}" if folder else f"in a folder given by --data or {DATA_VARIABLE}"
        raise OSError(
            f"Expected wine_{name}.npy {where}, or OpenML within reach; got neither "
            f"({type(error).__name__}: {' '.join(str(error).split())[:120]})."
        ) from error
    return (values - values.mean(0)) / values.std(0)


def _fetched(name: str) -> Array:
    from sklearn.datasets import fetch_openml

    table = fetch_openml(data_id=OPENML[name], as_frame=True).data
    columns = {_letters(column): column for column in table.columns}
    return table[[columns[_letters(name)] for name in ATTRIBUTES]].to_numpy(dtype=float)


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())
