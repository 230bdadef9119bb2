"""Every question that estimators answer, and what they are asked with."""

from random import Random

from . import values

#: Arguments of questions, good and bad.
ODD = {
    "count": ("3", *values.BAD_COUNTS),
    "state": (*values.GOOD_STATES, *values.BAD_STATES),
    "share": values.SHARES,
    "rows": values.INDICES,
    "columns": values.COLUMNS_ASKED,
    "noise": (*values.GOOD_NOISE, *values.BAD_NOISE, "[[1.0], [1.0, 2.0]]"),
}

ANSWERS = "answers = model.posterior({given}, n_samples=5, n_proposals=20)\nanswer = answers"
SEEDED = "n_samples={count}, random_state={state}"
ROWS = "(len(w), model.density_.dim)"

#: What is asked, the lines that ask it, and the shape of the answer as an expression.
QUESTIONS = (
    ("score_samples", "answer = model.score_samples({v})", "(len({v}),)"),
    ("score_observations", "answer = model.score_observations({given})", "(len(w),)"),
    (
        "score_observations",
        "answer = model.score_observations({given}, " + SEEDED + ")",
        "(len(w),)",
    ),
    (
        "p_values",
        "answer = model.p_values({given}, n_draws={count}, random_state={state})",
        "(len(w),)",
    ),
    ("log_marginal", "answer = model.log_marginal({given})", ""),
    ("score", "answer = model.score({given})", "()"),
    ("sample", "answer = model.sample({count}, random_state={state})", "(3, model.density_.dim)"),
    ("posterior.mean", ANSWERS + ".mean", ROWS),
    ("posterior.sd", ANSWERS + ".sd", ROWS),
    ("posterior.covariance", ANSWERS + ".covariance", "(len(w), *2 * (model.density_.dim,))"),
    ("posterior.correlation", ANSWERS + ".correlation", ""),
    ("posterior.quantile", ANSWERS + ".quantile({share})", ""),
    ("posterior.interval", ANSWERS + ".interval({share})", ""),
    ("posterior.probability", ANSWERS + ".probability({share}, {share})", ""),
    ("posterior.sign_error", ANSWERS + ".sign_error", ROWS),
    ("posterior.sign_q_values", ANSWERS + ".sign_q_values", ROWS),
    (
        "posterior.sample",
        ANSWERS + ".sample({count}, random_state={state})",
        "(len(w), 3, model.density_.dim)",
    ),
    ("posterior[rows]", ANSWERS + "[{rows}].mean", ""),
    ("posterior.to_frame", ANSWERS + ".to_frame({share})", ""),
    ("posterior.to_xarray", ANSWERS + ".to_xarray({count}, {state}).to_dataframe()", ""),
    ("posterior.marginal", ANSWERS + ".marginal({columns}).mean", ""),
    ("posterior", "answer = model.posterior({given}, " + SEEDED + ").mean", ROWS),
    (
        "posterior_in_chunks",
        "found = model.posterior_in_chunks({given}, chunk={count}, random_state={state}, "
        "n_samples=5, n_proposals=20)"
        "\nanswer = np.concatenate([part.mean for _, part in found])",
        ROWS,
    ),
    (
        "condition",
        "answer = model.condition([[0.0], [1.0]], {columns}, noise=0.3, random_state={state}).mean",
        "(2, model.density_.dim - 1)",
    ),
    ("condition", "answer = model.condition({v}, {columns}).sd", ""),
    (
        "regress",
        "answer = model.regress(model.density_.dim - 1, {columns}, random_state={state}).slope",
        "",
    ),
    (
        "regress",
        "found = model.regress(model.density_.dim - 1, {columns}, w={given}, n_refits={count})"
        "\nanswer = found.slope_error",
        "",
    ),
    ("marginal", "answer = model.density_.marginal({columns}).log_prob(np.zeros((2, 1)))", "(2,)"),
    ("marginal", "answer = model.density_.marginal({columns}).sample({count}, {state})", ""),
    ("marginal", "answer = model.density_.marginal({columns}).quantile({share})", ""),
)

#: The same of the mixture of XDGMM.
MIXTURES = (
    ("predict_proba", "answer = model.predict_proba({given})", ""),
    ("convolve", "answer = model.mixture_.convolve({noise})", ""),
    ("log_prob", "answer = model.mixture_.log_prob({v})", "(len({v}),)"),
    ("log_prob", "answer = model.density_.log_prob({v})", "(len({v}),)"),
    ("sample", "answer = model.mixture_.sample({count}, {state})", ""),
    ("quantile", "answer = model.mixture_.quantile({share})", "(model.density_.dim,)"),
    ("marginal", "answer = model.mixture_.marginal({columns})", ""),
    (
        "predict_proba",
        "answer = model.predict_proba(w, noise=0.3)",
        "(len(w), len(model.weights_))",
    ),
    ("bic", "answer = model.bic(w, noise=0.3)", "()"),
)

#: What a noise is asked.
LAW_QUESTIONS = (
    ("construct", "answer = law.dim"),
    ("variance", "answer = law.variance()"),
    ("covariance", "answer = law.covariance()"),
    ("sample", "answer = law.bind(n).sample(2)"),
    ("log_prob", "answer = law.log_prob(torch.zeros(1, 1, law.dim))"),
    ("observations", "data = Observations.from_arrays(w, law)\n"
        "answer = data.log_likelihood(torch.from_numpy(w)[None])"),
    ("characteristic", "answer = law.characteristic([[0.5] * law.dim])"),
    ("rows", "answer = law[[0]].variance()"),
)  # fmt: skip


def questions(name: str) -> tuple[tuple[str, str, str], ...]:
    """Every question that an estimator answers."""
    return QUESTIONS + (MIXTURES if name == "XDGMM" else ())


def plain(random: Random) -> dict[str, str]:
    """Good arguments of questions."""
    return {
        "count": "3",
        "state": random.choice(values.GOOD_STATES),
        "share": random.choice(values.SHARES[:3]),
        "rows": "0",
        "columns": "[0]",
        "noise": "0.3",
    }
