"""Damaged files: the table, or one sentence that names the file; whatever the damage."""

import numpy as np
import pyarrow as pa
import pytest
from astropy.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from deconflow.tables import described, open_table, writing

N = 30
KINDS = ("fits", "vot", "ecsv", "csv", "parquet")


def whole():
    rng = np.random.default_rng(0)
    fields = [
        described("x", pa.float64(), "mas", "where it is"),
        described("x_err", pa.float64(), "mas"),
        described("name", pa.string()),
        described("k", pa.int64()),
    ]
    names = [f"s{i}" for i in range(N)]
    columns = [rng.normal(size=N), np.full(N, 0.3), names, np.arange(N)]
    return pa.table(columns, schema=pa.schema(fields))


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The same table in each format, as bytes."""
    folder, table = tmp_path_factory.mktemp("whole"), whole()
    for kind in KINDS:
        with writing(folder / f"t.{kind}", table.schema) as append:
            append(table)
    return {kind: (folder / f"t.{kind}").read_bytes() for kind in KINDS}


@st.composite
def damages(draw):
    """Bytes changed, digits changed, a piece taken out, or the end cut off."""
    kind = draw(st.sampled_from(["bytes", "digits", "piece", "end"]))
    places = draw(st.lists(st.floats(0, 0.9999), min_size=2, max_size=5))
    return kind, places, draw(st.integers(0, 255))


def damaged(content, kind, places, value):
    content = bytearray(content)
    at = [int(place * len(content)) for place in places]
    if kind == "end":
        return bytes(content[: at[0]])
    if kind == "piece":
        del content[min(at) : min(at) + 1 + value]
        return bytes(content)
    if kind == "digits":
        digits = [i for i, byte in enumerate(content) if byte in b"0123456789"]
        at = [digits[int(place * len(digits))] for place in places]
        value = ord("0") + value % 10
    for place in at:
        content[place] = value
    return bytes(content)


def read(path):
    """Return the table, or None after a sentence that names the file."""
    try:
        source = open_table(path)
        chunks = list(source.chunks(7))
    except ValueError as raised:
        error = str(raised)
    else:
        return pa.concat_tables([source.schema.empty_table(), *chunks])
    assert error.startswith("Expected ")
    assert path.name in error
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage(tmp_path_factory, contents, kind):
    path = tmp_path_factory.mktemp("damaged") / f"t.{kind}"
    table, header = contents[kind], 5760 if kind == "fits" else None

    @settings(max_examples=60, derandomize=True, deadline=None)
    @given(damages(), st.booleans())
    def check(damage, above):
        """Half of the damages are in what stands above the rows, where FITS has its header."""
        some = table[:header] if above else table
        path.write_bytes(damaged(some, *damage) + table[len(some) :])
        read(path)

    check()


@pytest.fixture
def stars(tmp_path, contents):
    path = tmp_path / "stars.fits"
    path.write_bytes(contents["fits"])
    return path


@pytest.mark.filterwarnings("ignore:File may have been truncated")
def test_a_fits_file_that_was_cut_short_is_named(stars):
    stars.write_bytes(stars.read_bytes()[:-2880])
    with pytest.raises(ValueError, match=r"Expected stars.fits to hold a table"):
        open_table(stars)


def test_a_votable_that_sends_elsewhere(tmp_path):
    """Astropy would open it; neither files nor addresses that a table names are opened."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"\x00" * 160)
    Table({"x": np.arange(9.0)}).write(tmp_path / "t.vot", format="votable")
    text = (tmp_path / "t.vot").read_text()
    begin, end = text.index("<TABLEDATA>"), text.index("</TABLEDATA>")
    link = f'<BINARY2><STREAM href="file://{secret}" encoding="gzip"/></BINARY2>'
    (tmp_path / "t.vot").write_text(text[:begin] + link + text[end + len("</TABLEDATA>") :])
    with pytest.raises(ValueError, match=r"in the file itself; got a link: <STREAM href="):
        open_table(tmp_path / "t.vot")
