"""Every page of the gallery runs as a reader would run it, and prints what its text says."""

import ast
import re
import runpy
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.docs

DOCS = Path(__file__).resolve().parents[1] / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
BOLD = re.compile(rf"\*\*({NUMBER})(?: %)?\*\*")


mirror = SimpleNamespace(**runpy.run_path(str(DOCS / "mirror.py")))


def addresses(text):
    """Addresses that the code of a script fetches; those in its text are links."""
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    return [s for s in strings if isinstance(s, str) and s.startswith("https://")]


def check_numbers(text, printed):
    """Numbers in bold are among the printed ones, to two units of their last digit."""
    seen = [float(number.replace(",", "")) for number in re.findall(NUMBER, printed)]
    for quoted in BOLD.findall(text):
        unit = 10.0 ** -len(quoted.partition(".")[2])
        value = float(quoted.replace(",", ""))
        assert any(abs(value - one) <= 2.01 * unit for one in seen), f"{quoted} was not printed"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_page(script, tmp_path, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    text = script.read_text()
    if addresses(text) and not mirror.there():
        pytest.skip(f"needs {mirror.FOLDER.name}, which is not part of the repository")
    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(urllib.request, "_opener", None)
    mirror.install()
    try:
        runpy.run_path(str(script))
        assert plt.get_fignums(), "no picture"
    finally:
        plt.close("all")
    assert BOLD.search(text), "states none of its numbers"
    check_numbers(text, capsys.readouterr().out)


def test_a_wrong_number_is_found():
    """The negative twin."""
    check_numbers("# spread by **0.32** in **1,599** rows", "0.3212 1599")
    for wrong in ("**0.32**", "**1,599**"):
        with pytest.raises(AssertionError, match="not printed"):
            check_numbers(wrong, "0.35 1602")


def test_every_address_is_mirrored():
    fetched = {url.split("?")[0] for path in SCRIPTS for url in addresses(path.read_text())}
    assert fetched <= set(mirror.TABLES)
