"""Running the program inside the tests' process."""

from typer.testing import CliRunner

from deconflow import cli

ONE_FIT = ("--set", "n_average=1")
XD = ("--method", "xd", "--set", "n_components=2", *ONE_FIT)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output
