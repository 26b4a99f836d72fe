"""Sets of ONNX operators that several floors ask for."""

from __future__ import annotations

__all__ = ["QDQ", "SAME_VALUES"]

#: Those of a quantised model in the Q/DQ format.
QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Those whose result has the values of their first input, in another shape or order at most.
SAME_VALUES = frozenset(
    {"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
