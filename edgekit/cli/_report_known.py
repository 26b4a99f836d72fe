"""What ``edgekit report`` says where the board cannot be asked: the last run is still known."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import EdgekitError

__all__ = ["page_without_board"]

_AWAY = ("board.unreachable", "board.connection-lost")


@contextmanager
def page_without_board(known: Path) -> Iterator[None]:
    """Says how the page is made again of what is known, where the board cannot be asked."""
    try:
        yield
    except EdgekitError as error:
        if error.code in _AWAY and known.is_file():
            again = f"edgekit report {shlex.quote(str(known))} makes the page of the last run again"
            error.hint = "; ".join(one for one in (error.hint, again) if one)
        raise
