"""Lines of a command that goes on, one after the other, until its caller has seen enough."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edgekit.deploy._answers import failure, odd
from edgekit.deploy._transport import Completed, Transport
from edgekit.errors import BoardError

__all__ = ["take_samples"]

_LONGEST_LINE = 1 << 20
_SILENT_S = 20.0
_END_S = 20.0


def take_samples(
    transport: Transport,
    argv: Sequence[str],
    told: Callable[[dict[str, Any]], bool],
    where: str,
    interval_s: float,
) -> None:
    """Runs a command that prints a JSON document a line, and tells each as it comes.

    The command watches its input: it ends when ``told`` answers False, or when this call or this
    machine does.

    Raises:
        BoardError: The command failed or was silent for long; the connection was cut.
    """
    reader = _Lines(told, where, interval_s + _SILENT_S)
    done = transport.run(argv, stdin=reader.until_enough(), timeout=_END_S, told=reader.put)
    if reader.error is not None:
        raise failure(Completed(done.status, reader.error, done.err), where, argv[0])
    if not reader.enough and done.status != 0:
        raise failure(done, where, argv[0])


class _Lines:
    """What came, cut into lines in the calling thread."""

    def __init__(self, told: Callable[[dict[str, Any]], bool], where: str, silent_s: float) -> None:
        self.enough = False
        self.error: bytes | None = None
        self._told = told
        self._where = where
        self._silent_s = silent_s
        self._came: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.put = self._came.put

    def until_enough(self) -> Iterator[bytes]:
        """The command's input: nothing, and its end when there was enough."""
        rest = b""
        while True:
            try:
                chunk = self._came.get(timeout=self._silent_s)
            except queue.Empty:
                raise BoardError(
                    f"the board said nothing for {self._silent_s:g} s",
                    code="board.timeout",
                    where=self._where,
                    hint="see what the board is busy with, then run the same command again",
                ) from None
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise odd("the board's line has no end", self._where)
            for line in whole:
                if not self._one(line):
                    return
                yield b""

    def _one(self, line: bytes) -> bool:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return True  # what a login shell prints first
        if not isinstance(found, dict):
            return True
        if "error" in found:
            self.error = line
            return True
        self.enough = not self._told(found)
        return not self.enough
