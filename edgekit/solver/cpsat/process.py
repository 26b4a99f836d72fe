"""The CP-SAT process: starts it, hands it one problem as a line of JSON, ends it.

Both bring a ``libhighs`` of their own (google/or-tools#5246: undefined symbol), so OR-Tools is
imported only by ``edgekit.solver.cpsat.worker``, which takes one JSON line for each problem and
answers with one. The process starts with the first problem and serves the next ones; it
ends with this process, whatever way this one ends, because its standard input does.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any, cast

from edgekit.errors import EnvironmentLack

MODULE = "edgekit.solver.cpsat.worker"

GRACE_S = 30.0
"""What a worker may take beyond its time limit (to build the model, and on a busy machine)."""

_running: list[_Worker] = []
"""At most one."""
_lock = threading.Lock()


class _Worker:
    """The running process."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.owner = os.getpid()
        self.errors = cast(IO[bytes], tempfile.TemporaryFile())  # noqa: SIM115 (lives on)
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"},
            start_new_session=True,  # Ctrl-C comes to this process, which then kills the worker
        )

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def exchange(self, line: bytes, seconds: float) -> bytes:
        """Returns the answer's line; empty when the worker ended or was out of time."""
        source, sink = self.process.stdin, self.process.stdout
        assert source is not None
        assert sink is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            source.write(line)
            source.flush()
            return sink.readline()
        except BrokenPipeError:
            return b""
        finally:
            timer.cancel()

    def stop(self) -> str:
        """Ends the process; returns the last line it wrote to its standard error."""
        if self.owner == os.getpid():  # a forked child only lets go of what it inherited
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                cast(IO[bytes], stream).close()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        self.errors.close()
        return said[-1].strip() if said else ""


def run_worker(task: str, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    """Lets CP-SAT solve one problem.

    Args:
        task: One of ``worker.TASKS``.
        request: What that task takes; JSON.
        seconds: Wall-clock limit of the search, handed to the task; the process is killed when
            it has not answered ``GRACE_S`` seconds later.

    Raises:
        EnvironmentLack: OR-Tools is missing (``solver.missing``), the process ended or hung
            (``solver.stopped``), or the task failed (``solver.failed``).
    """
    line = json.dumps({"task": task, "request": request, "seconds": seconds}).encode() + b"\n"
    with _lock:
        try:
            if not _running or not _running[0].usable:
                stop_worker()
                _running.append(_Worker())
            said = _running[0].exchange(line, seconds + GRACE_S)
        except OSError as error:
            raise EnvironmentLack(
                f"CP-SAT's process cannot be started: {error}", code="solver.stopped"
            ) from None
        except BaseException:
            stop_worker()
            raise
        if not said.endswith(b"\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                _running[0].process.wait(1.0)
            ended = _running[0].process.poll()
            last = f": {text}" if (text := stop_worker()) else ""
            status = "" if ended is None else f" with status {ended}"
            raise EnvironmentLack(
                f"CP-SAT's process ended{status} before it answered{last}",
                code="solver.stopped",
                hint="it may have been killed for want of memory or out of time; try again",
            )
    answer = json.loads(said)
    if failure := answer.get("error"):
        raise EnvironmentLack(failure["message"], code=failure["code"], hint=failure["hint"])
    return cast(dict[str, Any], answer["answer"])


def stop_worker() -> str:
    """Ends the worker, if one runs; returns the last line of its standard error."""
    return _running.pop().stop() if _running else ""


atexit.register(stop_worker)
