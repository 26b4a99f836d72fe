"""Has NVIDIA's parser read one ONNX file, in a process of its own.

Usage: nvidia_child.py FOLDER MODEL SECONDS BYTES: imports NVIDIA's module from FOLDER, within
SECONDS of the processor and BYTES of address space, and prints one line of JSON: ``release``,
``ok`` and ``problems``, or ``failed`` with what kept the parser from an answer. A crash of NVIDIA's
library ends this process alone. It needs the standard library alone, so that ``python -I`` can
start it.
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
    # an assertion of the constant false, where there is no importer
    message = code if text in ("", "false") else f"{code}: {text}"
    return {
        "node": str(error.node_name()),
        "operator": str(error.node_operator()),
        "message": message[:_LONGEST],
    }


def answer(folder: str, model: str) -> dict[str, object]:
    """Returns what NVIDIA's parser says of a file."""
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
    """Answers for one file."""
    folder, model, seconds, size = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # the first limit sends SIGXCPU, by which this end is told from others
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (int(size), int(size)))
    # what libraries print belongs to no answer
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        found = answer(folder, model)
    except MemoryError:
        found = {"failed": "memory"}
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"[:_LONGEST]}
    print(json.dumps(found), file=out, flush=True)
    # NVIDIA's objects are not taken apart: an answer that was given stays one
    os._exit(0)


if __name__ == "__main__":
    main()
