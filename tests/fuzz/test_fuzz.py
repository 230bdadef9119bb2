"""Odd calls of everything public: none answers with NaN, none ends in words of another library.

Some here; ten thousand by ``make fuzz``.
"""

import numpy as np
import pytest

from .calls import Call
from .judge import FAULTS, call_of, judge


@pytest.mark.parametrize("seed", range(240))
def test_odd_calls(seed):
    call = call_of(seed)
    outcome = judge(call)
    assert outcome.kind not in FAULTS, f"{outcome}\n\n{call.code}"


EXPECTED = {
    "an answer": (("answer = 1.0",), "ok"),
    "NaN": (("answer = [np.ones(2), np.array([1.0, np.nan])]",), "silent"),
    "NaN in a frame": (("answer = pd.DataFrame({'a': [np.nan]})",), "silent"),
    "infinity": (("answer = -np.inf",), "silent"),
    "infinity far out": (("w[0] = 1e101", "answer = -np.inf"), "silent_beyond"),
    "minus infinity outside the support": (("noise.uniform([1.0])", "answer = -np.inf"), "ok"),
    "infinity outside the support": (("noise.uniform([1.0])", "answer = np.inf"), "silent"),
    "no end": (("while True: pass",), "hang"),
    "a refusal": (("noise.laplace([-1.0])",), "refused"),
    "a refusal of a fit": (("XDGMM(n_components=0).fit(w, noise=0.1)",), "refused"),
    "an error of Python": (("XDGMM().fit(w, noise=0.1).means_[5]",), "unclear"),
    "an error of numpy": (("np.linalg.cholesky(-np.eye(2))",), "unclear"),
    "an error of torch": (("Normal(0.0, -torch.ones(1))",), "unclear"),
    "our words from elsewhere": (("raise ValueError('Expected w; got v.')",), "unclear"),
    "a model without a fit": (("XDGMM().sample()",), "refused"),
    "a warning of numpy": (("answer = float(np.log(np.zeros(1))[0] < 0)",), "warned"),
    "a wrong shape": (("answer = np.zeros(3)",), "silent", "(len(w),)"),
    "the right shape": (("answer = np.zeros(5)",), "ok", "(len(w),)"),
    "a name": (("noise.gaussian_mixture([0.5], [[0.0]], [[[1.0]]])",), "refused"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_judge_sees_what_is_wrong(name):
    lines, kind, *shape = EXPECTED[name]
    call = Call("test", "score", ["w = np.zeros((5, 1))"], list(lines), "", *shape)
    assert judge(call, limit=0.3).kind == kind


def test_a_number_gives_the_same_call_again():
    assert call_of(7) == call_of(7)
    assert call_of(7) != call_of(8)
    assert np.unique([call_of(seed).subject for seed in range(60)]).size >= 5
