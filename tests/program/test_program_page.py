"""Every command on the page about the program works."""

import re
import shlex

import pytest
from program.running import XD, succeed


def commands(text):
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_commands_on_the_page(folder, request):
    page = request.config.rootpath / "docs" / "program.md"
    lines = commands(page.read_text())
    assert len(lines) > 15
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "deconflow"
        succeed(*words, *(XD if words[0] == "fit" else ()))
    with pytest.raises(AssertionError):  # the negative twin
        succeed("fit", "stars.csv", "-c", "nothing", "-o", "m")
