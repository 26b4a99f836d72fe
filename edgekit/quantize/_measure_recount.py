"""Exact counts in the entropy method's own bins, where near ties of its candidates need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING

from edgekit.quantize._measure_feeds import Feeds, rows
from edgekit.quantize._measure_parts import parts, run_parts
from edgekit.quantize._methods_entropy import ENTROPY_BINS, edge_of, nearest

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model
    from edgekit.quantize._histogram import Histogram

__all__ = ["Recount", "exact_counts"]

# values counted at once, and how near to an edge (in bins) float32 leaves it open where one lies
_BLOCK = 1 << 17
_NEAR = 0.005


class Recount:
    """Counts some tensors again, now that their largest magnitudes are known.

    Args:
        model: The model.
        histograms: Those of the tensors to count.
        batch: Rows of a run.
        pool: Counts in parallel.
        limit: Bytes of activations looked at together.
    """

    def __init__(
        self,
        model: Model,
        histograms: Mapping[str, Histogram],
        batch: int,
        pool: ThreadPoolExecutor,
        limit: int,
    ) -> None:
        self._model = model
        self._of = histograms
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
        counts = {name: np.zeros(ENTROPY_BINS, np.int64) for name in self._of}
        inputs = {value.name for value in self._model.proto.graph.input}
        outputs = [name for name in self._of if name not in inputs]
        made = parts(self._model, outputs, self._limit) if outputs else []
        for done, (feed, valid) in enumerate(feeds.again(), count + 1):
            own = [name for name in feed if name in counts]
            first = [(tuple(own), [feed[n] for n in own])]
            for names, arrays in chain(first, run_parts(made, feed)):
                list(self._pool.map(
                    lambda n, a, v=valid: self._count(counts[n], n, rows(a, self._batch, v)),
                    names, arrays,
                ))  # fmt: skip
            if progress is not None:
                progress(done, 2 * count)
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

    top = np.float32(amax)
    place = values.astype(np.float32)
    place += top
    place *= np.float32(bins / (2.0 * amax))
    index = place.astype(np.int64)
    np.minimum(index, bins - 1, out=index)
    place -= index
    near = np.flatnonzero((place < _NEAR) | (place > 1 - _NEAR))
    if near.size:
        edges = np.linspace(-top, top, bins + 1, dtype=np.float32)
        found = np.searchsorted(edges, values[near].astype(np.float32), side="right") - 1
        index[near] = np.clip(found, 0, bins - 1)
    return np.asarray(np.bincount(index, minlength=bins))
