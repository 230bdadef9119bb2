"""Shells complete commands, options and methods."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = {
    ("deconflow", "den"): "denoise",
    ("deconflow", "fit", "--wei"): "--weights",
    ("deconflow", "fit", "--method", "bay"): "bayes",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path):
    program = tmp_path / "deconflow"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m deconflow "$@"\n')
    program.chmod(0o755)
    asked = "\n".join(
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        "_deconflow_completion deconflow; echo ${COMPREPLY[@]}"
        for words in WORDS
    )
    source = 'eval "$(_DECONFLOW_COMPLETE=source_bash deconflow)"\n'
    package = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": package,
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", source + asked], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == list(WORDS.values()), done.stderr
