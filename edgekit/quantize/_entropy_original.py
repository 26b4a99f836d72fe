"""One candidate of the entropy method as ONNX Runtime computes it, integers and float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EPS", "LEVELS_OF_ENTROPY", "as_original"]

LEVELS_OF_ENTROPY = 128
# smooth_distribution's default
EPS = 1e-4


def as_original(counts: np.ndarray, candidate: int) -> float:
    """Returns a candidate's divergence.

    Args:
        counts: int64 [bins], over [-amax, amax].
        candidate: Bins on each side of zero.
    """
    import numpy as np

    levels, zero = LEVELS_OF_ENTROPY, counts.size // 2
    start, end = zero - candidate, min(zero + candidate + 1, counts.size)
    inside = counts[start:end]
    p = inside.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[end:].sum()
    merged = inside.size // levels
    covered = merged * levels
    level = inside[:covered].reshape(levels, merged).sum(axis=1)
    level[-1] += inside[covered:].sum()
    in_use = (p[:covered].reshape(levels, merged) != 0).sum(axis=1)
    q = np.zeros(p.size, np.int64)
    q[:covered] = np.repeat(np.where(in_use > 0, level / np.maximum(in_use, 1), 0), merged)
    smooth_p, smooth_q = _smooth(p), _smooth(q)
    if smooth_p is None or smooth_q is None:
        return float("inf")
    smooth_p /= smooth_p.sum()
    smooth_q /= smooth_q.sum()
    return float((smooth_p * np.log(smooth_p / smooth_q)).sum())


def _smooth(values: np.ndarray) -> np.ndarray | None:
    """Gives empty bins a little of the others; None when all are empty."""
    import numpy as np

    empty = (values == 0).astype(np.float32)
    count = float(empty.sum())
    if count == values.size:
        return None
    taken = EPS * count / (values.size - count)
    smoothed = values.astype(np.float32)
    smoothed += EPS * empty + (-taken) * (1 - empty)
    return smoothed
