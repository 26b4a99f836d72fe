"""GRU, LSTM and RNN in float64, with every activation that they may name.

Equations: ONNX's descriptions of the three operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.float64.call import Call, OperatorFunction

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


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _hard_sigmoid(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return np.clip(alpha * x + beta, 0.0, 1.0)


def _leaky(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * x, x)


def _thresholded(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x > alpha, x, 0.0)


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


KERNELS: Mapping[str, OperatorFunction] = {
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "RNN": _recurrent,
}
