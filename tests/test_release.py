"""What a package index, a journal and a contributor read says the same everywhere."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import deconflow

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAPER = (ROOT / "publication" / "paper.md").read_text()
BIBLIOGRAPHY = (ROOT / "publication" / "paper.bib").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def yaml(path):
    return pytest.importorskip("yaml").safe_load(path.read_text())


def test_one_version():
    version = deconflow.__version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert newest == version
    assert yaml(ROOT / "CITATION.cff")["version"] == version
    quoted = re.search(r"version = \{(.*?)\}", (ROOT / "docs" / "faq.md").read_text())[1]
    assert quoted == version


def test_one_address():
    host = PROJECT["urls"]["Source"]
    citation = yaml(ROOT / "CITATION.cff")
    assert citation["repository-code"] == host
    assert citation["url"] == PROJECT["urls"]["Documentation"]
    owner = host.rsplit("/", 1)[0]
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/faq.md", "docs/index.md"):
        text = (ROOT / name).read_text()
        said = re.findall(r"https://github\.com/[\w-]*deconflow[\w/-]*", text)
        assert all(each.startswith(owner + "/deconflow") for each in said), name


def body(text):
    """The words of the paper, without front matter, captions, links and keys of citations."""
    text = text.split("---", 2)[2]
    text = re.sub(r"^!\[.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[?@[\w; @]+\]?|\\\w+\{.*?\}|[#*`$]", " ", text)
    return re.findall(r"[\w'’.-]*\w[\w'’.-]*", text)


def test_length_of_the_paper():
    """What a software journal takes, but for the front matter and the captions of figures."""
    assert 750 <= len(body(PAPER)) <= 1200


def test_every_citation_is_in_the_bibliography_and_every_entry_is_cited():
    entries = re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY, re.MULTILINE)
    assert len(set(entries)) == len(entries)
    assert set(re.findall(r"@(\w+)", PAPER.split("---", 2)[2])) == set(entries)


def test_the_caption_quotes_the_record_of_its_figure():
    record = json.loads((ROOT / "publication" / "figure.json").read_text())
    caption = re.search(r"^!\[(.*)\]\(figure\.png\)", PAPER, re.MULTILINE)[1]
    for key in ("measured_spread", "true_spread", "median_error"):
        assert f"{record[key]:.3f}" in caption, key
    assert f"{record['rows']} images" in caption
    assert record["cautions"] == []
    assert "dependence" in record["cautions_without_logarithm"]
    assert (ROOT / "publication" / "figure.png").exists()


OURS = ("publication/*.*", "CITATION.cff", "CODE_OF_CONDUCT.md", "SECURITY.md", "docs/need.md")


def test_nothing_that_is_published_names_the_machine_it_was_made_on():
    paths = [path for pattern in OURS for path in ROOT.glob(pattern)]
    for path in [*paths, *WORKFLOWS, *FORMS]:
        assert not re.search(rb"(?:/home|/Users|/root|/work|/tmp)/", path.read_bytes()), path
