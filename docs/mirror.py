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


def _stars(path: Path) -> bytes:
    """Return the columns of the FITS file that the gallery's query names, as the archive does."""
    import numpy as np
    import pandas as pd
    from astropy.io import fits

    names = ["parallax", "parallax_error", "phot_g_mean_mag", "phot_g_mean_flux_over_error"]
    rows = fits.getdata(path)
    columns = {name: np.asarray(rows[name], dtype=float) for name in names}
    return pd.DataFrame(columns).to_csv(index=False).encode()


def _planets(path: Path) -> bytes:
    """Return candidates of planets as rows of the LaTeX table that has them."""
    import pandas as pd

    lines = []
    for row in pd.read_csv(path, dtype=str).itertuples():
        cells = [row.kic, row.koi, row.period, 0, "P", *[0] * 7, row.radius, row.radius_err, 0]
        lines.append(" & ".join(map(str, cells)) + r" \\")
    return "\n".join(lines).encode()


WINE = {  # mean, standard deviation and digits of each column, as the repository has it
    "fixed acidity": (8.31963727, 1.7405518, 1),
    "volatile acidity": (0.52782051, 0.1790037, 3),
    "citric acid": (0.27097561, 0.19474021, 2),
    "residual sugar": (2.5388055, 1.40948711, 2),
    "chlorides": (0.08746654, 0.04705058, 3),
    "density": (0.99674668, 0.00188674, 5),
    "pH": (3.3111132, 0.15433818, 2),
    "sulphates": (0.65814884, 0.16945397, 2),
    "alcohol": (10.42298311, 1.0653343, 1),
}


def _wine(path: Path) -> bytes:
    """Return standardised columns in the units of the repository; it has two columns more."""
    import numpy as np
    import pandas as pd

    columns = {
        name: (mean + sd * column).round(digits)
        for (name, (mean, sd, digits)), column in zip(WINE.items(), np.load(path).T, strict=True)
    }
    table = pd.DataFrame(columns)
    return table.to_csv(index=False, sep=";").encode()


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
    "https://gea.esac.esa.int/tap-server/tap/sync": ("gaia_dr3_sample.fits", _stars),
    "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality/winequality-red.csv": (
        "wine_red.npy",
        _wine,
    ),
    f"{GITHUB}/dfm/exopop/HEAD/data/table_ekoi836.tex": ("exoplanets.csv", _planets),
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
        response = urllib.response.addinfourl(io.BytesIO(answer(FOLDER / file)), headers, url, 200)
        response.msg = "OK"
        return response
