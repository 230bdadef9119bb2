"""Rows beyond memory: that sums and fits do not depend on how rows are shared out, and the cost.

    python -m benchmarks.scale table --folder /tmp/survey --rows 1e7
    python -m benchmarks.scale sums speedup passes kill --folder /tmp/survey
    python -m benchmarks.scale memory --folder /tmp/survey --rows 1e7 1e8 [--passes 2]

The tables are made once, as folders of Parquet files. Each section adds its runs to
``results/scale.json`` as they end; those that are there are not made again but with ``--again``. A
fit of ``memory`` that was stopped goes on from its last pass.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.record import RESULTS
from benchmarks.runs import Runs

SEED, D, TRUE_COMPONENTS = 19, 3, 20
COLUMNS = ["x", "y", "z"]
FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
IDLE = 0.7
"""Load of the machine above which a time is marked as taken under load."""
SUMS_BAR, FIT_BAR = 1e-12, 1e-9
SPEEDUP_BAR, ROUNDS, PASSES_TIMED = 1.7, 5, 3
MEMORY_BAR_GIB, GROWTH_BAR = 1.5, 1.15
PASSES_BAR, OPTIMUM_BAR = 12, 1e-6
MEMORY_TOL, MEMORY_PASSES = 1e-11, 30
"""How the optimum in memory is looked for, from where the passes ended."""
KILL_TOL = 1e-9
THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")


# Tables


def folder_of(folder, rows):
    return Path(folder) / f"rows_{rows}"


def make_table(folder, rows):
    """Write a survey of so many rows: at least two files, so that two processes can share it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = max(2, rows // FILE_ROWS)
    out = folder_of(folder, rows)
    out.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = out / f"part_{number:04d}.parquet"
        if path.exists():
            continue
        columns = survey_columns(rows // files, [SEED, rows, number])
        part = path.with_suffix(".unfinished")
        pq.write_table(pa.table(columns), part, row_group_size=GROUP_ROWS, use_dictionary=False)
        part.replace(path)
    size = sum(path.stat().st_size for path in out.glob("*.parquet"))
    return {"files": files, "gigabytes": size / 1e9}


def truth():
    """Return a mixture of Gaussians of several sizes, which overlap."""
    rng = np.random.default_rng(SEED)
    weights = rng.dirichlet(np.full(TRUE_COMPONENTS, 3.0))
    means = 2.5 * rng.normal(size=(TRUE_COMPONENTS, D))
    factors = rng.normal(size=(TRUE_COMPONENTS, D, D)) * rng.uniform(
        0.2, 0.8, size=(TRUE_COMPONENTS, 1, 1)
    )
    return weights, means, factors @ np.swapaxes(factors, 1, 2) + 0.02 * np.eye(D)


def survey_columns(n, seed):
    """Draw rows of three values with errors of their own, in single precision."""
    rng = np.random.default_rng(seed)
    weights, means, covariances = truth()
    which = rng.choice(len(weights), size=n, p=weights)
    factors = np.linalg.cholesky(covariances)
    v = means[which] + np.einsum("nij,nj->ni", factors[which], rng.normal(size=(n, D)))
    sd = rng.uniform(0.1, 0.6, size=(n, D)).astype(np.float32)
    w = (v + sd * rng.normal(size=(n, D))).astype(np.float32)
    values = {name: w[:, d] for d, name in enumerate(COLUMNS)}
    return values | {f"{name}_err": sd[:, d] for d, name in enumerate(COLUMNS)}


def stream_of(folder, rows):
    from deconflow import open_rows

    return open_rows(folder_of(folder, rows), COLUMNS)


# Processes: what a section asks of them is a function with a name, here and below


def one_pass(folder, rows, components):
    """Add up a pass over all rows, streamed, and return the sums."""
    from deconflow import xd

    found = streamed_rows(folder, rows).one_pass(some_mixture(components), 1)
    assert isinstance(found, xd.EMStatistics)
    return {"sums": [np.asarray(part).tolist() for part in found.parts]}


def short_fit(folder, rows, components):
    """Fit a stream with one thread."""
    model = xdgmm(components, n_jobs=1).fit(stream_of(folder, rows))
    return described(model) | {"mixture": mixture_of(model)}


def timed_passes(folder, rows, components, how):
    """Time passes of a process that has one processor, over rows in memory or streamed."""
    from deconflow import ranks

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[ranks.rank()]})
    everything, mixture = streamed_rows(folder, rows), some_mixture(components)
    in_memory = how == "in memory"
    stream = stream_of(folder, rows)
    one = in_memory_pass(stream, everything) if in_memory else streamed_pass(everything)
    one(mixture)
    seconds = []
    for _ in range(PASSES_TIMED):
        ranks.total(np.zeros(1))  # all begin together
        begin = time.perf_counter()
        one(mixture)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds}


def streamed_pass(everything):
    return lambda mixture: everything.one_pass(mixture, 1)


def in_memory_pass(stream, everything):
    """Return a pass over rows that are laid out in memory once."""
    from deconflow import ranks, xd
    from deconflow.xd.em_statistics import one_pass

    parts = [xd.lay_out(data, everything.units) for data in stream.chunks()]
    return lambda mixture: ranks.total(*sum(one_pass(mixture, each, 1) for each in parts).parts)


def whole_fit(folder, rows, components, passes, kept):
    """Fit all rows of a stream, pass by pass in a file, and say what each pass took."""
    from deconflow import ranks, streams, xd

    log = Path(f"{kept}.rank{ranks.rank()}.log")
    with written(streams.RowStream, "overview", log), written(xd.StreamedRows, "one_pass", log):
        limit = {} if passes is None else {"max_iter": passes}
        model = xdgmm(components, checkpoint=kept, **limit)
        begin = time.perf_counter()
        model.fit(stream_of(folder, rows))
    taken = [json.loads(line) for line in log.read_text().splitlines()]
    return described(model) | {
        "seconds": time.perf_counter() - begin,
        "overview_seconds": [each["seconds"] for each in taken if each["what"] == "overview"],
        "pass_seconds": [each["seconds"] for each in taken if each["what"] == "one_pass"],
        "mixture": mixture_of(model),
    }


def in_memory_fit(folder, rows, components, start):
    """Fit the same rows in memory from a mixture, for as long as it may still gain anything."""
    w, sd = rows_in_memory(folder_of(folder, rows))
    weights, means, covariances = (np.array(part) for part in start)
    model = xdgmm(
        components, tol=MEMORY_TOL, max_iter=MEMORY_PASSES, weights_init=weights,
        means_init=means, covariances_init=covariances,
    )  # fmt: skip
    begin = time.perf_counter()
    model.fit(w, noise=sd)
    return described(model) | {"seconds": time.perf_counter() - begin}


def rows_in_memory(folder):
    import pyarrow.parquet as pq

    table = pq.read_table(folder)
    w = np.column_stack([table[name].to_numpy().astype(float) for name in COLUMNS])
    sd = np.column_stack([table[f"{name}_err"].to_numpy().astype(float) for name in COLUMNS])
    return w, sd


ASKED = {
    each.__name__: each for each in (one_pass, short_fit, timed_passes, whole_fit, in_memory_fit)
}


def xdgmm(components, **settings):
    from deconflow import XDGMM

    return XDGMM(components, random_state=SEED, **settings)


def described(model):
    return {
        "lower_bound": model.lower_bound_,
        "passes": model.n_iter_,
        "converged": model.converged_,
        "history": model.lower_bounds_,
    }


def mixture_of(model):
    return [part.tolist() for part in (model.weights_, model.means_, model.covariances_)]


def streamed_rows(folder, rows):
    """Return all rows in the units of the table, without an overview: their number is known."""
    from deconflow import ranks
    from deconflow.standardising import Standardiser
    from deconflow.streams import Overview
    from deconflow.xd import StreamedRows

    stream = stream_of(folder, rows)
    units = ranks.from_first(Standardiser.powers_of_two(next(stream.chunks())))
    return StreamedRows(stream, Overview(rows, rows, float(rows)), units)


def some_mixture(components):
    """Return Gaussians at random places, in standard units."""
    from deconflow.mixtures import GaussianMixture

    rng = np.random.default_rng([SEED, components])
    factors = 0.4 * rng.normal(size=(components, D, D))
    return GaussianMixture(
        np.full(components, 1 / components),
        rng.normal(size=(components, D)),
        factors @ np.swapaxes(factors, 1, 2) + 0.05 * np.eye(D),
    )


@contextmanager
def written(owner, name, log):
    """Write a line for every call of a method, with its seconds."""
    real = getattr(owner, name)

    def timed(*arguments, **more):
        begin = time.perf_counter()
        answer = real(*arguments, **more)
        line = {"what": name, "seconds": time.perf_counter() - begin}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return answer

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, real)


def asked(what, processes=1, *, threads=None, **arguments):
    """Let processes of their own answer, and return what each says, with its peak memory."""
    with tempfile.TemporaryDirectory() as name:
        started = start(what, processes, Path(name), threads=threads, **arguments)
        if started.wait():
            raise SystemExit(f"{what} failed")
        return [json.loads((Path(name) / f"{r}.json").read_text()) for r in range(processes)]


def start(what, processes, out, *, threads=None, **arguments):
    """Start processes, by torchrun if they are several, each with so many threads."""
    command = ["-m", "benchmarks.scale", "--answer", what, json.dumps(arguments), str(out)]
    if processes > 1:
        run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [*run, *command]
    variables = without(os.environ, *THREADS)
    if threads is not None:
        variables |= dict.fromkeys(THREADS, str(threads))
    return subprocess.Popen([sys.executable, *command], env=variables)


def answer(what, arguments, out):
    """Answer in a process of one's own."""
    from deconflow import ranks

    warnings.simplefilter("ignore")  # fits that are cut short say so
    with ranks.started():
        rank = ranks.rank()
        (out / f"{rank}.pid").write_text(str(os.getpid()))
        found = ASKED[what](**arguments)
    found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = json.dumps(found, default=lambda value: np.asarray(value).tolist())
    (out / f"{rank}.json").write_text(text)


# Sections


def table(runs, options):
    for rows in options.rows or [10**5, 10**6, 2 * 10**6, 10**7]:
        runs.add({"section": "table", "rows": rows, **make_table(options.folder, rows)})


def sums(runs, options):
    """Two processes add up to what one does, and fit the same."""
    rows, components = (options.rows or [10**6])[0], 20
    about = {"folder": options.folder, "rows": rows, "components": components}
    one, two = ([np.array(p) for p in asked("one_pass", n, threads=1, **about)[0]["sums"]]
                for n in (1, 2))  # fmt: skip
    fits = [asked("short_fit", n, threads=1, **about)[0] for n in (1, 2)]
    runs.add(
        {
            "section": "sums", "rows": rows, "components": components,
            "largest_difference_of_sums": max(map(relative, one, two)), "bar_of_sums": SUMS_BAR,
            "passes": [fit["passes"] for fit in fits],
            "difference_of_log_likelihood": abs(fits[0]["lower_bound"] - fits[1]["lower_bound"]),
            "largest_difference_of_parameters": max(
                relative(*map(np.array, pair))
                for pair in zip(fits[0]["mixture"], fits[1]["mixture"], strict=True)
            ),
            "bar_of_fit": FIT_BAR,
        }
    )  # fmt: skip


def relative(one, other):
    """Largest difference of two arrays, in units of the largest number in them."""
    return float(np.abs(one - other).max() / np.abs(one).max())


def speedup(runs, options):
    """Two processes with a processor each pass over rows nearly twice as quickly as one."""
    rows, components = (options.rows or [2 * 10**6])[0], 20
    for how in ("in memory", "streamed"):
        load, best = load_now(), {1: [], 2: []}
        for _ in range(ROUNDS):
            for processes in best:
                found = asked(
                    "timed_passes", processes, threads=1, folder=options.folder, rows=rows,
                    components=components, how=how,
                )  # fmt: skip
                best[processes].append(min(np.max([each["seconds"] for each in found], axis=0)))
        runs.add(
            {
                "section": "speedup", "rows": rows, "components": components, "how": how,
                "seconds_of_one": best[1], "seconds_of_two": best[2],
                "ratio": min(best[1]) / min(best[2]), "bar": SPEEDUP_BAR, **load,
            }
        )  # fmt: skip


def memory(runs, options):
    """Peak memory and time of whole fits, and of their passes."""
    for rows in options.rows or [10**5, 10**6, 10**7]:
        task = {
            "section": "memory", "rows": rows, "components": options.components or 10,
            "processes": options.processes, "limit": options.passes,
        }  # fmt: skip
        if runs.done(task) and not options.again:
            continue
        load, name = load_now(), "_".join(str(each) for each in list(task.values())[1:])
        kept = Path(options.folder) / f"fit_{name}.checkpoint"
        found = asked(
            "whole_fit", options.processes, folder=options.folder, rows=rows,
            components=task["components"], passes=options.passes, kept=str(kept),
        )  # fmt: skip
        for each in Path(options.folder).glob(f"{kept.name}*"):
            each.unlink()
        first = found[0]
        runs.add(
            {
                **task, **load, **without(first, "mixture", "peak_gib"),
                "peak_gib": [each["peak_gib"] for each in found],
                "nanoseconds_per_row": 1e9 * min(first["pass_seconds"]) / rows,
            }
        )  # fmt: skip


def passes(runs, options):
    """How many passes lead to the optimum of a fit in memory, and how close."""
    for components in [options.components] if options.components else [10, 20]:
        rows = (options.rows or [10**7])[0]
        about = {"folder": options.folder, "rows": rows, "components": components}
        load = load_now()
        with tempfile.TemporaryDirectory() as name:
            kept = str(Path(name) / "checkpoint")
            streamed = asked("whole_fit", passes=None, kept=kept, **about)[0]
        inside = asked("in_memory_fit", start=streamed["mixture"], **about)[0]
        runs.add(
            {
                "section": "passes", "rows": rows, "components": components, **load,
                "streamed": without(streamed, "mixture"), "in_memory": inside,
                "below_optimum": inside["lower_bound"] - streamed["lower_bound"],
                "bar_of_passes": PASSES_BAR, "bar_below_optimum": OPTIMUM_BAR,
            }
        )  # fmt: skip


def kill(runs, options):
    """Kill one of two processes of the program in a fit, then all of them: it goes on each time."""
    rows, components = (options.rows or [10**6])[0], options.components or 10
    with tempfile.TemporaryDirectory() as name:
        whole, torn = Path(name) / "whole", Path(name) / "torn"
        ended_by(program_fit(options.folder, rows, components, whole), "fit")
        one = program_fit(options.folder, rows, components, torn)
        others, victim = caught_in_a_pass(one, torn)
        os.kill(victim, signal.SIGKILL)
        begin, said = time.perf_counter(), one.communicate()[1]
        seconds = since(begin)
        left = [pid for pid in others if Path(f"/proc/{pid}").exists()]
        every = program_fit(options.folder, rows, components, torn, "--resume")
        for pid in (*caught_in_a_pass(every, torn)[0], every.pid):
            os.kill(pid, signal.SIGKILL)
        every.communicate()
        ended_by(program_fit(options.folder, rows, components, torn, "--resume"), "resumed fit")
        found, wanted = (about_model(each) for each in (torn, whole))
    runs.add(
        {
            "section": "kill", "rows": rows, "components": components, "tol": KILL_TOL,
            "seconds_until_all_ended": seconds, "processes_left": len(left),
            "said": [line for line in said.splitlines() if line.startswith("deconflow:")],
            "uninterrupted": wanted, "resumed": found,
            "difference_of_log_likelihood": abs(found["lower_bound"] - wanted["lower_bound"]),
            "bar": FIT_BAR,
        }
    )  # fmt: skip


def program_fit(folder, rows, components, output, *more):
    """Start a fit of the program in two processes, by torchrun."""
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = ["-m", "deconflow", "fit", str(folder_of(folder, rows)), "-c", ",".join(COLUMNS)]
    settings = [f"n_components={components}", f"tol={KILL_TOL}", "n_jobs=1"]
    said = [word for each in settings for word in ("--set", each)]
    command = [*run, *program, "-o", str(output), "--method", "xd", "-q", *said, *more]
    return subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)


def ended_by(process, what):
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"{what} failed: {said}")


def caught_in_a_pass(process, output):
    """Wait until a fit has kept one more pass; return its processes, and the last of these."""
    kept = output.parent / f".{output.name}.checkpoint" / "fit"
    before = kept.stat().st_mtime_ns if kept.exists() else 0
    while not (kept.exists() and kept.stat().st_mtime_ns > before):
        if process.poll() is not None:
            raise SystemExit(f"The fit ended before it was killed: {process.communicate()[1]}")
        time.sleep(0.02)
    found = children(process.pid)
    return found, found[-1]


def children(pid):
    """Return the numbers of the processes that torchrun has started, by their ranks."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        said = Path(f"/proc/{child}/environ").read_text().split("\0")
        ranks = [each.removeprefix("RANK=") for each in said if each.startswith("RANK=")]
        if ranks:
            found[int(ranks[0])] = int(child)
    return [found[rank] for rank in sorted(found)]


def about_model(folder):
    from deconflow import XDGMM

    model = XDGMM.load(folder)
    return {"lower_bound": model.lower_bound_, "passes": model.n_iter_}


def moons(runs, options):
    """Deconvolver on more and more rows: a record of its own."""
    del runs, options
    subprocess.run([sys.executable, "-m", "benchmarks.scale_moons"], check=True)


def flows(runs, options):
    """Flows on two processes: a record of its own."""
    del runs, options
    subprocess.run([sys.executable, "-m", "benchmarks.scale_flows"], check=True)


def since(begin):
    return time.perf_counter() - begin


def without(found, *names):
    return {name: value for name, value in found.items() if name not in names}


def load_now():
    load = os.getloadavg()[0]
    return {"load_before": load, "under_load": load > IDLE}


SECTIONS = {
    each.__name__: each for each in (table, sums, speedup, memory, passes, kill, moons, flows)
}
KEYS = ("section", "rows", "components", "how", "processes", "limit")


def main():
    if sys.argv[1:2] == ["--answer"]:
        what, arguments, out = sys.argv[2:]
        return answer(what, json.loads(arguments), Path(out))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--folder", required=True, help="where the tables are, and fits are kept")
    parser.add_argument("--rows", nargs="+", type=lambda text: int(float(text)))
    parser.add_argument("--components", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--passes", type=int, help="passes of a fit, at most")
    parser.add_argument("--again", action="store_true", help="make runs again that are there")
    parser.add_argument("--results", type=Path, default=RESULTS / "scale.json")
    options = parser.parse_args()
    runs = Runs(options.results, KEYS, keep=True)
    runs.say(command="python -m benchmarks.scale", seed=SEED)
    for name in options.sections:
        SECTIONS[name](runs, options)
        print(name, "is done", flush=True)


if __name__ == "__main__":
    main()
