"""This process as a board whose TensorRT is a release's double, for the job "build"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.build import job
from edgekit_device.protocol.codec import write
from edgekit_device.tensorrt import runtimes
from tests.edgekit_device import build_toys as toys
from tests.trt_double import board


class Board:
    """This process as a board with one release."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, version: str, **more: Any) -> None:
        self.folder = folder
        # for the process that tries whether TensorRT starts, and this one's children
        patch.syspath_prepend(board.SITE)
        settings = folder / "settings.json"
        settings.write_text(json.dumps({"violations": str(folder / "offences")}))
        for name, value in (
            ("TENSORRT", version),
            ("TENSORRT_FLAVOURS", "full"),
            ("TENSORRT_SETTINGS", str(settings)),
            ("CUDA", "new"),
        ):
            patch.setenv("EDGEKIT_TEST_" + name, value)
        if not more.pop("starts", False):
            patch.setattr(runtimes, "_try_start", lambda name: None)
        self.double = board.install(patch, version)["full"]._double  # type: ignore[attr-defined]

    def run(self, document: dict[str, Any], *blobs: bytes) -> dict[str, Any]:
        number = len(list(self.folder.glob("job*")))
        with toys.job(self.folder / f"job{number}", document) as context:
            self.context = context
            for blob in blobs:
                context.store(blob)
            result = job.run(context)
        # it goes over the wire
        found: dict[str, Any] = json.loads(json.dumps(write(result)))
        return found

    def offences(self) -> list[str]:
        file = self.folder / "offences"
        return file.read_text().splitlines() if file.exists() else []

    def blob(self, digest: str) -> bytes:
        return bytes(self.context.root.store.read(digest))
