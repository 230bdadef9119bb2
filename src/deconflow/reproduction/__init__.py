"""The paper's experiments, run again: rows, protocols, runs, records, tables and figures.

The paper is Dockhorn, Ritchie, Yu, Murray (2020), "Density Deconvolution with Normalizing Flows",
https://arxiv.org/abs/2006.09396. The program's ``deconflow reproduce`` is the front.
"""
