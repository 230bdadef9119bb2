"""Odd calls of everything public: none answers with NaN, none ends in words of another library.

A few hundred here, by hypothesis; ten thousand by ``make fuzz``.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from . import calls
from .calls import Call
from .judge import FAULTS, call_of, judge
from .strategies import calls_by

EXAMPLES = 380


@pytest.mark.parametrize("make", calls.MAKERS, ids=lambda make: make.__name__)
def test_odd_calls(make):
    @settings(
        max_examples=EXAMPLES * calls.MAKERS[make] // 100,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],  # calls are short as they are
        suppress_health_check=list(HealthCheck),
    )
    @given(calls_by(make))
    def check(call):
        outcome = judge(call)
        assert outcome.kind not in FAULTS, f"{outcome}\n\n{call.code}"

    check()


def outcome_of(*lines, setup=("w = np.zeros((5, 1))",), shape="", question="score"):
    return judge(Call("test", question, setup, lines, shape=shape), limit=0.3).kind


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
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_judge_sees_what_is_wrong(name):
    lines, kind = EXPECTED[name]
    assert outcome_of(*lines) == kind


def test_the_judge_sees_a_wrong_shape():
    assert outcome_of("answer = np.zeros(3)", shape="(len(w),)") == "silent"
    assert outcome_of("answer = np.zeros(5)", shape="(len(w),)") == "ok"


def test_a_message_must_name_an_argument_of_its_own_call():
    fit = "XDGMM(n_components=1).fit(w[:, 0], noise=0.1)"  # scikit-learn names nothing
    assert outcome_of(fit) in ("nameless", "refused")
    assert outcome_of("noise.gaussian_mixture([0.5], [[0.0]], [[[1.0]]])") == "refused"


def test_a_number_gives_the_same_call_again():
    assert call_of(7) == call_of(7)
    assert call_of(7) != call_of(8)
    assert np.unique([call_of(seed).subject for seed in range(60)]).size >= 6
