"""Parameters of the estimators, by their signatures: right values and wrong ones."""

import inspect

from deconflow.estimators import ESTIMATORS

from .values import (
    BAD_COUNTS,
    BAD_NUMBERS,
    BAD_STATES,
    BAD_WORDS,
    FLAGS,
    GOOD_STATES,
    NO_FLAGS,
    PATHS,
)

#: What is wrong for a parameter whose default is of a type; for others, bad words.
BY_TYPE = {bool: NO_FLAGS, int: BAD_COUNTS, float: (*BAD_NUMBERS, "1e200", "1e-300")}
#: Right values, by the name of a parameter; for others, the default.
GOOD = {
    "n_components": ("1", "2", "3", "'auto'"),
    "method": ("'anderson'", "'em'", "{'minibatch': {'batch_size': 7, 'epochs': 3}}"),
    "init": ("'kmeans'", "'random'", "{}", "{'weights': [0.5, 0.5]}", "{'means': np.zeros((2, d))}",
        "{'covariances': np.stack([np.eye(d)] * 2)}"),
    "fixed": ("None", "{}", "{'weights': True}", "{'means': [True, False]}"),
    "n_init": ("1", "2"),
    "tol": ("1e-6", "0.0", "1e-3"),
    "max_iter": ("1", "20", "200"),
    "floor": ("0.0", "0.1", "1e100"),
    "bounds": ("None", "{0: (-9, None)}", "[(-9, 9)] * d", "{0: (None, 9.0)}"),
    "atoms": ("None", "np.zeros((1, d))"),
    "background": ("None", "'uniform'"),
    "random_state": GOOD_STATES,
    "n_jobs": ("1",),
    "checkpoint": ("None",),
    "n_chains": ("1", "2", "5"),
    "n_sweeps": ("3", "10"),
    "n_snapshots": ("1", "4"),
    "n_members": ("None",),
    "quick": ("True",),
    "flow": ("'maf'", "'made'", "'spline'", "'coupling'", "'mixture'", "'gaussian_mixture'"),
    "objective": ("'iw'", "'elbo'", "'roulette'", "'coupled'"),
    "posterior_family": ("'flow'", "'exact'"),
    "n_draws": ("1", "2"),
    "n_layers": ("1",),
    "hidden": ("4", "8"),
    "base_components": ("1", "2"),
    "epochs": ("1", "2"),
    "batch_size": ("5", "256"),
    "learning_rate": ("2e-3", "1.0", "1e30"),
    "validation_fraction": ("0.0", "0.1", "0.9"),
    "bandwidth": ("None", "0.5", "np.full(d, 0.5)", "1e100"),
    "level": ("None", "2", "5"),
}  # fmt: skip
#: Wrong values of parameters whose default does not say their type.
BAD = {
    "method": ("'a'", "3", "{}", "{'em': {}}", "{'minibatch': 3}"),
    "init": ("'a'", "3", "None", "{'means': None, 'a': 1}", "{'means': np.full((2, d), np.nan)}"),
    "fixed": ("'a'", "3", "{'a': True}", "{'means': 'a'}", "{'weights': [1.5, 0.0]}"),
    "bounds": ("3", "'a'", "(1, 0)", "{'z': (0, 1)}", "np.nan", "[(0, 'a')] * d", "np.array(0.0)"),
    "atoms": ("'a'", "np.nan", "[]", "np.ones((1, 9))", "{'z': 0}"),
    "background": ("'flat'", "3", "np.nan", "[]"),
    "random_state": BAD_STATES,
    "n_jobs": ("0", "-2", "1.5", "'a'", "True", "np.nan", "[1]"),
    "checkpoint": PATHS,
    "epochs": ("0", "-1", "1.5", "'a'", "True", "[1]"),
    "n_components": BAD_COUNTS,
    "n_chains": BAD_COUNTS,
    "n_sweeps": BAD_COUNTS,
    "n_snapshots": BAD_COUNTS,
    "n_members": BAD_COUNTS,
    "bandwidth": (*BAD_NUMBERS, "0.0", "1e-12", "1e300", "'unknown'", "np.ones(9)"),
    "level": BAD_COUNTS,
    "n_intervals": BAD_COUNTS,
    "floor": (*BAD_NUMBERS, "1e200"),
}


def choices(name, default):
    """Return right and wrong values of a parameter."""
    usual = FLAGS if isinstance(default, bool) else (repr(default),)
    return GOOD.get(name, usual), BAD.get(name, BY_TYPE.get(type(default), BAD_WORDS))


#: By estimator and parameter: expressions that are right, and some that are not.
PARAMETERS = {
    name: {p.name: choices(p.name, p.default) for p in inspect.signature(cls).parameters.values()}
    for name, cls in ESTIMATORS.items()
}

#: Settings that make a fit short.
TINY = {
    "XDGMM": {"n_components": "2", "max_iter": "50", "random_state": "0", "n_jobs": "1"},
    "BayesianXDGMM": {"n_chains": "2", "n_sweeps": "6", "random_state": "0", "n_jobs": "1"},
    "FlowDeconvolver": {
        "epochs": "1", "hidden": "8", "n_layers": "1", "n_draws": "2", "random_state": "0",
    },
    "DeconvolvingKDE": {},
    "WaveletDeconvolver": {},
    "Deconvolver": {"quick": "True", "random_state": "0", "n_jobs": "1"},
}  # fmt: skip
