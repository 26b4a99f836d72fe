"""Histograms of a tensor's values that do not depend on the order or the batch they came in."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BINS", "TINY", "Histogram"]

# on each side of zero; the range is a power of two above the largest magnitude, so between 8192
# and 16384 of them are in use: at least eight for each bin of the entropy method
BINS = 1 << 14
# values counted at once: the scratch arrays of a thread stay in the processor's cache
_BLOCK = 1 << 17
# below it bins would be narrower than float32 can scale; only the range is kept
TINY = 2.0**-90

_scratch = threading.local()


@dataclass(slots=True, eq=False)
class Histogram:
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
    """

    low: float = math.inf
    high: float = -math.inf
    top: float = 0.0
    counts: np.ndarray | None = None
    zeros: int = 0

    @property
    def amax(self) -> float:
        """Largest magnitude; 0 when there is no value."""
        return max(self.high, -self.low, 0.0)

    @property
    def total(self) -> int:
        """Number of values."""
        return self.zeros if self.counts is None else int(self.counts.sum())

    def add(self, values: np.ndarray) -> bool:
        """Adds values of any shape (float32 or narrower).

        Returns False, with nothing added, when there is a NaN or an infinity among them.
        """
        import numpy as np

        if not values.size:
            return True
        flat = values.reshape(-1)
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            return False
        self.low, self.high = min(self.low, low), max(self.high, high)
        amax = max(high, -low)
        if self.counts is None:
            if amax == 0.0:
                self.zeros += flat.size
                return True
            self.top = _above(amax)
            self.counts = np.zeros(2 * BINS, np.int64)
            self.counts[BINS] = self.zeros
        while amax >= self.top:
            self._double()
        scale = np.float32(BINS / self.top)
        scaled, index = _arrays()
        for begin in range(0, flat.size, _BLOCK):
            block = flat[begin : begin + _BLOCK]
            part, whole = scaled[: block.size], index[: block.size]
            np.multiply(block, scale, out=part)
            np.floor(part, out=part)
            np.copyto(whole, part, casting="unsafe")
            whole += BINS
            self.counts += np.bincount(whole, minlength=2 * BINS)
        return True

    def magnitudes(self, bins: int = BINS) -> np.ndarray:
        """Returns int64 [bins]: counts of ``|x|`` over [0, ``top``); ``bins`` divides BINS."""
        import numpy as np

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
        import numpy as np

        assert self.counts is not None
        counts = self.counts.astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(counts)])
        edges = np.linspace(-self.amax, self.amax, bins + 1) * (BINS / self.top) + BINS
        cell = np.clip(np.floor(edges).astype(np.int64), 0, counts.size - 1)
        share = edges - cell
        cumulative = np.rint(below[cell] + share * counts[cell])
        cumulative[0], cumulative[-1] = 0, below[-1]
        beside = np.maximum(counts[cell - 1], counts[np.minimum(cell + 1, counts.size - 1)])
        piled = np.maximum(counts[cell] - 2 * beside - 8, 0.0)
        unsure = np.sqrt(counts[cell] * share * (1 - share)) + piled * (share > 0)
        unsure[0] = unsure[-1] = 0.0
        return np.diff(cumulative).astype(np.int64), unsure

    def _double(self) -> None:
        """Doubles the range; each new bin is the sum of two old ones, so no count is lost."""
        assert self.counts is not None
        pairs = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts[:] = 0
        self.counts[BINS // 2 : BINS // 2 + BINS] = pairs
        self.top *= 2.0


def _above(amax: float) -> float:
    """Returns the smallest power of two above ``amax``, but none that bins cannot be made for."""
    return max(math.ldexp(1.0, math.frexp(amax)[1]), TINY)


def _arrays() -> tuple[np.ndarray, np.ndarray]:
    """Returns this thread's scratch arrays: float32 and int64, one block each."""
    import numpy as np

    if not hasattr(_scratch, "arrays"):
        _scratch.arrays = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.int64)
    arrays: tuple[np.ndarray, np.ndarray] = _scratch.arrays
    return arrays
