"""
Batting: who was the best of 2022?
==================================

At the top of the list of batters is a man who came to bat only twice. Who was the best, once luck
is taken out?
"""

# %%
# The table
# ---------
# 688 batters of Major League Baseball in 2022, from the R package `ebnm
# <https://github.com/stephenslab/ebnm>`_: plate appearances ``PA``, weighted on-base average
# (wOBA) ``x``, and its standard error ``s``. It is an R data file, so reading it requires
# ``pip install rdata``. It is sorted by ``x``; we shuffle the rows, so that neighbours have
# nothing in common.

from urllib.request import urlopen

import rdata

with urlopen("https://raw.githubusercontent.com/stephenslab/ebnm/HEAD/data/wOBA.rda") as file:
    batters = rdata.read_rda(file)["wOBA"]
batters.head()

# %%
# Three lines
# -----------
# The usual answer: the true averages follow one normal distribution, and each batter is shrunk
# towards its mean, the more so the larger his error is.

from deconflow import XDGMM

batters = batters.sample(frac=1, random_state=0, ignore_index=True)
x, s = batters[["x"]].to_numpy(), batters[["s"]].to_numpy()
normal = XDGMM(1).fit(x, noise=s, names=["wOBA"])
first = normal.posterior(x, noise=s)
print(f"log-likelihood {normal.score_observations(x, noise=s).sum():.2f}")
judge = batters.index[batters.Name == "Aaron Judge"]
print(f"Aaron Judge {first.mean[judge].item():.3f} +- {first.sd[judge].item():.4f}")

# %%
# ebnm publishes a log-likelihood of 989.64 for the normal distribution, and 0.394 +- 0.0184 for
# Aaron Judge. Ours are **989.64**, and **0.394** +- **0.0184**. The largest log-likelihood that
# ebnm finds for a distribution of any shape is 994.25.
#
# What the certificate says
# -------------------------

print(normal.certify(x, noise=s).sentences()[0])

# %%
# It is right. Those who bat well are sent to bat again, so batters with small errors *are*
# better. A man with two appearances should not be shrunk towards the mean of all batters, but
# towards that of men who hardly ever play. So we make the number of plate appearances a
# covariate, and allow two Gaussians rather than one.

import numpy as np

appearances = np.log(batters[["PA"]])
model = XDGMM(2, random_state=0).fit(x, noise=s, given=appearances)
answer = model.posterior(x, noise=s, given=appearances)
fitted = model.score_observations(x, noise=s, given=appearances).sum()
print(f"log-likelihood {fitted:.0f}")
for sentence in model.certify(x, noise=s, given=appearances).sentences():
    print(sentence)

# %%
# The log-likelihood is **1136**: far more than any distribution could reach that ignores how
# often a man plays. The warning is gone. The one that remains is about copies: several men came
# to bat once, without success, and their rows are the same. They are different men, so it does
# not matter.
#
# The picture
# -----------

import matplotlib.pyplot as plt

mean = answer.mean[:, 0]
low, high = (end[:, 0] for end in answer.interval(0.9))
shown = np.concatenate([np.argsort(-mean)[:6], np.argsort(-x[:, 0])[:5]])
for row in shown:
    print(f"{batters.Name[row]:16} {batters.PA[row]:3.0f}: {x[row, 0]:.3f}, then {mean[row]:.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.semilogx(batters.PA, x, ".", color="0.7", label="measured")
left.semilogx(batters.PA, mean, ".", color="C0", ms=4, label="without luck")
left.set(xlabel="plate appearances", ylabel="weighted on-base average", ylim=(-0.02, 1.07))
left.legend(frameon=False)
at = -np.arange(len(shown))
right.errorbar(x[shown, 0], at + 0.15, xerr=1.645 * s[shown, 0], fmt="o", color="0.6")
ends = [mean[shown] - low[shown], high[shown] - mean[shown]]
right.errorbar(mean[shown], at - 0.15, xerr=ends, fmt="s", color="C0")
right.axhline(-5.5, color="k", lw=0.5)
right.set(yticks=at, yticklabels=batters.Name[shown], xlim=(0, 1.1))
right.set_xlabel("weighted on-base average, 90 % intervals")
plt.show()

# %%
# Above the line are the six best without luck, below it the five who lead the list. Aaron Judge
# was the best, with **0.438** instead of 0.458; then come Paul Goldschmidt and Yordan Alvarez.
# Khalil Lee, who leads the list with 1.036 in two appearances, is put at **0.173**, and his
# interval shows how little is known about him.
#
# **What this does not show.** With one or two appearances the error is far from normal, and its
# size is itself a guess.
