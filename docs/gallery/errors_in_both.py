"""
Errors in both: is the slope 2/3 or 3/4?
========================================

An animal ten times as heavy needs less than ten times the energy: its metabolic rate scales as a
power of its mass. Is the exponent 2/3, like that of the body's surface, or 3/4, as Kleiber found?
A line through the logarithms decides. But masses have errors, too, and then least squares finds
too small a slope.

**This table is generated**, with an exponent of 3/4, so that the answer is known.
"""

# %%
# The table
# ---------
# The logarithms of mass and metabolic rate of 600 species, both with errors: some species were
# weighed many times, others once.

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
mass = rng.normal(2.0, 0.5, 600)
rate = 0.5 + 0.75 * mass + 0.12 * rng.normal(size=600)
errors = rng.uniform(0.05, 0.30, (600, 2))
measured = np.column_stack([mass, rate]) + errors * rng.normal(size=(600, 2))
table = pd.DataFrame(measured, columns=["log_mass", "log_rate"])
table["log_mass_err"], table["log_rate_err"] = errors.T
table.round(3).head()

# %%
# Three lines
# -----------
# First fit the density of the true values of both columns, then ask it for one given the other.

from deconflow import XDGMM

w, noise = table[["log_mass", "log_rate"]], table[["log_mass_err", "log_rate_err"]]
model = XDGMM(1).fit(w, noise=noise)
found = model.regress("log_rate", on="log_mass", w=w, noise=noise)
print(found.summary())

line = np.polyfit(w.log_mass, w.log_rate, 1)
print(f"least squares: {line[0]:.3f}")

# %%
# The slope is **0.765** +- **0.017**: 3/4 is possible, 2/3 is not. Least squares gives **0.657**,
# and would have decided for 2/3. That is not bad luck. It mistakes the errors of the masses for
# differences between the species, and its slope shrinks by their share of the variance:

spread, error = w.log_mass.var(), (noise.log_mass_err**2).mean()
print(f"to {1 - error / spread:.2f} of the true one, 3/4: {0.75 * (1 - error / spread):.3f}")

# %%
# The picture
# -----------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(w.log_mass, w.log_rate, ".", ms=3, color="0.7", label="measured")
ends = np.array(axes.get_xlim())
band = found.band(found.grid())
axes.fill_between(band.points, band.lower, band.upper, alpha=0.4, label="90 % band")
axes.plot(band.points, band.value, color="C0", lw=2, label="mean of the true rate")
axes.plot(ends, np.polyval(line, ends), "--", color="C1", lw=2, label="least squares")
axes.plot(ends, 0.5 + 0.75 * ends, ":", color="k", lw=2, label="as it was generated")
axes.set(xlim=ends, xlabel="log mass", ylabel="log metabolic rate")
axes.legend(frameon=False, fontsize="small")
plt.show()

# %%
# What the certificate says
# -------------------------

print(model.certify(w, noise=noise).sentences()[0])

# %%
# It also checks the size of the errors, which matters most here: had they been stated as half of
# what they are, only a quarter of the shrinkage would have been undone.
#
# **What this does not show.** Real species are related to each other, and are not independent
# rows. For curves instead of lines, and several columns, see :doc:`another page </regression>`.
