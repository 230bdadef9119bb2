"""A small catalogue with everything that catalogues have."""

import numpy as np
import pyarrow as pa

N = 250


def catalogue(n=N, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, 2)) * [1.0, 0.5] + rng.integers(2, size=(n, 1)) * [4.0, 2.0]
    sd = rng.uniform(0.1, 0.6, (n, 2))
    rho = rng.uniform(-0.8, 0.8, n)
    white = rng.normal(size=(n, 2))
    white[:, 1] = rho * white[:, 0] + np.sqrt(1 - rho**2) * white[:, 1]
    w = truth + sd * white
    flag = np.arange(n) % 3 == 0
    return pa.table({
        "id": pa.array(np.arange(n) + 2**60),
        "x": w[:, 0],
        "x_err": sd[:, 0],
        "name": pa.array([None if i % 50 == 7 else f"s,{i}é" for i in range(n)]),
        "y": w[:, 1],
        "e_y": sd[:, 1],
        "x_y_corr": rho,
        "flag": pa.array(flag),
        "count": pa.array([None if i % 40 == 3 else i for i in range(n)], pa.int32()),
    })  # fmt: skip


def text(table):
    """Lines of a CSV file, cell by cell."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [",".join(table.column_names)]
    lines += [
        ",".join('""' if c is None else f'"{c}"' if isinstance(c, str) else str(c) for c in row)
        for row in rows
    ]
    return "\n".join(lines) + "\n"
