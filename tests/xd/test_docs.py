import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

PAGE = Path(__file__).parents[2] / "docs" / "xd.md"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    namespace = {}
    for block in blocks:
        exec(block, namespace)
    assert namespace["model"].means_.tolist() == namespace["means"]
    assert namespace["again"].lower_bound_ > namespace["model"].lower_bound_
