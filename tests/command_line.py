"""``edgekit`` as it is typed, in the test's own process."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from edgekit.cli import main

__all__ = ["Typed", "typed"]


class Typed(NamedTuple):
    """What a command answered."""

    status: int
    out: str
    err: str


def typed(*arguments: object, status: int | None = None) -> Typed:
    """Runs ``edgekit ARGUMENTS``; ``status`` is the exit status that it must have."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.main([*map(str, arguments)])
            code: object = 0
        except SystemExit as end:
            code = end.code
    found = Typed(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())
    assert "Traceback" not in found.err, found.err
    assert status in (None, found.status), found.err
    return found
