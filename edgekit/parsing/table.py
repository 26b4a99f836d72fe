"""Whether TensorRT's ONNX parser of a release imports every node of a graph, and what to do about
the nodes that it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from edgekit.network.graph import Node, OnnxGraph, node_of
from edgekit.network.model import QDQ
from edgekit.network.protos import dtype_name, is_plugin, subgraphs
from edgekit.parsing.operators import Importer, Refusal, numbers, operator_table, refusals
from edgekit.parsing.shapes import SHAPE_TESTS
from edgekit.targets.board import Target

_LARGEST_ZERO_POINT = 1 << 20
_CONVERT = (
    "let edgekit convert the Q/DQ nodes to a calibration cache (plan, build and run do; "
    "edgekit calibrate from-qdq writes the model)"
)


@dataclass(frozen=True, slots=True)
class ParseProblem:
    """A node that the parser refuses, or imports with other results.

    Attributes:
        node: Its name.
        operator: Its ONNX operator.
        message: What the parser refuses, or ignores.
        fix: What to do, the best way first.
    """

    node: str
    operator: str
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Parse:
    """Whether the parser of a release imports a graph, by ``trt/operators.yaml``."""

    ok: bool
    release: str
    problems: tuple[ParseProblem, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns ``"parse"`` of a check."""
        return asdict(self) | {"problems": [asdict(one) for one in self.problems]}


def parse_check(
    graph: OnnxGraph, release: str, target: Target | None = None, *, converts: bool = False
) -> Parse:
    """Returns whether TensorRT's ONNX parser imports a graph; nodes of bodies count.

    Args:
        graph: The graph as the board's parser gets it.
        release: The board's TensorRT ("8.5.2", "10.3"); one that the table does not know counts as
            the newest known before it.
        target: The board, so that remedies name the JetPack that has a newer TensorRT.
        converts: Whether edgekit converts the graph's Q/DQ nodes to a calibration cache, which is
            then a remedy.

    Raises:
        UsageError: The release is no version (code ``tensorrt.version``).
    """
    on = _Release(release, target, converts)
    found = tuple(
        ParseProblem(node=node.name, operator=node.op, message=message, fix=fix)
        for node, scope in _nodes(graph)
        for message, fix in [_judge(node, scope, on) or ("", "")]
        if message
    )
    return Parse(ok=not found, release=release, problems=found)


class _Release:
    """A release, and how a newer one is named for a board."""

    def __init__(self, text: str, target: Target | None, converts: bool) -> None:
        self.text = text
        self.version = numbers(text)
        self.converts = converts
        self._target = target

    def newer(self, since: str, verb: str) -> str:
        """Returns that TensorRT from ``since`` on has or takes it, and the board's JetPack."""
        # most models have no problem, and need not know the JetPacks
        from edgekit.targets.jetpack import jetpacks

        packs = jetpacks(self._target) if self._target is not None else ()
        pack = next(
            (p for p in packs if p.tensorrt and numbers(p.tensorrt) >= numbers(since)), None
        )
        with_ = f" (JetPack {pack.versions[0]} brings {pack.tensorrt})" if pack is not None else ""
        return f"use TensorRT {since} or newer, which {verb} it{with_}"


@dataclass(frozen=True, slots=True)
class _Scope:
    """The tensors that a node sees: the graph's, and those of the bodies around it.

    Attributes:
        graph: The main graph.
        constants: Constants of the bodies.
        dtypes: Types of the bodies' tensors, as far as known.
        ranks: Numbers of dimensions of the bodies' tensors, as far as known.
        own: Every tensor that the bodies define.
        inside: Whether it is a body's.
    """

    graph: OnnxGraph
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    inside: bool = False

    def inner(self, body: onnx.GraphProto) -> _Scope:
        """Returns what the nodes of a body see."""
        constants = dict(self.constants) | {tensor.name: tensor for tensor in body.initializer}
        dtypes, ranks = dict(self.dtypes), dict(self.ranks)
        own = {value.name for value in body.input} | set(constants)
        for node in body.node:
            own.update(node.output)
            for item in node.attribute:
                if node.op_type == "Constant" and item.name == "value":
                    constants[node.output[0]] = item.t
        for value in (*body.input, *body.value_info, *body.output):
            tensor = value.type.tensor_type
            if tensor.elem_type:
                dtypes[value.name] = dtype_name(tensor.elem_type)
            if tensor.HasField("shape"):
                ranks[value.name] = len(tensor.shape.dim)
        for name, constant in constants.items():
            dtypes[name] = dtype_name(constant.data_type)
            ranks[name] = len(constant.dims)
        return _Scope(self.graph, constants, dtypes, ranks, self.own | own, True)

    def dtype(self, name: str) -> str:
        """Returns NumPy's name of a tensor's type; "" if unknown."""
        if name in self.own:
            return self.dtypes.get(name, "")
        known = name and name not in self.graph.unknown
        return self.graph.dtype(name) if known else ""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Returns a tensor's shape; None if unknown, or of a body."""
        unknown = name in self.own or name in self.graph.unknown
        return None if unknown else self.graph.shape(name)

    def rank(self, name: str) -> int | None:
        """Returns a tensor's number of dimensions; None if unknown."""
        if name in self.own:
            return self.ranks.get(name)
        return None if name in self.graph.unknown else len(self.graph.shape(name))

    def variable(self, name: str) -> bool:
        """Whether a tensor changes from inference to inference, as far as known."""
        if name in self.own:
            return False
        return not self.graph.constant(name) and name not in self.graph.derived

    def value(self, name: str) -> np.ndarray | None:
        """Returns a constant's values; None for any other tensor."""
        if name in self.own:
            constant = self.constants.get(name)
            return None if constant is None else numpy_helper.to_array(constant)
        return self.graph.value(name)


def _nodes(graph: OnnxGraph) -> Iterator[tuple[Node, _Scope]]:
    scope = _Scope(graph)
    for node in graph.nodes():
        yield node, scope
        if node.proto is not None:
            yield from _bodies(node.proto, scope)


def _bodies(proto: onnx.NodeProto, scope: _Scope) -> Iterator[tuple[Node, _Scope]]:
    for body in subgraphs(proto):
        inner = scope.inner(body)
        for part in body.node:
            yield node_of(part), inner
            yield from _bodies(part, inner)


def _judge(node: Node, scope: _Scope, on: _Release) -> tuple[str, str] | None:
    """What the parser refuses of a node and what to do; None where it imports the node."""
    table = operator_table()
    if not table.imports(node.op, on.version):
        row = table.operators.get(node.op) or table.missing.get(node.op)
        if row is None or node.op in table.plugins.names or _is_plugin(node, scope):
            return None
        return _no_importer(node, row, scope, on)
    for refusal in refusals(node.op, on.text):
        values = _refused(refusal, node, scope)
        if values is not None:
            what = refusal.what.format(operator=node.op, **values)
            does = "ignores" if refusal.ignores else "refuses"
            wrong = "; the results would be wrong" if refusal.ignores else ""
            return f"the parser of TensorRT {on.text} {does} {what}{wrong}", _fix(
                _newer(refusal, node, scope, on),
                refusal.avoid,
                _rewrite(refusal),
                _CONVERT if on.converts and node.op in QDQ else "",
                _cut(scope),
            )
    return None


def _newer(refusal: Refusal, node: Node, scope: _Scope, on: _Release) -> str:
    """Returns the release that ends a refusal; "" for none, or where another row begins there."""
    if refusal.until is None:
        return ""
    later = refusals(node.op, refusal.until)
    ends = all(_refused(row, node, scope) is None for row in later)
    return on.newer(refusal.until, "imports") if ends else ""


def _is_plugin(node: Node, scope: _Scope) -> bool:
    """Whether a node of another domain is not what an operator of ONNX would be."""
    if not node.domain:
        return False
    return node.proto is None or is_plugin(node.proto, scope.graph.opset)


def _no_importer(node: Node, row: Importer, scope: _Scope, on: _Release) -> tuple[str, str]:
    has = f"{row.since} is the first with one" if row.since else "no release has one"
    return (
        f"the parser of TensorRT {on.text} has no importer for {node.op}; {has}",
        _fix(
            on.newer(row.since, "imports") if row.since else "",
            row.avoid,
            _rewrite(row),
            _cut(scope),
            f'give a plugin that the parser finds under the name "{node.op}", version "1", '
            'namespace "", and the node a domain of its own',
        ),
    )


def _fix(*remedies: str) -> str:
    return "; or ".join(filter(None, remedies))


def _rewrite(row: Importer | Refusal) -> str:
    return f"let edgekit rewrite it ({row.rewrite})" if row.rewrite else ""


def _cut(scope: _Scope) -> str:
    return "" if scope.inside else "cut the network before it with model.outputs (--outputs)"


def _refused(row: Refusal, node: Node, scope: _Scope) -> dict[str, str] | None:
    """What a row's text names of a node where all of the row's tests hold; else None."""
    named = {"value": "", "type": ""}
    opset = scope.graph.opset
    if row.opset_since is not None and opset < row.opset_since:
        return None
    if row.opset_until is not None and opset >= row.opset_until:
        return None
    if row.attribute is not None:
        value = _attribute(row, node)
        if value is None:
            return None
        named["value"] = value
    if row.output is not None and not any(node.outputs[row.output :]):
        return None
    if row.input is not None and not _refused_input(row, node.input(row.input), scope):
        return None
    if row.shapes is not None and not _refused_shapes(row.shapes, node, scope):
        return None
    if row.types is not None:
        read = [node.input(row.input)] if row.input is not None else [*node.inputs, *node.outputs]
        types = [kind for name in read if name and (kind := scope.dtype(name)) in row.types]
        if not types:
            return None
        named["type"] = types[0]
    return named


def _refused_shapes(test: str, node: Node, scope: _Scope) -> bool:
    shapes = [scope.shape(name) if name else () for name in node.inputs]
    known = [shape for shape in shapes if shape is not None]
    return len(known) == len(shapes) and SHAPE_TESTS[test](known)


def _attribute(row: Refusal, node: Node) -> str | None:
    """The refused value of the row's attribute, as text."""
    assert row.attribute is not None
    value = node.attrs.get(row.attribute, row.default)
    if value is None:
        return None
    parts = list(value) if isinstance(value, list | tuple) else [value]
    if row.present or (row.matches is not None and re.search(row.matches, str(value))):
        return str(value)
    for part in parts:
        if row.values is not None and part in row.values:
            return str(part)
        if row.other_than is not None and part not in row.other_than:
            return str(part)
    return None


def _refused_input(row: Refusal, name: str, scope: _Scope) -> bool:
    if row.absent:
        return not name
    if not name:
        return False
    if row.variable and not scope.variable(name):
        return False
    if row.ranks_other_than is not None:
        rank = scope.rank(name)
        if rank is None or rank in row.ranks_other_than:
            return False
    if row.nonzero:
        value = scope.value(name)
        if value is None or value.size > _LARGEST_ZERO_POINT:
            return False
        return bool(np.any(value.astype(np.float64) != 0))
    return True
