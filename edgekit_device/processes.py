"""How a child process in Python is started, how it answers and what ended it, and how a command
notices that its caller is gone.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
from typing import Any, BinaryIO, Dict, List

from edgekit_device.errors import DeviceError

# -I: ``python -c`` would look for modules in the working folder first, for json itself too
_PATH = "import json, sys\nsys.path[:] = json.loads(sys.argv.pop(1))\n"
_GRACE_S = 1.0
_EXIT_GONE = 143


def child_argv(code: str, *arguments: str) -> List[str]:
    """The command that runs ``code``, which sees ``arguments`` in ``sys.argv[1:]``.

    It finds the modules that this process finds, but for the working folder where that is only
    meant by being empty (``sys.path[0]`` of ``python -c`` and of a prompt).
    """
    path = [entry for entry in sys.path if entry]
    return [sys.executable, "-I", "-c", _PATH + code, json.dumps(path), *arguments]


def send_line(writing: int, message: Dict[str, Any]) -> None:
    """Writes all of a message to a pipe, as one line of JSON."""
    data = json.dumps(message).encode("utf-8") + b"\n"
    while data:
        data = data[os.write(writing, data) :]


def cause_of_death(status: int) -> str:
    """Returns what ended a process, from what ``waitpid`` says: a signal, or its exit status."""
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return "exit status {}".format(os.WEXITSTATUS(status))


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
