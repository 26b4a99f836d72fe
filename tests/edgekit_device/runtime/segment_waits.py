"""Devices that differ, without a board: segments of the reference backend that wait first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from edgekit_device.runtime import reference

__all__ = ["make_segments_wait"]


def make_segments_wait(
    patch: pytest.MonkeyPatch, microseconds: Callable[[str, Sequence[str]], float]
) -> None:
    """Lets each segment that this process loads wait first, whatever it then takes.

    Args:
        patch: Undoes it.
        microseconds: What a segment waits, of its device and its nodes' ONNX operators.
    """
    opened = reference._open

    def open_slow(checked: Any, segment: Any, data: bytes, facts: Any, *more: Any) -> Any:
        engine = opened(checked, segment, data, facts, *more)
        run, ops = engine.run, [node.op for node in facts.nodes]

        def wait_and_run(segment: Any, feeds: Mapping[str, Any]) -> Any:
            time.sleep(microseconds(segment.device, ops) / 1e6)
            return run(segment, feeds)

        engine.run = wait_and_run
        return engine

    patch.setattr(reference, "_open", open_slow)
