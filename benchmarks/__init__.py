"""Benchmarks: ratios within one run, with records in ``results/``."""
