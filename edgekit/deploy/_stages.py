"""A command's answer behind lines that say how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable

from edgekit.deploy._transport import MOST_OUT, Completed

__all__ = ["Staged"]


class Staged:
    """Takes output as it comes: tells the stages in it, keeps the rest.

    Args:
        told: Called with each stage's name and the seconds that are left at least (None: nobody
            knows), in the transport's thread.
        most_out: Bytes that are kept; what comes after them is dropped, so that no answer is left.
    """

    def __init__(self, told: Callable[[str, float | None], None], most_out: int = MOST_OUT) -> None:
        self._told = told
        self._most = most_out
        self._line = bytearray()
        self._kept = bytearray()

    def put(self, data: bytes) -> None:
        """Takes a piece; b"" at the end."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._add(part)
            self._end()
        self._add(rest)
        if not data:
            self._end()

    def _add(self, part: bytes) -> None:
        if len(self._kept) + len(self._line) + len(part) <= self._most:
            self._line += part

    def _end(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        if line.startswith(b'{"stage"'):
            try:
                said = json.loads(line)
                self._told(str(said["stage"])[:40], _seconds(said.get("left_s")))
                return
            except (ValueError, KeyError, RecursionError):
                pass  # none of ours: the answer's reader judges it
        self._kept += line + b"\n"

    def completed(self, done: Completed) -> Completed:
        """The command's end with the answer that was kept."""
        return Completed(done.status, bytes(self._kept), done.err)


def _seconds(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and 0 <= value < 1e9 else None  # type: ignore[operator, arg-type]
