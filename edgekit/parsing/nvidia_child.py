"""Parses an ONNX file with NVIDIA's parser, in a separate process.

Usage: nvidia_child.py FOLDER MODEL SECONDS BYTES: imports NVIDIA's module from FOLDER, within
SECONDS of CPU time and BYTES of address space, and prints a line of JSON: ``release``, ``ok`` and
``problems``, or ``failed`` with the reason for the missing result. A crash of NVIDIA's library ends
only this process. It uses only the standard library, so that ``python -I`` can start it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from typing import Any

_MOST = 100
_LONGEST = 400


def _problem(error: Any) -> dict[str, str]:
    code = getattr(error.code(), "name", str(error.code()))
    text = " ".join(str(error.desc()).split())
    # without an importer the parser asserts the constant false
    message = code if text in ("", "false") else f"{code}: {text}"
    return {
        "node": str(error.node_name()),
        "operator": str(error.node_operator()),
        "message": message[:_LONGEST],
    }


def answer(folder: str, model: str) -> dict[str, object]:
    """Returns the result of NVIDIA's parser for a file."""
    sys.path.insert(0, folder)
    trt = importlib.import_module("tensorrt_rtx_bindings")
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(logger).create_network(0)
    parser = trt.OnnxParser(network, logger)
    ok = bool(parser.parse_from_file(model))
    errors = range(min(parser.num_errors, _MOST))
    problems = [] if ok else [_problem(parser.get_error(number)) for number in errors]
    return {"release": str(trt.__version__), "ok": ok, "problems": problems}


def main() -> None:
    """Prints the result for a file."""
    folder, model, seconds, size = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # the soft limit sends SIGXCPU, which distinguishes a timeout from other exits
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (int(size), int(size)))
    # output of libraries must not mix with the JSON line
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        found = answer(folder, model)
    except MemoryError:
        found = {"failed": "memory"}
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"[:_LONGEST]}
    print(json.dumps(found), file=out, flush=True)
    # exits without destroying NVIDIA's objects, so that a crash there cannot spoil the result
    os._exit(0)


if __name__ == "__main__":
    main()
