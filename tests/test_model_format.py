"""Models that older versions saved load for ever, and answer as they did.

``tests/data/model_format_1`` holds a folder for each estimator, written by deconflow 0.1.0, with
its answers beside the weights. They are never written again: a new format gets a new folder, by

    python tests/test_model_format.py --write

which leaves folders that are there as they are. Format 2 is format 1 with checksums:
``tests/data/model_format_2`` holds some of the same models, saved again.
"""

import json
import shutil
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import golden_cases as cases
import numpy as np
import pytest
import torch
from comparing import assert_same, assert_same_figures, differences
from golden_cases import AUTO, EXPONENTIAL, XD, Rows
from program.running import succeed
from program.test_golden_texts import XD as XD_SETTINGS
from program.test_golden_texts import stars
from test_golden import EXACT, machine, plain

import deconflow
from deconflow.densities.transforms import Affine
from deconflow.program.model_folder import load as load_any

OTHER_MACHINE = 1e-4
"""Draws in single precision are weighed with other last bits elsewhere."""

FOLDER = Path(__file__).resolve().parent / "data" / "model_format_1"
WITH_CHECKSUMS = FOLDER.with_name("model_format_2")
SAVED_AGAIN = ("deconvolver_xd", "kde", "program_xd", "xdgmm")
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Saved:
    """An estimator, the rows it was fitted to and is asked about, and its settings."""

    estimator: str
    rows: Rows
    settings: dict[str, Any]
    tolerance: float = 1e-10


MIXTURE = XD | {"n_components": [2, 3]}
FLOW = {"epochs": 2, "hidden": 8, "random_state": 0}
MODELS = {
    "deconvolver_xd": Saved("Deconvolver", Rows(missing=True, weighted=True), AUTO, 1e-6),
    # Its posteriors are put together from other draws now: sd / sqrt(1000) apart.
    "deconvolver_flow": Saved("Deconvolver", EXPONENTIAL, AUTO, 0.02),
    "flow": Saved("FlowDeconvolver", Rows(), FLOW, 1e-6),
    "xdgmm": Saved("XDGMM", Rows(missing=True), MIXTURE),
    "xdgmm_projected": Saved("XDGMM", Rows(dim=3, projected=2), XD),
    "kde": Saved("DeconvolvingKDE", Rows("laplace", dim=1), {"bandwidth": 0.4}),
    "wavelet": Saved("WaveletDeconvolver", Rows("laplace", dim=1), {}),
}
"""Settings are only those that the folders were written with: what loads is what is in them."""


def load(name, folder=FOLDER):
    return getattr(deconflow, MODELS[name].estimator).load(folder / name)


def recorded(name, folder=FOLDER):
    return json.loads((folder / name / "answers.json").read_text())


@pytest.mark.parametrize("name", [name for name in MODELS if name != "deconvolver_xd"])
def test_answers(name):
    wanted, tolerance = recorded(name), MODELS[name].tolerance
    if "machine" in wanted and wanted["machine"] != machine():
        tolerance = max(tolerance, OTHER_MACHINE)
    found = cases.ask(load(name), MODELS[name].rows, drawn=False)
    assert_same(found, wanted["asked"], tolerance)


def test_old_flows_read_with_new_scales_would_be_seen():
    """The negative twin: the same weights mean another density."""
    wanted = recorded("flow")["asked"]["score_samples"]
    model = load("flow")
    lines = [part for part in model.density_.density.modules() if isinstance(part, Affine)]
    assert lines
    assert all(part.exponential for part in lines)
    for part in lines:
        part.exponential = False
    found = model.score_samples(MODELS["flow"].rows.points())
    assert differences({"score_samples": found}, {"score_samples": wanted}, 1e-5)


def test_a_deconvolver_that_chose_mixtures():
    """Of rows it answers with weighed draws, as it did, or in closed form."""
    answers, rows = recorded("deconvolver_xd"), MODELS["deconvolver_xd"].rows
    model = load("deconvolver_xd")
    assert model.weights_ == {"mixtures": 1}
    found = cases.ask(model, rows, drawn=False)
    density = {"score_samples": answers["asked"].pop("score_samples")}
    assert_same(found, density, EXACT)
    assert_same(cases.row_answers(cases.closed_form(model, rows), rows), answers["exact"], EXACT)
    if differences(found, answers["exact"], EXACT):
        assert_same(found, answers["asked"], 1e-6)


def test_what_a_deconvolver_remembers():
    model = load("deconvolver_flow")
    assert model.weights_ == {"mixtures": pytest.approx(0.05), "flows": 0.95}
    assert len(model.histories_) == 1
    assert model.certificate_.trusted
    for name in ("deconvolver_flow", "deconvolver_xd"):
        figures = recorded(name)["summary"].partition("\n")[2]  # its first line has other words now
        assert_same_figures(load(name).certificate_.in_words(), figures)
        assert_same(load(name).selection_, recorded(name)["selection"], 1e-10)


def test_what_a_mixture_remembers():
    wanted = recorded("xdgmm")
    model = load("xdgmm")
    assert_same(model.selection_, wanted["selection"], 1e-10)
    assert model.get_params()["n_components"] == [2, 3]
    assert model.converged_


def test_all_can_be_saved_again(tmp_path):
    """What was loaded and saved loads again as the same."""
    for name, saved in MODELS.items():
        load(name).save(tmp_path / name)
        again = getattr(deconflow, saved.estimator).load(tmp_path / name)
        points = saved.rows.points()
        assert np.array_equal(again.score_samples(points), load(name).score_samples(points)), name


@pytest.mark.parametrize("name", SAVED_AGAIN)
def test_models_with_checksums(name):
    one, other = (load_any(folder / name).estimator for folder in (FOLDER, WITH_CHECKSUMS))
    points = np.random.default_rng(0).normal(size=(20, one.n_latent_))
    assert np.array_equal(one.score_samples(points), other.score_samples(points))
    assert (WITH_CHECKSUMS / name / "SHA256SUMS").is_file()


PROGRAM_MODELS = {
    "program_xd": (deconflow.XDGMM, XD_SETTINGS),
    "program_auto": (deconflow.Deconvolver, ("--set", "quick=true", "-q")),
}


@pytest.mark.parametrize("name", PROGRAM_MODELS)
def test_folders_of_the_program(name, tmp_path, monkeypatch):
    """``table.json`` and all: they answer about a table as they did; words may change."""
    shutil.copytree(FOLDER / name, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    Path("stars.csv").write_text(stars())
    wanted = recorded(name)
    found = {"points": PROGRAM_MODELS[name][0].load("model").score_samples(Rows().points())}
    assert_same(found | program_answers("model"), wanted["numbers"], EXACT)
    assert_same_figures(succeed("info", "model"), wanted["info"])


def program_answers(model):
    """What the program appends to the table here."""
    found = {}
    for command in ("denoise", "score"):
        succeed(command, model, "stars.csv", "-o", "out.csv", "-q")
        found |= _columns("out.csv")
    return found


def test_a_damaged_folder_is_seen(tmp_path):
    """The negative twin: weights that differ in one number do not answer the same."""
    shutil.copytree(FOLDER / "xdgmm", tmp_path / "model")
    file = tmp_path / "model" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-27] ^= 1  # a bit of the last mean, before three weights
    file.write_bytes(bytes(content))
    found = cases.ask(deconflow.XDGMM.load(tmp_path / "model"), MODELS["xdgmm"].rows, drawn=False)
    assert differences(found, recorded("xdgmm")["asked"], 1e-10)


def test_folders_are_small_and_say_nothing_of_where_they_were_made():
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 1.5e6
    for file in files:
        if file.suffix == ".json":
            assert tempfile.gettempdir() not in file.read_text()


def _columns(path):
    """The columns of numbers that ``denoise`` added, by name."""
    header, *lines = [line.split(",") for line in Path(path).read_text().splitlines()]
    new = [name for name in header if name.endswith(("_mean", "_sd", "log_density"))]
    cells = {name: [line[header.index(name)] for line in lines] for name in new}
    return {
        name: np.array([float(cell or "nan") for cell in column]) for name, column in cells.items()
    }


def _record():
    torch.set_num_threads(1)
    for name in MODELS:
        if not (FOLDER / name).exists():
            _record_estimator(name, MODELS[name], FOLDER)
    for name in PROGRAM_MODELS:
        if not (FOLDER / name).exists():
            _record_program(name)
    for name in SAVED_AGAIN:
        if not (WITH_CHECKSUMS / name).exists():
            table = FOLDER / name / "table.json"
            texts = {"table.json": table.read_text()} if table.exists() else {}
            deconflow.load(FOLDER / name).save(WITH_CHECKSUMS / name, extra_files=texts)


def _record_estimator(name, saved, folder):
    model = saved.rows.fit(getattr(deconflow, saved.estimator)(**saved.settings))
    model.save(folder / name)
    answers = {"asked": cases.ask(load(name, folder), saved.rows, drawn=False)}
    if "flow" in name:
        answers["machine"] = machine()
    if saved.estimator == "Deconvolver":
        answers["summary"] = model.summary()
    if name == "deconvolver_xd":
        exact = cases.closed_form(model, saved.rows)
        answers["exact"] = cases.row_answers(exact, saved.rows)
    if hasattr(model, "selection_"):
        answers["selection"] = model.selection_
    _write_answers(folder / name, answers)


def _record_program(name):
    """Fit by the program, and take out where and for how long."""
    cls, settings = PROGRAM_MODELS[name]
    with tempfile.TemporaryDirectory() as here, chdir(here):
        Path("stars.csv").write_text(stars())
        succeed("fit", "stars.csv", "-c", "x,y", "-o", FOLDER / name, *settings)
        about = json.loads((FOLDER / name / "table.json").read_text())
        about["table"]["path"], about["seconds"] = "/data/stars.csv", 1.0
        (FOLDER / name / "table.json").write_text(json.dumps(about, indent=1) + "\n")
        points = {"points": cls.load(FOLDER / name).score_samples(Rows().points())}
        numbers = points | program_answers(FOLDER / name)
        info = succeed("info", FOLDER / name)
        _write_answers(FOLDER / name, {"numbers": numbers, "info": info})


def _write_answers(model, answers):
    text = json.dumps(plain(answers))
    (model / "answers.json").write_text(text + "\n")
    for file in model.iterdir():
        file.chmod(0o644)
    size = sum(file.stat().st_size for file in model.iterdir())
    print(f"{model.name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    _record()
