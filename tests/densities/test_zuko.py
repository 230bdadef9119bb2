"""What an import of zuko changes in torch is undone, and zuko works for others all the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import deconflow

STATE = """
import torch
import torch.distributions as d

def state():
    modules = [d, *(x for x in vars(d).values() if type(x) is type(d))]
    classes = {x for m in modules for x in vars(m).values() if isinstance(x, type)}
    own = [x for x in classes if x.__module__.startswith("torch.distributions")]
    entries = {(x.__qualname__, name): v for x in own for name, v in vars(x).items()}
    entries |= {(x.__qualname__, "called"): x.__name__ for x in own}
    return entries | {(m.__name__, name): v for m in modules for name, v in vars(m).items()}

def changes(before):
    after = state()
    missing = object()
    return {
        key for key in before.keys() | after.keys()
        if before.get(key, missing) is not after.get(key, missing)
    }

before = state()
assert len(before) > 1000
"""

#: The only traces: a method that zuko's transforms call on torch's, and a name in a repr.
ADDED = {("Transform", "call_and_ladj"), ("_InverseTransform", "called")}

VALIDATED = """
for wrong in (lambda: d.Normal(0.0, -1.0), lambda: d.Uniform(0.0, 1.0).log_prob(torch.tensor(2.0))):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError("torch does not validate")
"""

FLOWS = """
import zuko
for flow in (zuko.flows.NSF(2), zuko.flows.MAF(2), zuko.flows.NICE(2), zuko.flows.GMM(2)):
    x = flow().sample((5,))
    assert x.shape == (5, 2)
    assert flow().log_prob(x).isfinite().all()
    repr(flow())
x, log_p = zuko.flows.NSF(2)().rsample_and_log_prob((5,))
assert log_p.shape == (5,)
normal = zuko.distributions.GeneralizedNormal(torch.tensor(2.0))
assert normal.log_prob(normal.sample((3,))).shape == (3,)
assert zuko.distributions.Sort(d.Normal(0.0, 1.0), 3).sample((4,)).shape == (4, 3)
"""


def run(*parts):
    """Run a program in a process of its own, in which a warning is an error."""
    code = "\n".join(parts)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_torch_is_as_it_was():
    run(
        STATE,
        "import deconflow.estimators, deconflow.densities",
        f"assert changes(before) == {ADDED!r}, changes(before)",
        VALIDATED,
    )


@pytest.mark.slow
def test_zuko_works_for_others():
    run("import torch, torch.distributions as d", "import deconflow.densities", FLOWS)


def test_one_module_imports_zuko():
    root = Path(deconflow.__file__).parent
    statement = re.compile(r"^\s*(import|from) zuko\b", re.MULTILINE)
    found = [x.relative_to(root).as_posix() for x in root.rglob("*.py")
             if statement.search(x.read_text())]  # fmt: skip
    assert found == ["densities/layers.py"]
