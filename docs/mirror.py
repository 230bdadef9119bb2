"""Public tables from a folder on this machine, in place of the network.

Gallery scripts fetch their tables by the line of code that they show. Where the folder
``../shared/data`` stands beside the repository, ``install()`` lets urllib (and so pandas) answer
their addresses from it, for tests and for documents that are made offline. Other addresses go to
the network as ever.
"""

from __future__ import annotations

import email
import io
import tempfile
import urllib.request
import urllib.response
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
GITHUB = "https://raw.githubusercontent.com"
EMPIRIKOS = f"{GITHUB}/nignatiadis/Empirikos.jl/HEAD/src/datasets"


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


BATTERS = {  # by row; the file has no names
    0: "Khalil Lee",
    1: "Chadwick Tromp",
    2: "Otto Lopez",
    3: "James Outman",
    4: "Matt Carpenter",
    5: "Aaron Judge",
    9: "Yordan Alvarez",
    12: "Paul Goldschmidt",
    13: "Mike Trout",
    16: "Jose Altuve",
    20: "Freddie Freeman",
}


def _batters(path: Path) -> bytes:
    """Return the table as R saves it, with the names of those whom the gallery names."""
    import pandas as pd
    import rdata

    table = pd.read_csv(path)
    names = [BATTERS.get(row, f"batter {row}") for row in table.index]
    table.insert(0, "Name", pd.Series(names, dtype=object))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wOBA.rda"
        rdata.write_rda(file, {"wOBA": table})
        return file.read_bytes()


def _exams(path: Path) -> bytes:
    """Return the mean of the two readings at each exam, with blanks between the columns."""
    import pandas as pd

    men = pd.read_csv(path)
    columns = {"obs": men.index + 1, "age": men.AGE}
    for exam in (2, 3):
        columns[f"sbp{exam}"] = (men[f"SBP{exam}1"] + men[f"SBP{exam}2"]) / 2
    return pd.DataFrame(columns).to_csv(sep=" ", index=False).encode()


TABLES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    f"{EMPIRIKOS}/Neighborhoods/neighborhoods.csv": ("neighborhoods.csv", _as_it_is),
    f"{EMPIRIKOS}/Prostate/prostz.txt": ("prostate_z.txt", _as_it_is),
    f"{EMPIRIKOS}/Surgery/surgery.csv": ("surgery.csv", _as_it_is),
    f"{GITHUB}/measurementerror/ISDdeconvolution/HEAD/framingham.csv": ("framingham.csv", _exams),
    f"{GITHUB}/stephenslab/ebnm/HEAD/data/wOBA.rda": ("woba.csv", _batters),
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
        body = io.BytesIO(answer(FOLDER / file))
        found = urllib.response.addinfourl(body, headers, url, 200)
        found.msg = "OK"  # urllib asks for it
        return found
