"""Every command on the page about the program works."""

import re
import shlex
import warnings

import numpy as np
import pytest
from program.running import XD, succeed

pytestmark = pytest.mark.docs


def commands(text):
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def lines(request):
    page = request.config.rootpath / "docs" / "program.md"
    return commands(page.read_text())


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
