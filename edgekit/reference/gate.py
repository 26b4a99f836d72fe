"""What an accuracy gate may require: its metrics, and minimums that no build can reach."""

from __future__ import annotations

import math
from typing import Literal, get_args

#: What an accuracy against the FP32 network is measured in.
Metric = Literal["cosine", "snr_db", "top1_agreement"]
METRICS: tuple[str, ...] = get_args(Metric)

# a cosine is a correlation, and the agreement a share of the inputs
_MOST = {"cosine": 1.0, "top1_agreement": 1.0}


def impossible(metric: str, minimum: float) -> str:
    """Returns why no build can reach an accuracy; empty if one may.

    Args:
        metric: One of ``METRICS``.
        minimum: The lowest value that passes.
    """
    if not math.isfinite(minimum):
        return f"{metric} {minimum} is not a finite number"
    most = _MOST.get(metric, math.inf)
    return (
        f"{metric} {minimum:g} cannot be reached (highest value: {most:g})"
        if minimum > most
        else ""
    )
