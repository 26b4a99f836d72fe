"""Activations, exact and approximate.

Functions that the DLA lacks, written with supported functions; GELU in all forms of exporters.
Approximate rewrites, which change results, are off unless allowed by name.
"""

from __future__ import annotations

import math

from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.clips import clip_from_zero, is_native_clip, read_bound
from edgekit.rewriting.rules.operands import (
    by_constant,
    channels,
    is_image,
    other_input,
    read_factor,
    read_number,
    write_scaled,
)

# ONNX's defaults
# (0.2 as an FP32 attribute holds it)
_ALPHA, _BETA = 0.20000000298023224, 0.5
_HardSwish = tuple[tuple[Node, ...], str, float, float, float, str, bool]
_Place = tuple[tuple[Node, ...], str, str]
# ONNX's defaults
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
_DEEPEST = 8
_LARGEST_POWER = 1
_Poly = dict[int, float]
_Gelu = tuple[tuple[Node, ...], str, str, float, float]
OPERATORS = ("Gelu", "Erf")
# exporters round 1 / sqrt(2) in several ways
_CLOSE = 1e-3
# ONNX's definition of Gelu with approximate = "tanh"
_FIRST = math.sqrt(2 / math.pi)
_THIRD = 0.044715 * _FIRST


@rewrite(
    "hard-sigmoid",
    operators=("HardSigmoid",),
    reason="the DLA has no HardSigmoid; a scale and a clip from 0 to 1 are the same function",
)
def hard_sigmoid(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes max(0, min(1, alpha x + beta)) as a scale and a clip.

    At a HardSigmoid of an image.
    """
    if not is_image(graph, node.inputs[0]):
        return
    new = yield (node,)
    alpha = float(node.attrs.get("alpha", _ALPHA))
    beta = float(node.attrs.get("beta", _BETA))
    source = node.inputs[0]
    write_hard_sigmoid(
        new, source, alpha, beta, 1.0, channels(graph, source), output=node.outputs[0]
    )


def write_hard_sigmoid(
    new: Writer, source: str, alpha: float, beta: float, high: float, count: int, *, output: str
) -> str:
    """Writes ``max(0, min(high, alpha * source + beta))`` as a scale and a clip."""
    line = write_scaled(new, source, alpha, beta, count, role="line")
    return clip_from_zero(new, line, high, output)


@rewrite(
    "hard-swish",
    operators=("HardSwish", "Clip"),
    reason="the DLA has no HardSwish; the product of x and a clipped scale of x is the same "
    "function, without the exporters' extra factor",
)
def hard_swish(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes three layers for any form; the product stays within the result's range.

    Forms: the operator; x * Clip(x + 3, 0, 6) / 6 with the factor anywhere after the clip; and
    Clip(x + 3, 0, 6) / 6 without the product.

    At a HardSwish of an image, or the Clip(x + a, 0, b) of its other forms.
    """
    found: _HardSwish | None
    if node.op == "HardSwish":
        # the operator's numbers by ONNX's definition
        swish = ((node,), node.inputs[0], 1 / 6, 0.5, 1.0, node.outputs[0], True)
        found = swish if is_image(graph, node.inputs[0]) else None
    else:
        found = _hard_swish_at(graph, node)
    if found is None:
        return
    nodes, source, alpha, beta, high, output, multiplied = found
    new = yield nodes
    last = "" if multiplied else output
    count = channels(graph, source)
    gate = write_hard_sigmoid(new, source, alpha, beta, high, count, output=last)
    if multiplied:
        new.node("Mul", [source, gate], output=output)


def _hard_swish_at(graph: RewriteGraph, clip: Node) -> _HardSwish | None:
    """Returns nodes, x, alpha, beta, high, output and True for a product with x, or None.

    Args:
        graph: The graph.
        clip: The node Clip(x + a, 0, b).
    """
    shifted = clip.inputs[0]
    add = graph.producer(shifted)
    found = by_constant(graph, add, "Add")
    if add is None or found is None or graph.only_reader(shifted) is not clip:
        return None
    source, shift = found
    if not is_image(graph, source):
        return None
    known_low, low = read_bound(graph, clip.input(1), graph.dtype(source))
    known_high, high = read_bound(graph, clip.input(2), graph.dtype(source))
    if not (known_low and known_high) or low != 0 or high is None:
        return None
    nodes, factor, multiplied = [clip, add], 1.0, False
    current = clip.outputs[0]
    # one factor and one product with x, in either order
    for _ in range(2):
        reader = graph.only_reader(current)
        if reader is None or reader.domain:
            break
        times = read_factor(graph, reader, current)
        if times is not None and factor == 1.0:
            factor = times
        elif reader.op == "Mul" and other_input(reader, current) == source and not multiplied:
            multiplied = True
        else:
            break
        nodes.append(reader)
        current = reader.outputs[0]
    # a native clip without a factor gains nothing; a negative factor would turn its bounds
    if factor == 1.0 or factor <= 0 or not is_native_clip(0.0, factor * high):
        return None
    return tuple(nodes), source, factor, factor * shift, factor * high, current, multiplied


@rewrite(
    "mish",
    operators=("Mish", "Softplus"),
    reason=(
        "the DLA has no softplus; x n / (2 - n) with n = s (2 - s) and s = sigmoid(x) is the same "
        "function"
    ),
)
def mish(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes x tanh(softplus(x)) without softplus.

    With s = sigmoid(x), 1 + exp(x) = 1 / (1 - s), so that tanh(ln(1 + exp(x))) = n / (2 - n) with
    n = s (2 - s): no difference of similar numbers, and a denominator from 1 to 2.

    At a Mish of an image, or Softplus, Tanh and Mul, as in exports.
    """
    found = mish_at(graph, node)
    if found is None:
        return
    nodes, source, output = found
    new = yield nodes
    count = channels(graph, source)
    gate = new.node("Sigmoid", [source], role="sigmoid")
    above = new.node("Mul", [gate, write_scaled(new, gate, -1.0, 2.0, count)], role="numerator")
    below = write_scaled(new, above, -1.0, 2.0, count, role="denominator")
    ratio = new.node("Div", [above, below], role="ratio")
    new.node("Mul", [source, ratio], output=output)


def mish_at(graph: RewriteGraph, node: Node) -> _Place | None:
    """Returns the nodes of a Mish, its input and its output."""
    source = node.inputs[0]
    if not is_image(graph, source):
        return None
    if node.op == "Mish":
        return (node,), source, node.outputs[0]
    tanh = graph.only_reader(node.outputs[0])
    if tanh is None or tanh.op != "Tanh" or tanh.domain:
        return None
    product = graph.only_reader(tanh.outputs[0])
    if product is None or product.op != "Mul" or other_input(product, tanh.outputs[0]) != source:
        return None
    return (node, tanh, product), source, product.outputs[0]


@rewrite(
    "elu",
    operators=("Elu", "Celu", "Selu"),
    reason=(
        "the DLA has no exponential; for the negative side 1 - exp(-r) = 2t / (1 + t) with "
        "t = tanh(r / 2) is the same"
    ),
)
def elu(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes the exponential of non-positive numbers by tanh, without division by small numbers.

    For r >= 0, 1 - exp(-r) = 2 t / (1 + t) with t = tanh(r / 2), and 1 + t is from 1 to 2.

    At one of the operators with an image.
    """
    if not is_image(graph, node.inputs[0]):
        return
    alpha = float(node.attrs.get("alpha", _SELU[0] if node.op == "Selu" else 1.0))
    # the formula divides by alpha, and needs r >= 0
    if node.op == "Celu" and alpha <= 0:
        return
    gamma = float(node.attrs.get("gamma", _SELU[1])) if node.op == "Selu" else 1.0
    # f(x) = gamma max(x, 0) - depth (1 - exp(-max(-x, 0) / width))
    width = alpha if node.op == "Celu" else 1.0
    new = yield (node,)
    depth = gamma * alpha
    source = node.inputs[0]
    count = channels(graph, source)
    half = write_scaled(new, source, -0.5 / width, 0.0, count, role="half")
    tangent = new.node("Tanh", [new.node("Relu", [half], role="below")], role="tanh")
    above = write_scaled(new, tangent, 2.0 * depth, 0.0, count, role="numerator")
    below = write_scaled(new, tangent, 1.0, 1.0, count, role="denominator")
    negative = new.node("Div", [above, below], role="negative")
    positive = new.node("Relu", [source], role="above")
    if gamma != 1.0:
        positive = write_scaled(new, positive, gamma, 0.0, count, role="positive")
    new.node("Sub", [positive, negative], output=node.outputs[0])


def find_gate(graph: RewriteGraph, node: Node) -> _Gelu | None:
    """Returns (nodes, x, output, a, half) at f: output = half x (1 + f(a x)).

    Args:
        graph: The graph.
        node: The node f (Erf).
    """
    product = graph.only_reader(node.outputs[0])
    added = by_constant(graph, product, "Add")
    if product is None or added is None or added[1] != 1:
        return None
    after, output, half = [product], product.outputs[0], 1.0
    factors: list[str] = []
    # the products with x and with 0.5, in any order and grouping
    for _ in range(3):
        reader = graph.only_reader(output)
        number_times = read_factor(graph, reader, output)
        if reader is None or reader.domain:
            break
        if number_times is not None:
            half *= number_times
        elif reader.op == "Mul" and not factors and other_input(reader, output) != output:
            factors.append(other_input(reader, output))
        else:
            break
        after.append(reader)
        output = reader.outputs[0]
    if not factors:
        return None
    # exporters multiply the gate with x, or with 0.5 x computed before
    for base in _bases(graph, factors[0]):
        found = _with_base(graph, node, after, factors[0], base)
        if found is not None:
            nodes, slope, times = found
            return nodes, base, output, slope, half * times
    return None


def _bases(graph: RewriteGraph, factor: str) -> list[str]:
    """Returns candidates for x if x, or x times a number, is multiplied with the gate."""
    before = graph.producer(factor)
    bases = [factor]
    if before is not None:
        bases += [name for name in before.inputs if is_image(graph, name)]
    return [name for name in bases if is_image(graph, name)]


def _with_base(
    graph: RewriteGraph, node: Node, after: list[Node], factor: str, base: str
) -> tuple[tuple[Node, ...], float, float] | None:
    taken: dict[str, Node] = {}
    inner = _poly(graph, node.inputs[0], base, taken, _DEEPEST)
    outer = _poly(graph, factor, base, taken, _DEEPEST)
    if inner is None or outer is None or set(outer) != {1} or set(inner) != {1}:
        return None
    nodes = (node, *after, *(n for n in taken.values()))
    output = after[-1].outputs[0]
    # a part that others read would stay, and the GELU would be computed twice
    if any(t != output and not graph.inner(t, nodes) for n in nodes for t in n.outputs):
        return None
    return nodes, inner[1], outer[1]


def _poly(
    graph: RewriteGraph, tensor: str, base: str, taken: dict[str, Node], depth: int
) -> _Poly | None:
    """Returns a tensor as coefficients by power of ``base``; None if it is no such polynomial."""
    if tensor == base:
        return {1: 1.0}
    value = read_number(graph, tensor)
    if value is not None:
        return {0: value} if value else {}
    node = graph.producer(tensor)
    if node is None or node.domain or depth == 0 or len(node.inputs) != 2:
        return None
    if node.op not in {"Add", "Mul", "Div"} or len(taken) >= _DEEPEST:
        return None
    left = _poly(graph, node.inputs[0], base, taken, depth - 1)
    right = _poly(graph, node.inputs[1], base, taken, depth - 1)
    if left is None or right is None:
        return None
    made = _combined(node.op, left, right)
    if made is not None:
        taken[node.name] = node
    return made


def _combined(op: str, left: _Poly, right: _Poly) -> _Poly | None:
    if op == "Add":
        return {p: left.get(p, 0.0) + right.get(p, 0.0) for p in {*left, *right}}
    if op == "Mul":
        made: _Poly = {}
        for p, a in left.items():
            for q, b in right.items():
                made[p + q] = made.get(p + q, 0.0) + a * b
        # GELU by erf has no higher power; without a limit, any product of the network would match
        return made if all(p <= _LARGEST_POWER for p in made) else None
    return {p: a / right[0] for p, a in left.items()} if set(right) == {0} else None


def erf_gelu(graph: RewriteGraph, node: Node) -> _Place | None:
    """Returns the nodes of 0.5 x (1 + erf(x / sqrt(2))), x and the output."""
    if node.op == "Gelu":
        if node.attrs.get("approximate", "none") != "none" or not is_image(graph, node.inputs[0]):
            return None
        return (node,), node.inputs[0], node.outputs[0]
    found = find_gate(graph, node)
    if found is None:
        return None
    nodes, source, output, slope, half = found
    if abs(half - 0.5) > _CLOSE or abs(slope - 1 / math.sqrt(2)) > _CLOSE:
        return None
    return nodes, source, output


@rewrite(
    "approx-gelu-erf",
    operators=OPERATORS,
    reason=(
        "the DLA has no error function; the tanh form of GELU differs by at most 4.8e-4 and runs "
        "there in five layers"
    ),
    deviation=4.8e-4,
)
def approx_gelu_erf(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes an approximation of GELU: 0.5 x (1 + tanh(z)) is x sigmoid(2 z).

    The error is at most 4.8e-4 (at |x| near 2.7).

    At a Gelu without approximation, or the Erf of its form in exports.
    """
    found = erf_gelu(graph, node)
    if found is None:
        return
    nodes, source, output = found
    new = yield nodes
    square = new.node("Mul", [source, source], role="square")
    # 2 z = x (2 sqrt(2 / pi) + 2 0.044715 sqrt(2 / pi) x x)
    inner = write_scaled(new, square, 2 * _THIRD, 2 * _FIRST, channels(graph, source), role="inner")
    gate = new.node("Sigmoid", [new.node("Mul", [inner, source], role="line")], role="sigmoid")
    new.node("Mul", [source, gate], output=output)


@rewrite(
    "approx-sigmoid-hard-sigmoid",
    operators=("Sigmoid",),
    reason=(
        "a sigmoid runs in FP16 on the DLA even in INT8; a scale and a clip differ by at most "
        "0.0692"
    ),
    deviation=0.0692,
)
def approx_sigmoid_hard_sigmoid(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a hard sigmoid with the slope 1/6 of HardSwish; the error is at most 0.0692 (|x| = 3).

    At a Sigmoid of an image.
    """
    if not is_image(graph, node.inputs[0]):
        return
    new = yield (node,)
    source = node.inputs[0]
    count = channels(graph, source)
    write_hard_sigmoid(new, source, 1 / 6, 0.5, 1.0, count, output=node.outputs[0])
