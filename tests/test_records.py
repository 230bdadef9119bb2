"""The records: runs that are kept."""

import numpy as np
import pytest

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
    first = capsys.readouterr()
    assert first.out.count('"total"') == 2
    assert main() == 0
    second = capsys.readouterr()
    assert second.out == ""
    assert "2 runs, 0 to make" in second.err
