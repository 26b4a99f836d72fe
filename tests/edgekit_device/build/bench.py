"""One release's double with a logger and files: where the tests build single attempts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit_device.build.attempt import BuilderLog
from edgekit_device.build.builder import build_attempt
from edgekit_device.build.request import Attempt, BuiltEngine
from tests.edgekit_device.build import toys
from tests.trt_double import double

WEAK = ("8.6.1", "10.3.0", "10.7.0")
ALL = (*WEAK, "10.16.1", "11.4.0")


class Bench:
    """One release with a logger, and a place for files."""

    def __init__(self, version: str, folder: Path) -> None:
        self.trt = double.module(version)
        self.double = self.trt._double
        self.lines: list[str] = []
        self.log = BuilderLog(self.trt, self.lines.append)
        self.folder = folder
        self.progress: list[tuple[int, int, str]] = []
        self.cancelled = False

    def build(
        self, document: Mapping[str, Any], flags: tuple[str, ...] = (), **more: Any
    ) -> BuiltEngine:
        spec = toys.spec(document)
        models = (
            toys.toy_onnx(),
            toys.toy_onnx(whole=False),
            toys.toy_onnx(typed="float16"),
        )
        model = self.folder / "model.onnx"
        model.write_bytes(next(x for x in models if toys.sha(x) == spec.model))
        given = {
            "model": model,
            "cache": toys.cache_text() if spec.calibration else None,
            "timing": self.folder / "timing.cache",
            "on_progress": lambda *step: self.progress.append(step),
            "cancelled": lambda: self.cancelled,
            **more,
        }
        return build_attempt(self.trt, self.log, spec, Attempt(flags, ""), **given)


def document_for(version: str, **more: Any) -> dict[str, Any]:
    """A hybrid engine where the release has DLA, one of the GPU elsewhere."""
    if version.startswith("11"):
        return toys.strong(**more)
    if version == "10.16.1":
        return toys.engine(device="GPU", gpu_fallback=False, **more)
    return toys.engine(**more)
