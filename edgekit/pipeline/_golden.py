"""Which inputs the golden vectors of a configuration are generated from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["GOLDEN_SEED", "golden_ranges"]

GOLDEN_SEED = 7


def golden_ranges(inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Returns (low, high) by input name: what a calibration input spans."""
    return {name: (float(value.min()), float(value.max())) for name, value in inputs.items()}
