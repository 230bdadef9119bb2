"""Public tables from a folder on this machine, in place of the network.

Gallery scripts fetch their tables by the line of code that they show. Where the folder
``../shared/data`` stands beside the repository, ``install()`` lets urllib (and so pandas) answer
their addresses from it, for tests and for documents that are made offline. Other addresses go to
the network as ever.
"""

from __future__ import annotations

import email
import io
import urllib.request
import urllib.response
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
GITHUB = "https://raw.githubusercontent.com"
EMPIRIKOS = f"{GITHUB}/nignatiadis/Empirikos.jl/master/src/datasets"


def _as_it_is(path: Path) -> bytes:
    return path.read_bytes()


def _as_latex(path: Path) -> bytes:
    """Return candidates of planets as rows of the LaTeX table that has them."""
    import pandas as pd

    rows = pd.read_csv(path, dtype=str).itertuples()
    cells = (
        [r.kic, r.koi, r.period, "", "P", *[""] * 7, r.radius, r.radius_err, r""] for r in rows
    )
    return "".join(f"{' & '.join(map(str, row))} \\\\\n" for row in cells).encode()


TABLES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    f"{EMPIRIKOS}/Neighborhoods/neighborhoods.csv": ("neighborhoods.csv", _as_it_is),
    f"{EMPIRIKOS}/Prostate/prostz.txt": ("prostate_z.txt", _as_it_is),
    f"{EMPIRIKOS}/Surgery/surgery.csv": ("surgery.csv", _as_it_is),
    f"{GITHUB}/dfm/exopop/master/data/table_ekoi836.tex": ("exoplanets.csv", _as_latex),
}
"""Where a table is on the web, up to a question mark: its file, and how that becomes an answer."""


def there() -> bool:
    """Say whether the folder stands beside the repository."""
    return FOLDER.is_dir()


def install() -> None:
    """Let urllib answer the addresses in ``TABLES`` from the folder, if it is there."""
    if there():
        urllib.request.install_opener(urllib.request.build_opener(_Mirror))


class _Mirror(urllib.request.HTTPSHandler):
    """Answers known addresses from the folder; asks the network for others."""

    def https_open(self, request: urllib.request.Request) -> urllib.response.addinfourl:
        """Return the table, as a response of the web would come."""
        url = request.full_url
        if url.split("?")[0] not in TABLES:
            return super().https_open(request)
        file, answer = TABLES[url.split("?")[0]]
        headers = email.message_from_string("Content-Type: text/plain\n")
        return urllib.response.addinfourl(io.BytesIO(answer(FOLDER / file)), headers, url, 200)
