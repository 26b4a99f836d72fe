"""Histograms of a tensor's values, independent of order and batch, and the magnitude at which each
method clips the tensor (amax): entropy, percentile, MSE, minimum and maximum.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import onnx
from onnx import helper

from edgekit.dla.scales import LEVELS
from edgekit.errors import UsageError
from edgekit.network.model import SAME_VALUES, Model, Network
from edgekit.quantize.scales import LARGEST_SCALE

# bins on each side of zero; the range is a power of two above the largest magnitude, so between
# 8192 and 16384 bins are in use: at least eight for each bin of the entropy method
BINS = 1 << 14
# values counted at once: the scratch arrays of a thread stay in the processor's cache
_BLOCK = 1 << 16
# below this magnitude bins would be narrower than float32 can scale; only the range is kept
TINY = 2.0**-90
# masked values: least magnitude as a share of the largest, largest magnitude of all other values
# as a share, and least share of all values
_FAR, _NEAR, _PILE = 0.5, 1 / 16, 1e-4

_scratch = threading.local()
LEVELS_OF_ENTROPY = 128
# smooth_distribution's default
EPS = 1e-4
# twice this magnitude may overflow float32
LARGE = 2.0**126
ENTROPY_BINS = 2048
# candidates this near to the least (relative; absolute) are compared in the original's arithmetic
_CLOSE, _CLOSE_ABSOLUTE = 2e-3, 1e-6
# least distance of a rival, in standard deviations of a bin's counts, and float32's noise
_SURE, _ROUNDING = 6.0, 1e-7
_DRAWS = 2
PERCENTILE = 99.99
# with fewer values, eight to a bin, a divergence over 2048 bins measures sampling noise and clips
# values that matter: the logits of light_squeezenet after 8 inputs (8000 values) cost 9 dB of the
# output's SNR
FEWEST = 1 << 14
# with so few values each may decide between candidates
_FEW = 1 << 17
# bins of magnitudes for the sum of squared errors, and number of clips tried
_MSE_BINS = 4096
_MSE_CLIPS = 128
_MSE_LEAST = 8


@dataclass(slots=True, eq=False)
class ValueHistogram:
    """Counts of values in equal bins over [-``top``, ``top``).

    ``top`` is the smallest power of two above every magnitude seen. Scaling by powers of two is
    exact and bins of a wider range are unions of pairs of narrower bins, so the counts depend on
    the values alone: neither on their order nor on the batches.

    Attributes:
        low: Smallest value; infinity until there is a value.
        high: Largest value.
        top: Upper end of the last bin; 0 until a value other than zero was seen.
        counts: int64 [2 * BINS], zero at the lower edge of bin BINS; None until a value other
            than zero was seen.
        zeros: Number of values seen while all were zero.
        sided: True if each side has its own top, so that a Relu's result is counted as finely as
            if it had been counted itself; ``whole`` gives both sides the same top.
        bottom: The top of the negative side; ``top`` if not ``sided``.
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
        """True if values pile up at a large negative value, far away from all others.

        A mask adds such a value to scores before a softmax (-10000, or the lowest float). With a
        common scale all other values fall into a few codes; if the pile is clipped, the mask has no
        effect. False if all other values are 0 (the mask itself), because 0 is exact in INT8.
        """
        if self.counts is None or -self.low < self.amax:
            return False
        # magnitudes of negative values, from zero on; the lowest value may be in the first bin
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

        Returns False and adds no value if there is a NaN or an infinity among them.
        """
        if not values.size:
            return True
        flat = values.reshape(-1)
        # NumPy's min and max pass NaN on, so these two also find every bad value
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            return False
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self.counts is None:
            if low == high == 0.0:
                self.zeros += flat.size
                return True
            self.counts = np.zeros(2 * BINS, np.int64)
            # zero is the lower edge of this bin
            self.counts[BINS] = self.zeros
        if self.sided:
            self._widen(_above(max(-low, 0.0)), _above(max(high, 0.0)))
        else:
            self._widen(*[_above(max(high, -low))] * 2)
        scale, under = np.float32(BINS / self.top), np.float32(BINS / self.bottom)
        scaled, other, narrow, index = _arrays()
        # each value takes the scale of its own side
        pick = np.maximum if scale > under else np.minimum
        # the product with the other side's scale may overflow; it is not picked
        with np.errstate(over="ignore"):
            for begin in range(0, flat.size, _BLOCK):
                block = flat[begin : begin + _BLOCK]
                part, whole = scaled[: block.size], index[: block.size]
                np.multiply(block, scale, out=part)
                if scale != under:
                    pick(part, np.multiply(block, under, out=other[: block.size]), out=part)
                np.floor(part, out=part)
                part += np.float32(BINS)
                # conversion through int32 is twice as fast as directly
                np.copyto(narrow[: block.size], part, casting="unsafe")
                np.copyto(whole, narrow[: block.size])
                found = np.bincount(whole)
                self.counts[: found.size] += found
        return True

    def rectified(self) -> ValueHistogram:
        """Returns the histogram of ``max(x, 0)``; only if ``sided``."""
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
        """Returns the histogram of the values of this and other histograms."""
        made = replace(self, counts=None if self.counts is None else self.counts.copy())
        for other in others:
            made.low, made.high = min(made.low, other.low), max(made.high, other.high)
            made.sided |= other.sided
            if other.counts is None:
                if made.counts is None:
                    made.zeros += other.zeros
                else:
                    made.counts[BINS] += other.zeros
                continue
            counts = other.counts.copy()
            added = replace(other, counts=counts)
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
        """Returns the histogram with the same top on both sides."""
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
        """Returns the counts over [-``amax``, ``amax``] in ``bins`` equal bins, and their errors.

        If a new edge is inside a bin of this histogram, the bin's values are assumed to be evenly
        distributed.

        Returns:
            counts: int64 [bins].
            unsure: float64 [bins + 1], error of the number of values below each edge (one
                standard deviation; all values of a bin in which values pile up).
        """
        assert self.counts is not None
        counts = self.counts.astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(counts)])
        # in units of this histogram's bins
        edges = np.linspace(-self.amax, self.amax, bins + 1) * (BINS / self.top) + BINS
        cell = np.clip(np.floor(edges).astype(np.int64), 0, counts.size - 1)
        share = edges - cell
        cumulative = np.rint(below[cell] + share * counts[cell])
        cumulative[0], cumulative[-1] = 0, below[-1]
        # a bin that rises far above its neighbours holds equal values (zeros, a clip's limit),
        # which are on one side of the new edge
        neighbours = np.maximum(counts[cell - 1], counts[np.minimum(cell + 1, counts.size - 1)])
        piled = np.maximum(counts[cell] - 2 * neighbours - 8, 0.0)
        unsure = np.sqrt(counts[cell] * share * (1 - share)) + piled * (share > 0)
        unsure[0] = unsure[-1] = 0.0
        return np.diff(cumulative).astype(np.int64), unsure

    def _widen(self, bottom: float, top: float) -> None:
        """Makes the sides at least this wide; new bins are sums of old bins: no count is lost."""
        assert self.counts is not None
        if bottom > self.bottom:
            # counted from zero
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
    """Returns the smallest power of two above ``amax`` for which bins are possible."""
    return max(math.ldexp(1.0, math.frexp(amax)[1]), TINY) if amax else TINY


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns this thread's scratch arrays of a block each: twice float32, int32 and intp."""
    if not hasattr(_scratch, "arrays"):
        types = (np.float32, np.float32, np.int32, np.intp)
        _scratch.arrays = tuple(np.empty(_BLOCK, kind) for kind in types)
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = _scratch.arrays
    return arrays


@dataclass(frozen=True)
class DerivedTensor:
    """A tensor whose values follow from others: "same" values, "relu" or "all" of several."""

    kind: str
    sources: tuple[str, ...]


def derived_tensors(
    model: Model, network: Network, names: Collection[str]
) -> dict[str, DerivedTensor]:
    """Returns the tensors of ``names`` whose counts follow exactly, in graph order.

    If only some rows of a run count, both must have the same rows: axis 0 must not move.
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
        kind = _derivation(node)
        tensors = [types[name] for name in (out, *sources)]
        first = {shape[:1] for shape, _ in tensors}
        if kind and len(first) == 1 and first != {()} and len({dtype for _, dtype in tensors}) == 1:
            found[out] = DerivedTensor(kind, sources)
    return found


def merged_moves(model: Model, network: Network) -> list[str]:
    """Returns float tensors between moves that TensorRT merges, so that no layer has them."""
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
    """Returns shape and type by tensor, also of tensors that no layer has."""
    graph = model.proto.graph
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type:
            shape = tuple(dim.dim_value for dim in kind.shape.dim)
            found[value.name] = shape, str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found | {n: (tuple(t.shape), t.dtype) for n, t in network.tensors.items()}


def _derivation(node: onnx.NodeProto) -> str:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Relu":
        return "relu"
    if node.op_type == "Concat":
        # a negative axis counts from the last, which may be the first
        return "all" if given.get("axis", 1) > 0 else ""
    if node.op_type == "Transpose":
        return "same" if next(iter(given.get("perm", [-1]))) == 0 else ""
    # a third input of Dropout enables training mode
    return "same" if node.op_type in SAME_VALUES and len(node.input) < 3 else ""


def sided_tensors(made: Mapping[str, DerivedTensor]) -> set[str]:
    """Returns the tensors whose sides are counted apart, for a Relu's derived counts."""
    found: set[str] = set()
    for name in reversed(list(made)):
        if made[name].kind == "relu" or name in found:
            found.update(made[name].sources)
    return found


def derive(made: Mapping[str, DerivedTensor], counted: dict[str, ValueHistogram]) -> None:
    """Adds the histograms of derived tensors to the counted histograms."""
    for name, how in made.items():
        first, *others = (counted[source] for source in how.sources)
        if how.kind == "relu":
            counted[name] = first.rectified()
        else:
            counted[name] = first.joined(others)


def original_divergence(counts: np.ndarray, candidate: int) -> float:
    """Returns a candidate's divergence.

    Args:
        counts: int64 [bins], over [-amax, amax].
        candidate: Bins on each side of zero.
    """
    levels, zero = LEVELS_OF_ENTROPY, counts.size // 2
    start, end = zero - candidate, min(zero + candidate + 1, counts.size)
    inside = counts[start:end]
    p = inside.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[end:].sum()
    level_bins = inside.size // levels
    covered = level_bins * levels
    level = inside[:covered].reshape(levels, level_bins).sum(axis=1)
    level[-1] += inside[covered:].sum()
    in_use = (p[:covered].reshape(levels, level_bins) != 0).sum(axis=1)
    # integers as in ONNX Runtime, so that the mean of a level is truncated
    q = np.zeros(p.size, np.int64)
    q[:covered] = np.repeat(np.where(in_use > 0, level / np.maximum(in_use, 1), 0), level_bins)
    smooth_p, smooth_q = _smooth(p), _smooth(q)
    if smooth_p is None or smooth_q is None:
        return float("inf")
    smooth_p /= smooth_p.sum()
    smooth_q /= smooth_q.sum()
    return float((smooth_p * np.log(smooth_p / smooth_q)).sum())


def _smooth(values: np.ndarray) -> np.ndarray | None:
    """Moves a little mass to empty bins; returns None if all bins are empty."""
    # float32 as in smooth_distribution: close candidates depend on its rounding
    empty = (values == 0).astype(np.float32)
    count = float(empty.sum())
    if count == values.size:
        return None
    taken = EPS * count / (values.size - count)
    smoothed = values.astype(np.float32)
    smoothed += EPS * empty + (-taken) * (1 - empty)
    return smoothed


def nearest_candidate(counts: np.ndarray) -> int:
    """Returns the candidate, in bins on each side of zero, with the least divergence.

    The method of TensorRT's IInt8EntropyCalibrator2 (S. Migacz, "8-bit inference with TensorRT",
    GTC 2017) in the open form that ONNX Runtime carries (``onnxruntime/quantization/calibrate.py``,
    ``HistogramCollector.get_entropy_threshold`` and ``smooth_distribution``): a histogram of both
    signs, candidates that grow by one bin on each side, 128 levels, counts truncated to integers,
    empty bins smoothed. The same histogram gives the same threshold as in ONNX Runtime, bit for
    bit.

    Args:
        counts: int64 [an even number], counts over [-amax, amax].
    """
    return _pick_nearest(counts, _divergences(np.asarray(counts, np.int64)))


def clipping_edge(candidate: int, low: float, high: float, bins: int = ENTROPY_BINS) -> float:
    """Returns the clipping magnitude of a candidate: its outer edge, within the seen range.

    The interval has one bin more above zero than below, and is clipped to [``low``, ``high``].
    """
    found = edges(max(-low, high), bins)
    lower = max(float(found[bins // 2 - candidate]), low)
    upper = min(float(found[min(bins // 2 + candidate + 1, bins)]), high)
    return max(abs(lower), abs(upper))


def edges(amax: float, bins: int = ENTROPY_BINS) -> np.ndarray:
    """Returns float32 [bins + 1], the edges of NumPy's bins over [-``amax``, ``amax``].

    If twice ``amax`` overflows float32, the edges of ``amax`` / 4 are multiplied by 4, which gives
    the same values without the overflow.
    """
    factor = np.float32(4.0 if amax >= LARGE else 1.0)
    top = np.float32(amax) / factor
    return np.asarray(np.linspace(-top, top, bins + 1, dtype=np.float32) * factor)


def nearest_if_sure(counts: np.ndarray, unsure: np.ndarray) -> int | None:
    """Returns the nearest candidate if the errors of the counts cannot change it.

    Args:
        counts: int64 [bins].
        unsure: float64 [bins + 1], error of the count below each edge.

    Returns:
        The candidate; None if a candidate more than a bin away may be nearer.
    """
    found = _divergences(counts)
    best = _pick_nearest(counts, found)
    if not unsure.any():
        return best
    half = LEVELS_OF_ENTROPY // 2
    far = np.abs(np.arange(found.size) + half - best) > 1
    gap = found - found[best - half]
    # the same counts with a random error at every edge; a single draw that happens to move little
    # would make a tie look decided
    random = np.random.default_rng(0)
    square = np.zeros(found.size)
    for _ in range(_DRAWS):
        cumulative = np.concatenate([[0], np.cumsum(counts)])
        cumulative = cumulative + random.standard_normal(unsure.size) * unsure
        moved = np.rint(np.maximum.accumulate(np.clip(cumulative, 0, counts.sum())))
        moved[0], moved[-1] = 0, counts.sum()
        other = _divergences(np.diff(moved).astype(np.int64))
        with np.errstate(invalid="ignore"):
            off = other - other[best - half] - gap
        square += np.where(np.isfinite(off), off, 0.0) ** 2 / _DRAWS
    # neighbours have the same errors: smooth the error over several candidates
    window = np.ones(9)
    spread = np.maximum(np.convolve(square, window, "same") / window.size, square)
    rival = gap <= _SURE * np.sqrt(spread) + _ROUNDING
    return None if (rival & far & np.isfinite(found)).any() else best


def _pick_nearest(counts: np.ndarray, found: np.ndarray) -> int:
    """Picks by ``found``; among close candidates by the original's float32 arithmetic."""
    half = LEVELS_OF_ENTROPY // 2
    least = float(found.min())
    if not np.isfinite(least):
        return half
    close = np.flatnonzero(found <= least + abs(least) * _CLOSE + _CLOSE_ABSOLUTE) + half
    return int(close[int(np.argmin([original_divergence(counts, int(i)) for i in close]))])


def _divergences(counts: np.ndarray) -> np.ndarray:
    """Returns the Kullback-Leibler divergence of every candidate, float64.

    All candidates at once: a level's contribution to sum(p log q) needs no more than its mass
    and its number of bins in use, which cumulative sums give; sum(p log p) of the smoothed p is
    expanded to second order in the mass that smoothing takes from each bin (at most some 1e-2 of a
    count).
    """
    start, end, level_bins, borders = _candidates(counts.size)
    size = end - start
    used = counts > 0
    real = counts.astype(np.float64)

    def cumulative(values: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(values)])

    mass_to, used_to = cumulative(real), cumulative(used)
    total = mass_to[-1]
    left, right = mass_to[start], total - mass_to[end]
    # levels take ``level_bins`` bins each; the remaining bins add to the last level's mass, but the
    # quantised distribution is empty there
    mass = np.diff(mass_to[borders], axis=1)
    bins = np.diff(used_to[borders], axis=1)
    inside = mass.copy()
    over = end > borders[:, -1]
    rest = mass_to[end] - mass_to[borders[:, -1]]
    mass[:, -1] += rest
    first, last = real[start], real[end - 1]
    # an empty end bin is in use once it takes the clipped mass beyond it
    new_first, new_last = (first == 0) & (left > 0), (last == 0) & (right > 0)
    bins[:, 0] += new_first
    inside[:, 0] += left
    bins[:, -1] += new_last & ~over
    inside[:, -1] += np.where(over, 0.0, right)
    in_rest = np.where(over, rest + right, 0.0)
    bins_rest = np.where(over, used_to[end] - used_to[borders[:, -1]] + new_last, 0.0)
    in_use = used_to[end] - used_to[start] + new_first + new_last
    empty = size - in_use

    # in place from here on: allocating an array of this size costs more than its computation
    level = np.maximum(bins, 1)
    np.trunc(np.divide(mass, level, out=level), out=level)
    level[bins <= 0] = 0.0
    filled = level > 0
    full = filled.sum(axis=1) * level_bins
    with np.errstate(divide="ignore", invalid="ignore"):
        from_p, from_q = EPS * empty / in_use, EPS * (size - full) / full
        sum_q = level.sum(axis=1) * level_bins + EPS * (size - full) - from_q * full
        log_q = np.subtract(level, from_q[:, None], out=level)
        log_q[~filled] = EPS
        np.log(log_q, out=log_q)
        parts = []
        for term in (_x_log_x, _log, _inverse):
            known = cumulative(term(real))
            # the two end bins also carry the mass beyond them
            parts.append(
                known[end]
                - known[start]
                + term(first + left)
                - term(first)
                + term(last + right)
                - term(last)
            )
        p_log_p = (
            parts[0]
            - from_p * (parts[1] + in_use)
            + from_p**2 / 2 * parts[2]
            + EPS * np.log(EPS) * empty
        )
        weight = inside
        weight -= np.multiply(from_p[:, None], bins, out=mass)
        np.subtract(level_bins[:, None], bins, out=mass)
        mass *= EPS
        weight += mass
        weight *= log_q
        p_log_q = weight.sum(axis=1) + np.log(EPS) * (
            in_rest - from_p * bins_rest + EPS * (end - borders[:, -1] - bins_rest)
        )
        found = (p_log_p - p_log_q) / total - np.log(total) + np.log(sum_q)
    found[(full == 0) | (in_use == 0)] = np.inf
    return np.asarray(found)


@cache
def _candidates(bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns by candidate: first bin, end bin (excluded), bins of a level, borders of levels."""
    zero = bins // 2
    grown = np.arange(LEVELS_OF_ENTROPY // 2, zero + 1)
    start, end = zero - grown, np.minimum(zero + grown + 1, bins)
    level_bins = (end - start) // LEVELS_OF_ENTROPY
    borders = start[:, None] + level_bins[:, None] * np.arange(LEVELS_OF_ENTROPY + 1)
    return start, end, level_bins, borders


def _x_log_x(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = values * _log(values)
    return found


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.where(values > 0, values, 1.0))


def _inverse(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, 1.0 / np.where(values > 0, values, 1.0), 0.0)


def check_method(method: str) -> None:
    """Raises UsageError if the method is unknown."""
    if method not in METHODS:
        raise UsageError(
            f"unknown calibration method {method!r}",
            code="calibration.method",
            hint=f"use one of {', '.join(METHODS)}",
        )


def choose_amax(histogram: ValueHistogram, method: str) -> float:
    """Returns the clipping magnitude of a tensor; 0 when all its values are zero.

    Raises:
        UsageError: The method is not one of ``METHODS``.
    """
    check_method(method)
    if histogram.amax < TINY or _too_large(histogram):
        return histogram.amax
    return min(METHODS[method](histogram), histogram.amax)


def _too_large(histogram: ValueHistogram) -> bool:
    """Returns True if no method clips: the values are a mask's, too large for any scale."""
    return histogram.amax > LARGEST_SCALE * LEVELS


def entropy_if_sure(histogram: ValueHistogram) -> float | None:
    """Returns the entropy method's clipping magnitude; None if exact counts may change it.

    Tensors of fewer than ``FEWEST`` values keep their whole range.

    Counts are exact in the histogram's own bins. The method needs bins that end at the largest
    magnitude, so some values may be a bin off. This matters only if two candidates tie.
    """
    if histogram.amax < TINY or histogram.total < FEWEST or _too_large(histogram):
        return histogram.amax
    counts, unsure = histogram.regrid(ENTROPY_BINS)
    if unsure.any() and counts.sum() < _FEW:
        return None
    best = nearest_if_sure(counts, unsure)
    return None if best is None else clipping_edge(best, histogram.low, histogram.high)


def _entropy(histogram: ValueHistogram) -> float:
    if histogram.total < FEWEST:
        return histogram.amax
    counts, _ = histogram.regrid(ENTROPY_BINS)
    return clipping_edge(nearest_candidate(counts), histogram.low, histogram.high)


def _percentile(histogram: ValueHistogram) -> float:
    counts = histogram.magnitudes()
    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, cumulative[-1] * (PERCENTILE / 100.0)))
    return (index + 1) * histogram.top / counts.size


def _mse(histogram: ValueHistogram) -> float:
    """Returns the clip with the least mean squared quantisation error at the bins' centres."""
    counts = histogram.magnitudes(_MSE_BINS)
    used = np.flatnonzero(counts)
    centres = (used + 0.5) * (histogram.top / counts.size)
    clips = np.arange(_MSE_LEAST, _MSE_CLIPS + 1) * (histogram.amax / _MSE_CLIPS)
    scales = (clips / LEVELS)[:, None]
    codes = np.minimum(np.rint(centres[None, :] / scales), LEVELS)
    error = ((centres[None, :] - codes * scales) ** 2) @ counts[used].astype(np.float64)
    return float(clips[int(np.argmin(error))])


METHODS: dict[str, Callable[[ValueHistogram], float]] = {
    "entropy": _entropy,
    "minmax": lambda histogram: histogram.amax,
    "percentile": _percentile,
    "mse": _mse,
}
