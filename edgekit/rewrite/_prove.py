"""The numerical proof of one step: old and new nodes on the same random inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from edgekit.rewrite._all import APPROXIMATE
from edgekit.rewrite._prove_key import key
from edgekit.rewrite._types import Step

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._prove_run import Part

__all__ = [
    "RUNS",
    "SEED",
    "TOLERANCE",
    "TOLERANCE_FLOAT64",
    "Proof",
    "compare",
    "prove",
    "random_feeds",
]

RUNS = 2
SEED = 0
TOLERANCE = 1e-5  # of the largest value, in FP32
TOLERANCE_FLOAT64 = 1e-9
# far enough for what saturates (Clip, HardSwish, Sigmoid) to do so; means of many are not near 0
_FAR = (-6.0, 10.0)
_REMEMBERED = 4096
# feeds of up to this many elements are remembered
_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class Proof:
    """What the random runs showed: largest ``max|a-b| / max|b|`` of any output.

    Infinite where shapes, whole numbers, truth values or the places of NaNs and infinities differ.

    Attributes:
        float32: With ONNX Runtime, in FP32; None where it has no kernel for the old nodes, so that
            the proof in float64 stands alone.
        float64: In float64, by NumPy.
        exact: False for an approximate rewrite, for which both are only told.
    """

    float32: float | None
    float64: float
    exact: bool = True

    def holds(self) -> bool:
        """Whether both are within their tolerances (a NaN is not); finite if not exact."""
        most32, most64 = (TOLERANCE, TOLERANCE_FLOAT64) if self.exact else (1e300, 1e300)
        return self.float64 <= most64 and (self.float32 is None or self.float32 <= most32)


def prove(graph: Graph, step: Step, *, runs: int = RUNS, seed: int = SEED) -> Proof:
    """Runs what a step takes away and what it brings, before it is applied.

    A step that reads none of the model's weights is proved once for all steps that are equal to
    it in structure, sizes, attributes and constants.

    Args:
        graph: Where the old nodes still stand.
        step: The step.
        runs: Number of random inputs.
        seed: Of the random inputs: standard normal numbers in the first run, then uniform ones
            from -6 to 10, by turns; fair truth values; whole numbers from 0 to 3.

    Raises:
        MalformedError: A node cannot be computed in float64 (control flow, an unknown operator).
    """
    named = key(graph, step)
    if named is None:
        return _proved(graph, step, runs, seed)
    found = _known().get((named, runs, seed))
    if found is None:
        if len(_known()) >= _REMEMBERED:
            _known().clear()
        found = _known()[named, runs, seed] = _proved(graph, step, runs, seed)
    return found


@lru_cache(1)
def _known() -> dict[tuple[str, int, int], Proof]:
    return {}


def _proved(graph: Graph, step: Step, runs: int, seed: int) -> Proof:
    from edgekit.rewrite._prove_run import Part

    feeds = random_feeds(graph, step.inputs, runs, seed)
    old, new = Part(graph, step.old, ()), Part(graph, step.new, step.fixed)
    return compare(old, new, feeds, step.outputs, not step.rewrite.name.startswith(APPROXIMATE))


def compare(
    old: Part,
    new: Part,
    feeds: Sequence[Mapping[str, np.ndarray]],
    outputs: Sequence[str],
    exact: bool = True,
) -> Proof:
    """Runs both sides on the same feeds; the largest value is that of all runs."""
    worst64 = _worst(
        [new.float64(feed, outputs) for feed in feeds],
        [old.float64(feed, outputs) for feed in feeds],
        outputs,
    )
    before = old.float32(feeds, outputs)
    if before is None:
        return Proof(None, worst64, exact)
    after = new.float32(feeds, outputs)
    if after is None:
        return Proof(float("inf"), worst64, exact)
    return Proof(_worst(after, before, outputs), worst64, exact)


def _worst(
    new: Sequence[Mapping[str, np.ndarray]],
    old: Sequence[Mapping[str, np.ndarray]],
    outputs: Sequence[str],
) -> float:
    worst = 0.0
    for name in outputs:
        parts = [_distance(a[name], b[name]) for a, b in zip(new, old, strict=True)]
        # of all runs together: one run's only value may be nearly 0
        distance, largest = max(part[0] for part in parts), max(part[1] for part in parts)
        worst = max(worst, distance / (largest or 1.0))
    return worst


def _distance(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns ``max|a-b|`` and ``max|b|``; an infinite distance where they cannot be compared."""
    import numpy as np

    never = float("inf"), 1.0
    if a.shape != b.shape:
        return never
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return (0.0, 1.0) if np.array_equal(a, b) else never
    a, b = a.astype(np.float64), b.astype(np.float64)
    sane = np.isfinite(b)
    if not sane.all():
        if not np.array_equal(a[~sane], b[~sane], equal_nan=True):
            return never
        a, b = a[sane], b[sane]
    worst = float(np.abs(a - b).max(initial=0.0))
    return (worst, float(np.abs(b).max(initial=0.0))) if np.isfinite(worst) else never


def random_feeds(
    graph: Graph, tensors: Sequence[str], runs: int, seed: int
) -> list[dict[str, np.ndarray]]:
    """Returns random values of ``tensors`` for each run, as ``prove`` says of its seed."""
    forms = tuple((graph.shape(name), graph.dtype(name)) for name in tensors)
    small = sum(math.prod(shape) for shape, _ in forms) <= _SMALL
    made = (_values if small else _values.__wrapped__)(forms, runs, seed)
    return [dict(zip(tensors, values, strict=True)) for values in made]


@lru_cache(64)
def _values(
    forms: tuple[tuple[tuple[int, ...], str], ...], runs: int, seed: int
) -> list[list[np.ndarray]]:
    import numpy as np

    found = []
    for run in range(runs):
        random = np.random.default_rng([seed, run])
        found.append([_random(random, shape, dtype, run) for shape, dtype in forms])
        for value in found[-1]:
            value.setflags(write=False)
    return found


def _random(random: np.random.Generator, shape: Sequence[int], dtype: str, run: int) -> np.ndarray:
    import numpy as np

    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 4, shape).astype(dtype)
    if run % 2:
        return random.uniform(*_FAR, shape).astype(np.float32)
    return random.standard_normal(shape, dtype=np.float32)
