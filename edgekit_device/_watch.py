"""Notices that the host went away: its end of stdin closes, so nobody waits for the answer."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from typing import BinaryIO

from ._errors import DeviceError

__all__ = ["watch"]

_GRACE_S = 1.0
_EXIT_GONE = 143


def watch(stdin: BinaryIO, size: int) -> BinaryIO:
    """Takes the command's input and ends this process when what follows it on stdin ends.

    The process gets a SIGTERM, so that it tidies up; what an engine that does not return still
    holds after a second is left to the next command's sweep.

    Args:
        stdin: The process's standard input.
        size: Bytes of input; the host then holds its end open until it has the answer.

    Returns:
        The input.

    Raises:
        DeviceError: "transfer.truncated".
    """
    data = stdin.read(size)
    if len(data) < size:
        raise DeviceError(
            "the input ended after {} of {} bytes".format(len(data), size),
            code="transfer.truncated",
            hint="the connection broke; run the command again",
        )
    threading.Thread(
        target=_wait, args=(stdin.fileno(),), name="edgekit-watch", daemon=True
    ).start()
    return io.BytesIO(data)


def _wait(descriptor: int) -> None:
    # not through the buffered stream: its lock, held by a thread, stops the interpreter's exit
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(_EXIT_GONE)
