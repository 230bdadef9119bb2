import matplotlib.image
import pytest
from program.running import forget_the_table, refused, succeed

from deconflow.program.model_folder import load
from deconflow.program.plot import KINDS, draw, measured_rows


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(folder, kind):
    rows = ("--rows", "17") if kind == "row" else ()
    succeed("plot", "model", "-k", kind, "-o", "picture.png", *rows)
    picture = matplotlib.image.imread("picture.png")
    assert min(picture.shape[:2]) > 200
    assert picture.std() > 0.05


def test_columns_and_dots_per_inch(folder):
    succeed("plot", "model", "-k", "marginals", "-o", "a.png", "--columns", "y,x", "--dpi", "50")
    succeed("plot", "model", "-k", "marginals", "-o", "b.png", "-c", "y", "--dpi", "50")
    a, b = (matplotlib.image.imread(name).shape for name in ("a.png", "b.png"))
    assert (a[:2], b[:2]) == ((145, 360), (170, 240))


def test_vectors(folder):
    """Curves, points and letters of PDF and SVG are no images; a PDF holds whole fonts."""
    succeed("plot", "model", "stars.csv", "-o", "a.svg", "--rows", "3,5")
    drawn = (folder / "a.svg").read_text()
    assert "<image" not in drawn
    assert drawn.count("<path") > 50
    succeed("plot", "model", "stars.csv", "-o", "a.pdf", "-k", "before_after")
    content = (folder / "a.pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert b"/Subtype /Image" not in content


def test_rows_are_called_as_in_the_table(folder):
    """Also where rows before them cannot be used."""
    lines = (folder / "stars.csv").read_text().splitlines()
    holes = [lines[0], *("," * lines[0].count(",") for _ in range(3)), *lines[1:]]
    (folder / "holes.csv").write_text("\n".join(holes) + "\n")
    saved = load(folder / "model")
    figure = draw(saved, "row", measured_rows(saved, folder / "holes.csv"), [5])
    assert figure.axes[0].get_ylabel() == "row 5: density"
    twin = draw(saved, "row", measured_rows(saved, folder / "stars.csv"), [2])
    values = [each.axes[0].containers[0].lines[0].get_xdata()[0] for each in (figure, twin)]
    assert values[0] == values[1]


BAD = {
    "kind": (("-k", "pie"), "Expected --kind as one of"),
    "ending": (("-o", "a.doc"), "that ends in .png"),
    "rows": (("--rows", "x"), "Expected --rows as whole numbers"),
    "no row": (("-k", "row"), "Expected --rows with numbers of rows for a picture of kind row"),
    "rows of all": (
        ("-k", "marginals", "--rows", "1"),
        "no --rows for a picture of kind marginals",
    ),
    "column": (("--columns", "x,z"), "Expected --columns among x, y"),
    "dpi": (("--dpi", "1"), "Expected --dpi in"),
    "row": (("--rows", "9999"), "Expected --rows among the 250 that can be used of 250, from 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls(folder, case):
    options, message = BAD[case]
    assert message in refused("plot", "model", *options)


def test_a_table_that_is_gone(folder):
    forget_the_table(folder / "model")
    assert "Expected a table" in refused("plot", "model", "-o", "picture.png")
    succeed("plot", "model", "-k", "marginals", "-o", "picture.png")
