import matplotlib
import numpy as np
import pytest
from short_fits import shorten, shorten_chains
from typer.testing import CliRunner

import deconflow
from deconflow import Deconvolver, cli
from deconflow.__main__ import main
from deconflow.demo import _draw, cell_nuclei
from deconflow.engines import flow

matplotlib.use("Agg")


@pytest.fixture
def short_fits(monkeypatch):
    """Make every fit one of a few steps."""
    shorten(monkeypatch, steps=4, rows=4000)
    shorten_chains(monkeypatch)
    plain = flow.Training
    monkeypatch.setattr(flow, "Training", lambda **given: plain(**(given | {"epochs": 2})))


def run(*arguments):
    return CliRunner().invoke(cli.app, arguments)


def test_version():
    assert deconflow.__version__ in run("--version").output


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_demo_writes_a_picture_and_a_model(tmp_path, short_fits):
    result = run("demo", "-o", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for word in ("rows", "held-out log p(w)", "effective sample size", "their posteriors"):
        assert word in result.output
    picture = matplotlib.image.imread(tmp_path / "out" / "deconvolved.png")
    assert picture.shape[0] > 500
    assert picture.std() > 0.05
    assert Deconvolver.load(tmp_path / "out" / "model").sample(2).shape == (2, 3)


def test_errors_are_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.argv", ["deconflow", "demo", "-o", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("deconflow: ")
    assert "\n" not in message
    assert "Traceback" not in message


@pytest.mark.docs
@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/quickstart.md",
        "docs/deconvolver.md",
        "docs/estimators.md",
        "docs/bands.md",
        "docs/bayesian.md",
    ],
)
@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_examples_in_the_documents_run(name, short_fits, tmp_path, monkeypatch, request):
    text = (request.config.rootpath / name).read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(block, names)
    if name == "README.md":
        _draw(names["model"], cell_nuclei(), tmp_path / "demo.png")
        ours, demo = (matplotlib.image.imread(f) for f in ("deconvolved.png", "demo.png"))
        assert np.array_equal(ours, demo)
