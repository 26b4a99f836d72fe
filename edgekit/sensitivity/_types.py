"""The values of this floor: what a kernel in INT8 costs, and what to keep out of INT8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Impact", "Proposal", "Sensitivity"]


@dataclass(frozen=True, slots=True)
class Impact:
    """What INT8 of one kernel alone costs at the network's outputs, all else in FP32.

    Attributes:
        layers: The kernel's layers: what the target runs as one.
        device: Where the plan has it.
        snr_db: Variance of the FP32 output over mean squared error, in dB, of the worst output or
            group of its channels; None where every output is bit-equal.
        cosine: Mean over the inputs of the cosine similarity with FP32, the worst output's.
        cosine_min: The worst input's.
        max_abs: Largest absolute difference, in the output's unit.
        top1_agreement: Share of inputs whose largest value is at the same place, 0 to 1.
        place: "first" where it reads a network input, "last" where it writes an output, both
            or neither of them.
    """

    layers: tuple[str, ...]
    device: str
    snr_db: float | None
    cosine: float
    cosine_min: float
    max_abs: float
    top1_agreement: float
    place: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its layers, as the target's builder joins them."""
        return " + ".join(self.layers)


@dataclass(frozen=True)
class Sensitivity:
    """Every INT8 kernel of a plan, worst first.

    Attributes:
        impacts: The ranking.
        floats: Why a layer does not run in INT8, by layer name, for those that do not.
        samples: Inputs measured.
    """

    impacts: tuple[Impact, ...]
    floats: Mapping[str, str]
    samples: int


@dataclass(frozen=True)
class Proposal:
    """The layers to keep out of INT8 for an accuracy.

    Attributes:
        metric: "cosine", "snr_db" or "top1_agreement".
        minimum: The lowest value that is wanted of it.
        layers: To be kept in FP16, worst first; None where FP16 of all layers misses it too.
        kernels: How many kernels they are.
        accuracy: Of the build with ``layers`` in FP16 (of all of them where that is None).
        int8: Of the build without.
        minimal: Whether every single kernel was left out once and missed the accuracy.
        builds: Builds that were measured.
    """

    metric: str
    minimum: float | None
    layers: tuple[str, ...] | None
    kernels: int
    accuracy: Mapping[str, Any]
    int8: Mapping[str, Any]
    minimal: bool
    builds: int
