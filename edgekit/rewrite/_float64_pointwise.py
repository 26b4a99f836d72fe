"""Element by element, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from edgekit.rewrite._float64_call import Call, Kernel

__all__ = ["ACTIVATIONS", "KERNELS", "sigmoid"]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(x, 0.0))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


def _gelu(call: Call) -> np.ndarray:
    x = call.wide(0)
    if call.text("approximate", "none") == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _selu(call: Call) -> np.ndarray:
    alpha = call.real("alpha", 1.67326319217681884765625)
    return call.real("gamma", 1.05070102214813232421875) * _elu(call.wide(0), alpha)


def _celu(call: Call) -> np.ndarray:
    alpha, x = call.real("alpha", 1.0), call.wide(0)
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x)


def _hard_sigmoid(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return np.clip(alpha * x + beta, 0.0, 1.0)


def _leaky(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * x, x)


def _prelu(call: Call) -> np.ndarray:
    x = call.wide(0)
    return np.where(x < 0, call.wide(1) * x, x)


def _clip(call: Call) -> np.ndarray:
    x = call.wide(0)
    if call.opset < 11:
        return np.asarray(np.clip(x, call.real("min", -np.inf), call.real("max", np.inf)))
    least, most = call.optional(1), call.optional(2)
    x = x if least is None else np.maximum(x, least)
    return x if most is None else np.minimum(x, most)


def _shrink(call: Call) -> np.ndarray:
    x, bias, edge = call.wide(0), call.real("bias", 0.0), call.real("lambd", 0.5)
    return np.where(x < -edge, x + bias, np.where(x > edge, x - bias, 0.0))


def _div(call: Call) -> np.ndarray:
    a, b = call.wide(0), call.wide(1)
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    # whole numbers are cut off towards zero
    return np.asarray(np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b), a.dtype)


def _pow(call: Call) -> np.ndarray:
    a, b = call.wide(0), call.wide(1)
    return np.asarray(np.power(a, b), a.dtype)


def _mod(call: Call) -> np.ndarray:
    made = np.fmod if call.whole("fmod", 0) else np.mod
    return np.asarray(made(call.wide(0), call.wide(1)))


def _thresholded(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x > alpha, x, 0.0)


def _unary(function: Callable[[Any], Any]) -> Kernel:
    return lambda call: [np.asarray(function(call.wide(0)))]


def _binary(function: Callable[[Any, Any], Any]) -> Kernel:
    return lambda call: [np.asarray(function(call.wide(0), call.wide(1)))]


def _many(function: Callable[[Any, Any], Any], *, mean: bool = False) -> Kernel:
    def kernel(call: Call) -> Sequence[np.ndarray]:
        total = reduce(function, (call.wide(index) for index in range(len(call.inputs))))
        return [np.asarray(total / len(call.inputs) if mean else total)]

    return kernel


def _one(function: Callable[[Call], np.ndarray]) -> Kernel:
    return lambda call: [np.asarray(function(call))]


# as GRU, LSTM and RNN name them, with the defaults of onnx/defs/rnn
ACTIVATIONS: Mapping[str, Callable[[np.ndarray, float | None, float | None], np.ndarray]] = {
    "Affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "Elu": lambda x, a, b: _elu(x, 1.0 if a is None else a),
    "HardSigmoid": lambda x, a, b: _hard_sigmoid(
        x, float(np.float32(0.2)) if a is None else a, 0.5 if b is None else b
    ),
    "LeakyRelu": lambda x, a, b: _leaky(x, float(np.float32(0.01)) if a is None else a),
    "Relu": lambda x, a, b: np.maximum(x, 0.0),
    "ScaledTanh": lambda x, a, b: (
        (1.0 if a is None else a) * np.tanh((1.0 if b is None else b) * x)
    ),
    "Sigmoid": lambda x, a, b: sigmoid(x),
    "Softplus": lambda x, a, b: _softplus(x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Tanh": lambda x, a, b: np.tanh(x),
    "ThresholdedRelu": lambda x, a, b: _thresholded(x, 1.0 if a is None else a),
}

KERNELS: Mapping[str, Kernel] = {
    "Abs": _unary(np.abs),
    "Acos": _unary(np.arccos),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Asin": _unary(np.arcsin),
    "Atan": _unary(np.arctan),
    "Ceil": _unary(np.ceil),
    "Celu": _one(_celu),
    "Clip": _one(_clip),
    "Cos": _unary(np.cos),
    "Cosh": _unary(np.cosh),
    "Div": _one(_div),
    "Elu": _one(lambda call: _elu(call.wide(0), call.real("alpha", 1.0))),
    "Equal": _binary(np.equal),
    "Erf": _unary(_erf),
    "Exp": _unary(np.exp),
    "Floor": _unary(np.floor),
    "Gelu": _one(_gelu),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "HardSigmoid": _one(
        lambda c: _hard_sigmoid(c.wide(0), c.real("alpha", 0.2), c.real("beta", 0.5))
    ),
    # its 1/6 is part of the operator's definition and no attribute
    "HardSwish": _one(lambda c: c.wide(0) * _hard_sigmoid(c.wide(0), 1 / 6, 0.5)),
    "LeakyRelu": _one(lambda call: _leaky(call.wide(0), call.real("alpha", 0.01))),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Log": _unary(np.log),
    "Max": _many(np.maximum),
    "Mean": _many(np.add, mean=True),
    "Min": _many(np.minimum),
    "Mish": _unary(lambda x: x * np.tanh(_softplus(x))),
    "Mod": _one(_mod),
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Or": _binary(np.logical_or),
    "PRelu": _one(_prelu),
    "Pow": _one(_pow),
    "Reciprocal": _unary(lambda x: 1.0 / x),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Round": _unary(np.rint),
    "Selu": _one(_selu),
    "Shrink": _one(_shrink),
    "Sigmoid": _unary(sigmoid),
    "Sign": _unary(np.sign),
    "Sin": _unary(np.sin),
    "Sinh": _unary(np.sinh),
    "Softplus": _unary(_softplus),
    "Softsign": _unary(lambda x: x / (1 + np.abs(x))),
    "Sqrt": _unary(np.sqrt),
    "Sub": _binary(np.subtract),
    "Sum": _many(np.add),
    "Swish": _one(lambda c: c.wide(0) * sigmoid(c.real("alpha", 1.0) * c.wide(0))),
    "Tan": _unary(np.tan),
    "Tanh": _unary(np.tanh),
    "ThresholdedRelu": _one(lambda call: _thresholded(call.wide(0), call.real("alpha", 1.0))),
    "Xor": _binary(np.logical_xor),
}
