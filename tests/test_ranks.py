"""Processes that work together: a world of one by the same code, and work shared out evenly."""

import numpy as np

from deconflow import ranks


def test_work_is_shared_out_evenly():
    sizes = np.random.default_rng(0).integers(0, 1000, 200)
    mine = ranks.shared_out(sizes.tolist(), 3)
    assert sorted(number for each in mine for number in each) == list(range(200))
    loads = [sizes[each].sum() for each in mine]
    assert max(loads) - min(loads) < 20
    assert [len(each) for each in ranks.shared_out([0, 0, 0], 3)] == [1, 1, 1]
