"""The error of an approximate rewrite: both models run on the same inputs with ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.placement.rewrite_document import Approximation


def approximation(
    rewrite: str, before: Model, after: Model, inputs: Iterable[Mapping[str, np.ndarray]]
) -> Approximation:
    """Returns the error of a rewritten model; the data are not named yet."""
    outputs = [value.name for value in before.proto.graph.output]
    old, new = session(before), session(after)
    worst, squares, count = 0.0, 0.0, 0
    for sample in inputs:
        feeds = dict(sample)
        for a, b in zip(old.run(outputs, feeds), new.run(outputs, feeds), strict=True):
            difference = _difference(a.astype(np.float64), b.astype(np.float64))
            worst = max(worst, float(difference.max(initial=0.0)))
            squares += float((difference**2).mean()) if difference.size else 0.0
        count += 1
    known = math.isfinite(worst)
    rms = (squares / max(1, count * len(outputs))) ** 0.5 if known else None
    return Approximation(rewrite, worst if known else None, rms, count, data="", note="")


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns ``|b-a|`` over the largest ``|a|``; infinite at unequal NaNs and infinities."""
    sane = np.isfinite(a)
    if not np.array_equal(b[~sane], a[~sane], equal_nan=True):
        return np.full(1, np.inf)
    a, b = a[sane], b[sane]
    difference = np.abs(b - a) / (np.abs(a).max(initial=0.0) or 1.0)
    return np.where(np.isnan(difference), np.inf, difference)


def approximation_note(item: Approximation, data: str) -> str:
    """Returns a sentence with the error of an approximate rewrite on ``data``."""
    if item.max_error is None:
        return (
            f"{item.rewrite} changes results too much to compare: values are finite only "
            f"before or only after it ({data})"
        )
    return (
        f"{item.rewrite} changes results: by up to {item.max_error:.1e} of an output's "
        f"largest value ({data})"
    )
