"""Histograms of magnitudes that grow with the data and never hold more than their bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BINS", "Histogram"]

# 2048 is what TensorRT's entropy calibrator uses; doubling the range halves the bins in use, so
# twice as many keep at least 2048 of them meaningful
BINS = 4096
# of a larger array every third, fifth, ... value is counted; its largest is always exact
_COUNTED = 1 << 18
_TINY = 1e-34


@dataclass(slots=True)
class Histogram:
    """Counts of ``|x|`` in equal bins over [0, ``top``].

    Attributes:
        top: Upper end of the last bin; 0 until a value other than zero was seen.
        amax: Largest magnitude seen.
        counts: int64 [BINS]; magnitudes that are exactly ``top`` fall in the last bin.
        zeros: Values seen while everything was zero.
    """

    top: float = 0.0
    amax: float = 0.0
    counts: np.ndarray | None = field(default=None)
    zeros: int = 0

    def add(self, values: np.ndarray) -> bool:
        """Adds values of any shape (float32 or narrower).

        Returns False, with nothing added, when there is a NaN or an infinity among them.
        """
        import numpy as np

        if not values.size:
            return True
        flat = values.reshape(-1)
        amax = max(float(flat.max()), -float(flat.min()))
        if not np.isfinite(amax):
            return False
        self.amax = max(self.amax, amax)
        if self.counts is None:
            if amax == 0.0:
                self.zeros += flat[:: _stride(flat.size)].size
                return True
            self.top = amax
            self.counts = np.zeros(BINS, np.int64)
            self.counts[0] = self.zeros
        while amax > self.top:
            self._double()
        magnitude = np.abs(flat[:: _stride(flat.size)]).astype(np.float32, copy=False)
        if self.top < _TINY:
            # the factor would overflow float32
            magnitude = magnitude / np.float32(self.top) * np.float32(BINS)
        else:
            magnitude *= np.float32(BINS / self.top)
        counts = np.bincount(magnitude.astype(np.int64), minlength=BINS)
        self.counts += counts[:BINS]
        self.counts[-1] += counts[BINS:].sum()
        return True

    def _double(self) -> None:
        """Doubles the range; each new bin is the sum of two old ones, so no count is lost."""
        assert self.counts is not None
        half = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts[: BINS // 2] = half
        self.counts[BINS // 2 :] = 0
        self.top *= 2.0


def _stride(size: int) -> int:
    """An odd step, so that rows of even length are not sampled in columns."""
    return (size // _COUNTED) | 1
