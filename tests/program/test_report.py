"""The page holds everything, needs nothing, and shows names as they are written."""

from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from program.running import forget_the_table, refused, succeed

from deconflow import Certificate, Finding
from deconflow.trust import CHECKS, worded

EVIL = '<script>alert("x")</script>'


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.words, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_report(folder):
    succeed("report", "model", "-o", "page.html")
    page = Page((folder / "page.html").read_text())
    assert page.open == []
    assert page.tags.count("img") == 3
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert "link" not in page.tags
    words = " ".join(page.words)
    for wanted in ("250 of 250 rows", "Mean log p(w)", "load('model')", "floor", "x_err"):
        assert wanted in words


def test_names_are_escaped(folder):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal()},{rng.uniform(0.1, 0.2)}" for _ in range(60)]
    quoted = EVIL.replace('"', '""')
    (folder / "odd.csv").write_text("\n".join([f'"{quoted}",e', *lines]))
    xd = ("-m", "xd", "--set", "n_components=1")
    succeed("fit", "odd.csv", "-c", EVIL, "--errors", "e", "-o", "odd", *xd)
    succeed("report", "odd", "-o", "page.html")
    page = Page((folder / "page.html").read_text())
    assert "script" not in page.tags
    assert any(EVIL in words for words in page.words)


def test_without_the_table(folder):
    (folder / "stars.csv").rename(folder / "moved.csv")
    forget_the_table(folder / "model")
    succeed("report", "model", "-o", "page.html")
    text = (folder / "page.html").read_text()
    assert Page(text).tags.count("img") == 1
    assert "No picture of kind corner" in text
    succeed("report", "model", "moved.csv", "-o", "page.html")
    assert Page((folder / "page.html").read_text()).tags.count("img") == 3


def trust(certificate):
    """What the page says of a model with this certificate."""
    from deconflow.program.model_folder import ModelFolder
    from deconflow.program.report import _trust
    from deconflow.saving.model_files import ModelFiles

    about = {"certificate": certificate, "fitted": "12 flows."}
    return unescape("".join(_trust(ModelFolder(ModelFiles(Path("model"), {}, {}), None, about))))


GOOD = {
    "held_out": -1.0, "held_out_error": 0.1, "gain": 0.2, "gain_error": 0.1,
    "efficiency": (0.5, 0.6), "refresh_rate": (0.5, 0.6), "pareto_k": (0.1, 0.0), "gap": 0.01,
    "gap_error": 0.01,
}  # fmt: skip


def test_every_figure_of_a_certificate_is_explained():
    untested = [Finding(check, reason="there are too few rows") for check in CHECKS]
    findings = tuple(map(worded, [*untested, Finding("joint", 0.5)]))
    good = trust(Certificate(**GOOD, findings=findings))
    assert good.count("<tr>") == 7 + len(CHECKS)
    meanings = Certificate(**GOOD, findings=findings).meanings()
    assert len(meanings) == 6 + len(CHECKS)
    for meaning in meanings.values():
        assert meaning in good
    assert "<p>12 flows.</p><p>No reason for doubt was found in 1 check; " in good
    assert "<td>-1.0000 +- 0.1000 per row</td>" in good
    assert 'class="caution"' not in good
    doubtful = trust(Certificate(**GOOD | {"gap": 0.5}))
    assert '<p class="caution">CAUTION: lower and upper bound' in doubtful
    assert "No reason for doubt" not in doubtful


def test_a_model_without_a_certificate():
    assert trust(None) == "<p>Nothing was kept of the fit.</p>"


def test_ending(folder):
    assert "ends in .html" in refused("report", "model", "-o", "page.doc")
