"""Commands of docs/kernels.md and of two examples: each script is there and takes them.

tests/examples runs the other examples' pages as they stand.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_help import parse

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / "kernels.md",
    *(ROOT / "examples" / name / "README.md" for name in ("camera", "digits")),
]
LINES = [
    line
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.S)
    for line in block.splitlines()
]


@pytest.mark.parametrize("line", LINES)
def test_command_is_understood(line: str) -> None:
    program, *arguments = shlex.split(line)
    if program == "edgekit":
        parse(arguments)
    elif program == "python":
        script, *given = arguments
        # what a script needs to start is no part of it here: digits needs an extra
        if not any(one.startswith("--") for one in given):
            assert (ROOT / script).is_file()
            return
        shown = subprocess.run(
            [sys.executable, script, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        assert [one for one in given if one.startswith("--") and one not in shown] == []
    else:
        assert line == 'pip install -e ".[examples]"'
        assert "\nexamples = [" in (ROOT / "pyproject.toml").read_text("utf-8")
