"""Planets of Sun-like stars: how many are like Earth, from those that were detected.

    python -m benchmarks.planets [--seeds 3] [--tables 10]

The catalogue of Petigura et al. (2013) has 603 planets with their errors, and the share of planets
that its search finds, on a grid of period and radius. Which planet is seen is taken to depend on
its true period and radius. Every fit goes to ``results/planets.json`` as soon as it is done, and an
interrupted run goes on.

The published grid has no efficiency at all at one year and one Earth radius, so its completeness is
made smooth here: what it says there is the end of a curve, and another curve ("straight", without
a bend over the period) says how much hangs on it. Rows that are drawn with replacement ("tables")
say how far chance goes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.special import ndtr
from tqdm.auto import tqdm

from benchmarks.record import RESULTS
from benchmarks.runs import DATA, Run, Runs

Array = NDArray[np.float64]
KEYS = ("estimator", "errors", "curve", "seed", "table")
STARS, YEAR = 42_557, 365.25
#: Errors of logarithms that are as good as none.
EXACT = 0.001
#: Days, and Earth radii.
BOX = ((200.0, 400.0), (1.0, 2.0))
#: Value, and how far its interval goes below and above: Foreman-Mackey, Hogg, Morton (2014).
PUBLISHED = {
    ("gamma", "known"): (0.019, 0.010, 0.019),
    ("gamma", "ignored"): (0.040, 0.019, 0.031),
    ("box", "known"): (0.019, 0.008, 0.010),
}


def rows() -> tuple[Array, Array]:
    """Return logarithms of period and radius ``(N, 2)`` within the grid, and their errors."""
    table, (periods, radii, _) = pd.read_csv(DATA / "exoplanets.csv"), grid()
    w = np.log(table[["period", "radius"]].to_numpy())
    sd = np.column_stack([np.full(len(w), EXACT), table.radius_err / table.radius])
    inside = ((w > [periods[0], radii[0]]) & (w < [periods[-1], radii[-1]])).all(1)
    return w[inside], sd[inside]


def grid() -> tuple[Array, Array, dict[str, Array]]:
    """Return edges of logarithms of period and radius, and the chances in the cells."""
    with np.load(DATA / "exoplanet_completeness.npz") as found:
        cells = {
            name: np.exp(found[f"ln_{name}"][1:-1, 1:-1]) for name in ("completeness", "detect_eff")
        }
        return found["ln_period_bin_edges"], found["ln_radius_bin_edges"], cells


def efficiency(shape: str = "bent") -> Callable[[Array], Array]:
    """Return the chance of planets ``(N, 2)`` to be seen, as a smooth function.

    The chance to transit is a power of the period; that to be found then is a curve which rises
    with the radius.
    """
    periods, radii, cells = grid()
    p, r = ((edges[1:] + edges[:-1]) / 2 for edges in (periods, radii))
    found, both = cells["completeness"], cells["detect_eff"]
    transits = np.nanmean(
        np.divide(both, found, out=np.full_like(both, np.nan), where=found > 0), 1
    )
    power = np.polyfit(p, np.log(transits), 1)
    points = np.stack(np.meshgrid(p, r, indexing="ij")).reshape(2, -1)
    start = [0.95, 0.0, 1.5, -0.5, 0.0][: 5 if shape == "bent" else 4]
    curve, _ = curve_fit(completeness, points, found.ravel(), start)
    return lambda v: np.exp(np.polyval(power, v[:, 0])) * completeness(v.T, *curve)


def completeness(
    v: Array, most: float, at: float, radius: float, period: float, bend: float = 0.0
) -> Array:
    """Return the share of transiting planets that is found, for points ``(2, N)``."""
    p, r = v
    return most * ndtr(at + radius * r + period * p + bend * p**2)


def make(estimator: str, seed: int) -> Any:
    """Return an estimator that was not fitted."""
    from deconflow import XDGMM, BayesianXDGMM, LogSplineDeconvolver

    if estimator == "spline":
        return LogSplineDeconvolver()
    if estimator == "xd":
        return XDGMM("auto", random_state=seed, n_jobs=1)
    return BayesianXDGMM(random_state=seed, n_jobs=1)


def rate(model: Any, planets: int, v: Array) -> Array:
    """Return planets per star and unit of the logarithms of period and radius."""
    return planets / model.seen_share_ / STARS * np.exp(model.score_samples(v))


def box_points(n: int = 128) -> Array:
    """Return points that fill the box of periods and radii evenly, in logarithms."""
    steps = (np.arange(n) + 0.5) / n
    sides = [np.log(low) + steps * np.log(high / low) for low, high in BOX]
    return np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)


def fitted(estimator: str, errors: str, curve: str, seed: int, table: int) -> tuple[Any, int]:
    """Fit the planets, or a table drawn from them with replacement; return how many there are."""
    w, sd = rows()
    if table:
        chosen = np.random.default_rng(table).integers(len(w), size=len(w))
        w, sd = w[chosen], sd[chosen]
    noise = sd if errors == "known" else np.full_like(sd, EXACT)
    model = make(estimator, seed)
    model.fit(
        w, noise=noise, names=["ln period", "ln radius"], selection=efficiency(curve),
        selection_of="truth",
    )  # fmt: skip
    return model, len(w)


def run(estimator: str, errors: str, curve: str, seed: int, table: int) -> Run:
    """Fit once, and say how many planets are like Earth."""
    begin = time.perf_counter()
    model, planets = fitted(estimator, errors, curve, seed, table)
    earth = np.array([[np.log(YEAR), 0.0]])
    area = np.prod([np.log(high / low) for low, high in BOX])
    return {
        "estimator": estimator, "errors": errors, "curve": curve, "seed": seed, "table": table,
        "planets": planets,
        "seen_share": model.seen_share_,
        "gamma": rate(model, planets, earth)[0],
        "box": rate(model, planets, box_points()).mean() * area,
        "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """Return the 16, 50 and 84 % points over seeds, and over drawn tables, of each kind of fit."""
    kinds: dict[tuple[Any, ...], list[Run]] = {}
    for each in runs:
        kind = (each["estimator"], each["errors"], each["curve"], each["table"] > 0)
        kinds.setdefault(kind, []).append(each)
    names = ("estimator", "errors", "curve", "drawn")
    return [dict(zip(names, kind, strict=True)) | _points(mine) for kind, mine in kinds.items()]


def _points(runs: list[Run]) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": len(runs)}
    for name in ("gamma", "box"):
        points = np.quantile([each[name] for each in runs], [0.16, 0.5, 0.84])
        found[name] = [round(float(each), 5) for each in points]
    return found


def wanted(seeds: int, tables: int) -> list[Run]:
    """Return all fits: every estimator, a few seeds and tables of the first, another curve."""
    both = ("known", "ignored")
    tasks = [("bayes", n, "bent", 0, 0) for n in both]
    tasks += [(e, "known", "bent", 0, 0) for e in ("xd", "spline")]
    tasks += [("bayes", n, "straight", 0, 0) for n in both]
    tasks += [("bayes", n, "bent", seed, 0) for seed in range(1, seeds) for n in both]
    tasks += [("bayes", n, "bent", 0, table) for table in range(1, tables + 1) for n in both]
    return [dict(zip(KEYS, each, strict=True)) for each in tasks]


def main() -> None:
    """Run what is missing of the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="fits of each estimator")
    parser.add_argument("--tables", type=int, default=10, help="tables drawn with replacement")
    arguments = parser.parse_args()
    runs = Runs(RESULTS / "planets.json", KEYS)
    runs.content |= {
        "command": "python -m benchmarks.planets",
        "stars": STARS,
        "published": [
            {"what": what, "errors": errors, "value": value, "below": below, "above": above}
            for (what, errors), (value, below, above) in PUBLISHED.items()
        ],
    }
    todo = [each for each in wanted(arguments.seeds, arguments.tables) if not runs.done(each)]
    for each in tqdm(todo, "planets", unit="fit"):
        new = run(**each)
        runs.content["summary"] = summary([*runs.current(), new])
        runs.add(new)
    for line in summary(runs.current()):
        print(line)


if __name__ == "__main__":
    main()
