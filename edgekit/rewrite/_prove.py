"""The numerical proof of one step: old and new nodes on the same random inputs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from edgekit.rewrite._all import APPROXIMATE
from edgekit.rewrite._prove_key import key
from edgekit.rewrite._prove_reach import reach
from edgekit.rewrite._prove_worst import Worst
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
# of the numbers that go where a step's own bounds ask for more
_PART = 0.25
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
        failure: Why ONNX Runtime has no number, where it failed.
    """

    float32: float | None
    float64: float
    exact: bool = True
    failure: str = field(default="", compare=False)

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
            from -6 to 10, by turns, or a quarter of them as far as the old nodes' own numbers
            are; fair truth values; whole numbers from 0 to 3.

    Raises:
        MalformedError: A node cannot be computed in float64 (control flow, an unknown operator).
    """
    named = key(graph, step)
    if named is None:
        return _proved(graph, step, runs, seed, True)
    found = _known().get((named, runs, seed))
    if found is None:
        if len(_known()) >= _REMEMBERED:
            _known().clear()
        found = _known()[named, runs, seed] = _proved(graph, step, runs, seed)
    return found


@lru_cache(1)
def _known() -> dict[tuple[Hashable, int, int], Proof]:
    return {}


def _proved(graph: Graph, step: Step, runs: int, seed: int, shares: bool = False) -> Proof:
    from edgekit.rewrite._prove_run import Part

    far = reach(graph, step.old)
    exact = not step.rewrite.name.startswith(APPROXIMATE)
    if shares:
        # whatever it fails at, the sides one by one tell whose fault it is
        with suppress(Exception):
            found = _paired(graph, step, random_feeds(graph, step.inputs, runs, seed, far), exact)
            if found is not None:
                return found
    feeds = random_feeds(graph, step.inputs, runs, seed, far)
    old, new = Part(graph, step.old, ()), Part(graph, step.new, step.fixed)
    return compare(old, new, feeds, step.outputs, exact)


def _paired(
    graph: Graph, step: Step, feeds: Iterable[Mapping[str, np.ndarray]], exact: bool
) -> Proof | None:
    """What :func:`compare` finds, by what steps with other weights have made already."""
    from edgekit.rewrite._prove_pair import pair_of

    pair = pair_of(graph, step)
    if pair is None:
        return None
    worst64, worst32 = Worst(step.outputs), Worst(step.outputs)
    for feed in feeds:
        worst64.take(*pair.float64(feed))
        worst32.take(*pair.float32(feed))
    return Proof(worst32.error(), worst64.error(), exact)


def compare(
    old: Part,
    new: Part,
    feeds: Iterable[Mapping[str, np.ndarray]],
    outputs: Sequence[str],
    exact: bool = True,
) -> Proof:
    """Runs both sides on the same feeds; the largest value is that of all runs.

    One run's results are there at a time.
    """
    worst64, worst32 = Worst(outputs), Worst(outputs)
    known, failure = True, ""
    for feed in feeds:
        worst64.take(new.float64(feed, outputs), old.float64(feed, outputs))
        if known and not failure:
            known, failure = _in_float32(old, new, feed, outputs, worst32)
    if not known:
        return Proof(None, worst64.error(), exact)
    return Proof(math.inf if failure else worst32.error(), worst64.error(), exact, failure)


def _in_float32(
    old: Part, new: Part, feed: Mapping[str, np.ndarray], outputs: Sequence[str], worst: Worst
) -> tuple[bool, str]:
    """Whether ONNX Runtime has kernels for the old nodes, and what it failed at."""
    from edgekit.rewrite._prove_run import RuntimeFailure

    side = "old"
    try:
        before = old.float32(feed, outputs)
        if before is None:
            return False, ""
        side = "new"
        after = new.float32(feed, outputs)
    except RuntimeFailure as error:
        return True, f"the {side} nodes failed: {error}"
    if after is None:
        return True, "ONNX Runtime has no kernel for the new nodes"
    worst.take(after, before)
    return True, ""


def random_feeds(
    graph: Graph, tensors: Sequence[str], runs: int, seed: int, far: float = 0.0
) -> Iterator[dict[str, np.ndarray]]:
    """Yields random values of ``tensors`` for each run, as ``prove`` says of its seed.

    Args:
        graph: Says their shapes and types.
        tensors: What is fed.
        runs: Number of feeds.
        seed: Their seed.
        far: How far a quarter of the uniform numbers reaches at least, on both sides of 0.
    """
    forms = tuple((graph.shape(name), graph.dtype(name)) for name in tensors)
    small = sum(math.prod(shape) for shape, _ in forms) <= _SMALL
    for run in range(runs):
        made = (_values if small else _values.__wrapped__)(forms, run, seed, far)
        yield dict(zip(tensors, made, strict=True))


@lru_cache(64)
def _values(
    forms: tuple[tuple[tuple[int, ...], str], ...], run: int, seed: int, far: float
) -> list[np.ndarray]:
    import numpy as np

    random = np.random.default_rng([seed, run])
    found = [_random(random, shape, dtype, run, far) for shape, dtype in forms]
    for value in found:
        value.setflags(write=False)
    return found


def _random(
    random: np.random.Generator, shape: Sequence[int], dtype: str, run: int, far: float
) -> np.ndarray:
    import numpy as np

    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 4, shape).astype(dtype)
    if run % 2 == 0:
        return random.standard_normal(shape, dtype=np.float32)
    near = random.uniform(*_FAR, shape)
    if far <= -_FAR[0]:
        return near.astype(np.float32)
    return np.where(random.random(shape) < _PART, near * (far / -_FAR[0]), near).astype(np.float32)
