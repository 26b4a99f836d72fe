"""TensorRT's Python modules on this board: finds these and their versions, makes loggers and
recorders, and turns refusals into DeviceErrors with TensorRT's own text, a code and a hint.

``tensorrt`` builds and runs; ``tensorrt_lean`` runs version-compatible plans of its own version;
``tensorrt_dispatch`` runs plans with an embedded lean runtime. Importing them needs no GPU.
"""

from __future__ import annotations

import importlib
import re
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.versions import Version, parse_version

FLAVOURS = {"full": "tensorrt", "lean": "tensorrt_lean", "dispatch": "tensorrt_dispatch"}
_FAULTS: Dict[str, str] = {}

# TensorRT keeps a pointer to a process's first logger until its end
_REFERENCES: List[Any] = []
# an endless stream of errors must not fill the memory
_MOST_ERRORS = 100
_SHOWN_LINES = 20
_SHOWN = 3
_MOST_TEXT = 600

# Texts with their code and hint; the first match counts. Sources: NVIDIA's issue tracker (#1913,
# #2783, #4106, #4790) and forum; the texts about the header and a missing driver come from
# tensorrt_lean 10.16.1.11 and 11.4.0.106 with and without a GPU (scripts/lean_check.py).
_KNOWN: Tuple[Tuple[str, str, str], ...] = (
    (
        r"kDLA_STANDALONE",
        "engine.is-loadable",
        "it is a DLA loadable, which cuDLA runs and TensorRT cannot",
    ),
    (
        r"Unexpected call to stub|not version.compatible|[Vv]ersion.compatible.*(requires|only)",
        "engine.not-version-compatible",
        "build it with version_compatible, or install the full TensorRT that built it",
    ),
    (
        r"isRefittable|not refittable",
        "engine.not-refittable",
        "build it with refit, or with strip",
    ),
    (
        r"(?i)host.?code",
        "engine.host-code",
        "the plan contains its own runtime, which is run only from a bundle with a verified "
        "signature: sign the bundle and add the signer with trust",
    ),
    (
        r"[Cc]annot find plugin|could not find plugin|IPluginCreator not found",
        "plugin.creator",
        "the engine needs a plugin that is not registered here: build it with the library in "
        "model.plugins, or load the library before the engine",
    ),
    (
        r"expecting library version|[Vv]ersion tag does not match|not compatible with this version"
        r"|[Ss]erialized [Ee]ngine [Vv]ersion|older than|newer than",
        "engine.version",
        "build it again with the TensorRT of this board, or build it version-compatible",
    ),
    (
        r"incompatible device|expecting compute|compute capability|Platform specific tag mismatch",
        "engine.other-board",
        "engines run only on the kind of board they were built for: build it again on this one",
    ),
    (
        r"header\.size == |bufferSize >= minBufferSize|empty memory buffer|archive size",
        "engine.truncated",
        "the plan is cut off or too long: copy it again, or build it again",
    ),
    (
        r"[Mm]agic.?[Tt]ag|not a valid engine|[Ii]nvalid (engine|plan)|parse.*header",
        "engine.invalid",
        "the file is damaged or not a plan: copy it or build it again",
    ),
    (
        r"DLA",
        "engine.dla",
        "check that the board has this DLA core, its firmware and its compiler library",
    ),
    (
        r"out of memory|Out Of Memory|OutOfMemory|cudaErrorMemoryAllocation",
        "tensorrt.no-memory",
        "stop other programs on the GPU, or run fewer frames in flight",
    ),
    (
        r"no CUDA-capable device|CUDA initialization failure|cudaErrorNoDevice"
        r"|error: 35|error: 100",
        "board.no-gpu",
        "run this on the board; in a container, start it with --runtime nvidia",
    ),
)
_BY_CODE = {"FAILED_ALLOCATION": "tensorrt.no-memory"}


def find_module(flavour: str) -> Optional[Any]:
    """Imports a flavour ("full", "lean", "dispatch"); returns None if it is absent or broken.

    ``find_fault`` then returns the reason.
    """
    try:
        module = _import(FLAVOURS[flavour])
        # a namespace package, or a package without its library, has no Runtime
        if not hasattr(module, "Runtime"):
            # as if it were missing: the caller tries the next flavour
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
        # the module is there, but something that it imports is missing: that is the reason to
        # report
        if error.name != name:
            raise
        # NVIDIA's wheels have the module under this name, and a separate package renames it
        try:
            return importlib.import_module(name + "_bindings")
        except ModuleNotFoundError:
            raise error from None


def find_fault(flavour: str) -> str:
    """Returns why the last ``find_module`` failed; "" if it succeeded."""
    return _FAULTS.get(flavour, "")


def module_version(module: Any) -> Version:
    """Returns the module's version: three parts up to 10.13, four later."""
    return parse_version(str(getattr(module, "__version__", "")))


def make_logger(trt: Any, callback: Callable[[str, str], None]) -> Any:
    """Makes a logger that calls ``callback(severity name, text)`` for every message.

    The severity is "VERBOSE", "INFO", "WARNING", "ERROR" or "INTERNAL_ERROR". TensorRT may call it
    from any thread; an exception of the callback is discarded, since TensorRT cannot handle it.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            try:
                callback(str(severity.name), str(msg))
            # an exception must not pass through TensorRT's C++ frames
            except Exception:
                return

    made = Logger()
    _REFERENCES.append(made)
    return made


def make_recorder(trt: Any) -> Tuple[Any, List[Tuple[str, str]]]:
    """Makes an error recorder for the ``error_recorder`` attributes; returns it with its list of
    errors so far, as (name of ErrorCodeTRT, description).

    Keep the recorder alive while any object uses it.
    """
    recorded: List[Tuple[str, str]] = []

    class ErrorRecorder(trt.IErrorRecorder):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IErrorRecorder.__init__(self)

        def report_error(self, code: Any, desc: str) -> bool:
            if len(recorded) < _MOST_ERRORS:
                recorded.append((str(code.name), str(desc)))
            return False  # "False: not fatal"; the caller sees the failed call anyway

        def num_errors(self) -> int:
            return len(recorded)

        def get_error_code(self, index: int) -> Any:
            return getattr(trt.ErrorCodeTRT, recorded[index][0])

        def get_error_desc(self, index: int) -> str:
            return recorded[index][1]

        def has_overflowed(self) -> bool:
            return len(recorded) >= _MOST_ERRORS

        def clear(self) -> None:
            recorded.clear()

    return ErrorRecorder(), recorded


class ErrorListener:
    """A logger and an error recorder for one engine's objects, and the messages they received.

    Attributes:
        logger: The logger for Runtime, Refitter and other objects.
        recorder: The recorder for their ``error_recorder``.
        lines: The last warnings and errors as (severity, text).
    """

    def __init__(self, trt: Any) -> None:
        # TensorRT may log any number of lines; the last ones explain a failure
        self.lines: Deque[Tuple[str, str]] = deque(maxlen=_SHOWN_LINES)
        self.logger = make_logger(trt, self._log)
        self.recorder, self.recorded = make_recorder(trt)

    def _log(self, severity: str, text: str) -> None:
        if severity in ("ERROR", "INTERNAL_ERROR", "WARNING"):
            self.lines.append((severity, text))

    def forget(self) -> None:
        """Clears all messages, before a call whose failure is reported separately."""
        self.lines.clear()
        self.recorded.clear()

    def error(self, what: str, code: str, where: str = "", hint: str = "") -> DeviceError:
        """Returns the DeviceError of a call that just failed; each message is reported once."""
        error = explain(what, code, self.recorded, list(self.lines), where, hint)
        self.forget()
        return error


def explain(
    what: str,
    code: str,
    recorded: Sequence[Tuple[str, str]] = (),
    lines: Sequence[Tuple[str, str]] = (),
    where: str = "",
    hint: str = "",
) -> DeviceError:
    """Returns the error of a failed call, from TensorRT's messages.

    Args:
        what: The failed action, as the start of a sentence.
        code: The code if the messages match no known error.
        recorded: Errors from the error recorder.
        lines: Lines from the logger, as (severity, text).
        where: The place in the message.
        hint: The hint if the messages match no known error.
    """
    # the recorder has codes, the logger often repeats the same text with a prefix
    texts = [_clean(text) for _, text in recorded]
    for severity, text in lines:
        reason = _clean(text)
        if "ERROR" in severity and not any(reason in known or known in reason for known in texts):
            texts.append(reason)
    reasons = "; ".join(texts[:_SHOWN])[:_MOST_TEXT]
    for pattern, known, remedy in _KNOWN:
        if any(re.search(pattern, text) for text in texts):
            code, hint = known, remedy
            break
    else:
        # a text that no pattern knows: the recorder's code may still classify it
        for name, _ in recorded:
            code = _BY_CODE.get(name, code)
    warnings: List[str] = [_clean(text) for severity, text in lines if severity == "WARNING"]
    # TensorRT reports some refusals only as warnings
    if warnings and not texts:
        hint = "; ".join(filter(None, [hint, "TensorRT's warnings: " + warnings[-1][:200]]))
    reason = reasons or "TensorRT gave no reason"
    message = "{}: {}".format(what, reason)
    return DeviceError(message, code=code, where=where, hint=hint)


def _clean(text: str) -> str:
    return " ".join(text.split())
