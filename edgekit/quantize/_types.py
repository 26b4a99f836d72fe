"""The values of this floor: activation scales and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Scales"]


@dataclass(frozen=True, eq=False)
class Scales:
    """Symmetric per-tensor INT8 scales: ``scale = amax / 127``.

    Attributes:
        scales: By tensor name; graph inputs and every activation tensor of the network.
        method: "entropy", "minmax", "percentile", "mse" or "cache".
        data: What they were measured on, for people ("16 synthetic inputs, seed 0").
        digest: SHA-256 (hex) of names and values.
        missing: Float tensors of the network without a scale (a calibration cache may lack
            some); layers that need them run in FP16.
    """

    scales: Mapping[str, float]
    method: str
    data: str
    digest: str
    missing: tuple[str, ...] = ()
