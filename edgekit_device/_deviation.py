"""How far outputs are from their reference: cosine, signal to noise, places of the largest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Deviation", "classes_of", "right_of", "worst_of"]


class Deviation:
    """How far a tensor is from its reference: running sums over the inputs, in double precision."""

    def __init__(self) -> None:
        self.cosines: List[float] = []
        self.squares = 0.0
        self.total = 0.0
        self.total_squares = 0.0
        self.elements = 0
        self.max_abs = 0.0
        self.agree = 0
        self.rows = 0

    def add(self, reference: np.ndarray, found: np.ndarray) -> None:
        """Takes in one inference."""
        import numpy as np

        # infinities and NaN are results, too, and no reason to warn
        with np.errstate(invalid="ignore", over="ignore"):
            # integer and boolean outputs (labels) are compared as numbers
            a = reference.reshape(-1).astype(np.float64)
            b = found.reshape(-1).astype(np.float64)
            difference = b - a
            self.squares += float(difference @ difference)
            self.total += float(a.sum())
            self.total_squares += float(a @ a)
            self.elements += a.size
            # max() would let a NaN pass unseen
            largest = float(np.abs(difference).max(initial=0.0))
            self.max_abs = max(self.max_abs, largest if math.isfinite(largest) else math.inf)
            norms = math.sqrt(float(a @ a) * float(b @ b))
            same = not difference.any()
            # two zero vectors agree, a zero and another do not
            self.cosines.append(1.0 if same else float(a @ b) / norms if norms else 0.0)
            axis = _class_axis(reference.shape)
            matches = reference.argmax(axis=axis) == found.argmax(axis=axis)
            # the arg max of NaN means nothing
            self.agree += int(np.count_nonzero(matches)) if np.isfinite(b).all() else 0
            self.rows += int(np.size(matches))

    def top1_agreement(self) -> float:
        """The share of rows whose largest value is at the same place, 0 to 1."""
        return self.agree / self.rows if self.rows else 1.0

    def snr_db(self) -> Optional[float]:
        """Variance of the reference over mean squared error; None when there is no error."""
        if self.squares == 0.0:
            return None
        if not math.isfinite(self.squares):
            return -math.inf
        mean = self.total / self.elements
        variance = max(self.total_squares / self.elements - mean * mean, 0.0)
        ratio = variance / (self.squares / self.elements)
        return 10.0 * math.log10(ratio) if ratio > 0 else -math.inf


def _class_axis(shape: Sequence[int]) -> Optional[int]:
    """The axis of the classes: the first after the batch that has more than one."""
    for axis in range(1, len(shape)):
        if shape[axis] > 1:
            return axis
    return None


def classes_of(shape: Sequence[int]) -> Optional[Tuple[int, int]]:
    """The batch and the number of classes of an output that names one class for each input."""
    axis = _class_axis(shape)
    others = [size for place, size in enumerate(shape) if place not in (0, axis)]
    if axis is None or any(size != 1 for size in others):
        return None
    return shape[0], shape[axis]


def right_of(found: np.ndarray, labels: Sequence[int]) -> int:
    """How many rows have their largest value at their label; none where there are NaNs."""
    import numpy as np

    if not np.isfinite(found.astype(np.float64)).all():
        return 0
    largest = found.argmax(axis=_class_axis(found.shape)).reshape(-1)
    return int(np.count_nonzero(largest == np.asarray(labels)))


def worst_of(errors: Sequence[Deviation]) -> Dict[str, Any]:
    """Returns ``cosine``, ``cosine_min``, ``snr_db``, ``exact`` and ``max_abs``: of the worst."""
    ratios = [error.snr_db() for error in errors]
    known = [ratio for ratio in ratios if ratio is not None]
    return {
        "cosine": min((_finite(sum(e.cosines) / len(e.cosines), 0.0) for e in errors), default=1.0),
        "cosine_min": min((_finite(min(e.cosines), 0.0) for e in errors), default=1.0),
        "snr_db": _finite(min(known), -999.0) if known else None,
        "exact": not known,
        "max_abs": _finite(max((e.max_abs for e in errors), default=0.0), 3.4e38),
    }


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
