"""Peak memory of ``deconflow denoise`` and ``score`` on a Parquet file of a million rows.

    python -m benchmarks.program_memory

Writes ``results/program_memory.json``.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import record

ROWS, FITTED, EXTRA, PART = 1_000_000, 5000, 12, 100_000
BAR_GIB = 2.0
COMMANDS = {
    "denoise": ("denoise", "model", "big.parquet", "-o", "out.parquet"),
    "denoise with quantiles": (
        "denoise", "model", "big.parquet", "-o", "out.parquet", "--quantiles", "0.16,0.84",
    ),
    "score": ("score", "model", "big.parquet"),
}  # fmt: skip


def catalogue(rng, n):
    v = rng.normal(size=(n, 3)) * [1.0, 0.5, 2.0] + rng.integers(2, size=(n, 1)) * [4.0, 2.0, 1.0]
    sd = rng.uniform(0.1, 0.6, (n, 3))
    w = v + sd * rng.normal(size=(n, 3))
    columns = {"name": [f"star {i}" for i in rng.integers(10**9, size=n)]}
    for d, name in enumerate("xyz"):
        columns |= {name: w[:, d], f"{name}_err": sd[:, d]}
    columns |= {f"extra_{k}": rng.normal(size=n) for k in range(EXTRA)}
    return pa.table(columns)


def run(folder, *arguments):
    """Run the program, and return its peak memory in GiB and its seconds."""
    command = [sys.executable, "-m", "deconflow", *arguments, "-q"]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return {"peak_gib": usage.ru_maxrss / 2**20, "seconds": time.perf_counter() - start}


def main():
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        part = catalogue(rng, PART)
        with pq.ParquetWriter(folder / "big.parquet", part.schema) as writer:
            for _ in range(ROWS // PART):
                writer.write_table(catalogue(rng, PART))
        pq.write_table(part.slice(0, FITTED), folder / "small.parquet")
        run(folder, "fit", "small.parquet", "-c", "x,y,z", "-o", "model", "--method", "xd")
        measured = {what: run(folder, *arguments) for what, arguments in COMMANDS.items()}
        size = (folder / "big.parquet").stat().st_size / 2**30
    record.write(
        "program_memory", command="python -m benchmarks.program_memory", rows=ROWS,
        table_gib=size, bar_gib=BAR_GIB, measured=measured,
    )  # fmt: skip


if __name__ == "__main__":
    main()
