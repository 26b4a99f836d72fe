"""Which clock a bench's figures are of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgekit_device._lanes import Event
from edgekit_device._measure import _segments


def test_segments_are_on_one_clock() -> None:
    # a loadable's event has no time of the GPU: then a plan's is left alone, too
    events = [
        Event(0, 0, 0, "DLA0", 0.0, 0.010, None),
        Event(0, 0, 1, "GPU", 0.010, 0.015, 1.0),
    ]
    lane = SimpleNamespace(
        number=0,
        segments=[SimpleNamespace(index=i, device=d, layers=()) for i, d in enumerate("DG")],
    )
    model: Any = SimpleNamespace(lanes=[lane])
    times = [one["latency_ms"]["mean"] for one in _segments(model, events)]
    assert times == pytest.approx([10.0, 5.0])
    assert _segments(model, events[1:])[0]["latency_ms"]["mean"] == 1.0
