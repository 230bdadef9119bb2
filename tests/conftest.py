import re
import warnings
from pathlib import Path

import numpy as np
import pytest

try:
    import torch
except ModuleNotFoundError:  # flows are an extra: "make core-test" does without them
    torch = None
    here = Path(__file__).parent
    core = {"classical", "plots", "program", "splines", "tables", "xd"}
    collect_ignore = [path.name for path in here.iterdir() if path.name not in core]
    collect_ignore += ["plots/test_pictures_page.py", "program/test_pages.py"]  # pages have flows

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

#: Columns of Gaia's table that pages are about.
NEEDED = (
    r"bp_rp|phot_g_mean_mag|phot_(g|bp|rp)_mean_flux_over_error"
    r"|(ra|dec|parallax|pmra|pmdec)(_error|_(dec|parallax|pmra|pmdec)_corr)?"
)


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same torch seed, and leaves none behind."""
    if torch is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def one_thread():
    """Sums of torch in one order, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def double_precision(monkeypatch):
    """Networks of FlowDeconvolver in double precision, for comparisons to the last digits."""
    monkeypatch.setattr("deconflow.engines.flow.PRECISION", "float64")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def shared(name):
    if not (SHARED_DATA / name).exists():
        pytest.skip(f"needs {name}, which is not part of the repository")
    return SHARED_DATA / name


@pytest.fixture(scope="session")
def white_wine():
    return np.load(shared("wine_white.npy"))


@pytest.fixture(scope="session")
def gaia_path():
    return shared("gaia_dr3_sample.fits")


@pytest.fixture(scope="session")
def some_stars(gaia_path, tmp_path_factory):
    """The first 300 stars of the sample, for what need not be slow.

    Of the 152 columns, each read in a time that grows with their number, those that pages name,
    their errors and correlations, and one of each type and unit, with and without gaps.
    ``tables/test_columns.py`` opens the whole file.
    """
    from astropy.table import Table

    path = tmp_path_factory.mktemp("stars") / gaia_path.name
    with warnings.catch_warnings(action="ignore"):  # units that the standard does not know
        stars = Table.read(gaia_path)[:300]
        kinds = {}
        for name in stars.colnames:
            column = stars[name]
            kinds.setdefault((column.dtype.str, str(column.unit), type(column)), name)
        kept = [c for c in stars.colnames if c in kinds.values() or re.fullmatch(NEEDED, c)]
        stars[kept].write(path)
    return path
