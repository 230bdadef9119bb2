"""The page about pictures: its Python and its commands run, and its pictures are those shown."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.image
import matplotlib.pyplot as plt
import pytest
from program.test_pages import commands, run_all, run_python

from deconflow import plots

pytestmark = pytest.mark.docs

NAMES = ("marginals", "before_after", "row", "corner")


@pytest.fixture
def page(request):
    return (request.config.rootpath / "docs" / "pictures.md").read_text()


def test_the_page(request, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_python(page)
    plt.close("all")
    assert names["right"].get_title() == "one star"
    images = request.config.rootpath / "docs" / "images"
    for name in NAMES:
        shown = images / f"pictures_{name}.png"
        assert shown.stat().st_size < 80_000
        assert shown.name in page
        own, kept = (matplotlib.image.imread(path) for path in (f"{name}.png", shown))
        # other versions of matplotlib set letters otherwise, by some pixels
        assert abs(own.shape[0] - kept.shape[0]) + abs(own.shape[1] - kept.shape[1]) < 20
        assert abs(own.mean() - kept.mean()) < 0.01
    run_all(commands(page))
    assert (tmp_path / "corner.png").stat().st_size > 10_000


def test_the_page_names_every_kind(page):
    for name in plots.__all__:
        assert f"`{name}`" in page
