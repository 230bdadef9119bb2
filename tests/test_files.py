"""What is written is there complete or not at all, with the permissions that the umask leaves."""

import errno
import os
import stat
import subprocess
import sys

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
    modes = {path.name: mode(path) for path in (tmp_path / "model").iterdir()}
    wanted = ["SHA256SUMS", "model.json", "more.txt", "weights.safetensors"]
    assert modes == dict.fromkeys(wanted, 0o640)


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


@pytest.fixture
def no_exchange(monkeypatch):
    """A disk that cannot exchange two names."""
    monkeypatch.setattr("deconflow.files._exchange", lambda one, other: errno.EINVAL)


@pytest.mark.parametrize("move", ["deconflow.files._exchange", "os.rename"])
def test_a_folder_that_cannot_be_moved_leaves_the_old_one(tmp_path, monkeypatch, move, no_exchange):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")

    def fail(new, path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(move, fail)
    message = r"Expected to write .*folder; got: Input/output error"
    with pytest.raises(OSError, match=message), replacing_folder(path) as new:
        (new / "new").write_text("new")
    assert names(tmp_path) == ["folder", "old"]


KILLED = """
import os, sys
from deconflow import files
folder, when = sys.argv[1:]
def killed(*_, **options):
    os.kill(os.getpid(), 9)
if when == "between two moves":
    files._exchange = lambda one, other: 22
    os.rename = killed
if when == "after the exchange":
    files.shutil.rmtree = killed
with files.replacing_folder(folder) as new:
    open(new / "new", "w").close()
    if when == "writing":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("when", "left"),
    [("writing", "old"), ("after the exchange", "new"), ("between two moves", None)],
)
def test_what_a_killed_run_left_is_cleared_by_the_next(tmp_path, when, left):
    path = tmp_path / "folder"
    with replacing_folder(path) as new:
        (new / "old").write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, path, when], env=os.environ, check=False)
    assert done.returncode == -9
    found = [file.name for file in path.iterdir()] if path.exists() else [None]
    assert found == [left]
    assert len(list(tmp_path.glob(".folder.*.part"))) == 1
    with pytest.raises(StopError), replacing_folder(path):
        raise StopError  # the next run clears, also if it writes nothing
    assert names(tmp_path) == ["folder", left or "old"]


def test_what_a_living_run_writes_is_left_alone(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as slow:
        slow.write_text("slow")
        with replacing(path) as quick:
            quick.write_text("quick")
        assert path.read_text() == "quick"
        assert slow.read_text() == "slow"
    assert path.read_text() == "slow"
    assert names(tmp_path) == ["file"]


def test_a_link_stays_a_link(tmp_path):
    """What it points to is replaced: a model may live on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "model")
    for _ in range(2):
        with replacing_folder(tmp_path / "link") as new:
            (new / "new").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "disk") == ["model", "new"]


def test_saves_at_once_leave_a_whole_folder(tmp_path):
    """Many into one name, which is never absent once it is there."""
    code = "import sys; from deconflow.files import replacing_folder\n"
    code += "for i in range(60):\n with replacing_folder(sys.argv[1]) as new:\n"
    code += "  [(new / name).write_text(f'{sys.argv[2]} {i}') for name in 'ab']"
    command, path = [sys.executable, "-c", code, tmp_path / "folder"], tmp_path / "folder"
    writers = [subprocess.Popen([*command, str(n)], env=os.environ) for n in range(2)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        assert path.exists() or not seen
        seen += path.exists()
    assert seen
    assert [writer.returncode for writer in writers] == [0, 0]
    assert (path / "a").read_text() == (path / "b").read_text()
    assert names(tmp_path) == ["folder", "a", "b"]


def names(folder):
    return sorted((p.name for p in folder.rglob("*")), key=lambda name: (name != "folder", name))
