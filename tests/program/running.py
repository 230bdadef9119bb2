"""Running the program inside the tests' process."""

import json

import pyarrow as pa
from signing import sign
from typer.testing import CliRunner

from deconflow import cli
from deconflow.tables import open_table

XD = ("--method", "xd", "--set", "n_components=2")


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments):
    """The one line that a call ends in which makes no sense."""
    return check_refusal(run(*arguments))


def check_refusal(result):
    assert result.exit_code == 2, result.output
    lines = result.output.strip().splitlines()
    errors = [line for line in lines if line.startswith("deconflow: ") and "note:" not in line]
    assert len(errors) == 1
    assert lines[-1] == errors[0]
    assert "Traceback" not in result.output
    return errors[0]


def read(path):
    """All rows of a table."""
    return pa.concat_tables(open_table(path).chunks(10_000))


def numbers(table, name):
    """A column of a table, or of a file, as floats."""
    table = table if isinstance(table, pa.Table) else read(table)
    return table[name].to_numpy().astype(float)


def write(path, **columns):
    """Write CSV, cell by cell as Python does."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def forget_the_table(model):
    """Let a model's folder name a table that is gone."""
    about = json.loads((model / "table.json").read_text())
    about["table"]["path"] = "gone.csv"
    (model / "table.json").write_text(json.dumps(about))
    sign(model)
