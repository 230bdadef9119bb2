"""Run the page about Gaia from top to bottom, and record the figures it quotes.

    python -m benchmarks.gaia

needs ``../shared/data/gaia_dr3_sample.fits``; writes ``results/gaia.json`` and the pictures of the
page.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks import record

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT.parent / "shared" / "data" / "gaia_dr3_sample.fits"
PAGE = ROOT / "docs" / "gaia.md"
PICTURES = {"corner.png": "gaia_corner.png", "marginals.png": "gaia_marginals.png"}


def run_page():
    """Run the page's blocks in their order; what they print, command by command."""
    printed = {}
    for kind, block in re.findall(r"```(python|bash)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if kind == "python":
            exec(block, {})
            continue
        for line in block.splitlines():
            program = [sys.executable, "-m", "deconflow"]
            answer = subprocess.run(
                [*program, *line.split()[1:]], check=True, capture_output=True, text=True
            )
            printed[line] = answer.stdout.splitlines()
    return printed


def numbers(table, name):
    return np.ma.filled(np.ma.asarray(table[name]).astype(float), np.nan)


def spread(values):
    """Half the range of the central 68 %: a few far draws do not change it."""
    return np.diff(np.quantile(values, [0.16, 0.84]))[0] / 2


def figures():
    """What the page says of the answers."""
    from astropy.table import Table

    from deconflow import Deconvolver

    with warnings.catch_warnings(action="ignore"):  # units that the standard does not know
        denoised = Table.read("denoised.fits")
    truth = Deconvolver.load("model").sample(200_000, random_state=0)[:, 0]
    measured, error = numbers(denoised, "parallax"), numbers(denoised, "parallax_error")
    sd, colour = numbers(denoised, "parallax_sd"), numbers(denoised, "bp_rp")
    noisy, precise = error > np.quantile(error, 0.75), error < np.quantile(error, 0.25)
    return {
        "rows": len(measured),
        "columns before": len(Table.read("gaia.fits", unit_parse_strict="silent").colnames),
        "columns after": len(denoised.colnames),
        "spread of measured parallaxes": spread(measured),
        "spread of true parallaxes": spread(truth),
        "least true parallax of 200,000 draws": truth.min(),
        "least posterior mean of a parallax": numbers(denoised, "parallax_mean").min(),
        "least 16 % quantile of a parallax": numbers(denoised, "parallax_q16").min(),
        "share of measured parallaxes below zero": (measured < 0).mean(),
        "share of true parallaxes below zero": (truth < 0).mean(),
        "noisy quarter: median error": np.median(error[noisy]),
        "noisy quarter: median posterior sd": np.median(sd[noisy]),
        "precise quarter: median posterior sd / error": np.median((sd / error)[precise]),
        "stars without a colour": int(np.isnan(colour).sum()),
        "median sd of their colours": np.median(numbers(denoised, "bp_rp_sd")[np.isnan(colour)]),
    }


def main():
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(TABLE, folder)
        os.chdir(folder)
        printed = run_page()
        found = {name: round(float(value), 4) for name, value in figures().items()}
        for picture, name in PICTURES.items():
            shutil.copy(picture, ROOT / "docs" / "images" / name)
        os.chdir(ROOT)
    seconds = round(time.perf_counter() - start)
    record.write("gaia", figures=found, printed=printed, seconds=seconds)


if __name__ == "__main__":
    main()
