"""
Cell nuclei: a first look
=========================

How do the shapes of cell nuclei vary from patient to patient, if the scatter *within* each image
is taken out?

The table is real and ships with scikit-learn: 569 images of breast tissue (`Wisconsin diagnostic
data <https://archive.ics.uci.edu/dataset/17>`_). Each row has the mean over the nuclei of one
image, and the standard error of that mean.
"""

# %% [the lines]
from deconflow import XDGMM
from deconflow.demo import cell_nuclei
from deconflow.plots import corner_figure

data = cell_nuclei()  # values and their standard errors: 569 rows, 3 columns each
model = XDGMM(3, random_state=0).name_columns(data.names).fit(data.w, noise=data.sd)
rows = [562, 539, 477, 92]  # from well to badly measured
answer = model.posterior(data.w[rows], noise=data.sd[rows], n_samples=300)
samples = model.sample(20_000, random_state=0)
errors = data.sd[rows]
figure = corner_figure(
    data.w, samples, names=data.names, posterior=answer, rows=rows, errors=errors
)

# %%
# In grey what was measured, in blue the density of the truth. In colour four images with their
# error bars, and draws of what they say of the truth. How much narrower is the truth?

truth = model.sample(100_000, random_state=0)
for name, measured, true in zip(data.names, data.w.std(0), truth.std(0), strict=True):
    print(f"{name}: measured values spread by {measured:.3f}, true ones by {true:.3f}")

# %%
# Symmetry is measured worst: its values spread by **0.027**, the truth by **0.019** only; the rest
# is scatter within the images. Compactness has a second hump in truth, which noise had filled in.
#
# What the certificate says
# -------------------------

certificate = model.certify(data.w, noise=data.sd)
for caution in certificate.warnings[:3]:
    print("-", caution)

# %%
# It objects, and is right to. Nuclei of irregular shape also vary more within their image, so the
# errors grow with the value, and those of compactness and symmetry go together; and no shape can
# have a compactness below that of a circle. :doc:`/certificate` explains every line, and
# :doc:`/truth` how to tell deconflow what is known: ``fit(..., given="noise")`` lets the truth
# depend on its error, ``bounds=`` says where it ends.
