"""Everything but flows works without torch and zuko, and imports neither where they are there."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "zuko"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
ANSWERS = """
import tempfile, warnings
from pathlib import Path
import numpy as np
from deconflow import *
from deconflow import noise
warnings.simplefilter("ignore", UserWarning)
rows = np.random.default_rng(0).normal(3.0, 1.0, size=(60, 3))

def answers(model, w, noise):
    model.fit(w, noise=noise)
    some, first = w[:3], {"noise": noise}
    found = [model.score_samples(some), model.score_observations(some, **first),
             model.posterior(some, **first).mean, model.p_values(some, **first)]
    assert all(np.isfinite(each).all() for each in found)
    model.sample(3)
    assert model.certify(w, **first).in_words()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = load(Path(folder) / "model")
    assert (loaded.score_samples(some) == found[0]).all()
    assert np.isfinite(model.score(w, **first))
    return model
"""
CORE = """
for w, model in (
    (rows[:, :2], XDGMM(2, random_state=0)),
    (rows[:, :1], XDGMM(2, bounds=(0, None), random_state=0)),
    (rows[:, :1], BayesianXDGMM(n_chains=2, random_state=0)),
    (rows[:, :1], LogSplineDeconvolver()),
    (rows[:, :1], DeconvolvingKDE()),
    (rows[:, :1], WaveletDeconvolver()),
    (rows[:, :1], Deconvolver(quick=True, bounds=(0, None), random_state=0)),
):
    answers(model, w, 0.3)
answers(XDGMM(2, random_state=0), rows[:, :2], noise.student_t([0.3, 0.3], 5.0))
XDGMM(2, random_state=0).fit(rows, noise=0.3).bic(rows, noise=0.3)
observe(rows, 0.3, names=["x", "y", "z"])
"""
FLOWS = """
model = answers(Deconvolver(random_state=0), rows, 0.3)
assert "There are no flows: torch is not installed. Run: pip install 'deconflow[flows]'." in \\
    model.summary().splitlines()
answers(Deconvolver(quick=True, random_state=0), rows[:, :1], noise.student_t([0.3], 5.0))
for make in (FlowDeconvolver, lambda: Deconvolver(device="cuda")):
    try:
        make().fit(rows, noise=0.3)
    except ImportError as error:
        assert str(error).endswith("Run: pip install 'deconflow[flows]'"), error
    else:
        raise AssertionError("fitted without torch")
"""
NOT_IMPORTED = "import sys; assert not {'torch', 'zuko'} & set(sys.modules)"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(f"{ANSWERS}{CORE}{NOT_IMPORTED}", id="there"),
        pytest.param(f"{BLOCK}{ANSWERS}{CORE}{FLOWS}", id="missing"),
    ],
)
def test_only_flows_need_torch(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
