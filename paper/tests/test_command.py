"""The command ``python -m paper``, through real processes."""

import pytest

from paper.__main__ import main


@pytest.fixture
def folder(tiny, monkeypatch):
    monkeypatch.chdir(tiny)
    monkeypatch.delenv("DECONFLOW_DATA", raising=False)
    return tiny


@pytest.mark.slow
def test_a_row_in_processes_of_its_own(folder, capsys):
    options = ("mixture", "--rows", "elbo-50", "--seeds", "0", "--quiet")
    assert main(options) == 0
    output, errors = capsys.readouterr()
    assert "mixture toy elbo-50 seed 0: -log p(v)" in errors
    assert "2.667 ± 0.000" in output  # the paper's
    assert (folder / "results" / "reproduction" / "mixture-budget.json").is_file()
    assert main(options) == 0
    assert capsys.readouterr() == (output, "")  # nothing is run again


def test_check_ends_with_a_code(folder, capsys):
    assert main(["--check"]) == 1
    output = capsys.readouterr().out
    assert "missing toy xd, seeds 0, 1, 2, 3, 4" in output
    assert "docs/reproduction.md is missing" in output


REFUSED = {
    "Expected one of mixture": ("nothing",),
    "got nothing": (),
    "Expected --protocol as one of paper, budget": ("mixture", "--protocol", "short"),
    "Expected --seeds as whole numbers": ("mixture", "--seeds", "one"),
    "Expected --jobs of at least 1": ("mixture", "--jobs", "0"),
    "Expected --rows of mixture from": ("mixture", "--rows", "iw-7"),
    "Expected --rows of grid from": ("grid", "--rows", "iw-7"),
    "Expected no --seeds with grid": ("grid", "--seeds", "0"),
    "Expected no --rows with figures": ("figures", "--rows", "xd"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_are_one_line(folder, message, capsys):
    assert main(REFUSED[message]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("given", [True, False])
def test_data_are_in_the_folder_that_is_given(folder, here, monkeypatch, capsys, given):
    def fetch(**options):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    options = ("uci", "--rows", "red,xd", "--seeds", "0", "--quiet")
    assert main(options) == 2
    assert "wine_red.npy in a folder given by --data or DECONFLOW_DATA" in capsys.readouterr().err
    if given:
        options += ("--data", "data")
    else:
        monkeypatch.setenv("DECONFLOW_DATA", str(folder / "data"))
    assert main(options) == 0
    assert here == ["uci.red.xd.0"]


def test_write_says_what_it_did(folder, capsys):
    assert main(["--write"]) == 0
    assert "is up to date" in capsys.readouterr().out
