"""Pages of the documents: their Python runs, their commands work, what they quote is so."""

import json
import pickle
import pkgutil
import re
import runpy
import shlex
import shutil
import warnings

import dask
import matplotlib.image
import numpy as np
import pyarrow.parquet as pq
import pytest
from program.running import XD, succeed

from deconflow import XDGMM, xd
from deconflow.auto import flows

pytestmark = pytest.mark.docs


@pytest.fixture
def page(request):
    return lambda name: (request.config.rootpath / "docs" / f"{name}.md").read_text()


def run_python(text):
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    return names


def test_what_a_wrong_law_costs(page, capsys):
    text = page("noise")
    names = run_python(text)
    assert names["model"].n_features_in_ == 1
    quoted = float(re.search(r"costs (\d\.\d+) nat", text).group(1))
    assert abs(names["gap"] - quoted) < 0.03
    assert f"{names['gap']:.2f} nat per row" in capsys.readouterr().out


def test_missing_values_are_filled(page, capsys):
    text = page("missing")
    run_python(text)
    spread, rms, sd = (float(x) for x in capsys.readouterr().out.split())
    told = re.search(r"spread of ([\d.]+);.*off by ([\d.]+) .* is ([\d.]+) in the mean", text)
    assert np.allclose([spread, rms, sd], [float(x) for x in told.groups()], atol=0.02)
    assert rms < 0.5 * spread


def test_other_tools(page):
    names = run_python(page("other_tools"))
    assert dict(names["draws"].sizes) == {"chain": 1, "draw": 500, "row": 300}
    assert np.allclose(names["same"].covariances_, names["model"].covariances_)
    assert names["near"].fit_.units == ["kpc"]
    assert names["law"].mean() == names["model"].means_[0, 0]
    assert np.isfinite(names["search"].cv_results_["mean_test_score"]).all()


def test_migrating(page):
    names = run_python(page("migrating"))
    assert np.allclose(
        np.sort(names["xmean"][:, 0]), np.sort(names["model"].means_[:, 0]), atol=0.02
    )
    joint = np.log(np.exp(names["per_component"]).sum(1))
    assert np.allclose(joint, names["model"].score_observations(names["X"], noise=names["Xerr"]))


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_certificate(page, monkeypatch):
    for bound in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(flows, bound, 20)
    names = run_python(page("certificate"))
    assert names["model"].certificate_.trusted


def test_regression(page, capsys):
    text = page("regression")
    names = run_python(text)
    printed = capsys.readouterr().out
    quoted = text[text.index("prints") :].split("```")[1].strip()
    assert quoted.splitlines()[0] == printed.splitlines()[0]
    told = [float(x) for x in re.findall(r"-?\d+\.\d+", quoted)]
    seen = [float(x) for x in re.findall(r"-?\d+\.\d+", printed)]
    assert np.allclose(told, seen, atol=0.003)
    assert (names["low"] < 2 < names["high"]).all()
    assert names["least_squares"] < 1.6  # the negative twin


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_xd(page, here):
    names = run_python(page("xd"))
    assert names["model"].means_.tolist() == names["means"]
    assert names["again"].lower_bound_ > names["model"].lower_bound_


def test_classical(page, here):
    names = run_python(page("classical"))
    for model in (names["model"], names["wavelets"]):
        p = np.exp(model.score_samples([[-1.0], [0.0], [1.0]]))
        assert p[1] < 0.5 * min(p[0], p[2])


def test_self_test(page, capsys):
    run_python(page("self_test"))
    good, greedy = capsys.readouterr().out.split("diagnostics`.", 1)
    assert "CAUTION" not in good
    assert "CAUTION: intervals of v0 hold the truth too rarely" in greedy


def skeleton(text):
    """What stands around the numbers."""
    return re.sub(r"\s", "", re.sub(NUMBER, "#", text))


def run_and_compare(text, capsys, *, only="", but=()):
    """Run the Python of a page; what its blocks print is what the page says, to about 5 %."""
    names, found = {}, re.findall(PRINTING, text, re.DOTALL)
    for code, told in found:
        if only not in code or any(word in code for word in but):
            continue
        exec(code, names)
        printed = capsys.readouterr().out
        assert skeleton(printed) == skeleton(told)
        pairs = zip(re.findall(NUMBER, printed), re.findall(NUMBER, told), strict=True)
        for seen, quoted in pairs:
            near = 0.03 if "." in quoted else 2
            assert abs(float(seen) - float(quoted)) <= near + 0.05 * abs(float(quoted)), told
    return names


NUMBER = r"-?\d+(?:\.\d*)?"
PRINTING = r"```python\n(.*?)```\n(?:\nprints\n\n```\n(.*?)```\n)?"


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # of averages of closed forms
def test_truth(page, capsys):
    assert run_and_compare(page("truth"), capsys)["model"].atom_weights_[0] < 0.5
    with pytest.raises(AssertionError):  # the negative twin
        run_and_compare("```python\nprint(1.0)\n```\n\nprints\n\n```\n1.2\n```\n", capsys)


def test_other_names(page, capsys):
    names = run_and_compare(page("you_call_it"), capsys, but=SHARED)
    assert np.allclose(names["studies"].means_[0, 0], names["best"][0], atol=1e-3)


SHARED = ("woba.csv", "prostate_z.txt")


@pytest.mark.parametrize("file", SHARED)
def test_other_names_on_real_data(request, folder, page, capsys, file):
    shared(request, folder, file)
    names = run_and_compare(page("you_call_it"), capsys, only=file)
    if file == "woba.csv":
        totals = {
            name: float(model.score_observations(names["x"], noise=names["s"]).sum())
            for name, model in names["models"].items()
        }
        assert abs(totals["normal"] - 989.636) < 0.001
        assert max(totals.values()) < 994.194  # that of the NPMLE


MEASURED = ("exoplanets.csv", "framingham.csv", "surgery.csv")


def test_measured(folder, page, capsys):
    text = page("measured")
    names = run_and_compare(text, capsys, but=MEASURED)
    assert names["own"].sample(100, random_state=0).min() >= 0  # bounds of a likelihood
    run_all(commands(text))


def shared(request, folder, *files):
    data = request.config.rootpath.parent / "shared" / "data"
    for file in files:
        if not (data / file).exists():
            pytest.skip(f"needs {file}, which is not part of the repository")
        shutil.copy(data / file, folder)


@pytest.mark.parametrize("file", MEASURED[1:])
def test_measured_on_real_data(request, folder, page, capsys, file):
    shared(request, folder, file)
    run_and_compare(page("measured"), capsys, only=file)


def test_planets(request, folder, page, capsys):
    """With a mixture that is quick: it finds about as many planets as the slow ones."""
    shared(request, folder, "exoplanets.csv", "exoplanet_completeness.npz")
    text = page("measured").replace("BayesianXDGMM(random_state=0)", "XDGMM(3, random_state=0)")
    start = text.index("```python", text.index("## Worked case"))
    names = run_python(text[start : text.index("## Limits")].replace("import Bayesian", "import "))
    assert "planets per star" in capsys.readouterr().out
    assert len(names["w"]) == 552
    assert 0.005 < names["number"] * names["box"].mean() < 0.04


def test_figures_about_planets_are_those_of_the_record(request, page):
    record = json.loads((request.config.rootpath / "results" / "planets.json").read_text())
    text = page("measured")
    told = text[text.index("## Worked case") : text.index("## Limits")]
    quoted = set(re.findall(r"(?<![\w.])\.\d{3,4}", told))
    kept = [each[name] for each in record["summary"] for name in ("gamma", "box")]
    assert len(quoted) > 10
    for each in kept:
        if each[1] > 0.001:
            assert f"{each[1]:.3f}".lstrip("0") in quoted


def test_many_rows(folder, page, capsys):
    text = page("many_rows")
    run_python(text)
    said = re.search(r"This prints\n\n```\n(.*?)```", text, re.DOTALL).group(1)
    assert capsys.readouterr().out == said
    run_all(commands(text))
    assert pq.read_table("denoised.parquet").num_rows == 8000


@pytest.mark.parametrize("name", ["../README", "index", "missing", "certificate", "regression"])
def test_commands(folder, page, name):
    run_all(commands(page(name)))


def test_the_twin_of_the_certificate_is_doubtful(folder, page):
    line = commands(page("certificate"))[-1]
    said = re.search(r'ends with "(.*?)"', page("certificate")).group(1)
    assert said in succeed(*line.split()[1:], *XD)


def test_every_page_is_in_the_contents(request, page):
    folder = request.config.rootpath / "docs"
    trees = re.findall(r"```\{toctree\}\n(.*?)```", page("index"), re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and line[0] != ":"]
    made = ["examples/index"]  # from the scripts in docs/gallery
    pages = [path.stem for path in folder.glob("*.md")]
    assert sorted([*listed, "index"]) == sorted([*pages, *made])


def test_names_on_the_pages_exist(request):
    root = request.config.rootpath
    known = set()
    pages = {*(root / "docs").glob("*.md")} - {root / "docs" / "migrating.md"}  # has old names, too
    for file in [root / "README.md", *pages]:
        known |= set(re.findall(r"\bdeconflow(?:\.[A-Za-z_]\w*)+", file.read_text()))
    assert len(known) > 20
    for name in known:
        pkgutil.resolve_name(name)


def test_the_reference_keeps_trailing_underscores(request):
    """As ``:ivar:`` Sphinx takes ``density_`` for a link, and drops the underscore."""
    conf = runpy.run_path(str(request.config.rootpath / "docs" / "conf.py"))
    assert conf["napoleon_use_ivar"] is False


def test_figures_about_gaia_are_those_of_the_record(request, page):
    text = page("gaia")
    record = json.loads((request.config.rootpath / "results" / "gaia.json").read_text())
    told = text[text.index("## What one sees") :]
    quoted = set(re.findall(r"(?<![\w.])\d+\.\d+", told))
    values = list(record["figures"].values())
    values += [
        float(x)
        for lines in record["printed"].values()
        for line in lines
        for x in re.findall(r"-?\d+\.\d+", line)
    ]
    known = {
        f"{abs(scale * value):.{d}f}" for value in values for scale in (1, 100) for d in (1, 2, 4)
    }
    assert len(quoted) > 4
    assert quoted <= known


@pytest.mark.filterwarnings("ignore:.*did not parse as fits unit")
def test_the_gaia_page(folder, page, some_stars):
    shutil.copy(some_stars, folder)
    text = page("gaia").replace(" -o model -q", " -o model -q --method xd")  # seconds, not minutes
    run_python(text)
    slow = ("denoised", "marginals")  # such commands run on other pages
    run_all([line for line in commands(text) if not any(word in line for word in slow)])
    assert matplotlib.image.imread("corner.png").std() > 0.05


# -- the page about the program -------------------------------------------------------------------


def commands(text):
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def lines(page):
    return commands(page("program"))


def run_all(lines):
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "deconflow"
        succeed(*words, *(XD if words[0] == "fit" else ()))


def test_commands_on_the_page(folder, lines):
    some = [line for line in lines if "gaia" not in line and "compare" not in line]
    assert len(some) > 13  # the help's example of compare is the same, and run where that is
    run_all(some)
    with pytest.raises(AssertionError):  # the negative twin
        succeed("fit", "stars.csv", "-c", "nothing", "-o", "m")


def test_commands_about_gaia(folder, lines, some_stars):
    from astropy.table import Table

    (folder / "gaia.fits").symlink_to(some_stars)
    some = [line for line in lines if "gaia" in line]
    assert len(some) == 2
    run_all(some)
    with warnings.catch_warnings(action="ignore"):  # units that the standard does not know
        before, after = Table.read("gaia.fits"), Table.read("gaia_denoised.fits")
    assert after.colnames[: len(before.colnames)] == before.colnames
    for name in before.colnames:
        assert before[name].dtype == after[name].dtype
        assert before[name].unit == after[name].unit
        one, two = (np.ma.filled(table[name], 0) for table in (before, after))
        assert np.array_equal(one, two, equal_nan=one.dtype.kind == "f"), name
    assert np.median(after["parallax_sd"] / before["parallax_error"]) < 0.9


# -- dask, Spark and Ray --------------------------------------------------------------------------


def test_dask_gives_what_memory_gives(page, capsys):
    with dask.config.set(scheduler="synchronous"):
        names = run_and_compare(page("guests"), capsys)
        denoised = names["denoised"].compute()
        few = names["stars"][names["stars"].x > 4]  # partitions may be left without rows
        none = few[few.x < 4].map_partitions(
            names["answers"], names["model"], meta=names["NO_ANSWERS"]
        )
        assert len(none.compute()) == 0
    w, noise = (names["table"][names[each]] for each in ("columns", "error_columns"))
    sample = names["sample"]
    start = XDGMM(2, random_state=0).fit(sample[w.columns], noise=sample[noise.columns])
    inside = XDGMM(2, method="em", max_iter=20, tol=0, init=start.mixture_).fit(w, noise=noise)
    for name in ("weights", "means", "covariances"):
        found, expected = getattr(names["mixture"], name), getattr(inside, f"{name}_")
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert not np.allclose(found, getattr(start, f"{name}_"), atol=1e-3)  # the negative twin
    np.testing.assert_array_equal(denoised, names["answers"](names["table"], names["model"]))


def test_statistics_travel_and_no_rows_add_nothing():
    w = np.random.default_rng(0).normal(size=(100, 2))
    mixture = XDGMM(1).fit(w, noise=0.1).mixture_
    sums = xd.statistics(w, mixture, noise=0.1)
    again = pickle.loads(pickle.dumps(sums)) + xd.statistics(w[:0], mixture, noise=0.1)
    for one, two in zip(again.parts, sums.parts, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_other_recipes_are_python(page):
    blocks = re.findall(r"```text\n(.*?)```", page("guests"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        compile(block, "guests.md", "exec")
