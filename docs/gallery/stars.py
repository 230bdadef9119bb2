"""
Stars: parallaxes from Gaia
===========================

A parallax tells how far away a star is. For most of Gaia's stars it is poorly known: one in four of
the measured values is negative, which no true parallax can be. How are the true parallaxes
distributed, and do faint stars really scatter as much as their measurements do?
"""

# %%
# The table
# ---------
# A thousand random sources with a parallax, from the `Gaia archive
# <https://gea.esac.esa.int/archive/>`_ (data release 3), requested in its query language, ADQL.
# The archive gives the error of each parallax. For a magnitude it gives the flux divided by its
# error; the error of the magnitude follows from that.

from urllib.parse import quote

import numpy as np
import pandas as pd

query = """SELECT parallax, parallax_error, phot_g_mean_mag, phot_g_mean_flux_over_error
           FROM gaiadr3.gaia_source WHERE random_index < 1220 AND parallax IS NOT NULL"""
archive = "https://gea.esac.esa.int/tap-server/tap/sync?REQUEST=doQuery&LANG=ADQL&FORMAT=csv&QUERY="
stars = pd.read_csv(archive + quote(query))
stars["phot_g_mean_mag_error"] = 2.5 / np.log(10) / stars.pop("phot_g_mean_flux_over_error")
print(f"{len(stars)} stars; {100 * (stars.parallax < 0).mean():.1f} % have a negative parallax")
stars.head().round(3)

# %%
# Three lines
# -----------
# The negative parallaxes stay in: they are what a small parallax with a large error looks like,
# and without them the answer would be too large. ``bounds`` specifies that no *true* parallax is
# negative.

from deconflow import XDGMM

columns, errors = ["parallax", "phot_g_mean_mag"], ["parallax_error", "phot_g_mean_mag_error"]
model = XDGMM(8, floor=0.1, bounds={"parallax": (0, None)}, random_state=0)
model.fit(stars[columns], noise=stars[errors])
truth = model.sample(100_000, random_state=0)

# %%
# The answer
# ----------

import matplotlib.pyplot as plt

figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharex=True, sharey=True)
few = truth[: len(stars)]
panels[0].plot(stars.parallax, stars.phot_g_mean_mag, ".", ms=3, color="0.45")
panels[1].plot(few[:, 0], few[:, 1], ".", ms=3, color="#1f4e79")
panels[0].set(title="measured", xlim=(-3, 4), ylim=(21.2, 11), ylabel="G magnitude")
panels[1].set(title="as many draws of the truth")
for panel in panels:
    panel.axvline(0, color="0.7", lw=0.8)
    panel.set_xlabel("parallax [mas]")


def spread(values):
    """Half the range of the central 68 %."""
    return np.diff(np.quantile(values, [0.16, 0.84]))[0] / 2


print(f"spread of the measured parallaxes {spread(stars.parallax):.2f} mas")
print(f"spread of the true ones           {spread(truth[:, 0]):.2f} mas")
noisy = stars.parallax_error > stars.parallax_error.quantile(0.75)
answer = model.posterior(stars[noisy][columns], noise=stars[noisy][errors])
print(f"error of the worst quarter: {stars[noisy].parallax_error.median():.2f} mas", end=", ")
print(f"with the other stars' help {np.median(answer.sd[:, 0]):.2f} mas")

# %%
# **24.5 %** of the measured parallaxes are negative, but none of the true ones. The spread (half
# the central 68 % range) shrinks from **0.59** to **0.34** mas. Most of the funnel on the left, in
# which faint stars seem to lie at all distances and beyond, is noise, and is nearly gone on the
# right. A star in the worst quarter has an error of **0.97** mas; combined with what all stars
# tell us, **0.34** mas remain.
#
# What the certificate says
# -------------------------

certificate = model.certify(stars[columns], noise=stars[errors])
for caution in certificate.warnings:
    print("-", caution)

# %%
# This is true of Gaia, and nobody put it in. Faint stars have larger errors, so a magnitude
# depends on its own error; with this taken into account, nothing else is unusual. To go further,
# fit bright and faint stars separately, or with ``given="noise"`` (:doc:`/truth`).
#
# :doc:`/gaia` does this with five columns and correlated errors, using the program instead of
# Python.
# Gaia data: ESA/Gaia/DPAC.
