"""How a child process is asked something in Python: nothing of the working folder runs there."""

from __future__ import annotations

import json
import sys
from typing import List

__all__ = ["child_argv"]

# -I: ``python -c`` would look for modules in the working folder first, for json itself too
_PATH = "import json, sys\nsys.path[:] = json.loads(sys.argv.pop(1))\n"


def child_argv(code: str, *arguments: str) -> List[str]:
    """The command that runs ``code``, which sees ``arguments`` in ``sys.argv[1:]``.

    It finds the modules that this process finds, but for the working folder where that is only
    meant by being empty (``sys.path[0]`` of ``python -c`` and of a prompt).
    """
    path = [entry for entry in sys.path if entry]
    return [sys.executable, "-I", "-c", _PATH + code, json.dumps(path), *arguments]
