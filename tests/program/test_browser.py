"""The report in a real browser: pictures are seen, names are text, nothing is fetched."""

import json
import re
import shutil
import subprocess
from urllib.parse import urlsplit

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from program.running import ONE_FIT, succeed

from deconflow.plots.style import DENSITY

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
BLUE = np.array(to_rgb(DENSITY))
"""The colour of the deconvolved density."""


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
    xd = ("-m", "xd", "--set", "n_components=1", *ONE_FIT)
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


def test_names_are_text_and_no_script_runs(report, open_page):
    document = open_page(report, "--dump-dom")
    assert "&lt;script&gt;document.title" in document
    assert "<script" not in document
    assert title(document) != "it ran"
    assert document.count("<img") == 4


def test_a_script_in_the_page_would_be_seen(report, open_page, tmp_path):
    twin = changed(report, tmp_path, "<meta http-equiv.*?>", "")
    twin.write_text(twin.read_text().replace("<h1>", f"{EVIL}<h1>"))
    assert title(open_page(twin, "--dump-dom")) == "it ran"


def test_the_page_forbids_scripts_even_if_there_was_one(report, open_page, tmp_path):
    twin = changed(report, tmp_path, "<h1>", f"{EVIL}<h1>")
    assert title(open_page(twin, "--dump-dom")) != "it ran"


def blue_pixels(open_page, page, tmp_path):
    open_page(page, f"--screenshot={tmp_path / 'page.png'}")
    picture = matplotlib.image.imread(tmp_path / "page.png")[..., :3]
    return int((np.abs(picture - BLUE).max(-1) < 0.05).sum())


def test_pictures_are_seen(report, open_page, tmp_path):
    assert blue_pixels(open_page, report, tmp_path) > 2000
    broken = changed(report, tmp_path, 'base64,[^"]*', "base64,AAAA")
    assert blue_pixels(open_page, broken, tmp_path) == 0


def paper(open_page, page, tmp_path, *options):
    """Colour of the page, between 0 and 1, and the share of it that is white."""
    open_page(page, f"--screenshot={tmp_path / 'page.png'}", *options)
    picture = matplotlib.image.imread(tmp_path / "page.png")[..., :3]
    return float(picture[3, 3].mean()), float((picture > 0.99).all(-1).mean())


def test_in_the_dark_the_page_is_dark_and_pictures_are_on_white(report, open_page, tmp_path):
    colour, white = paper(open_page, report, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert colour < 0.2
    assert 0.05 < white < 0.7
    assert paper(open_page, report, tmp_path)[0] == 1.0


@pytest.mark.parametrize("width", [500, 1280])
def test_wide_tables_scroll_in_a_box_of_their_own(report, open_page, tmp_path, width):
    """At 500, the narrowest that the browser lays out without a screen."""
    script = "document.title = document.documentElement.scrollWidth - window.innerWidth"
    twin = changed(report, tmp_path, "<meta http-equiv.*?>", "")
    twin.write_text(twin.read_text().replace("</body>", f"<script>{script}</script></body>"))
    size = (f"--window-size={width},900", "--hide-scrollbars", "--dump-dom")
    assert int(title(open_page(twin, *size))) == 0
    if width == 500:
        twin = changed(twin, tmp_path, "overflow-x: auto", "overflow-x: visible")
        assert int(title(open_page(twin, *size))) > 0


OWN = ("google.com", "googleapis.com", "gstatic.com")
"""Where the browser itself asks for updates and the time, whatever the page."""


def fetched(open_page, page, tmp_path):
    """Addresses in the network that were asked for because of the page."""
    log = tmp_path / "net.json"
    open_page(page, f"--log-net-log={log}", "--dump-dom")
    events = json.loads(log.read_text())["events"]
    addresses = [urlsplit(event.get("params", {}).get("url", "")) for event in events]
    return {
        address.geturl()
        for address in addresses
        if address.scheme in ("http", "https", "ws", "wss", "ftp")
        and not (address.hostname or "").endswith(OWN)
    }


def test_nothing_is_fetched(report, open_page, tmp_path):
    link = '<img src="http://example.org/picture.png"><h1>'
    twin = changed(report, tmp_path, "<h1>", link)
    unguarded = changed(twin, tmp_path, "<meta http-equiv.*?>", "")
    assert any("example.org/picture" in a for a in fetched(open_page, unguarded, tmp_path))
    assert fetched(open_page, report, tmp_path) == set()
