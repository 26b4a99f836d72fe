"""Latency of a release beside that of another one, measured in turns on one clock.

What a board's clock says depends on what else it does: heat, another power mode and the release
that serves slow both. So the two run frame by frame in turns, and their quotient stays; a figure
that was measured last week says nothing about it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from ._lanes import share_lanes
from ._measure import summary

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

__all__ = ["clock_of", "measure_in_turns"]

_LEAST = 10
_WARM = 3


def clock_of(model: Model) -> str:
    """What the figures are: "cpu-measured" (no board's) or "board-measured"."""
    return "cpu-measured" if model.backend == "reference" else "board-measured"


def measure_in_turns(
    models: Sequence[Model], frames: Sequence[Dict[str, np.ndarray]], seconds: float
) -> List[Dict[str, Any]]:
    """Runs every model once a turn, until ``seconds`` and at least 10 turns have gone.

    Args:
        models: One, or two that are compared.
        frames: One frame for each model.
        seconds: How long all of it takes, about.

    Returns:
        For each model "p50", "p99" and "mean" (ms, whole frames) and "frames".
    """
    turns = [share_lanes(model.lanes) for model in models]
    checked = [model.check(frame) for model, frame in zip(models, frames)]  # noqa: B905 (3.8)
    for _ in range(_WARM):
        for position, model in enumerate(models):
            model.run_lane(next(turns[position]).number, checked[position])
    spent: List[List[float]] = [[] for _ in models]
    order = list(range(len(models)))
    start = time.perf_counter()
    while len(spent[0]) < _LEAST or time.perf_counter() - start < seconds:
        for position in order:
            lane = next(turns[position]).number
            before = time.perf_counter()
            models[position].run_lane(lane, checked[position])
            spent[position].append((time.perf_counter() - before) * 1e3)
        order.reverse()  # who runs second finds what the first left in the caches
    found = []
    for values in spent:
        told = summary(values)
        found.append({"p50": told["median"], "p99": told["p99"], "mean": told["mean"]})
        found[-1]["frames"] = len(values)
    return found
