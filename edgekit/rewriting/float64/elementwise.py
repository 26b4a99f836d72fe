"""Element by element in float64, and GRU, LSTM and RNN with every activation that they may
name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.float64.call import Call, OperatorFunction

_ERF_BLOCK = 1 << 16
_Function: TypeAlias = Callable[[np.ndarray], np.ndarray]
_DEFAULTS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
# activations that take an alpha, a beta, in the order in which the lists are used up
_ALPHA = {"Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu"}
_BETA = {"Affine", "HardSigmoid", "ScaledTanh"}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(x, 0.0))


def _erf(x: np.ndarray) -> np.ndarray:
    # NumPy has none; in blocks, since a number is an object of Python on its way
    y = np.empty(x.shape)
    flat, made = x.reshape(-1), y.reshape(-1)
    for first in range(0, flat.size, _ERF_BLOCK):
        block = flat[first : first + _ERF_BLOCK].tolist()
        made[first : first + _ERF_BLOCK] = list(map(math.erf, block))
    return y


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


def _unary(function: Callable[[Any], Any]) -> OperatorFunction:
    return lambda call: [np.asarray(function(call.wide(0)))]


def _binary(function: Callable[[Any, Any], Any]) -> OperatorFunction:
    return lambda call: [np.asarray(function(call.wide(0), call.wide(1)))]


def _many(function: Callable[[Any, Any], Any], *, mean: bool = False) -> OperatorFunction:
    def kernel(call: Call) -> Sequence[np.ndarray]:
        total = reduce(function, (call.wide(index) for index in range(len(call.inputs))))
        return [np.asarray(total / len(call.inputs) if mean else total)]

    return kernel


def _one(function: Callable[[Call], np.ndarray]) -> OperatorFunction:
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

ELEMENTWISE_KERNELS: Mapping[str, OperatorFunction] = {
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


# GRU, LSTM and RNN in float64, with every activation that they may name.
#
# Equations: ONNX's descriptions of the three operators.


def _functions(call: Call, directions: int) -> list[list[_Function]]:
    usual = _DEFAULTS[call.op] * directions
    named = [str(name) for name in call.attrs.get("activations") or usual]
    alphas = [float(np.float32(a)) for a in call.attrs.get("activation_alpha", ())]
    betas = [float(np.float32(b)) for b in call.attrs.get("activation_beta", ())]
    limit = call.real("clip", 0.0)
    found: list[_Function] = []
    for name in named:
        word = next(known for known in ACTIVATIONS if known.lower() == name.lower())
        alpha = alphas.pop(0) if word in _ALPHA and alphas else None
        beta = betas.pop(0) if word in _BETA and betas else None
        found.append(_bound(word, alpha, beta, limit))
    each = len(found) // directions
    return [found[i * each : (i + 1) * each] for i in range(directions)]


def _bound(word: str, alpha: float | None, beta: float | None, limit: float) -> _Function:
    def function(x: np.ndarray) -> np.ndarray:
        x = np.clip(x, -limit, limit) if limit else x
        return ACTIVATIONS[word](x, alpha, beta)

    return function


def _recurrent(call: Call) -> Sequence[np.ndarray]:
    x, w, r = (call.wide(index) for index in (0, 1, 2))
    turned = bool(call.whole("layout", 0))
    x = x.swapaxes(0, 1) if turned else x
    lengths = call.optional(4)
    if lengths is not None and (lengths != x.shape[0]).any():
        raise MalformedError(f"{call.op} with sequences of several lengths")
    directions, gates, hidden = w.shape[0], w.shape[1] // r.shape[2], r.shape[2]
    bias = _or_zeros(call, 3, (directions, 2 * gates * hidden))
    states = [
        _or_zeros(call, i, (directions, x.shape[1], hidden), turned=turned)
        for i in ((5, 6) if call.op == "LSTM" else (5,))
    ]
    peep = _or_zeros(call, 7, (directions, 3 * hidden)) if call.op == "LSTM" else None
    functions = _functions(call, directions)
    runs = []
    for index in range(directions):
        back = index == 1 or call.text("direction", "forward") == "reverse"
        start = [state[index] for state in states]
        b = bias[index].reshape(2, gates, hidden)
        gate = w[index].reshape(gates, hidden, -1), r[index].reshape(gates, hidden, -1), b
        p = None if peep is None else peep[index].reshape(3, hidden)
        seen, last = _run(call, x[::-1] if back else x, gate, p, start, functions[index])
        runs.append((seen[::-1] if back else seen, last))
    y = np.stack([seen for seen, _ in runs], 1)
    ends = [np.stack([last[i] for _, last in runs]) for i in range(len(states))]
    if turned:
        y, ends = y.transpose(2, 0, 1, 3), [end.swapaxes(0, 1) for end in ends]
    return [y, *ends][: max(call.outputs, 1)]


def _or_zeros(
    call: Call, index: int, shape: tuple[int, ...], *, turned: bool = False
) -> np.ndarray:
    if call.optional(index) is None:
        return np.zeros(shape)
    value = call.wide(index)
    return value.swapaxes(0, 1) if turned else value


def _run(
    call: Call,
    x: np.ndarray,
    gate: tuple[np.ndarray, np.ndarray, np.ndarray],
    peep: np.ndarray | None,
    start: Sequence[np.ndarray],
    functions: Sequence[_Function],
) -> tuple[np.ndarray, list[np.ndarray]]:
    step = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}[call.op]
    w, r, b = gate
    state = list(start)
    seen = []
    # of all steps at once: what does not depend on the state
    fed = np.einsum("tni,ghi->tgnh", x, w, optimize=True) + b[0][:, None]
    for part in fed:
        state = step(call, part, r, b[1], peep, state, functions)
        seen.append(state[0])
    return np.stack(seen), state


def _rnn(
    call: Call, fed: np.ndarray, r: np.ndarray, b: np.ndarray, peep: np.ndarray | None,
    state: list[np.ndarray], functions: Sequence[_Function],
) -> list[np.ndarray]:  # fmt: skip
    return [functions[0](fed[0] + state[0] @ r[0].T + b[0])]


def _gru(
    call: Call, fed: np.ndarray, r: np.ndarray, b: np.ndarray, peep: np.ndarray | None,
    state: list[np.ndarray], functions: Sequence[_Function],
) -> list[np.ndarray]:  # fmt: skip
    f, g = functions
    h = state[0]
    update = f(fed[0] + h @ r[0].T + b[0])
    reset = f(fed[1] + h @ r[1].T + b[1])
    if call.whole("linear_before_reset", 0):
        made = g(fed[2] + reset * (h @ r[2].T + b[2]))
    else:
        made = g(fed[2] + (reset * h) @ r[2].T + b[2])
    return [(1 - update) * made + update * h]


def _lstm(
    call: Call, fed: np.ndarray, r: np.ndarray, b: np.ndarray, peep: np.ndarray | None,
    state: list[np.ndarray], functions: Sequence[_Function],
) -> list[np.ndarray]:  # fmt: skip
    f, g, out = functions
    h, c = state
    p = np.zeros((3, h.shape[1])) if peep is None else peep
    i, o, forget, new = (fed[k] + h @ r[k].T + b[k] for k in range(4))
    inward = f(i + p[0] * c)
    retained = 1 - inward if call.whole("input_forget", 0) else f(forget + p[2] * c)
    c = retained * c + inward * g(new)
    return [f(o + p[1] * c) * out(c), c]


RECURRENT_KERNELS: Mapping[str, OperatorFunction] = {
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "RNN": _recurrent,
}
