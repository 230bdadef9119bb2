"""The project's own page says what the project's own records say."""

import pytest

from deconflow.reproduction import figures
from deconflow.reproduction.document import grid_lines, part_in, parts, with_parts
from deconflow.reproduction.protocols import BUDGET, EVALUATIONS


@pytest.fixture
def page(request):
    return request.config.rootpath / "docs" / "reproduction.md"


def test_the_page_agrees_with_the_records(page, request):
    text = page.read_text()
    contents = parts(request.config.rootpath / "results", figures.folder_of(page))
    for name, content in contents.items():
        assert part_in(text, name) == content, f"{name}: run deconflow reproduce --write"


def test_the_page_states_the_budget(page):
    assert f"{EVALUATIONS // 1_000_000} million a run" in page.read_text()


def test_the_page_says_what_the_search_cost():
    fits = {("white", "flow", fold): {"core_seconds": 90.0} for fold in range(2)}
    *table, cost = grid_lines({"grid": fits}, BUDGET)
    assert cost == "2 fits are recorded, of 3 core minutes."
    assert sum("not done" in line for line in table) == 4


def test_only_what_is_between_markers_changes():
    text = "one\n<!-- grid: written by deconflow reproduce -->\n<!-- end of grid -->\ntwo"
    new = with_parts(text, {"grid": r"a \1 table", "other": "nothing"})
    assert new.startswith("one\n")
    assert new.endswith("\ntwo")
    assert part_in(new, "grid") == r"a \1 table"
    assert part_in(new, "other") is None
    assert with_parts(new, {"grid": r"a \1 table"}) == new
