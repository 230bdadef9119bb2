"""The page about Dask, Spark and Ray: what it does in partitions is what memory gives."""

import pickle
import re

import dask
import numpy as np
import pytest
from program.test_pages import run_and_compare

from deconflow import XDGMM, xd

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def text(request):
    return (request.config.rootpath / "docs" / "guests.md").read_text()


def test_dask_gives_what_memory_gives(text, capsys):
    with dask.config.set(scheduler="synchronous"):
        names = run_and_compare(text, capsys)
        denoised = names["denoised"].compute()
        few = names["stars"][names["stars"].x > 4]  # partitions may be left without rows
        none = few[few.x < 4].map_partitions(
            names["answers"], names["model"], meta=names["NO_ANSWERS"]
        )
        assert len(none.compute()) == 0
    w, noise = (names["table"][names[each]] for each in ("columns", "error_columns"))
    sample = names["sample"]
    start = XDGMM(2, random_state=0).fit(sample[w.columns], noise=sample[noise.columns])
    inside = XDGMM(2, method="em", max_iter=20, tol=0, init=start.mixture_).fit(w, noise=noise)
    for name in ("weights", "means", "covariances"):
        found, expected = getattr(names["mixture"], name), getattr(inside, f"{name}_")
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert not np.allclose(found, getattr(start, f"{name}_"), atol=1e-3)  # the negative twin
    np.testing.assert_array_equal(denoised, names["answers"](names["table"], names["model"]))


def test_statistics_travel_and_no_rows_add_nothing():
    w = np.random.default_rng(0).normal(size=(100, 2))
    mixture = XDGMM(1).fit(w, noise=0.1).mixture_
    sums = xd.statistics(w, mixture, noise=0.1)
    again = pickle.loads(pickle.dumps(sums)) + xd.statistics(w[:0], mixture, noise=0.1)
    for one, two in zip(again.parts, sums.parts, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_other_recipes_are_python(text):
    blocks = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        compile(block, "guests.md", "exec")
