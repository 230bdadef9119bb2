"""
Genes: which effects are real, and how large?
=============================================

Thousands of genes are compared between patients and healthy people. The largest differences are
partly luck. Which of them are real, what is their sign, and how large are they without the luck?
"""

# %%
# The table
# ---------
# The activity of 6,033 genes in 52 men with prostate cancer and 50 without (Singh et al. 2002).
# For each gene a two-sample test gave a z-value: an estimate of the effect whose standard error
# is one. The file comes from the Julia package `Empirikos
# <https://github.com/nignatiadis/Empirikos.jl>`_; Efron and Hastie's *Computer Age Statistical
# Inference* uses the same values.

import pandas as pd

table = pd.read_csv(
    "https://raw.githubusercontent.com/nignatiadis/Empirikos.jl/HEAD/src/datasets/"
    "Prostate/prostz.txt"
)
table.round(2).head()

# %%
# Three lines
# -----------
# Most genes will have no effect at all. ``atoms=[0.0]`` says so: a fraction of the true effects is
# exactly zero, the others have a density. The fraction is estimated from the data.

from deconflow import XDGMM

z = table.to_numpy()
model = XDGMM(1, atoms=[0.0], random_state=0).fit(z, noise=1.0)
answer = model.posterior(z, noise=1.0)  # what each z-value says of its gene

share = model.atom_weights_[0]
spread = model.covariances_[0, 0, 0] ** 0.5
print(f"{100 * share:.1f} % of the effects are zero, the others scatter by {spread:.2f}")

# %%
# About **82.6** % of the genes have no effect, or one too small to be distinguished from zero. The
# effects of the others have a standard deviation of **1.29**.
#
# To name a gene is to claim that it is more active in cancer, or less. That is wrong if the true
# effect has the other sign, or is zero. ``sign_q_values`` is the expected fraction of wrong signs
# among the genes that are at least as certain as this one.

certain = answer.sign_q_values[:, 0] <= 0.1
up, down = certain & (z[:, 0] > 0), certain & (z[:, 0] < 0)
print(f"{certain.sum()} signs with 10 % of them wrong: {up.sum()} up, {down.sum()} down")
print(f"they have z-values of {abs(z[certain]).min():.2f} or more, up or down")
top = z[:, 0].argmax()
print(f"gene {top + 1}: z = {z[top, 0]:.2f}, effect {answer.mean[top, 0]:.2f}")
print("90 % interval {:.1f} to {:.1f}".format(*(end[top, 0] for end in answer.interval(0.9))))

# %%
# **55** genes can be named if a tenth of them may be wrong, **28** of them as more active in
# cancer. The usual way to obtain such a list is the Benjamini-Hochberg procedure; with one-sided
# tests it names 28 as more active (Efron and Hastie, chapter 15). But only the density of the
# effects tells how large they are: gene **610** has the largest z-value, **5.29**, and an effect
# of about **3.32**. The rest was luck.
#
# The picture
# -----------

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
grid = np.linspace(-6, 6, 301)
left.hist(z[:, 0], bins=np.arange(-6, 6.01, 0.2), color="0.8", label="z-values")
per_bin = 0.2 * len(z)
expected = np.exp(model.score_observations(grid[:, None], noise=1.0))
left.plot(grid, per_bin * expected, color="C0", label="the fit")
left.plot(grid, per_bin * share * norm.pdf(grid), "--", color="C1", label="genes without effect")
left.set(yscale="log", ylim=(0.5, 3000), xlim=(-6, 6), xlabel="z-value", ylabel="genes")
left.legend(frameon=False, fontsize="small", loc="upper left")

order = np.argsort(z[:, 0])
low, high = (end[order, 0] for end in answer.interval(0.9))
right.fill_between(z[order, 0], low, high, color="C0", alpha=0.2, lw=0, label="90 % interval")
right.plot(z[order, 0], answer.mean[order, 0], color="C0", label="true effect, in the mean")
right.plot(z[certain, 0], answer.mean[certain, 0], ".", color="C3", label="sign is certain enough")
right.axline((0, 0), slope=1, color="0.6", ls=":", label="z-value as it is")
right.set(xlabel="z-value", ylabel="effect", xlim=(-5.6, 5.6), ylim=(-5.6, 5.6))
right.legend(frameon=False, fontsize="small")
plt.show()

# %%
# What the certificate says
# -------------------------

print(model.certify(z, noise=1.0).sentences()[0])

# %%
# All errors are stated to be one, and nothing in the data could tell if they were larger. If the
# z-values of genes without effect scattered by more than one (Efron's *empirical null*), fewer
# genes would be certain, and the certificate could not know.
#
# **What this does not show.** Genes act together. The z-values are treated as independent here.
