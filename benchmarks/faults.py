"""Damaged model files and killed runs: nothing wrong is ever answered, and nothing is lost.

    python -m benchmarks.faults

1,000 random damages of models (bits, bytes, lengths): each must be refused with a
clear line, or answer to the bit as before. 100 kills at random times of the program's ``fit``,
``denoise`` and ``report``: the output is the old one or the new one, whole; the next run gives the
same bytes as one that was not killed, and leaves nothing else behind.

Writes ``results/faults.json``.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import astropy.io.fits  # noqa: F401  (what the program imports when it needs it)
import matplotlib.pyplot  # noqa: F401
import numpy as np
import pyarrow.csv  # noqa: F401
from tqdm.auto import trange

import deconflow
import deconflow.cli
import deconflow.estimators
import deconflow.evaluation
import deconflow.plots
from benchmarks import record
from deconflow.__main__ import main as run_program
from deconflow.demo import write_stars
from deconflow.program.info import describe
from deconflow.program.model_folder import load
from deconflow.saving.model_files import DESCRIPTION, TABLE, WEIGHTS, read_folder

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "golden" / "deconvolver"
MODELS = {
    "mixture": deconflow.XDGMM(2, random_state=0),
    "flow": deconflow.FlowDeconvolver(epochs=1, hidden=8, random_state=0),
    "kernels": deconflow.DeconvolvingKDE(),
}
SEED, MOST_SECONDS = 0, 30
GOOD = {"refused", "same answer", "old whole", "new whole", "none yet"}

# -- damages ------------------------------------------------------------------------------------


def flip(content, rng):
    """One bit."""
    place = rng.integers(8 * len(content))
    content[place // 8] ^= 1 << place % 8


def cut(content, rng):
    """Drop the end."""
    del content[rng.integers(len(content)) :]


def drop(content, rng):
    """Drop a part from the middle."""
    start = rng.integers(len(content))
    del content[start : start + rng.integers(1, 50)]


def swap(content, rng):
    """Exchange two bytes."""
    one, other = rng.integers(len(content), size=2)
    content[one], content[other] = content[other], content[one]


def append(content, rng):
    """Bytes at the end."""
    content.extend(rng.bytes(rng.integers(1, 50)))


DAMAGES = (flip, cut, drop, swap, append)


def models(folder):
    """Write models of several estimators, and one of the program, and return their folders."""
    rng = np.random.default_rng(SEED)
    for name, model in MODELS.items():
        model.fit(rng.normal(size=(60, 1)), noise=0.3).save(folder / name)
    shutil.copytree(STORED, folder / "average")
    write_stars(folder / "stars.csv")
    words = ("fit", *TABLE_WORDS, "-o", "program", "-m", "xd", "--set", "n_components=2")
    if run(words, folder)[0]:
        raise SystemExit((folder.parent / "log").read_text())
    return {name: folder / name for name in (*MODELS, "average", "program")}


def answers(path):
    """What a model says, in bytes; the first thing that is asked is what is in its folder."""
    saved = load(path)
    model, rng = saved.estimator, np.random.default_rng(0)
    v, w = rng.normal(size=(5, model.density_.dim)), rng.normal(size=(3, model.n_features_in_))
    said = [*describe(saved), model.describe(), repr(sorted(model.get_params().items()))]
    numbers = [model.score_samples(v), model.sample(3, random_state=0)]
    try:
        numbers.append(model.posterior(w, noise=0.5, n_samples=20, n_proposals=50).mean)
    except ValueError as error:  # a network that wants another kind of noise, or projections
        said.append(str(error))
    return "\n".join(said).encode() + b"".join(array.tobytes() for array in numbers)


def damage_one(number, paths, wanted, where):
    """Damage a copy of one of the models, and say what came of it."""
    rng = np.random.default_rng((SEED, number))
    name = list(paths)[rng.integers(len(paths))]
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(paths[name], where)
    files = sorted(file.name for file in where.iterdir())
    file = where / files[rng.integers(len(files))]
    damage = DAMAGES[rng.integers(len(DAMAGES))]
    content = bytearray(file.read_bytes())
    damage(content, rng)
    file.write_bytes(content)
    about = {"model": name, "file": file.name, "damage": damage.__name__}
    return about | outcome(where, wanted[name])


def outcome(path, wanted):
    """Ask a damaged model, within bounds of time."""
    signal.alarm(MOST_SECONDS)
    try:
        found = answers(path)
    except (ValueError, OSError) as error:
        clear = str(error).startswith("Expected") and len(str(error).splitlines()) == 1
        return {"outcome": "refused" if clear else "unclear error", "said": str(error)[:200]}
    except Exception as error:
        return {"outcome": "unclear error", "said": f"{type(error).__name__}: {error}"[:200]}
    finally:
        signal.alarm(0)
    return {"outcome": "same answer" if found == wanted else "another answer"}


def _too_long(*_):
    raise TimeoutError("hangs")


# -- kills --------------------------------------------------------------------------------------

TABLE_WORDS = ("stars.csv", "-c", "x,y", "-q")
#: What is killed. A new method that can be resumed is one line more.
COMMANDS = {
    "fit flow": ("fit", *TABLE_WORDS, "-o", "out", "-m", "flow", "--set", "hidden=16", "--set",
        "epochs=12"),
    "fit auto": ("fit", *TABLE_WORDS, "-o", "out", "--set", "quick=true", "--set", "n_jobs=1"),
    "denoise": ("denoise", "model", "stars.csv", "-o", "out.csv", "-q", "--chunk", "20"),
    "denoise to FITS": ("denoise", "model", "stars.csv", "-o", "out.fits", "-q"),
    "report": ("report", "model", "-o", "out.html"),
}  # fmt: skip
#: In which order, again and again; what is slow is killed less often.
TURNS = (
    "fit flow", "denoise", "report", "fit flow", "denoise to FITS", "denoise", "fit flow",
    "denoise to FITS", "report", "fit auto",
)  # fmt: skip


def run(words, folder, kill_after=None):
    """Run the program in a child that has imported all; return its exit code, and its seconds."""
    start, child = time.perf_counter(), os.fork()
    if child == 0:
        _program(words, folder)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        seconds = time.perf_counter() - start
        if ended:
            return os.waitstatus_to_exitcode(status), seconds
        if kill_after is not None and seconds > kill_after:
            os.kill(child, signal.SIGKILL)
            kill_after = None
        time.sleep(0.002)


def _program(words, folder):
    code = 1
    try:
        os.chdir(folder)
        log = os.open(folder.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.argv = ["deconflow", *words]
        run_program()
    except SystemExit as error:
        code = error.code or 0
    finally:
        os._exit(code)


def content(path):
    """What an output holds, but for how long it took; a folder is loaded, and so checked."""
    if not path.exists():
        return None
    if path.is_file():
        return path.read_bytes()
    files = read_folder(path)
    deconflow.load(path)
    texts = [_of_the_fit_alone(json.loads(files.contents[name])) for name in (DESCRIPTION, TABLE)]
    return json.dumps(texts).encode() + files.contents[WEIGHTS]


#: What a model says of the run that made it: other runs say other things.
ABOUT_ONE_RUN = ("seconds", "date", "command")


def _of_the_fit_alone(value):
    if isinstance(value, dict):
        return {k: _of_the_fit_alone(v) for k, v in value.items() if k not in ABOUT_ONE_RUN}
    return [_of_the_fit_alone(v) for v in value] if isinstance(value, list) else value


class Kills:
    """Folders in which commands are killed, and what they write if they are not."""

    def __init__(self, folder, names):
        self.here, self.names = folder / "here", names
        self.here.mkdir()
        write_stars(self.here / "stars.csv")
        self.succeed(("fit", *TABLE_WORDS, "-o", "model", "-m", "xd", "--set", "n_components=2"))
        self.whole, self.old, self.seconds = {}, {}, {}
        for name in set(names):
            output = self.output(name)
            self.succeed((*COMMANDS[name], *self.other(name)))
            shutil.move(output, folder / name)
            self.old[name] = folder / name
            self.seconds[name] = self.succeed(COMMANDS[name])
            self.whole[name] = content(output)
            self.remove(output)
        self.before = self.listing()

    def other(self, name):
        """An option that makes another output: the old one."""
        return ("--prefix", "old_") if name.startswith("denoise") else ("--seed", "7")

    def output(self, name):
        return self.here / next(word for word in COMMANDS[name] if word.startswith("out"))

    def succeed(self, words):
        code, seconds = run(words, self.here)
        if code:
            raise SystemExit(f"{' '.join(words)} failed: {(self.here.parent / 'log').read_text()}")
        return seconds

    def listing(self):
        return sorted(path.name for path in self.here.iterdir())

    def remove(self, path):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def kill_one(self, number):
        """Kill one command, look at what is there, and let it finish the next time."""
        rng = np.random.default_rng((SEED, number))
        name = self.names[number % len(self.names)]
        output, had_one = self.output(name), bool(rng.integers(2))
        old = content(self.old[name]) if had_one else None
        code = 0
        while code != -signal.SIGKILL:  # again, if it ends before
            self.remove(output)
            if had_one:
                copy = shutil.copytree if self.old[name].is_dir() else shutil.copy
                copy(self.old[name], output)
            after = float(rng.uniform(0, self.seconds[name]))
            code, seconds = run(COMMANDS[name], self.here, after)
            if code == 0:
                self.seconds[name] = min(seconds, self.seconds[name])
        about = {"command": name, "old": had_one, "after": round(after, 2)}
        about["outcome"] = self.state(output, old, name)
        left = sorted(set(self.listing()) - set(self.before) - {output.name})
        about["left by the kill"] = [word.split(".")[-1] for word in left]
        self.succeed((*COMMANDS[name], *(["--resume"] if name.startswith("fit") else [])))
        about["then"] = "same bytes" if content(output) == self.whole[name] else "other bytes"
        self.remove(output)
        about["leftovers"] = sorted(set(self.listing()) - set(self.before))
        for path in about["leftovers"]:
            self.remove(self.here / path)
        return about

    def state(self, output, old, name):
        try:
            found = content(output)
        except (ValueError, OSError) as error:
            return f"damaged: {error}"
        known = {"new whole": self.whole[name], "old whole": old}
        found_as = [word for word, wanted in known.items() if found == wanted is not None]
        return (found_as or ["none yet" if found is None and old is None else "lost"])[0]


# -- the record ---------------------------------------------------------------------------------


def counts(outcomes, name):
    """Count outcomes, for each value of some entry."""
    table = {}
    for about in outcomes:
        table.setdefault(about[name], Counter())[about["outcome"]] += 1
    return {key: dict(table[key]) for key in sorted(table)}


def is_wrong(about):
    """Whether something was lost, left, or not the same."""
    same = about.get("then", "same bytes") == "same bytes"
    return about["outcome"] not in GOOD or not same or bool(about.get("leftovers"))


def damage_all(folder, count):
    """Damage models, one after another."""
    paths = models(folder)
    wanted = {name: answers(path) for name, path in paths.items()}
    signal.signal(signal.SIGALRM, _too_long)
    return [damage_one(each, paths, wanted, folder / "damaged") for each in trange(count)]


def main(arguments=None):
    """Run what is asked for, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--commands", default=",".join(TURNS), help="what is killed, in turn")
    parser.add_argument("--folder", type=Path, default=record.RESULTS, help="for the record")
    asked = parser.parse_args(arguments)
    record.RESULTS = asked.folder
    settings = {name: value for name, value in vars(asked).items() if name != "folder"}
    settings |= {"seed": SEED}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        kills = Kills(Path(name), asked.commands.split(","))
        killed = [kills.kill_one(number) for number in trange(asked.kills)]
        (Path(name) / "models").mkdir()
        damaged = damage_all(Path(name) / "models", asked.damages)
    bad = [about for about in (*killed, *damaged) if is_wrong(about)]
    record.write(
        "faults",
        show=False,
        settings=settings,
        damages={
            "by damage": counts(damaged, "damage"),
            "by file": counts(damaged, "file"),
            "by model": counts(damaged, "model"),
        },
        kills={
            "by command": counts(killed, "command"),
            "left something for the next run": sum(bool(a["left by the kill"]) for a in killed),
        },
        wrong=bad,
        seconds=round(time.perf_counter() - start),
    )
    print(f"{len(bad)} wrong; written to {asked.folder / 'faults.json'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
