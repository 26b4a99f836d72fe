"""Operators of this group without an exact form in the DLA's operations, and why."""

from __future__ import annotations

__all__ = ["WITHOUT"]

_JUMPS = "it jumps, and all that the DLA has between comparisons is continuous"
_FUNCTION = "no finite composition of the DLA's functions equals it"

# reason by ONNX operator; those that an approximate rewrite covers name it
WITHOUT: dict[str, str] = {
    "Acos": _FUNCTION,
    "Acosh": _FUNCTION,
    "Asin": _FUNCTION,
    "Asinh": _FUNCTION,
    "Atan": "the DLA has it itself from TensorRT 8.6.12 on; before, " + _FUNCTION,
    "Ceil": _JUMPS,
    "Cosh": "sums of exponentials: see Exp",
    "Div": "the DLA has it from TensorRT 8.6.12 on; before, only a constant divisor has a form",
    "Erf": _FUNCTION + " (GELU: approx-gelu-erf, approx-gelu-sigmoid)",
    "Exp": (
        "sigmoid(x) / sigmoid(-x) equals it, but divides by a number near 0 that FP16 and INT8 do "
        "not hold; 1 / (1 + exp(-x)) is covered by sigmoid-form, Elu by elu"
    ),
    "Floor": _JUMPS,
    "Log": _FUNCTION,
    "Mod": _JUMPS,
    "Round": _JUMPS,
    "Shrink": _JUMPS + " (soft-shrink covers a bias that equals the threshold)",
    "Sign": _JUMPS,
    "Sinh": "sums of exponentials: see Exp",
    "Softplus": _FUNCTION + " (approx-softplus-relu; Mish itself has a form: mish)",
    "Sqrt": _FUNCTION,
    "Tan": "the quotient of Sin and Cos, which the DLA has for INT8 inputs alone",
    "ThresholdedRelu": _JUMPS,
}
