import re
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.docs

PAGE = Path(__file__).parents[2] / "docs" / "classical.md"


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(block, names)
    for model in (names["model"], names["wavelets"]):
        p = np.exp(model.score_samples([[-1.0], [0.0], [1.0]]))
        assert p[1] < 0.5 * min(p[0], p[2])
