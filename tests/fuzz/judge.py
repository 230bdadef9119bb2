"""Run a call, and say what became of it."""

import ast
import copy
import functools
import re
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import torch
from astropy.table import Table
from sklearn.exceptions import ConvergenceWarning

from deconflow import UntrustedFitWarning

from .calls import PREAMBLE, Call, build

#: Classes that must be empty.
FAULTS = ("silent", "unclear", "hang", "crash")

CLASSES = {
    "ok": "an answer, finite and of the right shape",
    "refused": "a ValueError or TypeError in plain words",
    "warned": "an answer, with a warning from inside that says nothing to the caller",
    "unclear": "another exception, or words of another library",
    "silent": "NaN, infinity or another shape than promised, without an exception",
    "silent_beyond": "the same, with values above 1e100 in the call",
    "hang": "no end within the limit",
    "crash": "the process died",
}

FILE = "<fuzz>"
LARGEST = 1e100
#: Seconds of CPU time that a call may take.
LIMIT = 20.0

IN_OUR_FORM = re.compile(r"^Expected .+; got:? .+", re.DOTALL)
#: Words of scikit-learn that its own checks of estimators ask for.
SCIKIT_LEARNS = re.compile(
    r"is not fitted yet"
    r"|X has \d+ features, but \w+ is expecting"
    r"|The feature names should match those that were passed during fit"
    r"|Found array with 0 (sample|feature)\(s\)"
    r"|Expected 2D array, got"
    r"|Found array with dim \d"
    r"|Complex data not supported"
    r"|Sparse data was passed"
)

LOGS = (
    "log_prob", "score", "score_samples", "score_observations", "log_marginal",
    "observations",
)  # fmt: skip
#: Where a log density of minus infinity is the truth: outside the support of bounded noise.
BOUNDED = re.compile(r"noise\.uniform|Uniform\(|Gamma\(|background=0\.0")


@dataclass(frozen=True)
class Outcome:
    """What became of a call."""

    kind: str
    detail: str = ""


class Hang(BaseException):
    """A call that takes too long; no library catches it."""


def call_of(seed: int) -> Call:
    """The call of a number: the first of its tries whose arguments can be made at all."""
    tries = (build(Random(f"{seed}/{attempt}")) for attempt in range(100))
    return next(call for call in tries if made(call))


def made(call: Call) -> bool:
    """Whether the arguments of a call can be made; a table of no columns often cannot."""
    with tempfile.TemporaryDirectory() as folder, suppress(Exception):
        _prepare(call, Path(folder))
        return True
    return False


def judge(call: Call, limit: float = LIMIT) -> Outcome:
    """Run a call and classify it."""
    with tempfile.TemporaryDirectory() as folder:
        scene = _prepare(call, Path(folder))
        if call.model:
            scene["model"] = copy.deepcopy(_scene(call.model)["model"])
        np.random.seed(0)  # what random_state=None draws from  # noqa: NPY002
        try:
            with warnings.catch_warnings(record=True) as said, _within(limit):
                warnings.simplefilter("always")
                for step in call.steps:
                    exec(compile(step, FILE, "exec"), scene)
            kind, detail = _verdict(call, scene, said)
        except Hang as hang:
            kind, detail = (
                "hang",
                f"more than {limit:g} s: {traceback.extract_tb(hang.__traceback__)[-1]}",
            )
        except Exception as error:
            kind, detail = _classify(error), f"{type(error).__name__}: {error}"
        return Outcome(kind, detail.replace(folder, "FOLDER"))


def _prepare(call: Call, folder: Path) -> dict[str, Any]:
    (folder / "a file").write_text("text")
    scene = dict(_scene(), folder=folder)
    with warnings.catch_warnings(action="ignore"):
        exec("\n".join(call.setup), scene)
    return scene


@functools.cache
def _scene(model: str = "") -> dict[str, Any]:
    """What a call finds: the names of the preamble, and a model that was fitted."""
    scene: dict[str, Any] = {}
    with warnings.catch_warnings(action="ignore"):
        exec(PREAMBLE + model, scene)
    return scene


@contextmanager
def _within(limit: float) -> Iterator[None]:
    """Raise :class:`Hang` after so many seconds of CPU time."""

    def end(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _verdict(call: Call, scene: dict[str, Any], said: list[Any]) -> tuple[str, str]:
    """Look at the answer of a call that ended well, and at its warnings."""
    bad = _bad_numbers(scene["answer"], call) or _bad_shape(scene, call)
    if bad:
        return ("silent_beyond" if beyond(call, scene) else "silent"), bad
    foreign = [f"{each.category.__name__}: {each.message}" for each in said if not _own(each)]
    return ("warned", foreign[0]) if foreign else ("ok", "")


def beyond(call: Call, scene: dict[str, Any]) -> bool:
    """Whether a number above 1e100 is written in a call, or made in its setup by multiplying."""
    written = [x.value for x in ast.walk(ast.parse(call.text)) if isinstance(x, ast.Constant)]
    arrays = [scene.get(name) for name in ("w", "sd", "v")]
    found = [np.asarray(x) for x in (*written, *arrays) if isinstance(x, int | float | np.ndarray)]
    numbers = [x.astype(float) for x in found if x.dtype.kind in "iuf"]
    return any((np.isfinite(x) & (np.abs(x) > 3 * LARGEST)).any() for x in numbers)


def _bad_numbers(answer: Any, call: Call) -> str:
    for values in _arrays(answer):
        if np.isnan(values).any():
            return "NaN in the answer"
        infinite = np.isinf(values)
        if call.question in LOGS and BOUNDED.search(call.text):
            infinite &= values > 0
        if infinite.any():
            return f"{values[infinite].ravel()[0]} in the answer"
    return ""


def _arrays(answer: Any) -> Iterator[np.ndarray]:
    """All numbers of an answer, whatever it is."""
    if isinstance(answer, pd.DataFrame):
        answer = {
            name: answer[name].to_numpy() for name in answer if name != "effective_sample_size"
        }
    if isinstance(answer, Table):
        answer = {name: np.asarray(answer[name]) for name in answer.colnames}
    if isinstance(answer, dict):
        answer = list(answer.values())
    if is_dataclass(answer) and not isinstance(answer, type):
        answer = [value for value in vars(answer).values() if value is not None]
    if isinstance(answer, list | tuple):
        for part in answer:
            yield from _arrays(part)
        return
    if isinstance(answer, torch.Tensor):
        answer = answer.detach().numpy()
    array = np.asarray(answer)
    if array.dtype.kind not in "biufc":
        raise AssertionError(f"an answer of numbers became {array.dtype}: {answer!r}")
    yield array


def _bad_shape(scene: dict[str, Any], call: Call) -> str:
    if not call.shape:
        return ""
    try:
        wanted = eval(call.shape, scene)
    except Exception as error:
        return f"an answer to something that has no length: {error}"
    got = np.shape(scene["answer"])
    return "" if got == wanted else f"shape {got} in place of {wanted}"


def _own(warning: Any) -> bool:
    """Whether a warning is one of the library's, shown at the caller's line."""
    if warning.category is UserWarning and "feature names" in str(warning.message):
        return True  # scikit-learn's, about names that only one of two tables has
    known = (UserWarning, ConvergenceWarning, UntrustedFitWarning)
    return warning.category in known and warning.filename == FILE


def _classify(error: Exception) -> str:
    """Hold an exception against the rules of messages."""
    message, inside = str(error), traceback.extract_tb(error.__traceback__)[-1].filename
    ours = IN_OUR_FORM.search(message) and "deconflow" in inside
    scikit_learns = SCIKIT_LEARNS.search(message) and ("sklearn" in inside or "deconflow" in inside)
    right_type = isinstance(error, ValueError | TypeError | IndexError | OSError)
    if not right_type or not (ours or scikit_learns) or isinstance(error, np.linalg.LinAlgError):
        return "unclear"
    return "refused"
