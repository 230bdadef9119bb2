"""What the commands print and write, word by word, as ``tests/golden/program`` has it.

Seconds, paths, dates and versions are taken out; numbers may differ by their last digit. Where a
text is meant to change, see ``test_golden.py`` for how to record it anew.
"""

import os
import re
import sys
import tempfile
from contextlib import chdir
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from comparing import assert_same_text
from program.running import succeed

import deconflow

matplotlib.use("Agg")

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "program"
SHOWN_LINES = 9
COMMANDS = ("fit", "denoise")
XD = ("--method", "xd", "--set", "n_components=2", "--set", "tol=1e-9", "-q")
#: In this order: models come before what is asked of them.
STEPS = {
    "fit_xd": ("fit", "stars.csv", "-c", "x,y", "-o", "xd", *XD),
    "denoise_xd": ("denoise", "xd", "stars.csv", "-o", "out.csv", "-q", "--correlations",
                   "--quantiles", "0.16,0.5,0.975", "--samples", "1"),
}  # fmt: skip


def stars(n=120):
    """Lines of a CSV file with two clusters, correlated errors, and rows that cannot be used."""
    rng = np.random.RandomState(0)
    v = rng.normal(size=(n, 2)) * [1.0, 0.5] + rng.randint(2, size=(n, 1)) * [4.0, 2.0]
    sd = rng.uniform(0.1, 0.6, size=(n, 2))
    w, rho = v + sd * rng.normal(size=(n, 2)), rng.uniform(-0.5, 0.5, size=n)
    columns = [f"s{i}" for i in range(n)], *w.T.round(6), *sd.T.round(6), rho.round(6)
    rows = [[str(cell) for cell in row] for row in zip(*columns, strict=True)]
    rows[1][1], rows[2][2], rows[3][3] = "inf", "", ""
    return "\n".join(map(",".join, [["name", "x", "y", "x_err", "e_y", "x_y_corr"], *rows])) + "\n"


@cache
def texts():
    """All texts by their names."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("stars.csv").write_text(stars())
        found = {name: _normal(_step(*step), Path(folder)) for name, step in STEPS.items()}
    return found


def help_text(command):
    """What ``--help`` says."""
    return _normal(succeed(command, "--help"), Path.cwd())


def _step(*command):
    """What a command prints, and the beginning of what it writes."""
    text = f"$ deconflow {' '.join(command)}\n{succeed(*command)}"
    if "out.csv" in command:
        lines = Path("out.csv").read_text().splitlines()[:SHOWN_LINES]
        text += "\n".join(["$ out.csv", *lines])
    return text.rstrip("\n") + "\n"


def _normal(text, folder):
    """Take out what differs from run to run."""
    for path in {str(folder), str(folder.resolve()), os.path.realpath(folder)}:
        text = text.replace(path, "<folder>")
    text = text.replace(deconflow.__version__, "<version>")
    text = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d[+-]\d\d:\d\d)?", "<date>", text)
    text = re.sub(r"(?<=, )([\w-]+) \d+\.\d+[\w.+]*(?=[,:])", r"\1 <version>", text)
    text = re.sub(r"(after|in|took) [\d.]+ (s\b|seconds)", r"\1 <time> \2", text)
    return re.sub(r"^(seconds\s+)[\d.]+$", r"\1<time>", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", STEPS)
def test_texts(name):
    assert_same_text(texts()[name], (FOLDER / f"{name}.txt").read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_helps(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    recorded = (FOLDER / f"help_{command}.txt").read_text()
    assert_same_text(help_text(command), recorded, by_word=True)


def record():
    """Write the texts again."""
    os.environ["COLUMNS"] = "100"
    found = texts() | {f"help_{each}": help_text(each) for each in COMMANDS}
    for name, text in found.items():
        (FOLDER / f"{name}.txt").write_text(text)
    print(f"program: {len(found)} texts, {sum(map(len, found.values())) / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit("Texts are recorded by test_golden.py.")
