import matplotlib.image
import pytest
from program.running import run, succeed
from signing import sign

from deconflow import plots
from deconflow.program.model_folder import load
from deconflow.program.plot import KINDS, draw, measured_rows


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(folder, kind):
    rows = ("--rows", "17") if kind == "row" else ()
    succeed("plot", "model", "-k", kind, "-o", "picture.png", *rows)
    picture = matplotlib.image.imread("picture.png")
    assert min(picture.shape[:2]) > 200
    assert picture.std() > 0.05


LOOK = (
    "--columns", "y,x", "--range", "x=-3:", "--bins", "25", "--invert", "y", "--dpi", "50",
    "--size", "6x3", "--title", "Two columns",
)  # fmt: skip


def test_a_look(folder, monkeypatch):
    """The options do what the keywords in Python do."""
    said = {}
    drawn = plots.picture
    monkeypatch.setattr(plots, "picture", lambda *args, **o: said.update(o) or drawn(*args, **o))
    succeed("plot", "model", "-k", "marginals", "-o", "a.png", "--log", "x", *LOOK[:2], *LOOK[4:])
    assert said["columns"] == ["y", "x"]
    assert (said["log"], said["invert"], said["bins"]) == (["x"], ["y"], 25)
    assert (said["size"], said["dpi"], said["title"]) == ((6.0, 3.0), 50, "Two columns")
    assert matplotlib.image.imread("a.png").shape[:2] == (150, 300)
    succeed("plot", "model", "-k", "before_after", "-o", "b.png", *LOOK)
    assert said["range"] == {"x": (-3.0, None)}


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


def test_a_flow_has_effective_sizes(fitted_flow, tmp_path):
    out = tmp_path / "picture.png"
    succeed("plot", fitted_flow / "flow", "-k", "diagnostics", "-o", out)
    assert out.exists()


BAD = {
    "kind": (("-k", "pie"), "Expected --kind as one of"),
    "ending": (("-o", "a.doc"), "that ends in .png"),
    "rows": (("--rows", "x"), "Expected --rows as whole numbers"),
    "no row": (("-k", "row"), "Expected --rows with numbers of rows for a picture of kind row"),
    "rows of a history": (("-k", "history", "--rows", "1"), "no --rows for a picture of kind hist"),
    "column": (("--columns", "x,z"), "Expected --columns among x, y"),
    "range": (("--range", "x=1"), "Expected --range as NAME=LOW:HIGH"),
    "range of none": (("--range", "z=0:1"), "Expected --range as NAME=LOW:HIGH"),
    "backwards": (("--range", "x=2:1"), "Expected --range of 'x' as two numbers, the lower first"),
    "bins": (("--bins", "0"), "Expected --bins as a whole number"),
    "log": (("--log", "z"), "Expected --log among x, y"),
    "log from zero": (("--log", "x", "--range", "x=0:1"), "Expected --range of 'x' above 0"),
    "invert": (("--invert", "z"), "Expected --invert among x, y"),
    "dpi": (("--dpi", "1"), "Expected --dpi in"),
    "size": (("--size", "7"), "Expected --size as WIDTHxHEIGHT, such as 7x4; got '7'."),
    "huge": (("--size", "700x3"), "Expected --size as width and height"),
    "title": (("--title", r"$\nonsense$"), "Expected --title as text that can be set"),
    "bins of a history": (("-k", "history", "--bins", "3"), "Expected no --bins for a picture"),
    "row": (("--rows", "9999"), "Expected --rows among the 250 that can be used of 250, from 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls(folder, case):
    options, message = BAD[case]
    result = run("plot", "model", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_table_that_is_gone(folder):
    import json

    about = json.loads((folder / "model" / "table.json").read_text())
    about["table"]["path"] = "gone.csv"
    (folder / "model" / "table.json").write_text(json.dumps(about))
    sign(folder / "model")
    result = run("plot", "model", "-o", "picture.png")
    assert result.exit_code == 2
    assert "Expected a table" in result.output
    succeed("plot", "model", "-k", "marginals", "-o", "picture.png")
