"""The requirements of an accuracy gate: its metrics, and minimums that no build can reach."""

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

#: Metrics of an accuracy against the FP32 network.
Metric = Literal["cosine", "snr_db", "top1_agreement", "boxes"]
METRICS: tuple[str, ...] = get_args(Metric)

# a cosine is a correlation, the agreement a share of the inputs, boxes an F1 score
_MOST = {"cosine": 1.0, "top1_agreement": 1.0, "boxes": 1.0}


def impossible(metric: str, minimum: float) -> str:
    """Returns why no build can reach an accuracy; empty if a build may.

    Args:
        metric: A metric of ``METRICS``.
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
    """The calibration method that the accuracy gate chose after trying all methods.

    Attributes:
        method: The best method by the gate's metric.
        metric: A metric of ``METRICS``.
        figures: The metric by method, the best first; None if an SNR is not finite.
        failures: Other reasons why a method misses the gate, by method.
        passes: True if the method reaches the gate without a layer in FP16.
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
