"""Two whole networks beside each other, in ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError
from edgekit.rewrite._graph import Graph

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["LIMIT", "network_error", "whole_network"]

#: Of the largest value of an output, from end to end: rounding adds up over the layers.
LIMIT = 1e-3
_LIMIT_FLOAT16 = 2e-2
# whole numbers, the largest ones first
_MOST = (3, 1, 0)


def whole_network(
    model: Model, rewritten: Model, *, runs: int, seed: int, exact: bool = True
) -> dict[str, Any]:
    """Compares two networks from end to end on random inputs.

    Args:
        model: The original.
        rewritten: What came of it.
        runs: Number of inputs: standard normal numbers, fair truth values, and whole numbers from
            0 to 3; from 0 to 1, or only 0, where the original refuses those (indices of a table).
        seed: Of the inputs.
        exact: Whether there is a limit at all: an approximation has none.

    Returns:
        ``max_error`` (None when it is no number), ``limit``, ``runs``, ``seed`` and ``holds``.

    Raises:
        ModelError: "rewrite.inputs": the original runs with none of these inputs;
            "model.runtime": ONNX Runtime refuses one of the networks.
    """
    import numpy as np

    graph = Graph(model)
    random = np.random.default_rng(seed)
    worst = 0.0
    pair = _Pair(model, rewritten)
    for _ in range(runs):
        worst = max(worst, *_error(pair, graph, random).values())
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

    Infinite where infinities and NaNs of the original are not those of the other, and where only
    the other refuses the inputs.

    Raises:
        ModelError: "rewrite.inputs": the original refuses the inputs; "model.runtime": ONNX
            Runtime refuses one of the models.
    """
    return _Pair(original, rewritten).error(feeds)


class _Pair:
    """Both networks, ready to run."""

    def __init__(self, original: Model, rewritten: Model) -> None:
        from edgekit.network import session

        self._source = original.source
        self._outputs = [value.name for value in original.proto.graph.output]
        self._old, self._new = (session(item, optimise=False) for item in (original, rewritten))

    def error(self, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns what :func:`network_error` does."""
        try:
            old = self._old.run(self._outputs, dict(feeds))
        except Exception as error:
            # ONNX Runtime's own exceptions share no base class but Exception
            raise ModelError(
                f"the network cannot be run on random inputs: {' '.join(str(error).split())}",
                code="rewrite.inputs",
                where=self._source,
                hint="the proofs of its rewrites do not need that; compare the networks on inputs "
                "of your own",
            ) from error
        try:
            new = self._new.run(self._outputs, dict(feeds))
        except Exception:
            return dict.fromkeys(self._outputs, math.inf)
        pairs = zip(self._outputs, old, new, strict=True)
        return {name: _distance(b, a) for name, a, b in pairs}


def _error(pair: _Pair, graph: Graph, random: np.random.Generator) -> dict[str, float]:
    """Returns the errors on random inputs that the original takes."""
    forms = {name: (graph.shape(name), graph.dtype(name)) for name in graph.inputs}
    whole = any(dtype.startswith(("int", "uint")) for _, dtype in forms.values())
    for most in _MOST if whole else _MOST[-1:]:
        feeds = {name: _values(random, *form, most) for name, form in forms.items()}
        try:
            return pair.error(feeds)
        except ModelError:
            if most == _MOST[-1]:
                raise
    raise AssertionError("the last one returns or raises")


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


def _values(
    random: np.random.Generator, shape: tuple[int, ...], dtype: str, most: int
) -> np.ndarray:
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, most + 1, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
