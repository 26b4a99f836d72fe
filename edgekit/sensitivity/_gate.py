"""What an accuracy gate may ask for."""

from __future__ import annotations

import math

__all__ = ["impossible"]

# a cosine is a correlation, and the agreement a share of the inputs
_MOST = {"cosine": 1.0, "top1_agreement": 1.0}


def impossible(metric: str, minimum: float) -> str:
    """Returns why no build can reach an accuracy; empty where one may.

    Args:
        metric: "cosine", "snr_db" or "top1_agreement".
        minimum: The lowest value that passes.
    """
    if not math.isfinite(minimum):
        return f"{metric} {minimum} is no number that a build can reach"
    most = _MOST.get(metric, math.inf)
    return f"{metric} is at most {most:g}, so none reaches {minimum:g}" if minimum > most else ""
