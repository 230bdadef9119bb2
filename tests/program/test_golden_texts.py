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
from html.parser import HTMLParser
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
COMMANDS = (
    "fit", "info", "denoise", "score", "sample", "condition", "regress", "compare", "check", "plot",
    "report", "demo",
)  # fmt: skip
XD = (
    "--method",
    "xd",
    "--set",
    "n_components=2",
    "--set",
    "tol=1e-9",
    "--set",
    "n_average=1",
    "-q",
)
STEPS = {
    "fit_xd": ("fit", "stars.csv", "-c", "x,y", "-o", "xd", *XD),
    "fit_chosen": ("fit", "stars.csv", "-c", "y", "-o", "chosen", "--method", "xd", "-q"),
    "fit_auto": ("fit", "stars.csv", "-c", "x,y", "-o", "auto", "--quick", "-q"),
    "fit_kde": ("fit", "stars.csv", "-c", "x", "-o", "kde", "-m", "kde", "--noise", "laplace"),
    "info_xd": ("info", "xd"),
    "info_auto": ("info", "auto"),
    "denoise_xd": ("denoise", "xd", "stars.csv", "-o", "out.csv", "-q", "--correlations",
                   "--quantiles", "0.16,0.5,0.975", "--samples", "1"),
    "denoise_auto": ("denoise", "auto", "stars.csv", "-o", "out.csv", "-q"),
    "denoise_kde": ("denoise", "kde", "stars.csv", "-o", "out.csv", "-q", "--prefix", "new_"),
    "score_xd": ("score", "xd", "stars.csv", "-q"),
    "score_auto": ("score", "auto", "stars.csv", "-o", "out.csv", "-q"),
    "sample_xd": ("sample", "xd", "-n", "5", "-o", "out.csv"),
    "condition_xd": ("condition", "xd", "stars.csv", "--given", "x", "-o", "out.csv", "-q"),
    "condition_density_xd": ("condition", "xd", "stars.csv", "-g", "x", "--density", "-o",
                             "out.csv", "-q"),
    "regress_xd": ("regress", "xd", "y", "stars.csv", "--on", "x"),
    "compare": ("compare", "stars.csv", "-c", "x", "--methods", "xd,kde", "-q"),
    "report_xd": ("report", "xd", "-o", "out.html"),
    "report_auto": ("report", "auto", "-o", "out.html"),
}  # fmt: skip
"""In this order: models come before what is asked of them."""


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


def help_text(*command):
    """What ``--help`` says, without the command that is on its way out of the program."""
    text = _normal(succeed(*command, "--help"), Path.cwd())
    return re.sub(r"^  reproduce .*\n(?: {6,}.*\n)*", "", text, flags=re.MULTILINE)


def _step(*command):
    """What a command prints, and the beginning of what it writes."""
    text = f"$ deconflow {' '.join(command)}\n{succeed(*command)}"
    for name in ("out.csv", "out.html"):
        if name in command:
            content = Path(name).read_text()
            lines = _Words(content).lines if name.endswith("html") else content.splitlines()
            text += "\n".join([f"$ {name}", *lines[: None if name == "out.html" else SHOWN_LINES]])
    return text.rstrip("\n") + "\n"


class _Words(HTMLParser):
    """Lines of text of a page, one for each element."""

    def __init__(self, page):
        super().__init__()
        self.lines, self._skipped = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self._skipped = tag == "style"
        if tag == "img":
            self.lines.append(f"[picture: {dict(attrs).get('alt', '')}]")

    def handle_data(self, data):
        if data.strip() and not self._skipped:
            self.lines += data.strip().splitlines()


def _normal(text, folder):
    """Take out what differs from run to run."""
    for path in {str(folder), str(folder.resolve()), os.path.realpath(folder)}:
        text = text.replace(path, "<folder>")
    text = text.replace(deconflow.__version__, "<version>")
    text = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d[+-]\d\d:\d\d)?", "<date>", text)
    text = re.sub(r"(?<=, )([\w-]+) \d+\.\d+[\w.+]*(?=[,:])", r"\1 <version>", text)
    text = re.sub(r"(after|in|took) [\d.]+ (s\b|seconds)", r"\1 <time> \2", text)
    return re.sub(r"^(seconds\s+)[\d.]+$", r"\1<time>", text, flags=re.MULTILINE)


ROUGH = ("fit_chosen", "report_auto")
"""Averages over a ladder of fits, whose shares differ with the last bits of a processor."""


@pytest.mark.parametrize("name", STEPS)
def test_texts(name):
    recorded = (FOLDER / f"{name}.txt").read_text()
    assert_same_text(texts()[name], recorded, rough=name in ROUGH)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_helps(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    recorded = (FOLDER / f"help_{command or 'all'}.txt").read_text()
    assert_same_text(help_text(*command.split()), recorded, by_word=True)


def test_nothing_of_a_run_is_left():
    """Times, paths and versions are gone from what is recorded."""
    for file in FOLDER.glob("*.txt"):
        text = file.read_text()
        assert deconflow.__version__ not in text
        assert tempfile.gettempdir() not in text
        assert not re.search(r"\d s\b", text), file.name


def record():
    """Write the texts again."""
    os.environ["COLUMNS"] = "100"
    found = texts() | {f"help_{c or 'all'}": help_text(*c.split()) for c in ("", *COMMANDS)}
    for name, text in found.items():
        (FOLDER / f"{name}.txt").write_text(text)
    print(f"program: {len(found)} texts, {sum(map(len, found.values())) / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit("Texts are recorded by test_golden.py.")
