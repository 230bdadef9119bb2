import shutil

import matplotlib
import pytest
from program.running import XD, succeed
from tables.catalogue import catalogue, text

matplotlib.use("Agg")


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A folder with a catalogue and a model of it."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "stars.csv").write_text(text(catalogue()))
    succeed("fit", folder / "stars.csv", "-c", "x,y", "-o", folder / "model", *XD)
    return folder


@pytest.fixture(scope="session")
def fitted_flow(fitted):
    """The same folder with a model of a flow, barely trained."""
    pytest.importorskip("torch")
    settings = ("--method", "flow", "--set", "epochs=2", "--set", "hidden=16", "-q")
    succeed("fit", fitted / "stars.csv", "-c", "x,y", "-o", fitted / "flow", *settings)
    return fitted


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(fitted, tmp_path, monkeypatch):
    """A copy of it to work in."""
    shutil.copytree(fitted, tmp_path / "here", ignore=shutil.ignore_patterns("flow"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"
