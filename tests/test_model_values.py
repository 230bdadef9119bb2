"""A model whose values cannot be is refused with one line; so is one of another format."""

import os
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save
from signing import edit_json, sign

import deconflow
from deconflow.saving.model_files import LARGEST_TEXT

STORED = Path(__file__).resolve().parent / "golden"
FLOW = {"epochs": 1, "hidden": 4, "random_state": 0}
MADE = {
    "xdgmm": (deconflow.XDGMM, {"n_components": 2, "random_state": 0}),
    "flow": (deconflow.FlowDeconvolver, FLOW),
    "kde": (deconflow.DeconvolvingKDE, {}),
    "wavelet": (deconflow.WaveletDeconvolver, {}),
}


@cache
def fitted(name):
    cls, settings = MADE[name]
    w = np.random.default_rng(0).normal(size=(60, 1 if name in ("kde", "wavelet") else 2))
    return cls(**settings).fit(w, noise=0.3)


@pytest.fixture
def model(tmp_path):
    """Give the folder of a model by its name."""

    def make(name):
        path = tmp_path / "model"
        if name in MADE:
            fitted(name).save(path)
        else:
            shutil.copytree(STORED / name, path)
        return path

    return make


def edit_array(path, name, change):
    arrays = load_file(path / "weights.safetensors")
    (name,) = (each for each in arrays if each.endswith(name))
    arrays[name] = np.ascontiguousarray(change(arrays[name].copy()))
    (path / "weights.safetensors").write_bytes(save(arrays))
    sign(path)


def first(value):
    def change(array):
        array.flat[0] = value
        return array

    return change


WEIGHTS, COVARIANCES = "mixtures.0.weights", "mixtures.0.covariances"
NETWORK = "solution.network.layers.0.network.input.weight"
ARRAYS = {
    "NaN": ("xdgmm", "mixtures.0.means", first(np.nan), "means is not finite"),
    "a negative weight": ("xdgmm", WEIGHTS, first(-1.0), "weights is not positive with sum"),
    "a sum of 7": ("xdgmm", WEIGHTS, lambda x: 7 * x, "weights is not positive with sum one"),
    "float32": ("xdgmm", WEIGHTS, np.float32, "weights has numbers of type float32"),
    "zero variances": ("xdgmm", COVARIANCES, first(0.0), "covariances is not positive"),
    "negative variances": ("xdgmm", COVARIANCES, lambda x: -x, "covariances is not positive"),
    "lopsided": ("xdgmm", COVARIANCES, np.tril, "covariances is not symmetric"),
    "other shapes": ("xdgmm", "mixtures.0.means", lambda x: x[:, :1], "fit together"),
    "an average": ("deconvolver", WEIGHTS, lambda x: 7 * x, "sum one"),
    "proposals": ("deconvolver", "proposing.covariances", lambda x: -x, "not positive"),
    "a table": ("deconvolver", "table.share", lambda x: x[1:], "table is not of one length"),
    "units of zero": ("deconvolver", "standardiser.scale", first(0.0), "scale is not positive"),
    "a network's NaN": ("flow", NETWORK, first(np.nan), "finite"),
    "a network's shape": (
        "flow", NETWORK, lambda x: x[:1], "size mismatch"),
    "a grid times 7": ("kde", "values", lambda x: 7 * x, "values is not a density"),
    "a negative grid": ("kde", "values", lambda x: -x, "values is not a density"),
    "a step of zero": ("kde", "step", first(0.0), "step is not positive"),
    "a factor": ("wavelet", "factor", first(-1.0), "factor is not that of a normal law"),
    "a place": ("wavelet", "low", lambda x: x.repeat(2), "step is not positive, one number"),
}  # fmt: skip


ENTRIES = {
    "text as size": ("xdgmm", "n_features_in", "2", "damaged model.json .*n_features_in is '2'"),
    "no size": ("xdgmm", "n_features_in", None, "damaged model.json .*n_features_in is None"),
    "size zero": ("xdgmm", "n_features_in", 0, "n_features_in is 0"),
    "another size": ("xdgmm", "n_features_in", 10**9, "n_features_in is not"),
    "names": ("xdgmm", "fit.labels.names", ["x"], "names is not one per column"),
    "selection": ("xdgmm", "fit.solution.table", 5, "solution.table is 5"),
    "more": ("deconvolver", "fit.solution.fitted.more", 5, "fitted has more"),
    "a certificate": (
        "deconvolver", "fit.solution.fitted.certificate.efficiency", [1.0], "efficiency is"),
    "a share": ("deconvolver", "fit.solution.fitted.standings.mixtures.share", 2.0, "not shares"),
    "a history": ("flow", "fit.solution.history.train", {"a": 1}, "history.train is"),
    "no parameters": ("xdgmm", "parameters", None, "parameters is None"),
    "an unknown parameter": ("flow", "parameters.depth", 3, "depth"),
    "other sizes": ("flow", "fit.names", ["a", "b", "c"], "shape|columns|size|broadcast"),
    "nothing at all": ("flow", "fit", {}, "damaged model.json .*fit has no names"),
    "nothing learned": ("flow", "fit", {"names": ["v0", "v1"]}, "fit has no solution"),
    "a parameter": ("xdgmm", "parameters.tol", "small", "Expected tol"),
    "background": ("kde", "fit.solution.grid.background", -1.0, "background is not a share"),
    "no array": ("kde", "fit.solution.grid.low.array", "high", "grid.low is not among the arrays"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS | ENTRIES)
def test_values(case, model):
    edit = edit_array if case in ARRAYS else edit_json
    name, where, value, message = (ARRAYS | ENTRIES)[case]
    path = model(name)
    edit(path, where, value)
    with pytest.raises(ValueError, match=f"Expected a whole model.*({message})"):
        deconflow.load(path)


OTHER = "Expected a model of format 5 at .*; got format"
TEXTS = {
    "half": ("{", "damaged model.json"),
    "no object": ("[]", "Expected a whole model"),
    "deep": ("[" * 100_000 + "]" * 100_000, "damaged model.json.*nested too deeply"),
    "long": ('{"format": ' + "1" * 10_000 + "}", "damaged model.json.*Exceeds the limit"),
    "a flag": ('{"format": true}', "damaged model.json.*its format is True"),
    "of no format": ("{}", "damaged model.json.*its format is None"),
    "older": ('{"format": 4, "deconflow": "0.2.0"}', f"{OTHER} 4, written by deconflow 0.2.0"),
    "newer": ('{"format": 99, "deconflow": "9.0"}', f"{OTHER} 99, written by deconflow 9.0"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts(case, model):
    text, message = TEXTS[case]
    path = model("xdgmm")
    (path / "model.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        deconflow.load(path)


@pytest.mark.parametrize("file", ["model.json", "weights.safetensors"])
def test_a_file_that_is_missing(file, model):
    path = model("xdgmm")
    (path / file).unlink()
    with pytest.raises(FileNotFoundError, match=r"folder with model\.json and weights\.safetens"):
        deconflow.load(path)


def test_a_huge_file_is_not_read(model):
    path = model("xdgmm")
    os.truncate(path / "model.json", 3 * 10**9)  # takes no room on the disk
    with pytest.raises(ValueError, match=f"3000000000 bytes; {LARGEST_TEXT} are the most"):
        deconflow.load(path)


@pytest.mark.parametrize("file", ["model.json", "weights.safetensors", "SHA256SUMS", "more.txt"])
def test_every_bit_is_checked(file, model, tmp_path):
    deconflow.load(model("xdgmm")).save(tmp_path / "new", extra_files={"more.txt": "more"})
    path = tmp_path / "new" / file
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(8 * len(whole), size=60):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"Expected"):
            deconflow.load(tmp_path / "new")
    path.write_bytes(whole)
    deconflow.load(tmp_path / "new")


def test_files_of_others_may_lie_beside(model, tmp_path):
    deconflow.load(model("xdgmm")).save(tmp_path / "new")
    (tmp_path / "new" / "notes.txt").write_text("mine")
    deconflow.load(tmp_path / "new")
    (tmp_path / "new" / "table.json").write_text("{}")  # but what is read must be ours
    with pytest.raises(ValueError, match=r"damaged SHA256SUMS.*does not name table\.json"):
        deconflow.load(tmp_path / "new")
    sign(tmp_path / "new")
    deconflow.load(tmp_path / "new")


def test_a_folder_that_is_replaced_while_it_is_read(model, tmp_path, monkeypatch):
    """Then it is read again: parts of two models are never taken together."""
    deconflow.load(model("xdgmm")).save(tmp_path / "new")
    other = deconflow.XDGMM(1).fit(np.random.default_rng(0).normal(size=(30, 2)), noise=0.1)
    plain, seen = Path.read_bytes, []

    def replaced_meanwhile(self):
        content = plain(self)
        if not seen:
            seen.append(self)
            other.save(tmp_path / "new")
        return content

    monkeypatch.setattr(Path, "read_bytes", replaced_meanwhile)
    assert len(deconflow.load(tmp_path / "new").weights_) == 1
    assert seen
