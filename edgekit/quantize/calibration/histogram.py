"""Histograms of a tensor's values that do not depend on the order or the batch they came in,
and those that follow from another tensor's.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from edgekit.network.model import SAME_VALUES, Model, Network

# on each side of zero; the range is a power of two above the largest magnitude, so between 8192
# and 16384 of them are in use: at least eight for each bin of the entropy method
BINS = 1 << 14
# values counted at once: the scratch arrays of a thread stay in the processor's cache
_BLOCK = 1 << 16
# below it bins would be narrower than float32 can scale; only the range is kept
TINY = 2.0**-90
# a pile of masked values: from which share of the largest magnitude on, up to which the others
# are, and how many of all values it has at least
_FAR, _NEAR, _PILE = 0.5, 1 / 16, 1e-4

_scratch = threading.local()


@dataclass(slots=True, eq=False)
class ValueHistogram:
    """Counts of values in equal bins over [-``top``, ``top``).

    ``top`` is the smallest power of two above every magnitude seen. Scaling by powers of two is
    exact and bins of a wider range are unions of pairs of narrower ones, so the counts depend on
    the values alone: neither on their order nor on how they were parted.

    Attributes:
        low: Smallest value; infinity until there is one.
        high: Largest value.
        top: Upper end of the last bin; 0 until a value other than zero was seen.
        counts: int64 [2 * BINS], zero at the lower edge of bin BINS; None until a value other
            than zero was seen.
        zeros: Values seen while everything was zero.
        sided: Each side has a top of its own, so that what a Relu leaves is counted as finely as
            if it had been counted itself; ``whole`` gives them the same one.
        bottom: The top of the negative side; ``top`` where there are no sides.
    """

    low: float = math.inf
    high: float = -math.inf
    top: float = 0.0
    counts: np.ndarray | None = None
    zeros: int = 0
    sided: bool = False
    bottom: float = 0.0

    @property
    def amax(self) -> float:
        """Largest magnitude; 0 when there is no value."""
        return max(self.high, -self.low, 0.0)

    @property
    def total(self) -> int:
        """Number of values."""
        return self.zeros if self.counts is None else int(self.counts.sum())

    @property
    def is_masked(self) -> bool:
        """Whether values pile up at a large negative one, far away from all others.

        That is what a mask adds to scores before a softmax (-10000, or the lowest float). With one
        scale for both the others fall into a few codes, and without the pile nothing is masked.
        Values that are 0 apart from the pile (the mask itself) have a code of their own, exactly.
        """
        if self.counts is None or -self.low < self.amax:
            return False
        # magnitudes below zero, from zero on; the bin that holds the lowest value may be the first
        below = self.counts[BINS - 1 :: -1]
        near, far = (int(self.amax * part / self.bottom * BINS) for part in (_NEAR, _FAR))
        others = self.total - int(below[far:].sum())
        return (
            self.total - others >= _PILE * self.total
            and self.high <= self.amax * _NEAR
            and not below[near + 1 : far].any()
            and (self.high > 0.0 or bool(below[: near + 1].any()))
        )

    def add(self, values: np.ndarray) -> bool:
        """Adds values of any shape (float32 or narrower).

        Returns False, with nothing added, when there is a NaN or an infinity among them.
        """
        if not values.size:
            return True
        flat = values.reshape(-1)
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            return False
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self.counts is None:
            if low == high == 0.0:
                self.zeros += flat.size
                return True
            self.counts = np.zeros(2 * BINS, np.int64)
            self.counts[BINS] = self.zeros
        if self.sided:
            self._widen(_above(max(-low, 0.0)), _above(max(high, 0.0)))
        else:
            self._widen(*[_above(max(high, -low))] * 2)
        scale, under = np.float32(BINS / self.top), np.float32(BINS / self.bottom)
        scaled, other, narrow, index = _arrays()
        # the finer side's scale wherever it is on that side
        pick = np.maximum if scale > under else np.minimum
        with np.errstate(over="ignore"):
            for begin in range(0, flat.size, _BLOCK):
                block = flat[begin : begin + _BLOCK]
                part, whole = scaled[: block.size], index[: block.size]
                np.multiply(block, scale, out=part)
                if scale != under:
                    pick(part, np.multiply(block, under, out=other[: block.size]), out=part)
                np.floor(part, out=part)
                part += np.float32(BINS)
                # by way of int32 twice as fast as at once
                np.copyto(narrow[: block.size], part, casting="unsafe")
                np.copyto(whole, narrow[: block.size])
                found = np.bincount(whole)
                self.counts[: found.size] += found
        return True

    def rectified(self) -> ValueHistogram:
        """Returns the histogram of ``max(x, 0)``; of one with sides."""
        assert self.sided
        if self.low > self.high:
            return ValueHistogram(sided=True)
        low, high = max(self.low, 0.0), max(self.high, 0.0)
        if self.counts is None or high == 0.0:
            return ValueHistogram(low, high, zeros=self.total, sided=True)
        counts = np.zeros(2 * BINS, np.int64)
        counts[BINS:] = self.counts[BINS:]
        counts[BINS] += self.counts[:BINS].sum()
        return ValueHistogram(low, high, self.top, counts, 0, True, TINY)

    def joined(self, others: Iterable[ValueHistogram]) -> ValueHistogram:
        """Returns the histogram of this one's values and those of others."""
        made = replace(self, counts=None if self.counts is None else self.counts.copy())
        for one in others:
            made.low, made.high = min(made.low, one.low), max(made.high, one.high)
            made.sided |= one.sided
            if one.counts is None:
                if made.counts is None:
                    made.zeros += one.zeros
                else:
                    made.counts[BINS] += one.zeros
                continue
            counts = one.counts.copy()
            added = replace(one, counts=counts)
            if made.counts is None:
                counts[BINS] += made.zeros
                added.low, added.high, added.sided = made.low, made.high, made.sided
                made = added
                continue
            made._widen(added.bottom, added.top)
            added._widen(made.bottom, made.top)
            made.counts += counts
        return made

    def whole(self) -> ValueHistogram:
        """Returns it with the same top on both sides."""
        if not self.sided:
            return self
        made = replace(
            self, sided=False, counts=None if self.counts is None else self.counts.copy()
        )
        if made.counts is not None:
            made._widen(*[max(made.bottom, made.top)] * 2)
        return made

    def magnitudes(self, bins: int = BINS) -> np.ndarray:
        """Returns int64 [bins]: counts of ``|x|`` over [0, ``top``); ``bins`` divides BINS."""
        if self.counts is None:
            return np.zeros(bins, np.int64)
        folded = self.counts[BINS:] + self.counts[BINS - 1 :: -1]
        return np.asarray(folded.reshape(bins, -1).sum(axis=1))

    def regrid(self, bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the counts over [-``amax``, ``amax``] in ``bins`` equal bins, and how sure.

        Where an edge lies within a bin of this histogram, the values in that bin are taken to
        lie evenly.

        Returns:
            counts: int64 [bins].
            unsure: float64 [bins + 1], for each edge by how many values the share below it may
                be wrong (one standard deviation; all of them for values that pile up).
        """
        assert self.counts is not None
        counts = self.counts.astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(counts)])
        edges = np.linspace(-self.amax, self.amax, bins + 1) * (BINS / self.top) + BINS
        cell = np.clip(np.floor(edges).astype(np.int64), 0, counts.size - 1)
        share = edges - cell
        cumulative = np.rint(below[cell] + share * counts[cell])
        cumulative[0], cumulative[-1] = 0, below[-1]
        neighbours = np.maximum(counts[cell - 1], counts[np.minimum(cell + 1, counts.size - 1)])
        piled = np.maximum(counts[cell] - 2 * neighbours - 8, 0.0)
        unsure = np.sqrt(counts[cell] * share * (1 - share)) + piled * (share > 0)
        unsure[0] = unsure[-1] = 0.0
        return np.diff(cumulative).astype(np.int64), unsure

    def _widen(self, bottom: float, top: float) -> None:
        """Makes the sides at least this wide; new bins are sums of old ones: no count is lost."""
        assert self.counts is not None
        if bottom > self.bottom:
            # seen from zero
            _widen(self.counts[BINS - 1 :: -1], self.bottom, bottom)
            self.bottom = bottom
        if top > self.top:
            _widen(self.counts[BINS:], self.top, top)
            self.top = top


def _widen(side: np.ndarray, old: float, new: float) -> None:
    """Merges the bins of one side, in place."""
    if old:
        left = int(max(BINS * (old / new), 1))
        merged = side.reshape(left, -1).sum(axis=1)
        side[:] = 0
        side[:left] = merged


def _above(amax: float) -> float:
    """Returns the smallest power of two above ``amax``, but none that bins cannot be made for."""
    return max(math.ldexp(1.0, math.frexp(amax)[1]), TINY) if amax else TINY


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns this thread's scratch arrays, one block each: twice float32, int32 and intp."""
    if not hasattr(_scratch, "arrays"):
        types = (np.float32, np.float32, np.int32, np.intp)
        _scratch.arrays = tuple(np.empty(_BLOCK, kind) for kind in types)
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = _scratch.arrays
    return arrays


@dataclass(frozen=True)
class DerivedTensor:
    """How a tensor's values come from others: "same" values, "relu" of them, "all" of several."""

    kind: str
    sources: tuple[str, ...]


def derived(model: Model, network: Network, names: Collection[str]) -> dict[str, DerivedTensor]:
    """Returns the tensors of ``names`` whose counts follow exactly, in graph order.

    Where only some rows of a run count, they must be the same rows: axis 0 stays where it is.
    """
    known = set(names)
    types = _types(model, network)
    found: dict[str, DerivedTensor] = {}
    for node in model.proto.graph.node:
        if not node.output or node.output[0] not in known or node.domain not in ("", "ai.onnx"):
            continue
        out = node.output[0]
        sources = tuple(node.input if node.op_type == "Concat" else node.input[:1])
        if not sources or not known.issuperset(sources):
            continue
        kind = _kind(node)
        tensors = [types[name] for name in (out, *sources)]
        first = {shape[:1] for shape, _ in tensors}
        if kind and len(first) == 1 and first != {()} and len({dtype for _, dtype in tensors}) == 1:
            found[out] = DerivedTensor(kind, sources)
    return found


def merged(model: Model, network: Network) -> list[str]:
    """Returns float tensors of moves that no layer has: TensorRT merges moves with each other."""
    types = _types(model, network)
    floats = ("float32", "float16")
    return [
        node.output[0]
        for node in model.proto.graph.node
        if node.op_type in SAME_VALUES
        and node.output[0] not in network.tensors
        and types.get(node.output[0], ((), ""))[1] in floats
    ]


def _types(model: Model, network: Network) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns shape and type by tensor, also of those that no layer has."""
    graph = model.proto.graph
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type:
            shape = tuple(dim.dim_value for dim in kind.shape.dim)
            found[value.name] = shape, str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found | {n: (tuple(t.shape), t.dtype) for n, t in network.tensors.items()}


def _kind(node: onnx.NodeProto) -> str:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Relu":
        return "relu"
    if node.op_type == "Concat":
        # below zero it counts from the last axis, which may be the first
        return "all" if given.get("axis", 1) > 0 else ""
    if node.op_type == "Transpose":
        return "same" if next(iter(given.get("perm", [-1]))) == 0 else ""
    # a third input of Dropout switches it on
    return "same" if node.op_type in SAME_VALUES and len(node.input) < 3 else ""


def sided(made: Mapping[str, DerivedTensor]) -> set[str]:
    """Returns the tensors whose sides must be counted apart, since a Relu's counts come of them."""
    found: set[str] = set()
    for name in reversed(list(made)):
        if made[name].kind == "relu" or name in found:
            found.update(made[name].sources)
    return found


def derive(made: Mapping[str, DerivedTensor], counted: dict[str, ValueHistogram]) -> None:
    """Adds the histograms of derived tensors to those that were counted."""
    for name, how in made.items():
        first, *others = (counted[source] for source in how.sources)
        if how.kind == "relu":
            counted[name] = first.rectified()
        else:
            counted[name] = first.joined(others)
