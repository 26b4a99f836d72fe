"""Latency of a release on the board's own clock, as a budget judges it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List

from ._lanes import share_lanes
from ._measure import summary

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

__all__ = ["clock_of", "measure_latency"]

_LEAST = 10
_WARM = 3


def clock_of(model: Model) -> str:
    """What the figures are: "cpu-measured" (no board's) or "board-measured"."""
    return "cpu-measured" if model.backend == "reference" else "board-measured"


def measure_latency(model: Model, frame: Dict[str, np.ndarray], seconds: float) -> Dict[str, Any]:
    """Runs frames one after the other, for ``seconds`` and at least 10 of them.

    Returns:
        "p50", "p99" and "mean" (ms, whole frames) and "frames".
    """
    turns = share_lanes(model.lanes)
    checked = model.check(frame)
    for _ in range(_WARM):
        model.run_lane(next(turns).number, checked)
    spent: List[float] = []
    start = time.perf_counter()
    while len(spent) < _LEAST or time.perf_counter() - start < seconds:
        lane = next(turns).number
        before = time.perf_counter()
        model.run_lane(lane, checked)
        spent.append((time.perf_counter() - before) * 1e3)
    found = summary(spent)
    return {
        "p50": found["median"], "p99": found["p99"], "mean": found["mean"], "frames": len(spent),
    }  # fmt: skip
