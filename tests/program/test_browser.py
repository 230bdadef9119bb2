"""The report in a real browser: pictures are seen, names are text, nothing is fetched."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from program.running import succeed

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="needs chromium; `make browser` installs Debian's"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1100,3600", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
EVIL = '<script>document.title="it ran"</script>'


@pytest.fixture
def open_page(tmp_path):
    def open_(path, *options):
        flags = [*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *options, path.as_uri()]
        answer = subprocess.run([BROWSER, *flags], capture_output=True, text=True, timeout=120)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return open_


@pytest.fixture(scope="module")
def report(fitted, tmp_path_factory):
    """The page of a model with a column whose name is a script."""
    folder = tmp_path_factory.mktemp("browser")
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal()},{rng.normal()},0.2" for _ in range(60)]
    quoted = EVIL.replace('"', '""')
    (folder / "odd.csv").write_text("\n".join([f'"{quoted}",y,e', *lines]))
    xd = ("-m", "xd", "--set", "n_components=1")
    errors = ("--errors", "e,e", "-o", folder / "model")
    succeed("fit", folder / "odd.csv", "-c", EVIL, "-c", "y", *errors, *xd)
    succeed("report", folder / "model", "-o", folder / "page.html")
    return folder / "page.html"


def changed(page, tmp_path, pattern, new):
    """A twin of the page, with something wrong in it."""
    text, count = re.subn(pattern, new, page.read_text())
    assert count > 0
    twin = tmp_path / "twin.html"
    twin.write_text(text)
    return twin


def title(document):
    return re.search("<title>(.*?)</title>", document).group(1)


def test_a_script_in_the_page_would_be_seen(report, open_page, tmp_path):
    twin = changed(report, tmp_path, "<meta http-equiv.*?>", "")
    twin.write_text(twin.read_text().replace("<h1>", f"{EVIL}<h1>"))
    assert title(open_page(twin, "--dump-dom")) == "it ran"


def test_the_page_forbids_scripts_even_if_there_was_one(report, open_page, tmp_path):
    twin = changed(report, tmp_path, "<h1>", f"{EVIL}<h1>")
    assert title(open_page(twin, "--dump-dom")) != "it ran"
