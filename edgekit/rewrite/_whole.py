"""Two whole networks beside each other, in ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._graph import Graph

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["LIMIT", "network_error", "whole_network"]

#: Of the largest value of an output, from end to end: rounding adds up over the layers.
LIMIT = 1e-3
_LIMIT_FLOAT16 = 2e-2


def whole_network(
    model: Model, rewritten: Model, *, runs: int, seed: int, exact: bool = True
) -> dict[str, Any]:
    """Compares two networks from end to end on random inputs.

    Args:
        model: The original.
        rewritten: What came of it.
        runs: Number of inputs: standard normal numbers, whole ones from 0 to 3, fair truth values.
        seed: Of the inputs.
        exact: Whether there is a limit at all: an approximation has none.

    Returns:
        ``max_error`` (None when it is no number), ``limit``, ``runs``, ``seed`` and ``holds``.
    """
    import numpy as np

    graph = Graph(model)
    random = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(runs):
        feeds = {
            name: _values(random, graph.shape(name), graph.dtype(name)) for name in graph.inputs
        }
        worst = max(worst, *network_error(model, rewritten, feeds).values())
    halves = any(graph.dtype(name) == "float16" for name in (*graph.inputs, *graph.outputs))
    limit = _LIMIT_FLOAT16 if halves else LIMIT
    return {
        "max_error": worst if math.isfinite(worst) else None,
        "limit": limit if exact else None,
        "runs": runs,
        "seed": seed,
        "holds": worst <= limit if exact else math.isfinite(worst),
    }


def network_error(
    original: Model, rewritten: Model, feeds: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Returns ``max|a-b| / max|b|`` by output between two models in FP32 (ONNX Runtime).

    Infinite where infinities and NaNs of the original are not those of the other.
    """
    from edgekit.network import session

    outputs = [value.name for value in original.proto.graph.output]
    old, new = (
        session(model, optimise=False).run(outputs, dict(feeds)) for model in (original, rewritten)
    )
    return {name: _distance(b, a) for name, a, b in zip(outputs, old, new, strict=True)}


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    import numpy as np

    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    sane = np.isfinite(b)
    if not np.array_equal(a[~sane], b[~sane], equal_nan=True):
        return float("inf")
    a, b = a[sane], b[sane]
    worst = float(np.abs(a - b).max(initial=0.0) / (np.abs(b).max(initial=0.0) or 1.0))
    return worst if math.isfinite(worst) else float("inf")


def _values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 4, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
