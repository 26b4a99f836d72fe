"""TensorRT's Python modules on this board: which are there, their versions, loggers, recorders.

``tensorrt`` builds and runs; ``tensorrt_lean`` runs version-compatible plans of its own version;
``tensorrt_dispatch`` runs those that carry a lean runtime. Importing one needs no GPU.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._plan import Version, parse_version

__all__ = ["FLAVOURS", "Recorder", "fault", "find", "logger", "recorder", "version_of"]

FLAVOURS = {"full": "tensorrt", "lean": "tensorrt_lean", "dispatch": "tensorrt_dispatch"}

_FAULTS: Dict[str, str] = {}
# TensorRT keeps a pointer to the first logger of a process for ever
_KEPT: List[Any] = []
_MOST_ERRORS = 100


def find(flavour: str) -> Optional[Any]:
    """Imports a flavour ("full", "lean", "dispatch"); None where it is absent or broken.

    ``fault`` then says why.
    """
    try:
        module = _import(FLAVOURS[flavour])
        # a namespace package, or one whose library is missing, has no Runtime
        if not hasattr(module, "Runtime"):
            raise ImportError("it has no Runtime")
    except Exception as error:  # its __init__ loads libraries: ImportError, OSError, and others
        lines = str(error).strip().splitlines() or [type(error).__name__]
        _FAULTS[flavour] = lines[0][:200]
        return None
    _FAULTS.pop(flavour, None)
    return module


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        # NVIDIA's wheels hold the module under this name, and a package of its own renames it
        try:
            return importlib.import_module(name + "_bindings")
        except ModuleNotFoundError:
            raise error from None


def fault(flavour: str) -> str:
    """Why the last ``find`` gave nothing; empty when it did."""
    return _FAULTS.get(flavour, "")


def version_of(module: Any) -> Version:
    """The module's version: three parts up to 10.13, four later."""
    return parse_version(str(getattr(module, "__version__", "")))


def logger(trt: Any, callback: Callable[[str, str], None]) -> Any:
    """Makes a logger that hands everything to ``callback(severity name, text)``.

    The severity is "VERBOSE", "INFO", "WARNING", "ERROR" or "INTERNAL_ERROR". TensorRT may call it
    from any thread; an exception of the callback is swallowed, since TensorRT could not take it.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            try:
                callback(str(severity.name), str(msg))
            except Exception:
                return

    made = Logger()
    _KEPT.append(made)
    return made


class Recorder:
    """What went wrong so far, as (name of ErrorCodeTRT, description)."""

    def __init__(self) -> None:
        self.errors: List[Tuple[str, str]] = []

    def clear(self) -> None:
        self.errors.clear()


def recorder(trt: Any) -> Tuple[Any, Recorder]:
    """Makes an error recorder for the ``error_recorder`` attributes, and what it keeps.

    Keep the first as long as any object has it.
    """
    kept = Recorder()

    class ErrorRecorder(trt.IErrorRecorder):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IErrorRecorder.__init__(self)

        def report_error(self, code: Any, desc: str) -> bool:
            if len(kept.errors) < _MOST_ERRORS:
                kept.errors.append((str(code.name), str(desc)))
            return False  # "False: not fatal"; the caller sees the failed call anyway

        def num_errors(self) -> int:
            return len(kept.errors)

        def get_error_code(self, index: int) -> Any:
            return getattr(trt.ErrorCodeTRT, kept.errors[index][0])

        def get_error_desc(self, index: int) -> str:
            return kept.errors[index][1]

        def has_overflowed(self) -> bool:
            return len(kept.errors) >= _MOST_ERRORS

        def clear(self) -> None:
            kept.clear()

    return ErrorRecorder(), kept
