"""Helpers over ONNX graphs: what a node reads, order, reachability, cutting a part out, and
where each node of a file ended up.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edgekit.errors import ModelError

if TYPE_CHECKING:
    from edgekit.network.model import Folded, Model, Network


WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators whose nodes have graphs of their own."""

# their results are computed before running: whoever reads them has taken them in
_BEFOREHAND = frozenset({"constant", "given"})


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of a control-flow node (If, Loop, Scan); none for any other."""
    # called several times for every node: looking at all attributes would be slow
    if node.op_type not in WITH_BODIES:
        return
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def has_bodies(node: onnx.NodeProto) -> bool:
    """Whether a node has bodies of its own."""
    return node.op_type in WITH_BODIES and any(True for _ in subgraphs(node))


def reads(node: onnx.NodeProto) -> list[str]:
    """Every tensor that a node reads, once each: its inputs and what its bodies capture."""
    found = dict.fromkeys(node.input)
    found.pop("", None)
    if node.op_type in WITH_BODIES:
        for body in subgraphs(node):
            found.update(dict.fromkeys(_captures(body)))
    return list(found)


def _captures(graph: onnx.GraphProto) -> list[str]:
    own = _own(graph)
    found = []
    for node in graph.node:
        # a body may give a name of the graph around it another value, from there on
        found += [name for name in reads(node) if name not in own]
        own.update(node.output)
    return found + [value.name for value in graph.output if value.name not in own]


def _own(graph: onnx.GraphProto) -> set[str]:
    return {value.name for value in graph.input} | {value.name for value in graph.initializer}


def rename_reads(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Renames in place what a node reads, in its bodies too, where it is not their own there."""
    for index, name in enumerate(node.input):
        if name in names:
            node.input[index] = names[name]
    for body in subgraphs(node):
        outer = _without(names, _own(body))
        for inner in body.node:
            rename_reads(inner, outer)
            outer = _without(outer, inner.output)
        for value in body.output:
            if value.name in outer:
                value.name = outer[value.name]


def _without(names: Mapping[str, str], own: Collection[str]) -> Mapping[str, str]:
    if not any(name in names for name in own):
        return names
    return {name: new for name, new in names.items() if name not in own}


def free_name(stem: str, taken: Collection[str], tried: dict[str, int] | None = None) -> str:
    """``stem``, or the first of ``stem_1``, ``stem_2``, … that is not taken.

    ``tried`` remembers how far each stem got, for callers that only ever add to ``taken``: counting
    up from one each time is quadratic where thousands share a name.
    """
    suffix = tried.get(stem, 0) if tried is not None else 0
    name = f"{stem}_{suffix}" if suffix else stem
    while name in taken:
        suffix += 1
        name = f"{stem}_{suffix}"
    if tried is not None:
        tried[stem] = suffix
    return name


def name_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives each node a unique name in place: ``<OpType>_<index>`` where there is none."""
    nodes = list(nodes)
    taken = {node.name for node in nodes if node.name}
    seen: set[str] = set()
    tried: dict[str, int] = {}
    for index, node in enumerate(nodes):
        name = node.name
        if not name or name in seen:
            name = free_name(name or f"{node.op_type}_{index}", taken, tried)
            taken.add(name)
            node.name = name
        seen.add(name)


def sort(nodes: Sequence[onnx.NodeProto], known: Collection[str]) -> list[onnx.NodeProto]:
    """Orders nodes so that each comes after what it reads; file order otherwise.

    Raises:
        ModelError: ``model.undefined_tensor`` or ``model.cycle``.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waiting = [0] * len(nodes)
    users: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for name in reads(node):
            if name in producer:
                waiting[index] += 1
                users.setdefault(producer[name], []).append(index)
            elif name not in known:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) reads tensor {name!r}, "
                    "which nothing defines",
                    code="model.undefined_tensor",
                    where=node.name,
                    hint=nearest(name, [*producer, *known]) or "export the model again",
                )
    ready = [index for index, count in enumerate(waiting) if not count]
    ordered = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append(nodes[index])
        for user in users.get(index, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(ordered) < len(nodes):
        loop = _loop(nodes, producer, waiting)
        raise ModelError(
            f"the graph has a cycle: {' -> '.join(loop)}",
            code="model.cycle",
            where=loop[0],
            hint="ONNX graphs are acyclic; recurrence belongs in a Loop, Scan or LSTM node",
        )
    return ordered


def _loop(
    nodes: Sequence[onnx.NodeProto], producer: Mapping[str, int], waiting: Sequence[int]
) -> list[str]:
    """Walks backwards among the nodes that never became ready until one repeats."""
    index = next(index for index, count in enumerate(waiting) if count)
    path: list[int] = []
    seen: dict[int, int] = {}
    while index not in seen:
        seen[index] = len(path)
        path.append(index)
        sources = (producer[name] for name in reads(nodes[index]) if name in producer)
        index = next(source for source in sources if waiting[source])
    names = [nodes[i].name for i in [*path[seen[index] :], index]]
    return names[::-1]


def reachable(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], stop: Collection[str]
) -> list[onnx.NodeProto]:
    """The nodes (in their order) that ``outputs`` need, not looking beyond tensors in ``stop``."""
    producer = {name: node for node in nodes for name in node.output if name}
    wanted: set[int] = set()
    stack = list(outputs)
    while stack:
        name = stack.pop()
        if name in stop or name not in producer:
            continue
        node = producer[name]
        if id(node) not in wanted:
            wanted.add(id(node))
            stack.extend(reads(node))
    return [node for node in nodes if id(node) in wanted]


def nearest(name: str, names: Iterable[str]) -> str:
    """``did you mean ...`` for a misspelt name, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, [n for n in names if n], n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def extract(
    model: Model, nodes: Collection[str], inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """The sub-model of the named nodes between tensor borders.

    Weights stay stubs (their values are those of ``model.weights``), small constants stay inline,
    and inputs, outputs and inner tensors carry their types and static shapes.

    Args:
        model: Where to cut.
        nodes: Names of the ONNX nodes to keep.
        inputs: Tensors to feed, in this order.
        outputs: Tensors to return, in this order.

    Raises:
        ModelError: ``model.unknown_node``, ``model.unknown_output``, or ``model.open_segment``
            when a node reads a tensor that is neither fed, computed inside nor constant.
    """
    graph = model.proto.graph
    chosen = [node for node in graph.node if node.name in nodes]
    missing = set(nodes) - {node.name for node in chosen}
    if missing:
        raise ModelError(
            f"there is no node called {min(missing)!r}",
            code="model.unknown_node",
            where=min(missing),
        )
    infos = {v.name: v for v in [*graph.value_info, *graph.output, *graph.input]}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    produced = {name for node in chosen for name in node.output if name}
    used: dict[str, None] = {}
    for node in chosen:
        for name in reads(node):
            if name not in produced and name not in inputs and name not in constants:
                raise ModelError(
                    f"node {node.name!r} reads {name!r}, which the segment neither gets nor makes",
                    code="model.open_segment",
                    where=node.name,
                )
            used[name] = None
    for name in (*inputs, *outputs):
        if name not in infos or (name in outputs and name not in {*produced, *inputs, *constants}):
            raise ModelError(
                f"tensor {name!r} is not at the border of the segment",
                code="model.unknown_output",
                where=name,
            )
    needed = [name for name in dict.fromkeys([*used, *outputs]) if name in constants]
    part = helper.make_graph(
        chosen,
        graph.name,
        [infos[name] for name in inputs],
        [infos[name] for name in outputs],
        [constants[name] for name in needed if name not in inputs],
        value_info=[
            infos[name]
            for node in chosen
            for name in node.output
            if name and name not in outputs and name not in inputs
        ],
    )
    return helper.make_model(
        part,
        opset_imports=model.proto.opset_import,
        ir_version=model.proto.ir_version,
        producer_name=model.proto.producer_name,
    )


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The layers that stand for an ONNX node.

    Attributes:
        layers: Names of the layers, in graph order. Of a node that loading removed: those that
            read what it computed, or for an Identity and the like those that make its result.
        reason: Why the node itself is gone, as :class:`~edgekit.network.model.Folded` says it;
            empty when the layers stand for it directly. With a reason there may be no layers: a
            node that no output needs, or a constant that is itself an output.
    """

    layers: tuple[str, ...]
    reason: str = ""


def places(model: Model, network: Network) -> dict[str, NodePlace]:
    """By name of every node that the model's file has, where it is in the layer graph.

    Args:
        model: A loaded model.
        network: ``layers(model)``.
    """
    order = {layer.name: index for index, layer in enumerate(network.whole.layers)}
    holders = {name: layer.name for layer in network.constants for name in layer.outputs}
    direct: dict[str, list[str]] = {node.name: [] for node in model.proto.graph.node}
    for layer in network.layers:
        for name in layer.nodes:
            direct[name].append(layer.name)
    found = {name: NodePlace(tuple(layers)) for name, layers in direct.items()}
    maker = {out: node.name for node in model.proto.graph.node for out in node.output if out}
    readers: dict[str, list[str]] = {}
    for node in model.proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.name)
    for name, gone in model.folded.items():
        for tensor in gone.inputs:
            readers.setdefault(tensor, []).append(name)
    # the last first: who reads a removed node's result is known before the node itself
    for name, gone in reversed(list(model.folded.items())):
        if name not in found:
            users = _users(gone, maker, readers)
            own = [holders[tensor] for tensor in gone.outputs if tensor in holders]
            # a constant that stays a layer is where its node is; otherwise its readers are
            readers_of = [one for user in users if user in found for one in found[user].layers]
            within = set(own or readers_of)
            found[name] = NodePlace(tuple(sorted(within, key=order.__getitem__)), gone.reason)
    return found


def _users(gone: Folded, maker: dict[str, str], readers: dict[str, list[str]]) -> Iterable[str]:
    if gone.reason == "unused":
        return ()
    makers = [maker[tensor] for tensor in gone.outputs if tensor in maker]
    if makers and gone.reason not in _BEFOREHAND:
        return makers
    return [reader for tensor in gone.outputs for reader in readers.get(tensor, ())]
