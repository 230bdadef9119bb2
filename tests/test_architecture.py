"""The floor plan: layers, fronts of packages, one contract for all estimators, a quick start."""

import ast
import functools
import inspect
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from program.running import XD, succeed

from deconflow import estimators

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "deconflow"
ESTIMATORS = list(estimators.ESTIMATORS.values())
QUERIES = (
    "fit", "score_samples", "score_observations", "log_marginal", "p_values", "score",
    "sample", "posterior", "condition", "statistics", "certify",
    "regress", "plot", "save", "load",
)  # fmt: skip
HEAVY = ("torch", "numba", "sklearn", "pyarrow", "scipy")
FLOW_ROOMS = {"densities", "posteriors", "objectives", "fitting", "torch_modes"}
FLOW_FILES = {
    "auto.flows", "evaluation.draws", "fits.weighted_fit", "noise.law_noise",
}  # fmt: skip


def layers():
    """The layers as `docs/architecture.md` draws them, lowest first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = re.search(r"<!-- layers -->\n```\n(.*?)```", text, re.DOTALL)
    assert drawn, "docs/architecture.md has no drawing of the layers"
    return [line.split("#")[0].split() for line in drawn[1].splitlines() if line.strip()]


@cache
def modules():
    return {
        ".".join(("deconflow", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in SOURCE.rglob("*.py")
    }


@cache
def imports(path):
    """Own modules that a file imports anywhere, also inside functions, with the names taken."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names if _own(alias.name)]
        elif isinstance(node, ast.ImportFrom) and _own(node.module or ""):
            found.append((node.module, tuple(alias.name for alias in node.names)))
    return found


def _own(name):
    return name == "deconflow" or name.startswith("deconflow.")


def room(module):
    """The package, or the file at the top, that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def edges():
    """Imports from module to module; a name that a front does not give counts as a module."""
    known = modules()
    for module, path in known.items():
        for target, names in imports(path):
            for name in names or ("",):
                found = f"{target}.{name}" if name and not _given(target, name) else target
                if found not in known and f"{found}.__init__" not in known:
                    found = target
                package = f"{found}.__init__"
                yield module.removesuffix(".__init__"), package if package in known else found


def _given(package, name):
    """Whether the front of a package has this name from one of its files."""
    front = modules().get(f"{package}.__init__")
    if front is None or package == "deconflow":
        return False
    return any(name in names for _, names in imports(front))


def test_every_room_is_drawn_once():
    drawn = [name for layer in layers() for name in layer]
    assert sorted(drawn) == sorted({room(module) for module in modules()})


def test_imports_point_to_lower_layers_only():
    level = {name: i for i, layer in enumerate(layers()) for name in layer}
    wrong = [
        f"{module} imports {target}"
        for module, target in edges()
        if room(module) != room(target)
        and level[room(target)] >= level[room(module)]
        and room(module) != "__init__"
    ]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_imports_across_packages_are_from_the_front():
    known = modules()
    wrong = [
        f"{module} imports {target}"
        for module, target in edges()
        if room(module) != room(target)
        and room(module) not in ("cli", "__main__")  # the program is its files
        and f"deconflow.{room(target)}.__init__" in known
        and target != f"deconflow.{room(target)}.__init__"
    ]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_no_cycles():
    """A file may import the front of a lower package; a package's own files never its front."""
    graph = {}
    for module, target in edges():
        graph.setdefault(module, set()).add(target.removesuffix(".__init__"))
    TopologicalSorter(graph).prepare()  # a CycleError has the modules that import each other


def test_one_call_goes_up_by_name():
    """Modules that are imported by a name in a text, which the layers do not see."""
    found = {
        (module, node.value)
        for module, path in modules().items()
        if room(module) not in ("cli", "__main__", "__init__")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and str(node.value) in named_modules()
    }
    assert found == {("deconflow.estimators.base", "deconflow.plots")}


def named_modules():
    return {module.removesuffix(".__init__") for module in modules()} - {"deconflow"}


def test_torch_is_imported_by_the_flow_wing_only():
    """At the top of a file; functions may import it where they need it."""
    found = {
        module.removeprefix("deconflow.")
        for module, path in modules().items()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None), *(alias.name for alias in node.names))
        if (name or "").split(".")[0] in ("torch", "zuko")
    }
    assert {each for each in found if each.split(".")[0] not in FLOW_ROOMS} == FLOW_FILES


@pytest.mark.parametrize("name", QUERIES)
def test_estimators_have_equal_signatures(name):
    signatures = {str(inspect.signature(getattr(cls, name))) for cls in ESTIMATORS}
    assert len(ESTIMATORS) >= 5
    assert len(signatures) == 1, signatures


@pytest.mark.parametrize("name", QUERIES)
def test_no_estimator_writes_a_question_again(name):
    assert [cls.__name__ for cls in ESTIMATORS if name in vars(cls)] == []


def _without_heavy_imports(words, but=()):
    """Run the program in a process of its own, and see that it imported nothing heavy."""
    heavy = [name for name in HEAVY if name not in but]
    code = (
        "import sys; from deconflow.__main__ import main\n"
        f"sys.argv = ['deconflow', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('HEAVY', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
    return done


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fit", "--help"], ["fti"]])
def test_the_program_starts_at_once(words):
    _without_heavy_imports(words)


def test_a_column_that_is_missing_is_said_at_once(tmp_path):
    table = tmp_path / "stars.csv"
    table.write_text("x,x_err\n1,2\n")
    words = ["fit", str(table), "-c", "z", "-o", str(tmp_path / "model")]
    assert "Expected the column 'z'" in _without_heavy_imports(words, but=["pyarrow"]).stderr


def test_info_starts_at_once(tmp_path):
    table = tmp_path / "stars.csv"
    table.write_text("x,x_err\n" + "\n".join(f"{0.1 * i},0.5" for i in range(30)) + "\n")
    succeed("fit", table, "-c", "x", "-o", tmp_path / "model", *XD)
    said = _without_heavy_imports(["info", str(tmp_path / "model")]).stdout
    assert "number of rows          30" in said


def test_editors_see_types_and_public_names():
    import deconflow

    assert (SOURCE / "py.typed").exists()
    assert sorted(dir(deconflow)) == sorted(deconflow.__all__)


@functools.cache
def statements(path):
    """Statements of a file, without docstrings."""
    return counted(ast.parse(path.read_text()))


def counted(node):
    inside = [each for name in ("body", "orelse", "finalbody", "handlers", "cases")
              for each in getattr(node, name, []) if isinstance(each, ast.AST)]  # fmt: skip
    described = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    own = isinstance(node, ast.stmt) - (described and ast.get_docstring(node) is not None)
    return own + sum(map(counted, inside))


def test_the_house_keeps_to_its_budget():
    table = (ROOT / "docs" / "architecture.md").read_text().split("## Budget")[1]
    budget = {name: int(most) for name, most in re.findall(r"\| `?([^`|]+)`? \| (\d+) \|", table)}
    parts = {path.name: path.rglob("*.py") for path in SOURCE.iterdir() if path.is_dir()}
    parts = {name: list(paths) for name, paths in parts.items()}
    parts |= {"modules at the top": SOURCE.glob("*.py"), "src/deconflow": SOURCE.rglob("*.py")}
    parts |= {name: (ROOT / name).rglob("*.py") for name in ("tests", "benchmarks")}
    used = {name.strip(): sum(map(statements, paths)) for name, paths in parts.items() if paths}
    assert used.keys() == {name.strip() for name in budget}
    over = {name: count for name, count in used.items() if count > budget[name]}
    assert not over, "take code away, or raise the budget and say why"


def test_estimators_stay_small():
    for cls in ESTIMATORS:
        assert len(inspect.signature(cls).parameters) <= 16
    members = {name for name in dir(estimators.XDGMM) if not name.startswith("_")}
    assert len(members) <= 25, sorted(members)
