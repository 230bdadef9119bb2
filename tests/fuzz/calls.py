"""How the fuzz makes a call: some lines of Python, chosen by a source of random numbers."""

from dataclasses import dataclass
from random import Random

from . import values
from .parameters import PARAMETERS, TINY
from .questions import LAW_QUESTIONS, ODD, plain, questions

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


@dataclass
class Call:
    """Some lines of Python, and what is known of their answer.

    Attributes
    ----------
    subject, question : str
        Whom the call is about, and what it asks.
    setup : list of str
        Lines that make the arguments, without the library.
    steps : list of str
        Lines that call the library; the last one makes ``answer``.
    model : str
        Lines that fit ``model`` to good rows before all this; empty without it.
    shape : str
        What the shape of the answer must be, as an expression; empty if it has none.
    """

    subject: str
    question: str
    setup: list[str]
    steps: list[str]
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


def fit_call(random: Random) -> Call:
    """Fit an estimator to odd rows, and ask it something about them."""
    name = _estimator(random)
    setup, steps, given = _measurements(random, odd=random.random() < 0.6)
    question, line, shape = random.choice(questions(name))
    line = line.format(given=given, v="model.sample(3, random_state=0)", **plain(random))
    shape = shape.format(v="model.sample(3, random_state=0)")
    settings, spoiled = _settings(random, name)
    if random.random() < 0.12:
        setup.append(f"a = {random.choice(values.WEIGHTS)}")
        given += ", sample_weight=a"
    if spoiled or random.random() < 0.3:
        question, line, shape = "fit", "answer = learned(model)", ""
    steps += [f"model = {name}({settings})", f"model.fit({given})", line]
    return Call(name, question, setup, steps, shape=shape)


def ask_call(random: Random) -> Call:
    """Ask a model of good rows about odd ones."""
    name, dim, model = _fitted(random)
    setup, steps, given = _measurements(random, odd=True, dim=dim)
    question, line, shape = random.choice(questions(name))
    setup += _odd_values(random, "v", "g.normal(size=(n, d))")
    good = plain(random)
    arguments = {
        key: random.choice((random.choice(choices), good[key])) for key, choices in ODD.items()
    }
    line = line.format(given=given, v="v", **arguments)
    return Call(name, question, setup, [*steps, line], model=model, shape=shape.format(v="v"))


def noise_call(random: Random) -> Call:
    """Make a noise of odd arguments, and ask it something."""
    setup = _start(random, random.choice(values.ROWS), random.choice(("1", "2", "3")))
    law = random.choice(values.LAWS)
    parts = [random.choice(values.LAW_ARGUMENTS) for _ in "abc"]
    if random.random() < 0.3:
        parts[0] = random.choice(values.ODD_TABLES).format(x="sd")
    setup += [f"{key} = {part}" for key, part in zip("abc", parts, strict=True)]
    steps = ["law = " + law.format(a="a", b="b", c="c")]
    question, line = random.choice(LAW_QUESTIONS)
    return Call("noise", question, setup, [*steps, line])


def model_file_call(random: Random) -> Call:
    """Save and load, at odd places and with odd changes."""
    name, dim, model = _fitted(random)
    setup = _start(random, "3", dim)
    path = random.choice(values.PATHS)
    change = random.choice(("", "", ", random_state=3", ", nothing=3", ", n_components=0"))
    steps = [f"model.save({path})"] if random.random() < 0.8 else []
    loader = random.choice((f"{name}.load({path}{change})", f"load({path})", "XDGMM.load(folder)"))
    loaded = f"{loader}.score_samples(w)"
    steps += [f"answer = np.where({loaded} == model.score_samples(w), 0.0, np.nan)"]
    return Call(name, "save and load", setup, steps, model=model)


#: Kinds of calls, and how many of a hundred are of each.
MAKERS = {fit_call: 40, ask_call: 47, noise_call: 9, model_file_call: 4}


def _estimator(random: Random) -> str:
    if random.random() < 0.12:
        return "Deconvolver"
    return random.choice(
        ("XDGMM", "XDGMM", "FlowDeconvolver", "DeconvolvingKDE", "WaveletDeconvolver")
    )


def _keywords(settings: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _fitted(random: Random) -> tuple[str, str, str]:
    """A model of good rows: its class, their columns, and the lines that fit it."""
    name = _estimator(random)
    dim = "1" if name == "WaveletDeconvolver" else random.choice("12")
    w = random.choice(("w", "w", f"pd.DataFrame(w, columns=[*'xyz'][:{dim}])"))
    model = MODEL_ROWS.format(name=name, d=dim, settings=_keywords(TINY[name]), w=w)
    return name, dim, model


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
    return _keywords(settings), spoiled


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
    tables = (*values.GOOD_TABLES, *values.ODD_TABLES)
    makers = (("sd",), values.GOOD_NOISE, values.READY_MADE, values.BAD_NOISE, tables)
    (errors,) = random.choices(makers, (32, 35, 15, 10, 8) if odd else (50, 35, 15, 0, 0))
    line = "errors = " + random.choice(errors).format(x="sd")
    if odd:
        setup += _numbers(random, "w") + _numbers(random, "sd") * (random.random() < 0.2)
    steps = [line] if errors is values.READY_MADE else []  # the library makes these
    setup += [] if steps else [line]
    if odd and random.random() < 0.3:
        setup.append(f"w = {random.choice(tables).format(x='w')}")
    given = "w, noise=errors"
    if odd and random.random() < 0.08:
        setup.append(f"R = {random.choice(values.PROJECTIONS)}")
        given += ", projection=R"
    return setup, steps, given
