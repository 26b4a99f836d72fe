"""The bodies of If, Loop and Scan: the shapes inside and of the results, and the iterations.

A body is evaluated like the outer graph, with the known shapes and values of captured tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.protos import RANDOM, has_bodies, reads, tensor_type
from edgekit.network.windows import attributes

#: A tensor's ONNX element type and shape.
TypeAndShape = tuple[int, tuple[int, ...]]
_INT64, _BOOL = onnx.TensorProto.INT64, onnx.TensorProto.BOOL
BRANCHES = ("then_branch", "else_branch")
#: Exporters' trip count for "while the condition is true"; TensorRT's parser reads it, and larger
#: counts, the same way.
UNLIMITED = np.iinfo(np.int32).max
# most iterations that are counted by running the nodes of the condition
_MOST_COUNTED = 1024
_MOST_VALUES = 4096
# Scan of opset 8 has a batch
_SCAN_SINCE = 9


class Scope(Protocol):
    """A graph of a model or of a body, as far as its shapes and values are known."""

    version: int

    def type_and_shape(self, name: str) -> TypeAndShape | None:
        """Returns a tensor's type and shape; None if its shape is unknown."""

    def value(self, name: str) -> np.ndarray | None:
        """Returns a constant's values; None for any other tensor."""


S_co = TypeVar("S_co", bound=Scope, covariant=True)


class OuterScope(Scope, Protocol[S_co]):
    """A graph whose nodes may have bodies."""

    def body(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, TypeAndShape | None],
        constants: Mapping[str, np.ndarray],
    ) -> S_co:
        """Returns the evaluated body for these inputs, some with constant values."""


def graphs(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """Returns a node's bodies by attribute: "body", or "then_branch" and "else_branch"."""
    return {item.name: item.g for item in node.attribute if item.HasField("g")}


def evaluate_bodies(scope: OuterScope[S_co], node: onnx.NodeProto) -> dict[str, S_co]:
    """Returns the evaluated bodies of an If, a Loop or a Scan by attribute; empty for others.

    Raises:
        ModelError: An error of a node of a body, as in the evaluation of a graph.
    """
    found = graphs(node)
    if node.op_type == "If":
        return {name: scope.body(found[name], {}, {}) for name in BRANCHES if name in found}
    if "body" not in found:
        return {}
    if node.op_type == "Scan" and scope.version >= _SCAN_SINCE:
        return {"body": _evaluate_scan(scope, node, found["body"])}
    if node.op_type == "Loop":
        return {"body": _evaluate_loop(scope, node, found["body"])}
    return {}


def _evaluate_loop(scope: OuterScope[S_co], node: onnx.NodeProto, body: onnx.GraphProto) -> S_co:
    # assumed true inside at first: if the body then keeps it true, it is true in each iteration
    begins = _starts(scope, node) is True
    inner = _evaluate_iteration(scope, body, node.input[2:], begins)
    if begins and not _is_true(inner.value(body.output[0].name)):
        # the condition may end the loop, so its value is unknown within the body too
        inner = _evaluate_iteration(scope, body, node.input[2:], False)
    return inner


def _evaluate_iteration(
    scope: OuterScope[S_co], body: onnx.GraphProto, carried: Iterable[str], begins: bool
) -> S_co:
    """Returns an iteration of a Loop's body; ``begins``: its condition is true."""
    index, condition, *states = [value.name for value in body.input]
    inputs: dict[str, TypeAndShape | None] = {index: (_INT64, ()), condition: (_BOOL, ())}
    inputs |= dict.fromkeys(states)
    for state, outer in zip(states, carried, strict=False):
        inputs[state] = scope.type_and_shape(outer)
    return scope.body(body, inputs, {condition: np.array(True)} if begins else {})


def _evaluate_scan(scope: OuterScope[S_co], node: onnx.NodeProto, body: onnx.GraphProto) -> S_co:
    inputs: dict[str, TypeAndShape | None] = {}
    states = len(node.input) - attributes(node)["num_scan_inputs"]
    for position, (value, outer) in enumerate(zip(body.input, node.input, strict=False)):
        known = scope.type_and_shape(outer)
        if known is not None and position >= states:
            axis = _axis(node, "scan_input_axes", position - states, len(known[1]))
            known = known[0], (*known[1][:axis], *known[1][axis + 1 :])
        inputs[value.name] = known
    return scope.body(body, inputs, {})


def _axis(node: onnx.NodeProto, name: str, position: int, rank: int) -> int:
    axes = attributes(node).get(name, ())
    return int(axes[position]) % max(rank, 1) if position < len(axes) else 0


def _starts(scope: Scope, node: onnx.NodeProto) -> bool | None:
    """Returns True if a Loop's condition is true at the start; None if data-dependent."""
    name = node.input[1] if len(node.input) > 1 else ""
    if not name:
        # ONNX: a Loop without a condition runs up to its trip count
        return True
    value = scope.value(name)
    return None if value is None else bool(value.any())


def _is_true(value: np.ndarray | None) -> bool:
    return value is not None and bool(value.any())


def trip_limit(scope: Scope, node: onnx.NodeProto) -> int | None:
    """Returns the most iterations of a Loop or a Scan; None if unlimited or unknown."""
    if node.op_type == "Scan":
        if scope.version < _SCAN_SINCE:
            return None
        known = scope.type_and_shape(node.input[-1])
        if known is None or not known[1]:
            return None
        last = attributes(node)["num_scan_inputs"] - 1
        return known[1][_axis(node, "scan_input_axes", last, len(known[1]))]
    value = scope.value(node.input[0]) if node.input[0] else None
    if value is None or value.size != 1 or int(value.item()) >= UNLIMITED:
        return None
    return max(int(value.item()), 0)


def trip_count(scope: Scope, node: onnx.NodeProto, bodies: Mapping[str, Scope]) -> int | None:
    """Returns the number of iterations of a Loop or a Scan; None if data-dependent.

    Args:
        scope: The node's graph.
        node: The node.
        bodies: The node's bodies from :func:`evaluate_bodies`.
    """
    limit = trip_limit(scope, node)
    if node.op_type == "Scan" or "body" not in bodies:
        return limit if node.op_type == "Scan" else None
    begins = _starts(scope, node)
    # the limit is computed
    if begins is None or (limit is None and node.input[0] and scope.value(node.input[0]) is None):
        return None
    if not begins:
        return 0
    body = graphs(node)["body"]
    goes_on = bodies["body"].value(body.output[0].name)
    if goes_on is None:
        return _count_iterations(scope, node, body, limit)
    if _is_true(goes_on):
        return limit
    # the body always ends the loop after its first iteration
    return 1 if limit is None else min(1, limit)


def _count_iterations(
    scope: Scope, node: onnx.NodeProto, body: onnx.GraphProto, limit: int | None
) -> int | None:
    """Counts iterations by running the nodes of the condition; None if it depends on data."""
    states = {value.name: at for at, value in enumerate(body.input[2:])}
    result = body.output[0].name
    part = _condition_nodes(scope, body, states, result)
    if part is None:
        return None
    nodes, used, constants = part
    values: dict[str, np.ndarray] = {}
    for name in used:
        at = states[name]
        value = scope.value(node.input[2 + at]) if 2 + at < len(node.input) else None
        if value is None:
            return None
        values[name] = value
    # the reference would compute these in each iteration
    if any(value.size > _MOST_VALUES for value in (*values.values(), *constants.values())):
        return None
    from onnx.reference import ReferenceEvaluator

    index, condition = body.input[0].name, body.input[1].name
    after = {name: body.output[1 + states[name]].name for name in used}
    wanted = list(dict.fromkeys((result, *after.values())))
    graph = helper.make_graph(
        nodes,
        "deciding",
        [onnx.ValueInfoProto(name=name) for name in (index, condition, *used)],
        [onnx.ValueInfoProto(name=name) for name in wanted],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", scope.version)])
    try:
        evaluator = ReferenceEvaluator(model)
        for count in range(min(_MOST_COUNTED, _MOST_COUNTED if limit is None else limit)):
            feeds = {index: np.array(count, np.int64), condition: np.array(True), **values}
            made = dict(zip(wanted, evaluator.run(None, feeds), strict=True))
            if not np.asarray(made[result]).any():
                return count + 1
            values = {name: np.asarray(made[after[name]]) for name in used}
    except Exception:
        # onnx's reference evaluator lacks operators, and raises exceptions of any type
        return None
    # still true at the end: the limit ended the loop, or counting stopped too early
    return limit if limit is not None and limit <= _MOST_COUNTED else None


def _condition_nodes(
    scope: Scope, body: onnx.GraphProto, states: Mapping[str, int], result: str
) -> tuple[list[onnx.NodeProto], list[str], dict[str, np.ndarray]] | None:
    """Returns the nodes, the carried tensors and the constants of a condition; None if
    data-dependent."""
    writers = {name: inner for inner in body.node for name in inner.output if name}
    own = {value.name: value for value in body.initializer}
    fed = {value.name for value in body.input[:2]}
    needed: set[int] = set()
    used: dict[str, None] = {}
    constants: dict[str, np.ndarray] = {}
    waiting, seen = [result], {result}
    while waiting:
        name = waiting.pop()
        follow: Sequence[str] = ()
        if name in writers:
            inner = writers[name]
            if inner.domain or has_bodies(inner) or inner.op_type in RANDOM:
                return None
            needed.add(id(inner))
            follow = reads(inner)
        elif name in states:
            used[name] = None
            # its next value is computed in the body, so these nodes are needed too
            follow = [body.output[1 + states[name]].name]
        elif name in own:
            constants[name] = numpy_helper.to_array(own[name])
        elif name not in fed:
            value = scope.value(name)
            if value is None:
                return None
            constants[name] = value
        waiting += [tensor for tensor in follow if tensor not in seen]
        seen.update(follow)
    return [inner for inner in body.node if id(inner) in needed], list(used), constants


def result_types(
    scope: Scope, node: onnx.NodeProto, bodies: Mapping[str, Scope]
) -> dict[str, onnx.TypeProto]:
    """Returns the types of a node's results as far as its bodies determine them.

    The shape of a carried tensor is known if the body keeps it; that of a scan output, if the
    number of iterations is known; that of a branch result, if all branches agree.
    """
    outer = graphs(node)
    if node.op_type == "If":
        return _branch_results(node, outer, bodies) if len(bodies) == len(BRANCHES) else {}
    if not bodies:
        return {}
    body, inner = outer["body"], bodies["body"]
    scans = node.op_type == "Scan"
    first = 0 if scans else 1
    carried = node.input[: -attributes(node)["num_scan_inputs"]] if scans else node.input[2:]
    trips = trip_count(scope, node, bodies)
    found = {}
    for position, (value, name) in enumerate(zip(body.output[first:], node.output, strict=False)):
        known = inner.type_and_shape(value.name)
        if not name or known is None:
            continue
        elem, shape = known
        if position < len(carried):
            if scope.type_and_shape(carried[position]) == known:
                found[name] = tensor_type(elem, shape)
        # a scan output stacks the results of all iterations along a new axis
        elif trips is not None:
            at = position - len(carried)
            axis = _axis(node, "scan_output_axes", at, len(shape) + 1) if scans else 0
            found[name] = tensor_type(elem, (*shape[:axis], trips, *shape[axis:]))
    return found


def _branch_results(
    node: onnx.NodeProto, outer: Mapping[str, onnx.GraphProto], bodies: Mapping[str, Scope]
) -> dict[str, onnx.TypeProto]:
    found = {}
    sides = [
        [bodies[at].type_and_shape(value.name) for value in outer[at].output] for at in BRANCHES
    ]
    for name, then_type, else_type in zip(node.output, *sides, strict=False):
        if name and then_type is not None and then_type == else_type:
            found[name] = tensor_type(*then_type)
    return found
