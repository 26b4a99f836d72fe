"""Checks if TensorRT's ONNX parser of a release imports every node of a graph, with remedies for
refused nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper

from edgekit.errors import GateError, ModelError
from edgekit.network.graph import Node, OnnxGraph, node_proto, read_node
from edgekit.network.loading.bodies import evaluate_bodies, graphs
from edgekit.network.loading.opaque import plugin_creator_key
from edgekit.network.loading.shapes import Evaluation, outer_scope
from edgekit.network.module_names import ModuleNames, last_line
from edgekit.network.operators import Importer, Refusal, operator_table, refusals
from edgekit.network.protos import LEFT_DOMAIN, RUNTIMES, WITH_BODIES, dtype_name, is_plugin
from edgekit.parsing.conditions import CONDITIONS, Case
from edgekit.targets.board import Target
from edgekit.targets.releases import parse_version, upgrade_hint
from edgekit_device.protocol.codec import choice, document, flag, long_text, member, records, write

# most values of a zero point or a scale that are checked
_MOST_VALUES = 1 << 20
#: The model that a ``Parse`` is about: the user's model, or edgekit's rewritten model.
AS_GIVEN, AFTER_REWRITES = "as given", "after rewrites"


@document(frozen=True)
class ParseProblem:
    """A node that the parser refuses, or imports with different results.

    Attributes:
        node: Its name.
        operator: Its ONNX operator.
        message: The refused or ignored use.
        fix: The remedies, the best first.
        module: Path of its PyTorch module; "" for the network itself, or if unknown.
        kind: The module's class; "" if unknown.
        line: Its line of Python, such as "net.py:12: y = self.stem(x)"; "" if unknown.
        body: Its enclosing bodies, innermost first: "the body of Loop 'loop'"; "" if none.
    """

    node: str = member(long_text)
    operator: str = member(long_text)
    message: str = member(long_text)
    fix: str = member(long_text)
    module: str = member(long_text, absent="")
    kind: str = member(long_text, absent="")
    line: str = member(long_text, absent="")
    body: str = member(long_text, absent="")

    @property
    def place(self) -> str:
        """The node's place: "module 'head' (Head), net.py:12", or its bodies; "" if unknown."""
        named = f"module {self.module!r}" if self.module else "the network" if self.line else ""
        if named and self.kind:
            named += f" ({self.kind.rpartition('.')[2]})"
        return ", ".join(filter(None, (self.body, named, self.line)))


@document(frozen=True)
class Parse:
    """The result of a check of a graph against a release's parser, by ``trt/operators.yaml``.

    Attributes:
        ok: True if the parser imports every node.
        release: The TensorRT release.
        problems: The nodes that it refuses.
        model: "as given" for the user's model, or "after rewrites" for edgekit's rewritten model,
            which the board gets.
        converted: True if edgekit rewrites a refused model into a model that the parser imports:
            plan, build and run work with it.
    """

    ok: bool = member(flag)
    release: str = member(long_text)
    problems: tuple[ParseProblem, ...] = member(records(ParseProblem))
    model: str = member(choice(AS_GIVEN, AFTER_REWRITES), default=AS_GIVEN)
    converted: bool = member(flag, default=False)

    @property
    def builds(self) -> bool:
        """True if the board can build from the model, or from edgekit's rewritten model."""
        return self.ok or self.converted

    def refusal(self) -> GateError:
        """Returns the error for a refused model; its JSON has the whole "parse"."""
        first, *more = self.problems
        others = ""
        if more:
            names = ", ".join(f"{problem.node!r}" for problem in more[:2])
            others = f" ({len(more)} more: {names}{', ...' if more[2:] else ''})"
        place = f" in {first.place}" if first.place else ""
        error = GateError(
            f"the board cannot parse this network ({self.model}) at {first.operator} "
            f"{first.node!r}{place}: {first.message}{others}",
            code="model.parse",
            where=first.node,
            hint=first.fix,
        )
        error.extra["parse"] = write(self)
        return error


def parse_check(
    graph: OnnxGraph,
    release: str,
    target: Target | None = None,
    *,
    plugins: Collection[str] = (),
    model: str = AS_GIVEN,
    traces: Mapping[str, str] | None = None,
) -> Parse:
    """Checks if TensorRT's ONNX parser imports a graph, including the nodes of bodies.

    Args:
        graph: The graph as the board's parser gets it.
        release: The board's TensorRT ("8.5.2", "10.3"); an unknown release is treated as the newest
            known release before it.
        target: The board, so that remedies name the JetPack that has a newer TensorRT.
        plugins: Names of the user's own plugins that the board has.
        model: The value of :attr:`Parse.model`.
        traces: The traces of ``Model``.

    Raises:
        UsageError: The release is not a version (code ``tensorrt.version``).
    """
    on = _Board(release, target, plugins)
    outer = _Scope(graph)
    problems = []
    for outer_node in graph.nodes():
        inner = _body_nodes(outer_node, outer) if outer_node.op in WITH_BODIES else ()
        for node, scope in ((outer_node, outer), *inner):
            if judged := _judge(node, scope, on):
                problems.append(
                    _describe_problem(node, scope, *judged, graph.modules, traces or {})
                )
    return Parse(ok=not problems, release=release, problems=tuple(problems), model=model)


def _describe_problem(
    node: Node,
    scope: _Scope,
    message: str,
    fix: str,
    modules: ModuleNames | None,
    traces: Mapping[str, str],
) -> ParseProblem:
    """Returns the problem with the module of the node, or of the node that holds its body, and the
    ``leave`` option."""
    outer = scope.holder or node.name
    module = modules.nodes.get(outer, "") if modules else ""
    leave = f"leave=[{module!r}] of edgekit.compile keeps the module in PyTorch" if module else ""
    return ParseProblem(
        node=node.name,
        operator=node.op,
        message=message,
        fix=_join_remedies(fix, leave),
        module=module,
        kind=modules.classes.get(module, "") if modules else "",
        line=last_line(traces.get(outer, "")),
        body=scope.path,
    )


class _Board:
    """A release, the board that has it, and the user's plugins there."""

    def __init__(self, release: str, target: Target | None, plugins: Collection[str]) -> None:
        self.release = release
        self.version = parse_version(release)
        self.plugins = frozenset(plugins)
        self._target = target

    def reaches(self, refusal: Refusal) -> bool:
        """Returns True if the board's GPU has the compute capability that a refusal requires, or
        if the board is unknown."""
        least = refusal.below_capability
        if least is None:
            return False
        return self._target is None or not self._target.lacking_capability(least)

    def newer(self, since: str) -> str:
        """Returns the remedy of a newer release; "" if the board has none."""
        return upgrade_hint(self._target, since)


@document(frozen=True)
class _Scope:
    """The tensors in a node's scope: the graph's, and those of its enclosing bodies.

    Attributes:
        graph: The main graph.
        constants: Constants of the bodies.
        dtypes: Types of the bodies' tensors, as far as known.
        ranks: Numbers of dimensions of the bodies' tensors, as far as known.
        own: Every tensor that the bodies define.
        path: The enclosing bodies, innermost first; "" for the graph's own nodes.
        holder: The graph's node that holds the bodies; "" for none.
        known: The evaluated innermost body; None for the graph, or if it cannot be evaluated.
    """

    graph: OnnxGraph
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    path: str = ""
    holder: str = ""
    known: Evaluation | None = None

    def inner(
        self, node: Node, attribute: str, body: onnx.GraphProto, known: Evaluation | None
    ) -> _Scope:
        """Returns the scope of the nodes of a body."""
        path = f"the {attribute} of {node.op} {node.name!r}"
        constants = dict(self.constants) | {tensor.name: tensor for tensor in body.initializer}
        dtypes, ranks = dict(self.dtypes), dict(self.ranks)
        own = {value.name for value in body.input} | set(constants)
        for part in body.node:
            own.update(part.output)
            for item in part.attribute:
                if part.op_type == "Constant" and item.name == "value":
                    constants[part.output[0]] = item.t
        for value in (*body.input, *body.value_info, *body.output):
            tensor = value.type.tensor_type
            if tensor.elem_type:
                dtypes[value.name] = dtype_name(tensor.elem_type)
            if tensor.HasField("shape"):
                ranks[value.name] = len(tensor.shape.dim)
        # the evaluation knows more than the body declares
        for name in own:
            found = known.type_and_shape(name) if known is not None else None
            if found is not None:
                dtypes[name], ranks[name] = dtype_name(found[0]), len(found[1])
        # last: a constant's own type is certain
        for name, constant in constants.items():
            dtypes[name] = dtype_name(constant.data_type)
            ranks[name] = len(constant.dims)
        return _Scope(
            self.graph,
            constants,
            dtypes,
            ranks,
            self.own | own,
            f"{path} in {self.path}" if self.path else path,
            self.holder or node.name,
            known,
        )

    def bodies(self, node: Node) -> Mapping[str, Evaluation]:
        """Returns a node's evaluated bodies; empty if they cannot be evaluated."""
        try:
            if self.known is not None:
                return evaluate_bodies(self.known, node_proto(node))
            if self.path or not self.graph.unknown.keys().isdisjoint(node.reads()):
                return {}
            return evaluate_bodies(outer_scope(self.graph, node), node_proto(node))
        except (ModelError, KeyError):
            return {}

    def dtype(self, name: str) -> str:
        """Returns NumPy's name of a tensor's type; "" if unknown."""
        if name in self.own:
            return self.dtypes.get(name, "")
        known = name and name not in self.graph.unknown
        return self.graph.dtype(name) if known else ""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Returns a tensor's shape; None if unknown."""
        if name in self.own:
            found = self.known.type_and_shape(name) if self.known is not None else None
            return None if found is None else found[1]
        return None if name in self.graph.unknown else self.graph.shape(name)

    def rank(self, name: str) -> int | None:
        """Returns a tensor's number of dimensions; None if unknown."""
        if name in self.own:
            return self.ranks.get(name)
        return None if name in self.graph.unknown else len(self.graph.shape(name))

    def variable(self, name: str) -> bool:
        """Returns True if a tensor may change from inference to inference, as far as known."""
        if name in self.own:
            return False
        return not self.graph.constant(name) and name not in self.graph.derived

    def producer(self, name: str) -> str | None:
        """Returns the operator that writes a tensor; "" if unknown, None for an input."""
        if name in self.own:
            return ""
        node = self.graph.producer(name)
        return None if node is None else node.op

    def value(self, name: str) -> np.ndarray | None:
        """Returns a constant's values; None for any other tensor."""
        if name in self.own:
            constant = self.constants.get(name)
            return None if constant is None else numpy_helper.to_array(constant)
        return self.graph.value(name)


def _body_nodes(node: Node, scope: _Scope) -> Iterator[tuple[Node, _Scope]]:
    """Yields the nodes of a node's bodies, and of nested bodies, with their scopes."""
    proto = node_proto(node)
    known = scope.bodies(node)
    for attribute, body in graphs(proto).items():
        inner = scope.inner(node, attribute, body, known.get(attribute))
        for part in body.node:
            inner_node = read_node(part)
            yield inner_node, inner
            if inner_node.op in WITH_BODIES:
                yield from _body_nodes(inner_node, inner)


def _judge(node: Node, scope: _Scope, on: _Board) -> tuple[str, str] | None:
    """Returns the message and the remedy for a refused node; None if the parser imports it."""
    table = operator_table()
    if node.domain == LEFT_DOMAIN:
        return None  # the parser never gets it
    row = table.operators.get(node.op) or table.missing.get(node.op)
    # a node of another domain may have the form of an ONNX operator
    standard = not node.domain or (
        node.proto is not None and not is_plugin(node.proto, scope.graph.opset)
    )
    other = not standard and not (row is not None and row.foreign)
    if not table.imports(node.op, on.version):
        if node.op in table.plugins.names or node.op in on.plugins:
            return None
        row = None if other else row
        return _missing_importer(node, row, scope, on)
    if other:
        return (
            f"the parser of TensorRT {on.release} ignores domains: it takes {node.domain}."
            f"{node.op} for ONNX's {node.op}, which has other inputs or attributes",
            _join_remedies(
                f"export ONNX's {node.op}, or the operators it consists of", _cut_remedy(scope)
            ),
        )
    for refusal in refusals(node.op, on.release):
        # a GPU with the capability lifts the refusal
        values = None if on.reaches(refusal) else _refusal_values(refusal, node, scope)
        if values is not None:
            what = refusal.what.format(operator=node.op, **values)
            does = "ignores" if refusal.ignores else "refuses"
            who = "builder" if refusal.builder else "parser"
            wrong = "; the results would be wrong" if refusal.ignores else ""
            return f"the {who} of TensorRT {on.release} {does} {what}{wrong}", _join_remedies(
                _newer_release_remedy(refusal, node, scope, on),
                refusal.avoid,
                _rewrite_remedy(refusal),
                _cut_remedy(scope),
            )
    return None


def _newer_release_remedy(refusal: Refusal, node: Node, scope: _Scope, on: _Board) -> str:
    """Returns the remedy of the release that ends a refusal; "" if none, or if another row then
    refuses the node."""
    if refusal.until is None:
        return ""
    later = refusals(node.op, refusal.until)
    # a remedy must mend the node: other rows of that release may refuse it too
    ends = all(_refusal_values(row, node, scope) is None for row in later)
    return on.newer(refusal.until) if ends else ""


def _missing_importer(
    node: Node, row: Importer | None, scope: _Scope, on: _Board
) -> tuple[str, str]:
    of_domain = f" of {node.domain}" if node.domain else ""
    message = f"the parser of TensorRT {on.release} has no importer for {node.op}"
    foreign = row is None or row.foreign
    avoid = "export it as operators of ONNX" if row is None or row.foreign else row.avoid
    if foreign and node.domain in RUNTIMES:
        avoid = f"give the model as it was before ONNX Runtime's optimizer fused nodes, or {avoid}"
    if row is None:
        message += f"{of_domain}, which is no operator of ONNX, and TensorRT ships no plugin for it"
    elif row.until:
        message += f"; releases before {row.until} have one"
    else:
        message += f"; {row.since} is the first with one" if row.since else "; no release has one"
    plugin = plugin_creator_key(node)
    title = f"{node.domain}::{node.op}" if node.domain else node.op
    return message, _join_remedies(
        on.newer(row.since) if row is not None and row.since else "",
        avoid,
        _rewrite_remedy(row) if row is not None else "",
        _cut_remedy(scope),
        f'if you have a TensorRT plugin named "{plugin["plugin"]}", version '
        f'"{plugin["plugin_version"]}", namespace "{plugin["plugin_namespace"]}", give its '
        f"library under model.plugins (operator: {title}, library: FILE.so), and edgekit "
        f"brings it to the board; one that the board has already: --plugin {node.op}",
    )


def _join_remedies(*remedies: str) -> str:
    return "; or ".join(filter(None, remedies))


def _rewrite_remedy(row: Importer | Refusal) -> str:
    return f"let edgekit rewrite it ({row.rewrite})" if row.rewrite else ""


def _cut_remedy(scope: _Scope) -> str:
    # a network cannot be cut inside a body
    return "" if scope.path else "cut the network before it with model.outputs (--outputs)"


def _refusal_values(row: Refusal, node: Node, scope: _Scope) -> dict[str, str] | None:
    """Returns the values for a row's text if all of its tests are true; else None."""
    named = {"value": "", "type": ""}
    opset = scope.graph.opset
    if row.opset_since is not None and opset < row.opset_since:
        return None
    if row.opset_until is not None and opset >= row.opset_until:
        return None
    if row.attribute is not None:
        value = _refused_attribute(row, node)
        if value is None:
            return None
        named["value"] = value
    if row.output is not None and not any(node.outputs[row.output :]):
        return None
    if row.input is not None and not _refused_input(row, node.input(row.input), scope):
        return None
    if row.condition is not None:
        case = Case(node, scope.shape, scope.value, partial(scope.bodies, node))
        if not CONDITIONS[row.condition](case):
            return None
    if row.most_dimensions is not None:
        ranks = [scope.rank(name) or 0 for name in (*node.inputs, *node.outputs) if name]
        if max(ranks, default=0) <= row.most_dimensions:
            return None
    if row.types is not None:
        read = [node.input(row.input)] if row.input is not None else [*node.inputs, *node.outputs]
        types = [kind for name in read if name and (kind := scope.dtype(name)) in row.types]
        if not types:
            return None
        named["type"] = types[0]
    return named


def _refused_attribute(row: Refusal, node: Node) -> str | None:
    """Returns the refused value of the row's attribute as text; None if it is not refused."""
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
        # unknown ranks are not refused: the table reports only certain refusals
        if rank is None or rank in row.ranks_other_than:
            return False
    if row.not_from is not None and scope.producer(name) in row.not_from:
        return False
    if row.nonzero or row.nonpositive:
        value = scope.value(name)
        if value is None or value.size > _MOST_VALUES:
            return False
        numbers = value.astype(np.float64)
        return bool(np.any(numbers != 0 if row.nonzero else numbers <= 0))
    return True
