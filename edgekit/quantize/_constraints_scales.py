"""Scales that were given, tied as the hardware asks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.quantize._constraints import tie
from edgekit.quantize._constraints_told import constraint_warnings
from edgekit.quantize._scales import make_scales

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.quantize._types import Scales

__all__ = ["tied"]


def tied(
    scales: Scales,
    network: Network,
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> Scales:
    """Returns the scales of a calibration cache as TensorRT's builder takes them.

    A calibrator takes the largest of scales that must be equal (NvInfer.h on element-wise layers;
    tensorflow/tensorflow#25771 on concatenation and pooling). Measured ranges are tied by
    ``scales_from`` already.

    Args:
        scales: As given.
        network: The layer graph.
        dla_layers: Layers that can run on the target's DLA; None where all may.
        fp16_layers: Layers kept in FP16, which bind nothing.

    Returns:
        Them, with ``changes`` and with warnings about what is costly or open.
    """
    values, changes = tie(network, scales.scales, dla_layers=dla_layers, fp16_layers=fp16_layers)
    costs = constraint_warnings(
        network, values, changes, dla_layers=dla_layers, fp16_layers=fp16_layers
    )
    if changes:
        made = make_scales(values, method=scales.method, data=scales.data, missing=scales.missing)
        scales = replace(scales, scales=made.scales, digest=made.digest, changes=changes)
    return replace(scales, warnings=(*scales.warnings, *costs))
