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

__all__ = ["Recount"]


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
        import numpy as np

        amax = self._of[name].amax
        counts += np.histogram(
            values.reshape(-1).astype(np.float32, copy=False), ENTROPY_BINS, (-amax, amax)
        )[0]
