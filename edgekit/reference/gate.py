"""What an accuracy gate may require: its metrics, and minimums that no build can reach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

from edgekit_device.protocol.codec import (
    array,
    document,
    flag,
    mapping,
    member,
    nullable,
    number,
    text,
)

#: What an accuracy against the FP32 network is measured in.
Metric = Literal["cosine", "snr_db", "top1_agreement", "boxes"]
METRICS: tuple[str, ...] = get_args(Metric)

# a cosine is a correlation, the agreement a share of the inputs, boxes an F1 score
_MOST = {"cosine": 1.0, "top1_agreement": 1.0, "boxes": 1.0}


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


@document(frozen=True, eq=False)
class GateChoice:
    """The calibration method that the accuracy gate took after it had tried all of them.

    Attributes:
        method: The best one by the gate's metric.
        metric: One of ``METRICS``.
        figures: The metric by method, the best first; None where an SNR is not finite.
        failures: What else misses the gate, by method.
        passes: Whether the method reaches the gate without a layer in FP16.
    """

    method: str = member(text())
    metric: str = member(text(), default="")
    figures: Mapping[str, float | None] = member(
        mapping(nullable(number(-1e100, 1e100))), default=dict
    )
    failures: Mapping[str, tuple[str, ...]] = member(
        mapping(array(text(most=1 << 20))), default=dict
    )
    passes: bool = member(flag, default=False)
