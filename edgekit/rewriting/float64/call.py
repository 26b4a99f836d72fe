"""A node's inputs and attributes, as arguments of the float64 kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from edgekit.network.graph import Attributes


@dataclass(frozen=True, slots=True)
class Call:
    """A node to compute.

    Attributes:
        op: ONNX operator.
        inputs: Input values; None for an omitted optional input.
        attrs: Attributes as plain Python values.
        opset: Version of ai.onnx.
        outputs: Number of requested outputs.
    """

    op: str
    inputs: tuple[np.ndarray | None, ...]
    attrs: Attributes
    opset: int
    outputs: int = 1

    def array(self, index: int) -> np.ndarray:
        """Returns a required input."""
        value = self.inputs[index]
        if value is None:
            raise ValueError(f"{self.op} has no input {index}")
        return value

    def optional(self, index: int) -> np.ndarray | None:
        """Returns an optional input; None if omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def wide(self, index: int) -> np.ndarray:
        """Returns a required input, floating-point numbers in float64."""
        return wide(self.array(index))

    def real(self, name: str, default: float) -> float:
        """Returns a number attribute, rounded to FP32 as in models."""
        return float(np.float32(self.attrs.get(name, default)))

    def whole(self, name: str, default: int) -> int:
        """Returns an integer attribute."""
        return int(self.attrs.get(name, default))

    def wholes(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Returns a list of integers."""
        return tuple(int(item) for item in self.attrs.get(name, default))

    def text(self, name: str, default: str) -> str:
        """Returns a text attribute."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Returns axes given as an attribute or, in later opsets, as an input; None for neither."""
        if "axes" in self.attrs:
            return self.wholes("axes")
        value = self.optional(index)
        return None if value is None else tuple(int(item) for item in value.reshape(-1))


# None: the kernel cannot compute this form of the operator
OperatorFunction: TypeAlias = Callable[[Call], Sequence[np.ndarray] | None]


def wide(value: np.ndarray) -> np.ndarray:
    """Returns floating-point numbers of any width in float64, other values unchanged."""
    if value.dtype == np.float64 or value.dtype.kind not in "fV":
        return value
    return value.astype(np.float64)
