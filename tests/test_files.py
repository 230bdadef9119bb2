"""What is written is there complete or not at all, with the permissions that the umask leaves."""

import os
import stat

import numpy as np
import pytest

from deconflow import XDGMM
from deconflow.files import replacing, replacing_folder


@pytest.fixture
def umask(monkeypatch):
    """Set the umask of a careful group, and forbid anyone to change it afterwards."""
    before = os.umask(0o027)
    plain = os.umask
    monkeypatch.setattr("os.umask", lambda mask: pytest.fail("it is the whole process's"))
    yield
    plain(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_permissions_follow_the_umask(tmp_path, umask):
    with replacing(tmp_path / "file") as part:
        part.write_text("text")
    assert mode(tmp_path / "file") == 0o640
    w = np.random.default_rng(0).normal(size=(30, 1))
    XDGMM(1).fit(w, noise=0.1).save(tmp_path / "model", extra_files={"more.txt": "more"})
    assert mode(tmp_path / "model") == 0o750
    names = {path.name: mode(path) for path in (tmp_path / "model").iterdir()}
    assert names == dict.fromkeys(["model.json", "more.txt", "weights.safetensors"], 0o640)
    assert (tmp_path / "model" / "more.txt").read_text() == "more"
    assert np.array_equal(XDGMM.load(tmp_path / "model").n_features_in_, 1)


class StopError(Exception):
    pass


@pytest.mark.parametrize("before", [False, True])
def test_a_folder_is_replaced_complete_or_not_at_all(tmp_path, before):
    path = tmp_path / "folder"
    if before:
        path.mkdir()
        (path / "old").write_text("old")

    def write(name, fails=False):
        with replacing_folder(path) as new:
            (new / name).write_text(name)
            if fails:
                raise StopError

    with pytest.raises(StopError):
        write("half", fails=True)
    assert [file.name for file in tmp_path.rglob("*")] == (["folder", "old"] if before else [])
    write("new")
    assert [file.name for file in tmp_path.rglob("*")] == ["folder", "new"]


def test_a_folder_that_cannot_be_moved_leaves_the_old_one(tmp_path, monkeypatch):
    path, plain = tmp_path / "folder", os.replace
    path.mkdir()
    (path / "old").write_text("old")

    def replace(source, target):
        if target == path and not any("old" in name for name in os.listdir(source)):
            raise OSError(5, "Input/output error")
        plain(source, target)

    monkeypatch.setattr("os.replace", replace)
    message = r"Expected to write .*folder; got: Input/output error"
    with pytest.raises(OSError, match=message), replacing_folder(path) as new:
        (new / "new").write_text("new")
    assert [file.name for file in tmp_path.rglob("*")] == ["folder", "old"]
