"""Every parameter of every estimator: values that are right, and values that are not."""

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


def count(*good):
    return good, BAD_COUNTS


def number(*good):
    return good, (*BAD_NUMBERS, "1e200", "1e-300")


def word(*good):
    return tuple(repr(value) for value in good), BAD_WORDS


def array(*good):
    return good, (
        "'a'",
        "1.0",
        "np.nan",
        "[]",
        "np.ones((2, 2, 2, 2))",
        "[[1.0], [1.0, 2.0]]",
        "{}",
    )


FLAG = FLAGS, NO_FLAGS
BOUNDS = (
    ("None", "{0: (-9, None)}", "[(-9, 9)] * d", "{0: (None, 9.0)}"),
    ("3", "'a'", "(1, 0)", "{'z': (0, 1)}", "np.nan", "[(0, 'a')] * d", "np.array(0.0)"),
)
ATOMS = (("None", "np.zeros((1, d))"), ("'a'", "np.nan", "[]", "np.ones((1, 9))", "{'z': 0}"))
BACKGROUND = (("None", "'uniform'"), ("'flat'", "3", "np.nan", "[]"))
PARTS = {"bounds": BOUNDS, "atoms": ATOMS, "background": BACKGROUND}
STATE = GOOD_STATES, BAD_STATES
CHECKPOINT = ("None",), PATHS

XD = {
    "n_components": count("1", "2", "3", "'auto'"),
    "method": (
        (
            "'anderson'",
            "'em'",
            "'minibatch'",
            "{'minibatch': {}}",
            "{'minibatch': {'batch_size': 7, 'epochs': 3}}",
            "{'minibatch': {'learning_rate': 1000.0}}",
        ),
        ("'a'", "3", "{}", "{'em': {}}", "{'minibatch': 3}", "{'minibatch': {'epochs': 0}}"),
    ),
    "init": (
        (
            "'kmeans'",
            "'random'",
            "{}",
            "{'weights': [0.5, 0.5]}",
            "{'means': np.zeros((2, d))}",
            "{'covariances': np.stack([np.eye(d)] * 2)}",
        ),
        (
            "'a'",
            "3",
            "None",
            "{'means': None, 'a': 1}",
            "{'weights': [-1.0, 2.0]}",
            "{'means': np.full((2, d), np.nan)}",
            "{'covariances': [[1.0]]}",
        ),
    ),
    "n_init": count("1", "2"),
    "tol": number("1e-6", "0.0", "1e-3"),
    "max_iter": count("1", "20", "200"),
    "floor": number("0.0", "0.1", "1e100"),
    "fixed": (
        ("None", "{}", "{'weights': True}", "{'means': [True, False]}", "{'covariances': True}"),
        ("'a'", "3", "{'a': True}", "{'means': 'a'}", "{'weights': [1.5, 0.0]}"),
    ),
    "random_state": STATE,
    "n_jobs": (("1", "2", "None", "-1"), ("0", "-2", "1.5", "'a'", "True", "np.nan", "[1]")),
    **PARTS,
}
FLOW = {
    "flow": word("maf", "made", "spline", "coupling", "mixture", "gaussian_mixture"),
    "objective": word("iw", "elbo", "roulette", "coupled"),
    "n_draws": count("1", "2"),
    "posterior_family": word("flow", "mixture", "exact"),
    "n_layers": count("1"),
    "hidden": count("4", "8"),
    "base_components": count("1", "2"),
    "epochs": (("1", "2"), ("0", "-1", "1.5", "'a'", "True", "[1]")),
    "batch_size": count("5", "256"),
    "learning_rate": number("2e-3", "1.0", "1e30"),
    "validation_fraction": number("0.0", "0.1", "0.9"),
    "random_state": STATE,
    "device": word("cpu", "auto"),
    "dtype": word("float32", "float64"),
    "checkpoint": CHECKPOINT,
    "verbose": FLAG,
}
PARAMETERS = {
    "XDGMM": XD,
    "BayesianXDGMM": {
        "n_chains": count("1", "2", "5"),
        "n_components": count("None", "1", "3"),
        "floor": number("0.1", "[0.05, 0.2]", "1e100"),
        "n_sweeps": count("3", "10"),
        "n_snapshots": count("1", "4"),
        "random_state": STATE,
        "n_jobs": (("1",), ("0", "-2", "1.5", "'a'", "True", "np.nan", "[1]")),
        "checkpoint": CHECKPOINT,
        "verbose": FLAG,
    },
    "FlowDeconvolver": FLOW,
    "DeconvolvingKDE": {
        "bandwidth": (
            ("None", "0.5", "np.full(d, 0.5)", "1e100"),
            (*BAD_NUMBERS, "0.0", "1e-12", "1e300", "'unknown'", "np.ones(9)"),
        ),
    },
    "WaveletDeconvolver": {"level": count("None", "2", "5")},
    "Deconvolver": {
        "quick": (("True",), NO_FLAGS),
        "n_members": (("None",), BAD_COUNTS),
        "random_state": STATE,
        "n_jobs": (("1",), ("0", "-2", "1.5", "'a'", "True", "np.nan", "[1]")),
        "checkpoint": CHECKPOINT,
        "verbose": FLAG,
    },
}
"""By estimator and parameter: expressions that are right, and some that are not."""

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
"""Settings that make a fit short."""

COMPAT = {
    "projection": ("None", "np.eye(d)", "np.stack([np.eye(d)] * n)", "'a'", "np.ones((n, d))"),
    "weight": ("None", "np.ones(n)", "-np.ones(n)", "np.ones(n + 1)", "'a'", "np.full(n, np.nan)"),
    "fixamp": ("None", "True", "[True, False]", "'a'", "[True] * 5", "3"),
    "fixmean": ("None", "True", "[True, False]", "'a'", "[True] * 5", "np.nan"),
    "fixcovar": ("None", "True", "[True, False]", "'a'", "[True] * 5", "[]"),
    "tol": ("1e-6", "0.0", "np.nan", "-1.0", "'a'", "None", "np.inf"),
    "maxiter": ("10", "1e9", "0", "-1", "np.nan", "'a'", "None", "np.inf", "1.5", "True"),
    "w": ("0.0", "0.1", "1e100", "-1.0", "np.nan", "'a'", "None", "np.inf"),
    "logfile": ("None", "str(folder / 'log')", "'/proc/nothing/log'", "3", "''"),
    "splitnmerge": ("0", "1", "-1", "1.5", "'a'", "None", "np.nan"),
    "maxsnm": ("False", "True", "'a'"),
    "likeonly": ("False", "True", "'a'"),
    "logweight": ("False", "True"),
}
"""Arguments of the C library's front, beside the arrays."""

COMPAT_ARRAYS = {
    "ydata": ("w",),
    "ycovar": ("sd**2", "sd[:, :, None] * sd[:, None, :] * np.eye(d)", "sd[0]", "-sd", "0 * sd",
        "np.full((n, d), np.nan)", "1e100 * sd", "1e300 * sd", "'a'", "None", "sd[1:]"),
    "xamp": ("np.ones(2) / 2", "np.ones(1)", "np.ones(3)", "[0.5, 0.5]", "np.float64(1)",
        "np.array(1.0)", "np.array([-1.0, 2.0])", "np.zeros(2)", "np.ones(2, int)", "None",
        "np.array([np.nan, 1.0])", "np.ones((2, 1))", "np.empty(0)"),
    "xmean": ("g.normal(size=(2, d))", "np.zeros((2, d))", "np.zeros((2, d + 1))", "None", "'a'",
        "np.full((2, d), np.inf)", "1e100 * g.normal(size=(2, d))"),
    "xcovar": ("np.stack([np.eye(d)] * 2)", "np.zeros((2, d, d))", "-np.stack([np.eye(d)] * 2)",
        "1e100 * np.stack([np.eye(d)] * 2)", "np.ones((2, d, d))", "np.stack([np.eye(d)] * 3)",
        "np.full((2, d, d), np.nan)", "None"),
}  # fmt: skip
