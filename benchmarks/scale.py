"""Rows beyond memory: the time and the memory of fits to folders of more and more rows.

    python -m benchmarks.scale table memory --folder /tmp/survey --rows 1e5 1e6 1e7 1e8

The tables are made once, as folders of Parquet files. Fits are added to ``results/scale.json`` as
they end; those that are there are not made again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.record import RESULTS
from benchmarks.runs import Runs

SEED, D, TRUE_COMPONENTS = 19, 3, 20
COLUMNS = ["x", "y", "z"]
FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
COMPONENTS = 10
#: Load of the machine above which a time is marked as taken under load.
IDLE = 0.7
MEMORY_BAR_GIB = 1.5
KEYS = ("section", "rows", "components", "limit")


def folder_of(folder, rows):
    return Path(folder) / f"rows_{rows}"


def make_table(folder, rows):
    """Write a survey of so many rows: at least two files, so that two processes can share it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = max(2, rows // FILE_ROWS)
    out = folder_of(folder, rows)
    out.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = out / f"part_{number:04d}.parquet"
        if path.exists():
            continue
        columns = survey_columns(rows // files, [SEED, rows, number])
        part = path.with_suffix(".unfinished")
        pq.write_table(pa.table(columns), part, row_group_size=GROUP_ROWS, use_dictionary=False)
        part.replace(path)
    size = sum(path.stat().st_size for path in out.glob("*.parquet"))
    return {"files": files, "gigabytes": size / 1e9}


def truth():
    """Return a mixture of Gaussians of several sizes, which overlap."""
    rng = np.random.default_rng(SEED)
    weights = rng.dirichlet(np.full(TRUE_COMPONENTS, 3.0))
    means = 2.5 * rng.normal(size=(TRUE_COMPONENTS, D))
    factors = rng.normal(size=(TRUE_COMPONENTS, D, D)) * rng.uniform(
        0.2, 0.8, size=(TRUE_COMPONENTS, 1, 1)
    )
    return weights, means, factors @ np.swapaxes(factors, 1, 2) + 0.02 * np.eye(D)


def survey_columns(n, seed):
    """Draw rows of three values with errors of their own, in single precision."""
    rng = np.random.default_rng(seed)
    weights, means, covariances = truth()
    which = rng.choice(len(weights), size=n, p=weights)
    factors = np.linalg.cholesky(covariances)
    v = means[which] + np.einsum("nij,nj->ni", factors[which], rng.normal(size=(n, D)))
    sd = rng.uniform(0.1, 0.6, size=(n, D)).astype(np.float32)
    w = (v + sd * rng.normal(size=(n, D))).astype(np.float32)
    values = {name: w[:, d] for d, name in enumerate(COLUMNS)}
    return values | {f"{name}_err": sd[:, d] for d, name in enumerate(COLUMNS)}


def stream_of(folder, rows):
    from deconflow import open_rows

    return open_rows(folder_of(folder, rows), COLUMNS)


def rows_in_memory(folder):
    import pyarrow.parquet as pq

    table = pq.read_table(folder)
    w = np.column_stack([table[name].to_numpy().astype(float) for name in COLUMNS])
    sd = np.column_stack([table[f"{name}_err"].to_numpy().astype(float) for name in COLUMNS])
    return w, sd


@contextmanager
def written(owner, name, log):
    """Write a line for every call of a method, with its seconds."""
    real = getattr(owner, name)

    def timed(*arguments, **more):
        begin = time.perf_counter()
        answer = real(*arguments, **more)
        line = {"what": name, "seconds": time.perf_counter() - begin}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return answer

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, real)


def whole_fit(folder, rows, passes):
    """Fit all rows of a stream, and say what each pass took."""
    from deconflow import XDGMM, streams, xd

    warnings.simplefilter("ignore")  # fits that are cut short say so
    log = Path(folder) / f"fit_{rows}.log"
    limit = {} if passes is None else {"max_iter": passes}
    with written(streams.RowStream, "overview", log), written(xd.FoldedRows, "pass_over", log):
        begin = time.perf_counter()
        model = XDGMM(COMPONENTS, random_state=SEED, **limit).fit(stream_of(folder, rows))
        seconds = time.perf_counter() - begin
    taken = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    passed = [each["seconds"] for each in taken if each["what"] == "pass_over"]
    return {
        "lower_bound": model.lower_bound_, "passes": model.n_iter_, "converged": model.converged_,
        "seconds": seconds, "pass_seconds": passed,
        "overview_seconds": [each["seconds"] for each in taken if each["what"] == "overview"],
        "nanoseconds_per_row": 1e9 * min(passed) / rows,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def table(runs, options):
    for rows in options.rows:
        runs.add({"section": "table", "rows": rows, **make_table(options.folder, rows)})


def memory(runs, options):
    """Peak memory and time of whole fits, each in a process of its own, and of their passes."""
    for rows in options.rows:
        task = {
            "section": "memory", "rows": rows, "components": COMPONENTS, "limit": options.passes
        }  # fmt: skip
        if runs.done(task):
            continue
        load = os.getloadavg()[0]
        words = json.dumps([options.folder, rows, options.passes])
        command = [sys.executable, "-m", "benchmarks.scale", "--answer", words]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        runs.add({**task, "load_before": load, "under_load": load > IDLE, **json.loads(said)})


SECTIONS = {each.__name__: each for each in (table, memory)}


def main():
    if sys.argv[1:2] == ["--answer"]:
        print(json.dumps(whole_fit(*json.loads(sys.argv[2])), default=float))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--folder", required=True, help="where the tables are")
    parser.add_argument(
        "--rows", nargs="+", type=lambda text: int(float(text)), default=[10**5, 10**6, 10**7]
    )
    parser.add_argument("--passes", type=int, help="passes of a fit, at most")
    parser.add_argument("--results", type=Path, default=RESULTS / "scale.json")
    options = parser.parse_args()
    runs = Runs(options.results, KEYS, keep=True)
    runs.say(command="python -m benchmarks.scale", seed=SEED)
    for name in options.sections:
        SECTIONS[name](runs, options)


if __name__ == "__main__":
    main()
