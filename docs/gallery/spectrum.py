"""
A spectrum: one line or two?
============================

A detector blurs the energy of every particle by a tenth. The histogram shows a broad hump. Is it
one line or two, and how many particles belong to each?

**This table is generated**, so that the answer is known.
"""

# %%
# The table
# ---------
# 6,000 particles: a falling background, and two narrow lines at 100 and 130 keV, with 1,800 and
# 1,200 particles. The detector multiplies each energy by a factor that scatters by 10 %, so that
# its resolution is 10 keV at the first line and 13 keV at the second.

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
background = 20 + rng.exponential(60, 3000)
lines = np.concatenate([rng.normal(100, 1, 1800), rng.normal(130, 1, 1200)])
true = rng.permutation(np.concatenate([background, lines]))
table = pd.DataFrame({"energy": true * np.exp(0.1 * rng.normal(size=6000))})
table.round(1).head()

# %%
# Three lines
# -----------
# A multiplicative error of the energy is an additive error of its logarithm, the same for all
# particles. In one column ``LogSplineDeconvolver`` is quick, and has bands; it chooses from the
# data how smooth the answer is.

from deconflow import LogSplineDeconvolver

w = np.log(table.to_numpy())
model = LogSplineDeconvolver().fit(w, noise=0.1)
grid = np.linspace(25, 220, 391)
band = model.density_.band(np.log(grid), column=0)  # of the logarithm, with 90 % intervals

# %%
# The picture
# -----------

import matplotlib.pyplot as plt

per_kev = len(table) / grid  # a density of ln E, as particles per keV
figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
bins = np.arange(20, 225, 5)
axes.hist(table.energy, bins, weights=np.full(6000, 0.2), color="0.8", label="measured")
style = {"histtype": "step", "color": "k", "ls": ":"}
axes.hist(true, bins, weights=np.full(6000, 0.2), label="as it was generated", **style)
axes.fill_between(grid, band.lower * per_kev, band.upper * per_kev, color="C0", alpha=0.25, lw=0)
axes.plot(grid, band.value * per_kev, color="C0", lw=2, label="unfolded, 90 % band")
axes.set(xlabel="energy [keV]", ylabel="particles per keV", xlim=(20, 220), ylim=(0, None))
axes.legend(frameon=False)
plt.show()

# %%
# There are two lines. Where are they, and what fraction of the particles is around each?

from scipy.integrate import trapezoid

for low, high in ((85, 115), (115, 145)):
    inside = (grid >= low) & (grid <= high)
    place = grid[inside][np.argmax(band.value[inside] / grid[inside])]
    unfolded = trapezoid(band.value[inside], np.log(grid[inside]))
    seen, truth = (np.mean((each > low) & (each < high)) for each in (table.energy, true))
    words = f"measured {seen:.1%}, unfolded {unfolded:.1%}, in truth {truth:.1%}"
    print(f"{low} to {high} keV: a line at {place:.0f} keV; {words}")

# %%
# They are found at **99** and **130** keV, with **36.9** % and **25.1** % of the particles around
# them; the histogram has too few in both ranges, because many have been blurred out of them.
#
# What the certificate says
# -------------------------

print(model.certify(w, noise=0.1).sentences()[0])

# %%
# The unfolded lines are broader than the true ones, and the band does not reach their full
# height. A detector with a resolution of 10 keV can hardly show how narrow a line is, but it does
# show where the line is, and how many particles are in it.
#
# **What this does not show.** A relative resolution that changes with the energy, counts in
# channels instead of single particles, and an efficiency: see :doc:`/measured`.
