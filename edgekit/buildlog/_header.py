"""What a log says of the build as a whole: release, board, core, precision."""

from __future__ import annotations

import re
from typing import Any

from edgekit.buildlog._sizes import release

__all__ = ["Header"]

_COMMAND = re.compile(
    r"&&&& (?:RUNNING|PASSED|FAILED) TensorRT\.(\w+)(?: \[TensorRT v(\d{3,6})\])?"
)
_VERSION = re.compile(
    r"(?:^TensorRT(?: version:|-| )|export with TensorRT )\s*v?"
    r"(?:(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})(?!\d)|(\d{4,6})$)"
)
_TEXT = {
    "compute_capability": re.compile(r"^Compute Capability: (\d{1,2}\.\d)$"),
    "device": re.compile(r"^Selected Device: (.{1,80})$"),
    "pinned": re.compile(r"^Layer Device Types: *(.{1,2000})$"),
}
_MODEL = re.compile(r"^(?:Model|Input filename):\s+(\S.{0,1000})$")
_FLAG_MODEL = re.compile(r"--onnx=(\"[^\"]{1,1000}\"|\S{1,1000})")
_FLAG_CORE = re.compile(r"--useDLACore=(\d{1,3})")
_CORE = re.compile(r"^DLACore:\s*(\d{1,3})?$")
_PRECISION = re.compile(r"^Precision: ([A-Z0-9+]{2,40})(?: \(.*\))?$")
_BARE_FLAGS = ("--fp16", "--int8", "--bf16", "--fp8")


class Header:
    """Collects these facts; a later line of the same kind counts."""

    def __init__(self) -> None:
        self._tensorrt = self._model = ""
        self._core: int | None = None
        self._asked: bool | None = None
        self._precisions: tuple[str, ...] = ()
        self._text = dict.fromkeys(_TEXT, "")

    def feed(self, text: str) -> bool:
        """Takes a line; whether it was one of these."""
        if text.startswith("&&&& ") or text.startswith(("trtexec ", "./trtexec ")):
            return self._command(text)
        for name, pattern in _TEXT.items():
            if match := pattern.match(text):
                self._text[name] = match[1].strip()
                return True
        if match := _VERSION.search(text):
            self._tensorrt = match[1] or release(match[2])
            return True
        if match := _CORE.match(text):
            self._core = int(match[1]) if match[1] else None
            self._asked = self._core is not None
            return True
        if match := _PRECISION.match(text):
            self._precisions = tuple(match[1].lower().split("+"))
            return True
        if match := _MODEL.match(text):
            self._model = self._model or match[1].strip()
        return False

    def facts(self) -> dict[str, Any]:
        """Returns the fields of a BuildLog."""
        return {
            "tensorrt": self._tensorrt, "model": self._model, "dla_core": self._core,
            "asked_dla": self._asked, "precisions": self._precisions, **self._text,
        }  # fmt: skip

    def _command(self, text: str) -> bool:
        match = _COMMAND.match(text)
        if match is None and text.startswith("&&&& "):
            return False
        if match and match[2]:
            self._tensorrt = release(match[2])
        if found := _FLAG_MODEL.search(text):
            self._model = found[1].strip('"')
        if found := _FLAG_CORE.search(text):
            self._core, self._asked = int(found[1]), True
        flags = text.split()
        wanted = tuple(flag[2:] for flag in _BARE_FLAGS if flag in flags)
        if "--best" in flags:
            wanted = ("fp16", "int8")
        if wanted and not self._precisions:
            self._precisions = ("fp32", *wanted)
        return True
