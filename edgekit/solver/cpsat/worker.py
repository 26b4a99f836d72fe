"""The process that runs CP-SAT: one JSON line in, one JSON line out, until the input ends.
Nothing here, nor in the models that it loads, may import highspy (see ``process``).
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from importlib import import_module
from typing import Any

TASKS = {
    "steps": "running_order_model",
    "makespan": "makespan_model",
    "periodic": "timetable_model",
}
"""Modules of this package; their ``solve(request, seconds)`` returns the answer."""


def main() -> None:
    """Answers until the standard input ends; ends at once then, also amid a search."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        answers.write(json.dumps(_answer(lines.get())).encode() + b"\n")
        answers.flush()


def _read(lines: queue.SimpleQueue[bytes]) -> None:
    while line := sys.stdin.buffer.readline():
        lines.put(line)
    os._exit(0)


def _answer(line: bytes) -> dict[str, Any]:
    request = json.loads(line)
    try:
        task = import_module(f"edgekit.solver.cpsat.{TASKS[request['task']]}")
        return {"answer": task.solve(request["request"], request["seconds"])}
    except ImportError as error:
        return _error(
            "solver.missing",
            f"OR-Tools cannot be imported: {error}",
            "install it: pip install 'ortools>=9.10'",
        )
    except Exception as error:
        return _error(
            "solver.failed",
            f"CP-SAT failed on {request['task']}: {type(error).__name__}: {error}",
            "this is a fault of edgekit; please report it with the command",
        )


def _error(code: str, message: str, hint: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint}}


if __name__ == "__main__":
    main()
