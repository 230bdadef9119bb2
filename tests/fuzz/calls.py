"""How the fuzz makes a call: some lines of Python, chosen by a source of random numbers."""

import re
from dataclasses import dataclass
from random import Random

from . import values
from .parameters import COMPAT, COMPAT_ARRAYS, PARAMETERS, TINY
from .questions import ODD, plain, questions

PREAMBLE = """\
import copy, tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
import numpy as np, pandas as pd, polars as pl, torch
from astropy import units as u
from astropy.table import QTable, Table
from scipy import sparse, stats
from torch.distributions import (
    Cauchy, Gamma, Gumbel, Independent, Laplace, Normal, Poisson, StudentT, Uniform,
)
import deconflow
from deconflow import (
    XDGMM, Certificate, Deconvolver, DeconvolvingKDE, FlowDeconvolver, GaussianMixture,
    Observations, WaveletDeconvolver, load, noise,
)
from deconflow.compat import extreme_deconvolution

LEARNED = ("weights_", "means_", "covariances_", "lower_bound_", "bandwidth_", "level_")

def learned(model):
    return {name: getattr(model, name) for name in LEARNED if hasattr(model, name)}
"""

TEMPORARY = """\
folder = Path(tempfile.mkdtemp())
(folder / "a file").write_text("text")
np.random.seed(0)  # what random_state=None draws from
"""

MODEL_ROWS = """\
g = np.random.default_rng(0)
w = g.normal(size=(24, {d}))
model = {name}({settings}).fit({w}, noise=np.full({d}, 0.3))
"""


@dataclass(frozen=True)
class Call:
    """Some lines of Python, and what is known of their answer.

    Attributes
    ----------
    subject, question : str
        Whom the call is about, and what it asks.
    setup : tuple of str
        Lines that make the arguments, without the library.
    steps : tuple of str
        Lines that call the library; the last one makes ``answer``.
    model : str
        Lines that fit ``model`` to good rows before all this; empty without it.
    shape : str
        What the shape of the answer must be, as an expression; empty if it has none.
    """

    subject: str
    question: str
    setup: tuple[str, ...]
    steps: tuple[str, ...]
    model: str = ""
    shape: str = ""

    @property
    def text(self) -> str:
        """The lines that differ from call to call."""
        return "\n".join([*self.setup, *self.steps])

    @property
    def code(self) -> str:
        """The whole call, to be run anywhere."""
        return "\n".join([PREAMBLE + TEMPORARY + self.model + self.text, "print(answer)"])


def build(random: Random) -> Call:
    """Make a call."""
    (make,) = random.choices(list(MAKERS), list(MAKERS.values()))
    return make(random)


def _call(subject: str, question: str, setup: list[str], steps: list[str], **more: str) -> Call:
    """Make a call of the lines that it needs."""
    used = set(re.findall(r"\w+", " ".join([*steps, more.get("shape", "")])))
    kept = []
    for line in reversed(setup):
        targets, _, made_of = line.removeprefix("if ").partition(" = ")
        if used & set(re.findall(r"\w+", targets)):
            kept.append(line)
            used |= set(re.findall(r"\w+", targets + " " + made_of))
    return Call(subject, question, tuple(reversed(kept)), tuple(steps), **more)


def fit_call(random: Random) -> Call:
    """Fit an estimator to odd rows, and ask it something about them."""
    name = _estimator(random)
    setup, steps, given = _measurements(random, odd=random.random() < 0.6)
    settings, spoiled = _settings(random, name)
    if random.random() < 0.12:
        setup.append(f"a = {random.choice(values.WEIGHTS)}")
        given += ", sample_weight=a"
    steps += [f"model = {name}({settings})", f"model.fit({given})"]
    asked = given.split(", sample_weight")[0]
    question, line, shape = random.choice(questions(name))
    if spoiled or random.random() < 0.3:
        question, line, shape = "fit", "answer = learned(model)", ""
    drawn = "model.sample(3, random_state=0)"
    line = line.format(given=asked, v=drawn, **plain(random))
    return _call(name, question, setup, [*steps, line], shape=shape.format(v=drawn))


def ask_call(random: Random) -> Call:
    """Ask a model of good rows about odd ones."""
    name = _estimator(random, deconvolver=0.2)
    dim = random.choice(("1", "2")) if name != "WaveletDeconvolver" else "1"
    setup, steps, given = _measurements(random, odd=True, dim=dim)
    question, line, shape = random.choice(questions(name))
    setup += _odd_values(random, "v", "g.normal(size=(n, d))")
    odd = {key: random.choice(choices) for key, choices in ODD.items()}
    good = plain(random)
    arguments = {key: random.choice((odd[key], good[key])) for key in odd}
    line = line.format(given=given, v="v", **arguments)
    model = _fitted(name, dim, named=random.random() < 0.3)
    shape = shape.format(v="v")
    return _call(name, question, setup, [*steps, line], model=model, shape=shape)


def noise_call(random: Random) -> Call:
    """Make a noise of odd arguments, and ask it something."""
    setup = _start(random, random.choice(values.ROWS), random.choice(("1", "2", "3")))
    law = random.choice(values.LAWS)
    parts = [random.choice(values.LAW_ARGUMENTS) for _ in "abc"]
    if random.random() < 0.3:
        parts[0] = random.choice(values.ODD_TABLES).format(x="sd")
    setup += [f"{key} = {part}" for key, part in zip("abc", parts, strict=True)]
    steps = ["law = " + law.format(a="a", b="b", c="c")]
    question, line = random.choice(
        (
            ("construct", "answer = law.dim"),
            ("variance", "answer = law.variance()"),
            ("covariance", "answer = law.covariance()"),
            ("sample", "answer = law.bind(n).sample(2)"),
            ("log_prob", "answer = law.log_prob(torch.zeros(1, 1, law.dim))"),
            ("observations", "answer = Observations.from_arrays(w, law).log_likelihood(w[None])"),
            ("characteristic", "answer = law.characteristic([[0.5] * law.dim])"),
            ("rows", "answer = law[[0]].variance()"),
        )
    )
    if question == "observations":
        line = line.replace("w[None]", "torch.from_numpy(w)[None]")
    return _call("noise", question, setup, [*steps, line])


def compat_call(random: Random) -> Call:
    """Call the C library's front."""
    setup = _start(random, random.choice(("24", "24", "5", "1")), random.choice("12"))
    setup += _numbers(random, "w")
    arrays = {key: choices[0] for key, choices in COMPAT_ARRAYS.items()}
    if random.random() < 0.6:
        key = random.choice(list(arrays))
        arrays[key] = random.choice(COMPAT_ARRAYS[key])
    setup += [f"{key} = {text}" for key, text in arrays.items()]
    if random.random() < 0.2:
        key = random.choice(list(arrays))
        setup.append(f"{key} = {random.choice(values.ODD_TABLES).format(x=key)}")
    chosen = random.sample(list(COMPAT), random.choice((0, 1, 1, 2)))
    options = {"maxiter": "10"} | {key: random.choice(COMPAT[key]) for key in chosen}
    keywords = ", ".join(f"{key}={text}" for key, text in options.items())
    steps = [f"log_p = extreme_deconvolution({', '.join(arrays)}, {keywords})"]
    steps.append("answer = [log_p, xamp, xmean, xcovar]")
    return _call("compat", "extreme_deconvolution", setup, steps)


def mixture_call(random: Random) -> Call:
    """Ask a Gaussian mixture, or the noisy one of XDGMM."""
    dim = random.choice("12")
    setup = _measurements(random, odd=True, dim=dim)[0]
    setup += _odd_values(random, "v", "g.normal(size=(n, d))")
    noise = random.choice((*values.GOOD_NOISE, *values.BAD_NOISE, "[[1.0], [1.0, 2.0]]"))
    setup.append(f"errors = {noise}")
    question, line, shape = random.choice(
        (
            ("convolve", "answer = model.convolve(errors)", ""),
            ("log_prob", "answer = model.mixture_.log_prob(v)", "(len(v),)"),
            ("log_prob", "answer = model.density_.log_prob(v)", "(len(v),)"),
            ("sample", "answer = model.mixture_.sample({count}, {state})", ""),
            ("quantile", "answer = model.mixture_.quantile({share})", "(model.n_latent_,)"),
            ("marginal", "answer = model.mixture_.marginal({columns})", ""),
            ("predict_proba", "answer = model.predict_proba(w, noise=0.3)", "(len(w), 2)"),
            ("bic", "answer = model.bic(w, noise=0.3)", "()"),
        )
    )
    odd = {key: random.choice(choices) for key, choices in ODD.items()}
    line = line.format(**odd)
    model = _fitted("XDGMM", dim)
    return _call("XDGMM", question, setup, [line], model=model, shape=shape)


def model_file_call(random: Random) -> Call:
    """Save and load, at odd places and with odd changes."""
    name = _estimator(random, deconvolver=0.2)
    dim = "1" if name == "WaveletDeconvolver" else "2"
    setup = _start(random, "3", dim)
    path = random.choice(values.PATHS)
    change = random.choice(("", "", ", random_state=3", ", nothing=3", ", n_components=0"))
    steps = [f"model.save({path})"] if random.random() < 0.8 else []
    loader = random.choice((f"{name}.load({path}{change})", f"load({path})", "XDGMM.load(folder)"))
    loaded = f"{loader}.score_samples(w)"
    steps += [f"answer = np.where({loaded} == model.score_samples(w), 0.0, np.nan)"]
    return _call(name, "save and load", setup, steps, model=_fitted(name, dim))


def same_call(random: Random) -> Call:
    """Say the same thing in two ways: NaN where the answers differ."""
    name = _estimator(random, deconvolver=0.0)
    dim = "1" if name == "WaveletDeconvolver" else random.choice("12")
    setup = _start(random, "24", dim, values.TRUTHS[random.randrange(3)])
    setup += ["errs = [name + '_err' for name in names]", "gone = g.random((n, d)) < 0.2"]
    setup += ["gone[np.arange(n), g.integers(d, size=n)] = False", "unit = 1.0"]
    table, errors = random.choice(values.SAME_TABLES)
    if random.random() < 0.4:
        setup.append(f"unit = {random.choice(values.UNITS)}")
        table, errors = "w * unit", "sd * unit"
    plain = "np.where(gone, np.nan, w)" if "gone" in table else "w"
    settings = ", ".join(f"{key}={value}" for key, value in TINY[name].items())
    setup += [f"told, errors, v = {table}, {errors}, g.normal(size=(5, d))"]
    steps = [
        f"one = {name}({settings}).fit({plain}, noise=sd).score_samples(v)",
        f"two = {name}({settings}).fit(told, noise=errors).score_samples(v * unit)",
        f"same = np.isclose(one, two + d * np.log(unit), atol={SAME[name]}, rtol=1e-6)",
        "answer = np.where(same, 0.0, np.nan)",
    ]
    return _call(name, f"the same from {table} and {errors}", setup, steps, shape="(5,)")


def plot_call(random: Random) -> Call:
    """Draw a picture of odd things."""
    name = _estimator(random, deconvolver=0.2)
    dim = "1" if name == "WaveletDeconvolver" else "2"
    setup = _measurements(random, odd=random.random() < 0.7, dim=dim)[0]
    odd = random.choice(("", "names=['a']", "names='ab'", "names=[1, 2]", "names=None"))
    axes = random.choice(("", "axes=3", "axes=[]"))
    line = random.choice(
        (
            "deconflow.plots.marginals(model, w, {axes})",
            "deconflow.plots.marginals(model, w, {odd})",
            "deconflow.plots.diagnostics(model, w, errors, {odd})",
            "model.plot('row', w, errors, rows=[0], {odd})",
            "model.plot('before_after', w, errors, {axes})",
            "model.plot('corner', w, errors, rows=[0, 99])",
            "model.plot('marginals', w, columns=9)",
            "deconflow.plots.corner(model, w, {odd})",
            "deconflow.plots.corner(model, np.zeros((9, d)), {axes})",
            "deconflow.plots.marginals(w)",
            "deconflow.plots.diagnostics(w, w, 0.1)",
        )
    )
    setup.append(f"errors = {random.choice((*values.GOOD_NOISE[1:6], *values.BAD_NOISE))}")
    line = f"answer = {line.format(odd=odd, axes=axes)} is None"
    question = line.split("(")[0].split(".")[-1]
    return _call("plots", question, setup, [line], model=_fitted(name, dim))


SAME = {"XDGMM": 1e-5, "FlowDeconvolver": 1e-3, "DeconvolvingKDE": 1e-5, "WaveletDeconvolver": 1e-5}
"""How far log densities of the same rows, said in another way, may differ."""

MAKERS = {
    fit_call: 34,
    ask_call: 35,
    noise_call: 8,
    compat_call: 8,
    mixture_call: 4,
    model_file_call: 3,
    plot_call: 2,
    same_call: 6,
}
"""Kinds of calls, and how many of a hundred are of each."""


def _estimator(random: Random, deconvolver: float = 0.12) -> str:
    if random.random() < deconvolver:
        return "Deconvolver"
    return random.choice(
        ("XDGMM", "XDGMM", "FlowDeconvolver", "DeconvolvingKDE", "WaveletDeconvolver")
    )


def _fitted(name: str, dim: str, *, named: bool = False) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in TINY[name].items())
    w = f"pd.DataFrame(w, columns=[*'xyz'][:{dim}])" if named else "w"
    return MODEL_ROWS.format(name=name, d=dim, settings=settings, w=w)


def _settings(random: Random, name: str) -> tuple[str, bool]:
    """Tiny settings with some others, and whether one of them is bad on purpose."""
    known = PARAMETERS[name]
    settings = dict(TINY[name])
    for key in random.sample(list(known), min(len(known), random.choice((0, 0, 1, 2)))):
        settings[key] = random.choice(known[key][0])
    spoiled = random.random() < 0.2
    if spoiled:
        key = random.choice(list(known))
        settings[key] = random.choice(known[key][1])
    return ", ".join(f"{key}={value}" for key, value in settings.items()), spoiled


def _start(random: Random, rows: str, columns: str, truth: str | None = None) -> list[str]:
    """Rows ``w`` and standard deviations of them."""
    truth = truth or random.choice(values.TRUTHS)
    return [
        f"n, d, g = {rows}, {columns}, np.random.default_rng({random.randrange(5)})",
        "names = [*'xyzabcde'][:d]",
        f"w = {truth}",
        "sd = g.uniform(0.2, 0.6, size=(n, d))",
    ]


def _numbers(random: Random, x: str) -> list[str]:
    """Lines that spoil the numbers of an array."""
    lines = []
    if random.random() < 0.3:
        lines.append(f"{x} = {x} * {random.choice(values.SCALES)}")
        if x == "w" and random.random() < 0.5:
            lines.append(lines[-1].replace("w", "sd"))
    if random.random() < 0.1:
        lines.append(f"{x} = {x} + {random.choice(values.SHIFTS)}")
    if random.random() < 0.25:
        number = random.choice(values.NUMBERS)
        row = random.choice(("0", "-1"))
        spoil = random.choice(values.CELLS).format(x=x, row=row, number=number)
        lines.append(f"if {x}.size: {spoil}")
    return lines


def _odd_values(random: Random, x: str, good: str) -> list[str]:
    """Lines that make an array ``x``, by chance an odd one."""
    lines = [f"{x} = {good}", *_numbers(random, x)]
    if random.random() < 0.4:
        table = random.choice(random.choice((values.GOOD_TABLES, values.ODD_TABLES)))
        lines.append(f"{x} = {table.format(x=x)}")
    return lines


def _measurements(
    random: Random, *, odd: bool, dim: str | None = None
) -> tuple[list[str], list[str], str]:
    """Lines that make rows and noise, those that call the library, and the arguments."""
    rows, columns = random.choice(values.ROWS[:3]), dim or random.choice("1223")
    if odd and random.random() < 0.3:
        rows = random.choice(values.ROWS)
    if odd and random.random() < 0.1:
        columns = random.choice(values.COLUMNS)
    setup = _start(random, rows, columns, None if odd else values.TRUTHS[random.randrange(3)])
    table, errors, steps = None, "sd", []
    if odd:
        setup += _numbers(random, "w")
        if random.random() < 0.3:
            table = random.choice(random.choice((values.GOOD_TABLES, values.ODD_TABLES)))
    kind = random.random()
    if kind < 0.35:
        errors = random.choice(values.GOOD_NOISE)
    elif kind < 0.5:
        steps.append(f"law = {random.choice(values.READY_MADE)}")
        errors = "law"
    elif odd and kind < 0.6:
        errors = random.choice(values.BAD_NOISE)
    elif odd and kind < 0.75:
        setup += _numbers(random, "sd")
        if random.random() < 0.5:
            errors = random.choice((*values.GOOD_TABLES, *values.ODD_TABLES)).format(x="sd")
    if errors != "law":
        setup.append(f"errors = {errors}")
        errors = "errors"
    if table is not None:
        setup.append(f"w = {table.format(x='w')}")
    given = f"w, noise={errors}"
    if odd and random.random() < 0.08:
        setup.append(f"R = {random.choice(values.PROJECTIONS)}")
        given += ", projection=R"
    return setup, steps, given
