"""A board within the test's process: TensorRT's double, the fake CUDA, and their offences."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.cuda import driver
from edgekit_device.tensorrt import runtimes
from tests.trt_double._memory import MEMORY
from tests.trt_double.board import install


class Here:
    """Chooses what is installed; knows what was done against the rules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.modules: dict[str, Any] = {}

    def has(self, version: str, flavours: Sequence[str] = ("full",), cuda: str = "new") -> None:
        self.modules.update(install(self.monkeypatch, version, flavours, cuda))

    def offences(self) -> list[str]:
        return [text for made in self.modules.values() for text in made._double.violations]


def here_fixture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Here]:
    """The body of a fixture ``here``: no offence may be left at the end."""
    monkeypatch.setattr(driver, "_OPEN", [])
    monkeypatch.setattr(runtimes, "_KNOWN", {})
    # a child process would not find the double, which lives in this one
    monkeypatch.setattr(runtimes, "_try_start", lambda _name: None)
    monkeypatch.setattr(runtimes, "_ldconfig", lambda: "")
    monkeypatch.setenv("EDGEKIT_ROOT", str(tmp_path / "root"))
    gc.collect()  # engines of the test before give their memory back
    MEMORY.reset()
    board = Here(monkeypatch)
    yield board
    MEMORY.used = False  # tests of the double alone give it memory of their own
    assert board.offences() == []
    assert MEMORY.offences == []
