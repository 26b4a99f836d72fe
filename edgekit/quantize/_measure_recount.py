"""Exact counts in the entropy method's own bins, where near ties of its candidates need them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from edgekit.quantize._measure_derived import Derived
from edgekit.quantize._measure_feeds import Feeds, rows
from edgekit.quantize._measure_parts import parts, run_parts
from edgekit.quantize._methods_entropy import ENTROPY_BINS, LARGE, edge_of, edges, nearest

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model
    from edgekit.quantize._histogram import Histogram

__all__ = ["Recount", "exact_counts"]

# values counted at once, and how near to an edge (in bins) float32 leaves it open where one lies
_BLOCK = 1 << 16
_NEAR = 0.001

_scratch = threading.local()


class Recount:
    """Counts some tensors again, now that their largest magnitudes are known.

    Args:
        model: The model.
        histograms: Those of the tensors to count.
        derived: Tensors that need no counts of their own where their bins are those of the source.
        batch: Rows of a run.
        pool: Counts in parallel.
        limit: Bytes of activations looked at together.
    """

    def __init__(
        self,
        model: Model,
        histograms: Mapping[str, Histogram],
        derived: Mapping[str, Derived],
        batch: int,
        pool: ThreadPoolExecutor,
        limit: int,
    ) -> None:
        self._model = model
        self._of = histograms
        self._derived = {
            name: how
            for name, how in derived.items()
            if how.kind != "all"
            and {name, how.sources[0]} <= histograms.keys()
            and histograms[name].amax == histograms[how.sources[0]].amax
        }
        self._batch = batch
        self._pool = pool
        self._limit = limit

    def run(
        self, feeds: Feeds, count: int, progress: Callable[[int, int], None] | None
    ) -> dict[str, float]:
        """Returns the entropy method's clipping magnitudes."""
        import numpy as np

        if not self._of:
            return {}
        counts = {
            name: np.zeros(ENTROPY_BINS, np.int64) for name in self._of if name not in self._derived
        }
        inputs = {value.name for value in self._model.proto.graph.input}
        outputs = [name for name in counts if name not in inputs]
        made = parts(self._model, outputs, self._limit) if outputs else []
        pending: list[Future[None]] = []
        for done, (feed, valid) in enumerate(feeds.again(), count + 1):
            own = tuple(name for name in feed if name in counts)
            first: list[np.ndarray] = [feed[n] for n in own]
            for names, arrays in chain([(own, first)], run_parts(made, feed)):
                while pending:
                    pending.pop().result()
                while arrays:
                    # a counted array is freed at once
                    name = names[len(arrays) - 1]
                    values = rows(arrays.pop(), self._batch, valid)
                    pending.append(self._pool.submit(self._count, counts[name], name, values))
                    del values
            if progress is not None:
                progress(done, 2 * count)
        for future in pending:
            future.result()
        for name, how in self._derived.items():
            found = counts[how.sources[0]].copy()
            if how.kind == "relu":
                middle = found.size // 2
                found[middle] += found[:middle].sum()
                found[:middle] = 0
            counts[name] = found
        best = self._pool.map(nearest, counts.values())
        return {
            name: edge_of(candidate, self._of[name].low, self._of[name].high)
            for name, candidate in zip(counts, best, strict=True)
        }

    def _count(self, counts: np.ndarray, name: str, values: np.ndarray) -> None:
        flat = values.reshape(-1)
        for begin in range(0, flat.size, _BLOCK):
            counts += exact_counts(flat[begin : begin + _BLOCK], self._of[name].amax, counts.size)


def exact_counts(values: np.ndarray, amax: float, bins: int) -> np.ndarray:
    """Returns what ``numpy.histogram(values, bins, (-amax, amax))`` does, several times faster.

    Only values that float32 arithmetic puts near an edge are compared with the edge itself.

    Args:
        values: float32 or float16 [n], none beyond ``amax``.
        amax: A float32, above 0.
        bins: At most 4096: a value's place is then known to better than ``_NEAR`` of a bin.
    """
    import numpy as np

    if amax >= LARGE:
        # twice the range is beyond float32; scaling by 4 is exact
        values, amax = values * np.float32(0.25), amax / 4.0
    top = np.float32(amax)
    index = np.empty(values.size, np.intp)
    if not hasattr(_scratch, "arrays"):
        _scratch.arrays = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    if values.size <= _BLOCK:
        place, whole = (array[: values.size] for array in _scratch.arrays)
    else:
        place, whole = np.empty(values.size, np.float32), np.empty(values.size, np.float32)
    np.add(values, top, out=place)
    place *= np.float32(bins / (2.0 * amax))
    np.floor(place, out=whole)
    place -= whole
    place -= np.float32(0.5)
    np.abs(place, out=place)
    near = np.flatnonzero(place > np.float32(0.5 - _NEAR))
    # by way of int32 twice as fast as at once
    np.copyto(index, whole.astype(np.int32))
    if near.size:
        found = np.searchsorted(_edges(amax, bins), values[near].astype(np.float32), side="right")
        index[near] = np.clip(found - 1, 0, bins - 1)
    return np.asarray(np.bincount(index, minlength=bins))


@lru_cache(maxsize=256)
def _edges(amax: float, bins: int) -> np.ndarray:
    return edges(amax, bins)
