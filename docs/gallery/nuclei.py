"""
Cell nuclei: a first look
=========================

How do the shapes of cell nuclei vary from patient to patient, once the scatter *within* each image
is taken out?

The table is real and ships with scikit-learn: 569 images of breast tissue (`Wisconsin diagnostic
data <https://archive.ics.uci.edu/dataset/17>`_). Each row has the mean over the nuclei of one
image, and the standard error of that mean.
"""

# %% [the lines]
from deconflow import XDGMM
from deconflow.demo import cell_nuclei

data = cell_nuclei()  # values and their standard errors: 569 rows, 3 columns each
model = XDGMM(3, random_state=0)
model.fit(data.w, noise=data.sd, names=data.names)

truth = model.sample(100_000, random_state=0)  # draws of the truth
answer = model.posterior(data.w, noise=data.sd)  # what each row says of its own truth
print("first row:", answer.mean[0].round(3), "+-", answer.sd[0].round(3))
model.plot("corner", data.w, data.sd, rows=[562, 539, 477, 92])

# %%
# Grey shows what was measured, blue the density of the truth. Four images are shown in colour,
# with their error bars and draws from their posteriors. How much narrower is the truth?

for name, measured, true in zip(data.names, data.w.std(0), truth.std(0), strict=True):
    print(f"{name}: measured values spread by {measured:.3f}, true ones by {true:.3f}")

# %%
# Symmetry is measured worst: its values spread by **0.027**, the truth only by **0.019**; the
# rest is scatter within the images. The true compactness has a second hump, which noise had
# blurred away.
#
# What the certificate says
# -------------------------

certificate = model.certify(data.w, noise=data.sd)
for caution in certificate.warnings[:3]:
    print("-", caution)

# %%
# It raises cautions, each for what is left with those before it taken into account. Nuclei of
# irregular shape also vary more within their image, so the errors grow with the value. Given that,
# the errors are larger than the rows need, and correlated. :doc:`/certificate` explains every line,
# and :doc:`/truth` how to tell deconflow what is known: ``fit(..., given="noise")`` lets the truth
# depend on its error, ``bounds=`` specifies where it ends.
