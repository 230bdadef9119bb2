import matplotlib.image
import pytest
from program.running import run, succeed
from signing import sign


@pytest.mark.parametrize("kind", ["corner", "marginals", "history", "diagnostics"])
def test_every_kind(folder, kind):
    succeed("plot", "model", "-k", kind, "-o", "picture.png")
    picture = matplotlib.image.imread("picture.png")
    assert min(picture.shape[:2]) > 200
    assert picture.std() > 0.05


def test_rows_and_formats(folder):
    succeed("plot", "model", "stars.csv", "-o", "a.pdf", "--rows", "3,5")
    succeed("plot", "model", "stars.csv", "-o", "a.svg", "-k", "history")
    assert (folder / "a.pdf").read_bytes().startswith(b"%PDF")


def test_a_flow_has_effective_sizes(fitted_flow, tmp_path):
    out = tmp_path / "picture.png"
    succeed("plot", fitted_flow / "flow", "-k", "diagnostics", "-o", out)
    assert out.exists()


BAD = {
    "kind": (("-k", "pie"), "Expected --kind as one of"),
    "ending": (("-o", "a.doc"), "that ends in .png"),
    "rows": (("--rows", "x"), "Expected --rows as whole numbers"),
    "row": (("--rows", "9999"), "Expected --rows among the 250 that can be used of 250, from 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls(folder, case):
    options, message = BAD[case]
    result = run("plot", "model", *options)
    assert result.exit_code == 2
    assert message in result.output


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
