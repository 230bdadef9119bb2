"""The records: runs that are kept."""

import numpy as np
import pytest

from benchmarks import laws
from benchmarks.records.__main__ import SECTIONS, main, open_runs

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Made-up tables in the form of the real ones."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    z = rng.normal(size=200) * np.sqrt(1.3)
    (folder / "prostate_z.txt").write_text("Z\n" + "\n".join(map(str, z)) + "\n")
    n = rng.integers(1, 40, 150)
    counts = [f"{a},{b}" for a, b in zip(n, rng.binomial(n, 0.3), strict=True)]
    (folder / "surgery.csv").write_text("\n".join(["n,s", *counts]) + "\n")
    zones = [f'{i},"A, B",{e:.3f},0.2' for i, e in enumerate(rng.normal(size=100) * 0.3)]
    text = "\n".join(["CZ ,Name,p25_coef,p25_se", *zones, "100,None,,"])
    (folder / "neighborhoods.csv").write_text(text + "\n")
    batters = [f"9,{x:.3f},0.1" for x in rng.normal(0.3, 0.12, 80)]
    (folder / "woba.csv").write_text("\n".join(["PA,x,s", *batters]) + "\n")
    return folder


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_makes_a_run(section, tmp_path, data_folder):
    kept, section = open_runs(tmp_path), SECTIONS[section]
    task = section.tasks(("xd-1",), (0,))[0]
    kept.add(section.run(task, data_folder))
    assert open_runs(tmp_path).done(task)


def test_real_tables_are_read(data_folder):
    from benchmarks.records.real import TABLES

    sizes = {name: [len(c) for c in table.read(data_folder)] for name, table in TABLES.items()}
    assert sizes == {"prostate": [200, 200], "surgery": [150, 150], "neighborhoods": [100, 100]}
    angle, error = TABLES["surgery"].read(data_folder)
    spread = np.sqrt(np.mean((angle - np.arcsin(np.sqrt(0.3))) ** 2 / error**2))
    assert spread == pytest.approx(1, abs=4 / np.sqrt(2 * 150))  # errors are what they say


def test_command_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch, data_folder):
    command = ["x", "batting", "--estimator", "xd-1", "xd-2", "--results", str(tmp_path)]
    command += ["--data", str(data_folder)]
    monkeypatch.setattr("sys.argv", command)
    assert main() == 0
    assert capsys.readouterr().out.count('"total"') == 2
    assert main() == 0
    second = capsys.readouterr()
    assert second.out == ""
    assert "2 runs, 0 to make" in second.err


# -- laws of the benchmarks: densities that integrate to one and belong to their draws ------------


DRAWS = 200_000


def ring_cells():
    """Midpoints of cells that cover the ring, and their area; the width is 40 cells."""
    x = np.arange(-3.2, 3.2, 0.004) + 0.002
    return np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2), 0.004**2


def explog_cells():
    """Cells whose edges lie on ``c = a / 2``: those of c are half as long, with centres between."""
    h = 0.1
    a = (np.arange(140) + 0.5) * h
    c = np.arange(1, 260) * h / 2
    edges = np.exp(np.linspace(-3.6, 3.6, 61))
    b, width = np.sqrt(edges[1:] * edges[:-1]), np.diff(edges)
    points = np.stack(np.meshgrid(a, b, c, indexing="ij"), -1).reshape(-1, 3)
    volume = h * h / 2 * np.broadcast_to(width[None, :, None], (140, 60, 259)).ravel()
    return points, volume


CASES = {
    "ring": (laws.ring, laws.ring_log_p, ring_cells, 1e-4),
    "explog": (laws.explog, laws.explog_log_p, explog_cells, 5e-3),
}
FEATURES = {
    "ring": lambda v: np.stack([v[:, 0] > 1, np.hypot(*v.T), v[:, 0] * v[:, 1]]),
    "explog": lambda v: np.stack(
        [v[:, 0], np.log(v[:, 1]) ** 2, v[:, 2], v[:, 0] * v[:, 2], np.exp(-v[:, 2])]
    ),
}


def far_from_expected(name, v):
    """Standard errors between the draws' means of some features and those of the density."""
    _, log_p, cells, tolerance = CASES[name]
    points, volume = cells()
    expected = (FEATURES[name](points) * np.exp(log_p(points)) * volume).sum(1)
    found = FEATURES[name](v)
    error = found.std(1) / np.sqrt(len(v)) + tolerance * np.abs(expected)  # of the cells
    return np.abs(found.mean(1) - expected) / error


@pytest.mark.parametrize("name", CASES)
def test_density_integrates_to_one(name):
    _, log_p, cells, tolerance = CASES[name]
    points, volume = cells()
    assert (np.exp(log_p(points)) * volume).sum() == pytest.approx(1, abs=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_density(name):
    v = CASES[name][0](DRAWS, np.random.default_rng(0))
    assert far_from_expected(name, v).max() < 4


@pytest.mark.parametrize("name", CASES)
def test_other_draws_are_noticed(name):
    v = 1.03 * CASES[name][0](DRAWS, np.random.default_rng(0))
    assert far_from_expected(name, v).max() > 4
