"""What two processes fit together, flows and streams, against the same with one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rank_work
import torch

HERE = Path(__file__).parent


USUAL = (
    "flow", "without draws", "chains", "stream", "failure",
)  # fmt: skip


def found_by_two(folder, *asked):
    """Return what each of two processes has found."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, HERE / "rank_work.py", folder, *asked],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        check=True, timeout=300,
    )  # fmt: skip
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(2)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """All but what takes long."""
    return found_by_two(tmp_path_factory.mktemp("group"), *USUAL)


def test_all_processes_have_the_same_flow(both):
    first, second = (each["flow"] for each in both)
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["posterior"], second["posterior"])
    assert first["history"] == second["history"]
    assert first["score"] == second["score"]


def test_the_flow_is_as_good_as_that_of_one_process(both, one_thread):
    alone = rank_work.fit_a_flow()
    assert not torch.equal(alone["weights"], both[0]["flow"]["weights"])  # other random numbers
    assert len(alone["history"]["train"]) == len(both[0]["flow"]["history"]["train"])
    # four seeds with one process lie within 0.0025; twice the learning rate is 0.007 away
    assert both[0]["flow"]["score"] == pytest.approx(alone["score"], abs=0.005)


def test_without_draws_the_fit_is_that_of_one_process(both, one_thread):
    weights, history = rank_work.fit_without_draws()
    for found, told in (each["without draws"] for each in both):
        # sums of double precision in another order, through 30 steps
        assert torch.allclose(found, weights, rtol=1e-9, atol=1e-9)
        for name in ("best_epoch", "stopped_early", "learning_rate"):
            assert told[name] == history[name]
        assert np.allclose(told["validation"], history["validation"], rtol=1e-9)


def test_chains_stay_with_their_rows(both):
    (weights, chains, rows), (other_weights, other_chains, other_rows) = (
        each["chains"]["whole"] for each in both
    )
    assert torch.equal(weights, other_weights)
    assert chains.shape == other_chains.shape == (1, 150, 2)
    assert not torch.equal(chains, other_chains)
    together = {tuple(row.tolist()) for row in torch.cat([rows, other_rows])}
    assert len(together) == 300


def test_an_interrupted_fit_goes_on_to_the_same_result(both):
    for found in (each["chains"] for each in both):
        for whole, resumed in zip(found["whole"], found["resumed"], strict=True):
            assert torch.equal(whole, resumed)


def test_another_number_of_processes_is_refused(both):
    for found in (each["chains"] for each in both):
        assert found["refusal"].startswith("Expected as many processes to go on from")
        assert "2; got 1." in found["refusal"]


def test_a_stream_is_fitted_as_by_one_process(both, tmp_path):
    rank_work.write_survey(tmp_path / "survey")
    alone = rank_work.fit_a_stream(tmp_path / "survey")
    for found in (each["stream"] for each in both):
        for name, close in (("sums", 1e-12), ("fit", 1e-9)):
            for mine, theirs in zip(alone[name], found[name], strict=True):
                np.testing.assert_allclose(theirs, mine, rtol=close, atol=close)


def test_the_failure_of_one_process_ends_all_and_changes_no_estimator(both):
    told, failed = (each["failure"] for each in both)
    assert failed["told"] == "MemoryError: no memory left here"
    assert told["told"].startswith("LostRankError: Expected all 2 processes to go on")
    assert told["told"].endswith("give the same command again.")
    assert told["seconds"] < 60
    for each in (told, failed):
        assert not [name for name in each["left"] if name.endswith("_")]
