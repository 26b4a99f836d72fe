"""Layers of single elements: activations, arithmetic, scales, unary functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer
    from edgekit.network.model import Absorbed


# ONNX operator: (TensorRT's ActivationType, attribute defaults for alpha and beta)
ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "Relu": ("RELU", {}),
    "Sigmoid": ("SIGMOID", {}),
    "Tanh": ("TANH", {}),
    "Clip": ("CLIP", {}),
    "LeakyRelu": ("LEAKY_RELU", {"alpha": 0.01}),
    "Elu": ("ELU", {"alpha": 1.0}),
    "Selu": ("SELU", {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Softplus": ("SOFTPLUS", {}),
    "Softsign": ("SOFTSIGN", {}),
    "HardSigmoid": ("HARD_SIGMOID", {"alpha": 0.2, "beta": 0.5}),
    "ThresholdedRelu": ("THRESHOLDED_RELU", {"alpha": 1.0}),
    "Gelu": ("GELU_ERF", {}),
    "ParametricSoftplus": ("SOFTPLUS", {"alpha": 1.0, "beta": 1.0}),
    "ScaledTanh": ("SCALED_TANH", {"alpha": 1.0, "beta": 1.0}),
}
ELEMENTWISE = {
    "Add": "SUM",
    "Sum": "SUM",
    "Mul": "PROD",
    "Max": "MAX",
    "Min": "MIN",
    "Sub": "SUB",
    "Div": "DIV",
    "Pow": "POW",
    "And": "AND",
    "Or": "OR",
    "Xor": "XOR",
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "Less": "LESS",
}
UNARY = {
    "Abs": "ABS",
    "Neg": "NEG",
    "Exp": "EXP",
    "Log": "LOG",
    "Sqrt": "SQRT",
    "Reciprocal": "RECIP",
    "Sin": "SIN",
    "Cos": "COS",
    "Tan": "TAN",
    "Sinh": "SINH",
    "Cosh": "COSH",
    "Asin": "ASIN",
    "Acos": "ACOS",
    "Atan": "ATAN",
    "Asinh": "ASINH",
    "Acosh": "ACOSH",
    "Atanh": "ATANH",
    "Ceil": "CEIL",
    "Floor": "FLOOR",
    "Round": "ROUND",
    "Sign": "SIGN",
    "Erf": "ERF",
    "Not": "NOT",
    "IsNaN": "ISNAN",
}
_ONE_VALUE = frozenset({"DIV", "POW", "EQUAL", "GREATER", "LESS"})
# the builder turns these with a constant into SCALE; Sub and Div only if it is on the right
_SCALES = {"Add": "SUM", "Mul": "PROD", "Sub": "SUB", "Div": "DIV"}
_COMMUTES = {"Add", "Mul"}
# FLT_MAX: TensorRT's bound of a CLIP without minimum or maximum
_LARGEST = 3.4028234663852886e38
# activations that the parser composes; each step reads the previous step, and "x" is the input
_COMPOSED: dict[str, tuple[tuple[str, str, dict[str, float], bool], ...]] = {
    "HardSwish": (
        ("ACTIVATION", "HARD_SIGMOID", {"alpha": 1 / 6, "beta": 0.5}, False),
        ("ELEMENTWISE", "PROD", {}, True),
    ),
    "Mish": (
        ("ACTIVATION", "SOFTPLUS", {}, False),
        ("ACTIVATION", "TANH", {}, False),
        ("ELEMENTWISE", "PROD", {}, True),
    ),
}


def activation(placer: Placer, node: Node) -> None:
    """An activation with alpha and beta (CLIP: the bounds) -> ACTIVATION.

    A Clip of integers, with computed bounds, or with a bound omitted by an empty name is a MAX and
    a MIN instead.
    """
    integer = placer.tensors[node.inputs[0]].dtype in {"int32", "int64"}
    bounds = node.inputs[1:]
    if node.op == "Clip" and (integer or any(not n or not placer.stored(n) for n in bounds)):
        _clip_between(placer, node)
        return
    given = node.attrs
    function, defaults = ACTIVATIONS[node.op]
    params: dict[str, Any] = {"function": function}
    params |= {key: float(given.get(key, value)) for key, value in defaults.items()}
    if function == "CLIP":
        # the bounds are attributes before opset 11, then inputs
        low = given.get("min") if placer.version < 11 else placer.scalar(node, 1)
        high = given.get("max") if placer.version < 11 else placer.scalar(node, 2)
        params["alpha"] = -_LARGEST if low is None else float(low)
        params["beta"] = _LARGEST if high is None else float(high)
    if function == "GELU_ERF" and given.get("approximate", "none") == "tanh":
        params["function"] = "GELU_TANH"
    if function == "SELU":
        # TensorRT calls the outer factor beta
        params["beta"] = params.pop("gamma")
    placer.emit(node, "ACTIVATION", params, inputs=[node.inputs[0]])


def _clip_between(placer: Placer, node: Node) -> None:
    """Adds MAX and MIN, called NAME and NAME_1; an omitted bound is a constant of the parser."""
    current, shape = node.inputs[0], placer.shape(node.outputs[0])
    for index, function in enumerate(("MAX", "MIN"), start=1):
        bound = node.input(index)
        read = [current, bound] if bound else [current]
        absorbed = imported_constants(placer, node, read)
        params: dict[str, Any] = {"function": function}
        if not bound or placer.constant(bound):
            fixed = placer.shape(bound) if bound else ()
            params["constant_operand"] = (1,) * (len(shape) - len(fixed)) + tuple(fixed)
        read = _with_equal_ranks(placer, node, read)
        target = node.outputs[0]
        if function == "MAX":
            target = placer.inner(f"{node.name}:max", shape, target)
        placer.emit(node, "ELEMENTWISE", params, inputs=read, outputs=[target], absorbed=absorbed)
        current = target


def activation_chain(placer: Placer, node: Node) -> None:
    """HardSwish and Mish: a chain of layers."""
    steps = _COMPOSED[node.op]
    current = node.inputs[0]
    for index, (kind, function, values, with_input) in enumerate(steps):
        last = index == len(steps) - 1
        target = node.outputs[0]
        if not last:
            target = placer.inner(f"{node.name}:{function.lower()}", placer.shape(target), target)
        read = [node.inputs[0], current] if with_input else [current]
        placer.emit(node, kind, {"function": function, **values}, inputs=read, outputs=[target])
        current = target


def elementwise(placer: Placer, node: Node) -> None:
    """Arithmetic -> ELEMENTWISE, n-ary as a chain of n - 1 layers; with a constant -> SCALE if
    possible.

    The chain's layers are called NAME, NAME_1, …
    """
    inputs = [name for name in node.inputs if name]
    mode = _scale_mode(placer, node, inputs)
    if mode:
        kind = _SCALES[node.op]
        scale = {"mode": mode, "axis": 1, "function": kind, **_uniform(placer, node, kind)}
        placer.emit(node, "SCALE", scale, absorbed=imported_constants(placer, node, inputs))
        return
    function = "SUM" if node.op == "Mean" else ELEMENTWISE[node.op]
    if len(inputs) == 1 and node.op != "Mean":
        placer.emit(node, "IDENTITY")
        return
    target = node.outputs[0]
    absorbed = imported_constants(placer, node, inputs)
    inputs = _with_equal_ranks(placer, node, inputs)
    current = inputs[0]
    shape = placer.shape(current)
    scaled = node.op == "Mean"
    for index, name in enumerate(inputs[1:], start=1):
        result = target
        shape = broadcast_shape(shape, placer.shape(name))
        if index < len(inputs) - 1 or scaled:
            result = placer.inner(f"{node.name}:{index}", shape, target)
        _emit_pair(placer, node, function, (current, name), result, absorbed)
        current, absorbed = result, []
    if scaled:
        mean = {"mode": "UNIFORM", "axis": 1, "function": "PROD"}
        placer.emit(node, "SCALE", mean, inputs=[current])


def elementwise_pair(
    placer: Placer, node: Node, function: str, inputs: Sequence[str], output: str, *, name: str = ""
) -> None:
    """Adds an ELEMENTWISE layer of ``node`` with two operands of any ranks, also constants.

    A layer with a ``name`` is an additional layer of the parser.
    """
    absorbed = imported_constants(placer, node, inputs)
    _emit_pair(
        placer, node, function, _with_equal_ranks(placer, node, inputs), output, absorbed, name
    )


def _emit_pair(
    placer: Placer,
    node: Node,
    function: str,
    inputs: Sequence[str],
    output: str,
    absorbed: Sequence[Absorbed],
    name: str = "",
) -> None:
    params: dict[str, Any] = {"function": function}
    fixed = [name for name in inputs if placer.constant(name)]
    if fixed:
        # the builder keeps the operand as a CONSTANT layer, whose shape matters too
        rank, size = len(placer.shape(output)), placer.shape(fixed[-1])
        params["constant_operand"] = (1,) * (rank - len(size)) + tuple(size)
        params |= _uniform(placer, node, function)
    placer.emit(
        node,
        "ELEMENTWISE",
        params,
        inputs=inputs,
        outputs=[output],
        absorbed=absorbed,
        name=name,
        inserted=bool(name),
    )


def imported_constants(placer: Placer, node: Node, inputs: Sequence[str]) -> list[Absorbed]:
    """Returns the importer's constants among ``inputs``, and their broadcasts if of lower rank."""
    # a recurrence may omit its first output
    rank = len(placer.shape(next(name for name in node.outputs if name)))
    parts: list[Absorbed] = []
    for name in inputs:
        if placer.constant(name):
            parts += placer.importer.constant(name)
            if len(placer.shape(name)) < rank:
                parts.append(placer.importer.broadcast())
    return parts


def _with_equal_ranks(placer: Placer, node: Node, inputs: Sequence[str]) -> list[str]:
    """Returns the inputs with equal ranks: shuffles prepend dimensions of size 1 to activations."""
    rank = len(placer.shape(node.outputs[0]))
    found = []
    for name in inputs:
        shape = placer.shape(name)
        if placer.constant(name) or len(shape) == rank:
            found.append(name)
            continue
        wide = placer.inner(
            f"{node.name}:{name}", (1,) * (rank - len(shape)) + shape, name, view=True
        )
        placer.reshape(node, name, wide, placer.importer.broadcast().name, imported=False)
        found.append(wide)
    return found


def _scale_mode(placer: Placer, node: Node, inputs: list[str]) -> str:
    """Returns UNIFORM, CHANNEL or ELEMENTWISE if the node scales an activation by a constant; else
    ""."""
    if node.op not in _SCALES or len(inputs) != 2:
        return ""
    fixed = [placer.constant(name) for name in inputs]
    if fixed == [True, False] and node.op in _COMMUTES:
        data, factor = inputs[1], inputs[0]
    elif fixed == [False, True]:
        data, factor = inputs
    else:
        return ""
    # TensorRT's scale layer computes floats only
    if not placer.tensors[data].dtype.startswith(("float", "bfloat")):
        return ""
    whole, part = placer.shape(data), placer.shape(factor)
    part = (1,) * (len(whole) - len(part)) + tuple(part)
    if len(part) != len(whole) or len(whole) not in {4, 5}:
        return ""
    if all(size == 1 for size in part):
        return "UNIFORM"
    if part == (1, whole[1], *[1] * (len(whole) - 2)):
        return "CHANNEL"
    return "ELEMENTWISE" if part[1:] == whole[1:] and part[0] in {1, whole[0]} else ""


def _uniform(placer: Placer, node: Node, function: str) -> dict[str, bool]:
    """Returns True for ``uniform_constant`` if the constant of a division, power or comparison has
    a single value, which a DLA requires.

    Empty for other functions, and for constants computed from others.
    """
    if function not in _ONE_VALUE:
        return {}
    for index, name in enumerate(node.inputs):
        if placer.stored(name):
            value = placer.value(node, index)
            return (
                {} if value is None else {"uniform_constant": bool((value == value.flat[:1]).all())}
            )
    return {}


def broadcast_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of an element-wise result."""
    rank = max(len(left), len(right))
    left = (1,) * (rank - len(left)) + left
    right = (1,) * (rank - len(right)) + right
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


def unary(placer: Placer, node: Node) -> None:
    """Functions of a single element -> UNARY."""
    placer.emit(node, "UNARY", {"function": UNARY[node.op]})
