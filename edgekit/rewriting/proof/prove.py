"""The numerical proof of one step, and how far its two sides are apart."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import lru_cache

import numpy as np

from edgekit.network.graph import Node
from edgekit.rewriting.graph import RewriteGraph, RewriteStep
from edgekit.rewriting.proof.sides import ProofSide, RuntimeFailure, key, pair_of
from edgekit_device.protocol.codec import document

# elements that are compared at a time
_BLOCK = 1 << 16
# no activation of FP16 is much larger, and rounding in FP32 stays within the tolerance
_FARTHEST = 1e4
# of the largest number, so that inputs lie beyond it
_BEYOND = 1.5
_NO_BOUND = frozenset({"epsilon", "momentum"})
RUNS = 2
SEED = 0
TOLERANCE = 1e-5  # of the largest value, in FP32
TOLERANCE_FLOAT64 = 1e-9
# far enough for what saturates (Clip, HardSwish, Sigmoid) to do so; means of many are not near 0
_FAR = (-6.0, 10.0)
# of the numbers that go where a step's own bounds require more
_PART = 0.25
_REMEMBERED = 4096
# of mallopt(3), and the bytes of an array from which on it is mapped
_M_MMAP_THRESHOLD, _MAPPED = -3, 1 << 20
# feeds of up to this many elements are remembered
_SMALL = 1 << 16


class WorstError:
    """``max|a-b| / max|b|`` of the worst output, of all runs together.

    One run's only value may be nearly 0.
    """

    def __init__(self, outputs: Iterable[str]) -> None:
        self._parts = dict.fromkeys(outputs, (0.0, 0.0))

    def take(self, new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]) -> None:
        """Adds a run."""
        for name, (most, scale) in self._parts.items():
            distance, largest = _distance(new[name], old[name])
            self._parts[name] = max(most, distance), max(scale, largest)

    def error(self) -> float:
        """Returns it."""
        return max((d / (largest or 1.0) for d, largest in self._parts.values()), default=0.0)


def _distance(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns ``max|a-b|`` and ``max|b|``; an infinite distance where they cannot be compared.

    In blocks, so that large tensors take no more memory.
    """
    never = float("inf"), 1.0
    if a.shape != b.shape:
        return never
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return (0.0, 1.0) if np.array_equal(a, b) else never
    most = largest = 0.0
    blocks = np.nditer(
        [a, b], ["external_loop", "buffered", "zerosize_ok"], op_dtypes=["f8", "f8"],
        casting="safe", buffersize=_BLOCK,
    )  # fmt: skip
    for x, y in blocks:
        sane = np.isfinite(y)
        if not sane.all():
            if not np.array_equal(x[~sane], y[~sane], equal_nan=True):
                return never
            x, y = x[sane], y[sane]  # noqa: PLW2901
        largest = max(largest, float(np.abs(y).max(initial=0.0)))
        distance = float(np.abs(x - y).max(initial=0.0))
        if not math.isfinite(distance):
            return never
        most = max(most, distance)
    return most, largest


def reach(graph: RewriteGraph, nodes: Sequence[Node]) -> float:
    """Returns how far inputs must be from 0 to get past the nodes' own numbers, as Clip(0, 300).

    What divides, or is a slope below 1, counts by its reciprocal: HardSigmoid with alpha = 0.001
    is 1 from 500 on. At most 10^4.
    """
    far = 0.0
    for node in nodes:
        for value in _numbers(graph, node):
            if math.isfinite(value) and value != 0:
                far = max(far, abs(value))
                if node.op in {"HardSigmoid", "Mul"}:
                    far = max(far, 1 / max(abs(value), 1 / _FARTHEST))
    return min(_BEYOND * far, _FARTHEST)


def _numbers(graph: RewriteGraph, node: Node) -> Iterator[float]:
    for name in node.inputs:
        one = name and graph.constant(name) and math.prod(graph.shape(name)) == 1
        if one and graph.floats(name):
            value = graph.scalar(name)
            if value is not None:
                yield value
    for name, item in node.attrs.items():
        if isinstance(item, float) and name not in _NO_BOUND:
            yield item


def constants_finite(graph: RewriteGraph, step: RewriteStep) -> bool:
    """Whether the constants that a step's old nodes read are finite numbers, one and all."""
    for node in step.old:
        for name in node.inputs:
            if name and graph.constant(name) and graph.floats(name):
                value = graph.value(name)
                if value is not None and not np.isfinite(value).all():
                    return False
    return True


@document(frozen=True)
class Proof:
    """What the random runs showed: largest ``max|a-b| / max|b|`` of any output.

    Infinite where shapes, whole numbers, truth values or the places of NaNs and infinities differ.

    Attributes:
        float32: With ONNX Runtime, in FP32; None if it has no kernel for the old nodes, so that
            the proof in float64 stands alone.
        float64: In float64, by NumPy.
        exact: False for an approximate rewrite, for which both are only reported.
        failure: Why ONNX Runtime has no number, where it failed.
    """

    float32: float | None
    float64: float
    exact: bool = True
    failure: str = field(default="", compare=False)

    def __str__(self) -> str:
        by32 = "not compared" if self.float32 is None else f"{self.float32:.3g}"
        return f"by {self.float64:.3g} of the largest value in float64, in FP32 {by32}"

    def holds(self) -> bool:
        """Whether both are within their tolerances (a NaN is not); finite if not exact."""
        most32, most64 = (TOLERANCE, TOLERANCE_FLOAT64) if self.exact else (1e300, 1e300)
        return self.float64 <= most64 and (self.float32 is None or self.float32 <= most32)


def prove(graph: RewriteGraph, step: RewriteStep, *, runs: int = RUNS, seed: int = SEED) -> Proof:
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


def _return_freed_memory() -> None:
    """Has glibc map large arrays one by one, and return what its heap has free of small ones."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        libc.malloc_trim(0)


@lru_cache(1)
def _known() -> dict[tuple[Hashable, int, int], Proof]:
    return {}


def _proved(
    graph: RewriteGraph, step: RewriteStep, runs: int, seed: int, shares: bool = False
) -> Proof:
    far = reach(graph, step.old)
    exact = not step.rewrite.approximate
    if shares:
        # whatever it fails at, running the sides one by one finds which of them fails
        with suppress(Exception):
            found = _paired(graph, step, random_feeds(graph, step.inputs, runs, seed, far), exact)
            if found is not None:
                return found
    # this one may be large
    _return_freed_memory()
    feeds = random_feeds(graph, step.inputs, runs, seed, far)
    old, new = ProofSide(graph, step.old, ()), ProofSide(graph, step.new, step.fixed)
    return compare(old, new, feeds, step.outputs, exact)


def _paired(
    graph: RewriteGraph, step: RewriteStep, feeds: Iterable[Mapping[str, np.ndarray]], exact: bool
) -> Proof | None:
    """What :func:`compare` finds, by what steps with other weights have made already."""
    pair = pair_of(graph, step)
    if pair is None:
        return None
    worst64, worst32 = WorstError(step.outputs), WorstError(step.outputs)
    for feed in feeds:
        worst64.take(*pair.float64(feed))
        worst32.take(*pair.float32(feed))
    return Proof(worst32.error(), worst64.error(), exact)


def compare(
    old: ProofSide,
    new: ProofSide,
    feeds: Iterable[Mapping[str, np.ndarray]],
    outputs: Sequence[str],
    exact: bool = True,
) -> Proof:
    """Runs both sides on the same feeds; the largest value is that of all runs.

    One run's results are there at a time.
    """
    worst64, worst32 = WorstError(outputs), WorstError(outputs)
    known, failure = True, ""
    for feed in feeds:
        worst64.take(new.float64(feed, outputs), old.float64(feed, outputs))
        if known and not failure:
            known, failure = _in_float32(old, new, feed, outputs, worst32)
    if not known:
        return Proof(None, worst64.error(), exact)
    return Proof(math.inf if failure else worst32.error(), worst64.error(), exact, failure)


def _in_float32(
    old: ProofSide,
    new: ProofSide,
    feed: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    worst: WorstError,
) -> tuple[bool, str]:
    """Whether ONNX Runtime has kernels for the old nodes, and what it failed at."""
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
        return True, "ONNX Runtime cannot run the new nodes"
    worst.take(after, before)
    return True, ""


def random_feeds(
    graph: RewriteGraph, tensors: Sequence[str], runs: int, seed: int, far: float = 0.0
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
    random = np.random.default_rng([seed, run])
    found = [_random(random, shape, dtype, run, far) for shape, dtype in forms]
    for value in found:
        value.setflags(write=False)
    return found


def _random(
    random: np.random.Generator, shape: Sequence[int], dtype: str, run: int, far: float
) -> np.ndarray:
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 4, shape).astype(dtype)
    if run % 2 == 0:
        return random.standard_normal(shape, dtype=np.float32)
    near = random.uniform(*_FAR, shape)
    if far > -_FAR[0]:
        near[random.random(shape) < _PART] *= far / -_FAR[0]
    return near.astype(np.float32)
