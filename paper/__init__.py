"""The experiments of the flow paper, run again: ``python -m paper``; not part of the package.

The paper is Dockhorn, Ritchie, Yu, Murray (2020), "Density Deconvolution with Normalizing Flows",
https://arxiv.org/abs/2006.09396.
"""
