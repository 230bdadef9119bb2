"""The page holds everything, needs nothing, and shows names as they are written."""

from html import unescape
from html.parser import HTMLParser

import numpy as np
from program.running import ONE_FIT, run, succeed

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
    assert page.tags.count("img") == 4
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert "link" not in page.tags
    words = " ".join(page.words)
    for wanted in ("250 of 250 rows", "Mean log p(w)", "XDGMM.load('model')", "floor", "x_err"):
        assert wanted in words


def test_names_are_escaped(folder):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal()},{rng.uniform(0.1, 0.2)}" for _ in range(60)]
    quoted = EVIL.replace('"', '""')
    (folder / "odd.csv").write_text("\n".join([f'"{quoted}",e', *lines]))
    xd = ("-m", "xd", "--set", "n_components=1", *ONE_FIT)
    succeed("fit", "odd.csv", "-c", EVIL, "--errors", "e", "-o", "odd", *xd)
    succeed("report", "odd", "-o", "page.html")
    page = Page((folder / "page.html").read_text())
    assert "script" not in page.tags
    assert any(EVIL in words for words in page.words)


def test_without_the_table(folder):
    (folder / "stars.csv").rename(folder / "moved.csv")
    import json

    about = json.loads((folder / "model" / "table.json").read_text())
    about["table"]["path"] = "gone.csv"
    (folder / "model" / "table.json").write_text(json.dumps(about))
    succeed("report", "model", "-o", "page.html")
    text = (folder / "page.html").read_text()
    assert Page(text).tags.count("img") == 2
    assert "No picture of kind corner" in text
    succeed("report", "model", "moved.csv", "-o", "page.html")
    assert Page((folder / "page.html").read_text()).tags.count("img") == 4


def test_every_figure_of_a_certificate_is_explained():
    from deconflow.evaluation import Certificate
    from deconflow.program.report import MEANINGS, _trust

    figures = Certificate(-1.0, 0.1, 0.2, 0.1, (0.5, 0.6), (0.5, 0.6), (0.1, 0.0), 0.01, 0.01)
    lines = figures.in_words().splitlines()
    page = unescape("".join(_trust(lines)))
    assert page.count("<tr>") == 7
    for meaning in MEANINGS.values():
        assert meaning in page
    doubtful = Certificate(-1.0, 0.1, 0.0, 0.0, (0.5, 0.6), (1.0, 1.0), (0.1, 0.0), 0.5, 0.01)
    assert '<p class="caution">CAUTION: lower and upper bound' in "".join(
        _trust(doubtful.in_words().splitlines())
    )


def test_ending(folder):
    result = run("report", "model", "-o", "page.doc")
    assert result.exit_code == 2
    assert "ends in .html" in result.output
