"""TensorRT's refusals as DeviceErrors: its own text kept, a code and a remedy put beside it."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Deque, List, Optional, Sequence, Tuple

from ._errors import DeviceError
from ._trt_modules import Recorder, logger, recorder

__all__ = ["Ears", "explain"]

_KEPT_LINES = 20
_SHOWN = 3
_MOST_TEXT = 600

# Texts with the code and remedy that fit; the first that matches counts. Seen in NVIDIA's issue
# tracker (#2783, #4106, #4790) and forum; those of the header and of a missing driver were heard
# from tensorrt_lean 10.16.1.11 and 11.4.0.106 on a GPU and without one (scripts/lean_check.py).
_KNOWN: Tuple[Tuple[str, str, str], ...] = (
    (
        r"kDLA_STANDALONE",
        "engine.is-loadable",
        "it is a DLA loadable: cuDLA runs it, not TensorRT",
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
        "the plan carries a runtime of its own, which only a bundle with a verified signature "
        "may run: sign the bundle and add the signer with trust",
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
        "engines are built for one kind of board: build it again on this one",
    ),
    (
        r"header\.size == |bufferSize >= minBufferSize|empty memory buffer|archive size",
        "engine.truncated",
        "the plan is cut off or has more behind it: copy it again, or build it again",
    ),
    (
        r"[Mm]agic.?[Tt]ag|not a valid engine|[Ii]nvalid (engine|plan)|parse.*header",
        "engine.invalid",
        "the file is damaged or no plan: copy it or build it again",
    ),
    (
        r"DLA",
        "engine.dla",
        "see that the board has this DLA core, its firmware and its compiler library",
    ),
    (
        r"out of memory|Out Of Memory|OutOfMemory|cudaErrorMemoryAllocation",
        "tensorrt.no-memory",
        "end what else uses the GPU's memory, or run fewer frames in flight",
    ),
    (
        r"no CUDA-capable device|CUDA initialization failure|cudaErrorNoDevice"
        r"|error: 35|error: 100",
        "board.no-gpu",
        "run this on the board; in a container, start it with --runtime nvidia",
    ),
)
_BY_CODE = {"FAILED_ALLOCATION": "tensorrt.no-memory"}


class Ears:
    """A logger and an error recorder for one engine's objects, and what they heard.

    Attributes:
        logger: For Runtime, Refitter and the like.
        recorder: For their ``error_recorder``.
        lines: The last warnings and errors as (severity, text).
    """

    def __init__(self, trt: Any) -> None:
        self.lines: Deque[Tuple[str, str]] = deque(maxlen=_KEPT_LINES)
        self.logger = logger(trt, self._log)
        self.recorder, self.recorded = recorder(trt)

    def _log(self, severity: str, text: str) -> None:
        if severity in ("ERROR", "INTERNAL_ERROR", "WARNING"):
            self.lines.append((severity, text))

    def forget(self) -> None:
        """Before a call whose failure is to be told alone."""
        self.lines.clear()
        self.recorded.clear()

    def error(self, what: str, code: str, where: str = "", hint: str = "") -> DeviceError:
        """The DeviceError of a call that failed just now; what was heard is told once."""
        error = explain(what, code, self.recorded, list(self.lines), where, hint)
        self.forget()
        return error


def explain(
    what: str,
    code: str,
    recorded: Optional[Recorder] = None,
    lines: Sequence[Tuple[str, str]] = (),
    where: str = "",
    hint: str = "",
) -> DeviceError:
    """Makes the error of a failed call out of what TensorRT said.

    Args:
        what: What was tried, as a sentence's beginning.
        code: The code where nothing better is known.
        recorded: From the error recorder.
        lines: From the logger, as (severity, text).
        where: For the message.
        hint: The remedy where nothing better is known.
    """
    texts = [_clean(text) for _, text in (recorded.errors if recorded else [])]
    for severity, text in lines:
        said = _clean(text)
        if "ERROR" in severity and not any(said in known or known in said for known in texts):
            texts.append(said)
    heard = "; ".join(texts[:_SHOWN])[:_MOST_TEXT]
    for pattern, known, remedy in _KNOWN:
        if any(re.search(pattern, text) for text in texts):
            code, hint = known, remedy
            break
    else:
        for name, _ in recorded.errors if recorded else []:
            code = _BY_CODE.get(name, code)
    warnings: List[str] = [_clean(text) for severity, text in lines if severity == "WARNING"]
    if warnings and not texts:
        hint = "; ".join(filter(None, [hint, "TensorRT warned: " + warnings[-1][:200]]))
    said = heard or "TensorRT did not say why"
    message = "{}: {}".format(what, said)
    return DeviceError(message, code=code, where=where, hint=hint)


def _clean(text: str) -> str:
    return " ".join(text.split())
