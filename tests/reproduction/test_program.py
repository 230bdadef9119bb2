"""The program's front, through real processes."""

import pytest
from program.running import run, succeed


@pytest.fixture
def folder(tiny, monkeypatch):
    monkeypatch.chdir(tiny)
    return tiny


def test_a_row_in_processes_of_its_own(folder):
    options = ("reproduce", "mixture", "--rows", "elbo-50", "--seeds", "0", "--quiet")
    output = succeed(*options)
    assert "mixture toy elbo-50 seed 0: -log p(v)" in output
    assert "2.667 ± 0.000" in output  # the paper's
    assert (folder / "results" / "reproduction" / "mixture-budget.json").is_file()
    assert "seed 0: -log" not in succeed(*options)  # nothing is run again


def test_check_ends_with_a_code(folder):
    result = run("reproduce", "--check")
    assert result.exit_code == 1
    assert "missing toy xd, seeds 0, 1, 2, 3, 4" in result.output
    assert "docs/reproduction.md is missing" in result.output


REFUSED = {
    "Expected one of mixture": ("nothing",),
    "got nothing": (),
    "Expected --protocol as one of paper, budget": ("mixture", "--protocol", "short"),
    "Expected --seeds as whole numbers": ("mixture", "--seeds", "one"),
    "Expected --rows of mixture from": ("mixture", "--rows", "iw-7"),
    "Expected --rows of grid from": ("grid", "--rows", "iw-7"),
    "Expected no --seeds with grid": ("grid", "--seeds", "0"),
    "Expected no --rows with figures": ("figures", "--rows", "xd"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_are_one_line(folder, message):
    result = run("reproduce", *REFUSED[message])
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_write_says_what_it_did(folder):
    assert "is up to date" in succeed("reproduce", "--write")
