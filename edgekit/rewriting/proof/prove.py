"""Numerical proof of a step: the error between its two sides."""

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
from edgekit.rewriting.proof.sides import ProofSide, RuntimeFailure, key, make_pair
from edgekit_device.protocol.codec import document

# number of elements compared at a time
_BLOCK = 1 << 16
# largest input: FP16 activations are hardly larger, and FP32 rounding stays within the tolerance
_FARTHEST = 1e4
# factor on a step's largest number, so that inputs exceed it
_BEYOND = 1.5
_NO_BOUND = frozenset({"epsilon", "momentum"})
RUNS = 2
SEED = 0
TOLERANCE = 1e-5  # relative to the largest value, in FP32
TOLERANCE_FLOAT64 = 1e-9
# wide enough to saturate Clip, HardSwish and Sigmoid; means of many numbers are not near 0
_FAR = (-6.0, 10.0)
# part of the numbers that use a wider range, if the step's bounds require it
_PART = 0.25
_REMEMBERED = 4096
# parameter of mallopt(3), and the array size from which arrays are mapped, in bytes
_M_MMAP_THRESHOLD, _MAPPED = -3, 1 << 20
# feeds of up to this many elements are cached
_SMALL = 1 << 16
# elements of a step's old tensors, 4 MiB in FP32: below this, mapping the returned memory again
# takes longer than it is worth
_LARGE = 1 << 20


class WorstError:
    """``max|a-b| / max|b|`` of the worst output, over all runs together.

    A single run may have only values near 0.
    """

    def __init__(self, outputs: Iterable[str]) -> None:
        self._parts = dict.fromkeys(outputs, (0.0, 0.0))

    def take(self, new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]) -> None:
        """Adds a run."""
        for name, (most, scale) in self._parts.items():
            distance, largest = _distance(new[name], old[name])
            self._parts[name] = max(most, distance), max(scale, largest)

    def error(self) -> float:
        """Returns the error."""
        return max((d / (largest or 1.0) for d, largest in self._parts.values()), default=0.0)


def _distance(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns ``max|a-b|`` and ``max|b|``; the distance is infinite if they cannot be compared.

    Computes in blocks, so that large tensors take no more memory.
    """
    never = float("inf"), 1.0
    if a.shape != b.shape:
        return never
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        # integers and truth values are equal or wrong
        return (0.0, 1.0) if np.array_equal(a, b) else never
    most = largest = 0.0
    blocks = np.nditer(
        [a, b],
        ["external_loop", "buffered", "zerosize_ok"],
        op_dtypes=["f8", "f8"],
        casting="safe",
        buffersize=_BLOCK,
    )
    for x, y in blocks:
        sane = np.isfinite(y)
        if not sane.all():
            # infinities and NaNs must be at the same places: no difference can be computed
            if not np.array_equal(x[~sane], y[~sane], equal_nan=True):
                return never
            x, y = x[sane], y[sane]  # noqa: PLW2901
        largest = max(largest, float(np.abs(y).max(initial=0.0)))
        distance = float(np.abs(x - y).max(initial=0.0))
        if not math.isfinite(distance):
            return never
        most = max(most, distance)
    return most, largest


def input_range(graph: RewriteGraph, nodes: Sequence[Node]) -> float:
    """Returns the magnitude of inputs that exceeds the nodes' own numbers, as in Clip(0, 300).

    Divisors and slopes below 1 count by their reciprocal: HardSigmoid with alpha = 0.001 is 1 from
    500 on. At most 10^4.
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
        is_scalar = name and graph.constant(name) and math.prod(graph.shape(name)) == 1
        if is_scalar and graph.floats(name):
            value = graph.scalar(name)
            if value is not None:
                yield value
    for name, item in node.attrs.items():
        if isinstance(item, float) and name not in _NO_BOUND:
            yield item


def constants_finite(graph: RewriteGraph, step: RewriteStep) -> bool:
    """Returns True if all constants that a step's old nodes read are finite numbers."""
    for node in step.old:
        for name in node.inputs:
            if name and graph.constant(name) and graph.floats(name):
                value = graph.value(name)
                if value is not None and not np.isfinite(value).all():
                    return False
    return True


@document(frozen=True)
class Proof:
    """Result of the random runs: largest ``max|a-b| / max|b|`` of any output.

    Infinite if shapes, integers, truth values or the places of NaNs and infinities differ.

    Attributes:
        float32: Error in FP32, by ONNX Runtime; None if it has no kernel for the old nodes, so
            that only the proof in float64 counts.
        float64: Error in float64, by NumPy.
        exact: False for an approximate rewrite, for which both are only reported.
        failure: Reason why ONNX Runtime failed; empty if it did not.
    """

    float32: float | None
    float64: float
    exact: bool = True
    failure: str = field(default="", compare=False)

    def __str__(self) -> str:
        by32 = "not compared" if self.float32 is None else f"{self.float32:.3g}"
        return f"by {self.float64:.3g} of the largest value in float64, in FP32 {by32}"

    def holds(self) -> bool:
        """True if both errors are within their tolerances (a NaN is not); finite if not exact."""
        most32, most64 = (TOLERANCE, TOLERANCE_FLOAT64) if self.exact else (1e300, 1e300)
        return self.float64 <= most64 and (self.float32 is None or self.float32 <= most32)


def prove(graph: RewriteGraph, step: RewriteStep, *, runs: int = RUNS, seed: int = SEED) -> Proof:
    """Runs a step's removed and added nodes, before it is applied.

    A step that reads none of the model's weights is proved once for all steps with equal structure,
    sizes, attributes and constants.

    Args:
        graph: The graph with the old nodes.
        step: The step.
        runs: Number of random inputs.
        seed: Seed of the random inputs: in turn standard normal numbers (first run) and uniform
            numbers from -6 to 10, a quarter in a wider range if the old nodes' own numbers require
            it; fair truth values; integers from 0 to 3.

    Raises:
        MalformedError: A node cannot be computed in float64 (control flow, an unknown operator).
    """
    named = key(graph, step)
    if named is None:
        return _prove(graph, step, runs, seed, True)
    found = _cache().get((named, runs, seed))
    if found is None:
        if len(_cache()) >= _REMEMBERED:
            _cache().clear()
        found = _cache()[named, runs, seed] = _prove(graph, step, runs, seed)
    return found


def _is_large(graph: RewriteGraph, step: RewriteStep) -> bool:
    named = {name for node in step.old for name in (*node.inputs, *node.outputs) if name}
    return sum(math.prod(graph.shape(name)) for name in named if graph.known(name)) > _LARGE


def _return_freed_memory() -> None:
    """Makes glibc map large arrays separately, and return the free memory of its heap."""
    with suppress(OSError, AttributeError):
        # only glibc has these functions, hence the suppressed errors
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        libc.malloc_trim(0)


@lru_cache(1)
def _cache() -> dict[tuple[Hashable, int, int], Proof]:
    return {}


def _prove(
    graph: RewriteGraph, step: RewriteStep, runs: int, seed: int, shares: bool = False
) -> Proof:
    far = input_range(graph, step.old)
    exact = not step.rewrite.approximate
    if shares:
        # after any failure, running the sides separately finds the side that fails
        with suppress(Exception):
            found = _prove_pair(
                graph, step, random_feeds(graph, step.inputs, runs, seed, far), exact
            )
            if found is not None:
                return found
    if _is_large(graph, step):
        _return_freed_memory()
    feeds = random_feeds(graph, step.inputs, runs, seed, far)
    old, new = ProofSide(graph, step.old, ()), ProofSide(graph, step.new, step.fixed)
    return compare(old, new, feeds, step.outputs, exact)


def _prove_pair(
    graph: RewriteGraph, step: RewriteStep, feeds: Iterable[Mapping[str, np.ndarray]], exact: bool
) -> Proof | None:
    """Returns the result of :func:`compare`, with sessions shared by steps with other weights."""
    pair = make_pair(graph, step)
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
    """Runs both sides on the same feeds; the largest value is taken over all runs.

    Keeps the results of one run at a time.
    """
    worst64, worst32 = WorstError(outputs), WorstError(outputs)
    known, failure = True, ""
    for feed in feeds:
        worst64.take(new.float64(feed, outputs), old.float64(feed, outputs))
        # without a kernel, or after a failure, further runs in FP32 add nothing
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
    """Returns True if ONNX Runtime has kernels for the old nodes, and the reason of a failure."""
    side = "old"
    try:
        # old first: if the runtime lacks a kernel for the user's own nodes, that is no fault of the
        # rewrite
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
    """Yields random values of ``tensors`` for each run; see ``seed`` of :func:`prove`.

    Args:
        graph: Has the tensors' shapes and types.
        tensors: Names of the input tensors.
        runs: Number of feeds.
        seed: Seed of the feeds.
        far: Least range of a quarter of the uniform numbers, on both sides of 0.
    """
    forms = tuple((graph.shape(name), graph.dtype(name)) for name in tensors)
    small = sum(math.prod(shape) for shape, _ in forms) <= _SMALL
    for run in range(runs):
        # many steps have inputs of equal forms; large ones are not kept
        made = (_values if small else _values.__wrapped__)(forms, run, seed, far)
        yield dict(zip(tensors, made, strict=True))


@lru_cache(64)
def _values(
    forms: tuple[tuple[tuple[int, ...], str], ...], run: int, seed: int, far: float
) -> list[np.ndarray]:
    # equal for equal forms: the order of steps does not change a proof
    random = np.random.default_rng([seed, run])
    found = [_random(random, shape, dtype, run, far) for shape, dtype in forms]
    for value in found:
        # shared by the cache
        value.setflags(write=False)
    return found


def _random(
    random: np.random.Generator, shape: Sequence[int], dtype: str, run: int, far: float
) -> np.ndarray:
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        # small: integers may be indices
        return random.integers(0, 4, shape).astype(dtype)
    if run % 2 == 0:
        return random.standard_normal(shape, dtype=np.float32)
    near = random.uniform(*_FAR, shape)
    if far > -_FAR[0]:
        near[random.random(shape) < _PART] *= far / -_FAR[0]
    return near.astype(np.float32)
