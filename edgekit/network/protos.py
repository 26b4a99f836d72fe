"""Functions on ONNX nodes and tensors, for graphs during loading: the tensors that a node reads,
order, reachability, names, types, and plugins.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
import onnx
from onnx import defs, helper

from edgekit.errors import ModelError
from edgekit.network.operators import has_importer

WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators whose nodes have graphs of their own."""
RUNTIMES = frozenset({"com.microsoft"})
"""Domains of ONNX Runtime's own operators: it infers their shapes, and runs them."""
#: Operators without a domain that TensorRT's parser imports and ONNX Runtime runs, but that ONNX
#: does not define: three that it removed, and an operator that ONNX Runtime writes.
UNLISTED = frozenset(
    {"ImageScaler", "ParametricSoftplus", "ScaledTanh", "SimplifiedLayerNormalization"}
)
#: Operators whose results are random numbers.
RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
#: Domain and operator of a node that replaces a module left out of the network: PyTorch or ONNX
#: Runtime runs it. Its attribute ``module`` is the module's path.
LEFT_DOMAIN, LEFT_OPERATOR = "edgekit.pytorch", "Module"
# of onnx.TensorProto
FLOAT, STRING = 1, 8


@cache
def dtype_name(elem: int) -> str:
    """Returns NumPy's name of an ONNX element type."""
    return str(helper.tensor_dtype_to_np_dtype(elem).name)


@lru_cache(maxsize=256)
def onnx_elem_type(dtype: np.dtype) -> int:
    """Returns ONNX's element type of a NumPy type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def elem_named(text: str) -> int:
    """Returns ONNX's element type for ONNX Runtime's name ("tensor(float)"); 0 if unknown."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    found = onnx.TensorProto.DataType.DESCRIPTOR.values_by_name.get(name)
    return 0 if found is None else int(found.number)


@lru_cache(maxsize=4096)
def tensor_type(elem: int, shape: tuple[int, ...]) -> onnx.TypeProto:
    """Returns the type of a tensor; it is shared, so do not change it."""
    return helper.make_tensor_type_proto(elem, shape)


def is_plugin(node: onnx.NodeProto, version: int) -> bool:
    """Returns True if TensorRT needs a plugin for a node.

    It needs no plugin for an operator of ai.onnx or :data:`UNLISTED`. TensorRT's parser ignores
    domains, so it needs no plugin either for an operator of another domain with the name and form
    of a known operator: of the opset, or of ONNX Runtime (com.microsoft.Gelu).
    """
    if node.domain and not _is_imported(node):
        return True
    if node.domain in RUNTIMES or node.op_type in UNLISTED:
        return False
    try:
        # `has` takes a millisecond in the first call for each operator
        defs.get_schema(node.op_type, version)
    except defs.SchemaError:
        return True
    return False


def _is_imported(node: onnx.NodeProto) -> bool:
    """Returns True if a release's parser imports a node of another domain as ai.onnx's operator, by
    its form."""
    if node.op_type in UNLISTED:
        return True
    if not has_importer(node.op_type):
        return False
    try:
        schema = defs.get_schema(node.op_type)
    except defs.SchemaError:
        return False
    fits = schema.min_input <= len(node.input) <= schema.max_input
    return fits and all(attribute.name in schema.attributes for attribute in node.attribute)


def is_known(value: onnx.ValueInfoProto) -> bool:
    """Returns True if the graph declares a tensor's static shape."""
    tensor = value.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    if sizes and 0 not in sizes:
        return True
    # 0 may be a size or a missing size: only HasField shows which
    return tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yields the bodies of a control-flow node (If, Loop, Scan); none for any other node."""
    # called several times for every node: looking at all attributes would be slow
    if node.op_type not in WITH_BODIES:
        return
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def has_bodies(node: onnx.NodeProto) -> bool:
    """Returns True if a node has bodies."""
    return node.op_type in WITH_BODIES and any(True for _ in subgraphs(node))


def reads(node: onnx.NodeProto) -> list[str]:
    """Returns each tensor that a node reads once: its inputs and its bodies' captured tensors."""
    found = dict.fromkeys(node.input)
    found.pop("", None)
    if node.op_type in WITH_BODIES:
        for body in subgraphs(node):
            found.update(dict.fromkeys(_captures(body)))
    return list(found)


def _captures(graph: onnx.GraphProto) -> list[str]:
    own = _defined_names(graph)
    found = []
    for node in graph.node:
        # a body may redefine a name of the outer graph, from that node on
        found += [name for name in reads(node) if name not in own]
        own.update(node.output)
    return found + [value.name for value in graph.output if value.name not in own]


def _defined_names(graph: onnx.GraphProto) -> set[str]:
    return {value.name for value in graph.input} | {value.name for value in graph.initializer}


def rename_reads(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Renames in place the tensors that a node reads, also in its bodies unless they define
    them."""
    for index, name in enumerate(node.input):
        if name in names:
            node.input[index] = names[name]
    for body in subgraphs(node):
        # a name that the body defines hides the outer tensor
        outer = _without_redefined(names, _defined_names(body))
        for inner in body.node:
            rename_reads(inner, outer)
            outer = _without_redefined(outer, inner.output)
        for value in body.output:
            if value.name in outer:
                value.name = outer[value.name]


def _without_redefined(names: Mapping[str, str], own: Collection[str]) -> Mapping[str, str]:
    if not any(name in names for name in own):
        return names
    return {name: new for name, new in names.items() if name not in own}


def free_name(stem: str, taken: Collection[str], tried: dict[str, int] | None = None) -> str:
    """Returns ``stem``, or the first of ``stem_1``, ``stem_2``, … that is not taken.

    ``tried`` keeps the last number of each stem, for callers that only add to ``taken``: counting
    from 1 each time is quadratic if thousands share a name.
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
    """Gives each node a unique name in place: ``<OpType>_<index>`` if it has none."""
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


def name_inner_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives nodes of bodies names in place that are unique in the graph.

    TensorRT distinguishes them from the graph's own nodes by their names.
    """
    nodes = list(nodes)
    taken = {node.name for node in nodes}
    tried: dict[str, int] = {}
    waiting = [(node, body) for node in nodes for body in subgraphs(node)]
    while waiting:
        outer, body = waiting.pop()
        for index, node in enumerate(body.node):
            if not node.name or node.name in taken:
                stem = node.name or f"{node.op_type}_{index}"
                stem = f"{outer.name}/{stem}" if stem in taken else stem
                node.name = free_name(stem, taken, tried)
            taken.add(node.name)
            waiting += [(node, inner) for inner in subgraphs(node)]


def sort(nodes: Sequence[onnx.NodeProto], known: Collection[str]) -> list[onnx.NodeProto]:
    """Returns nodes so that each follows the producers of its inputs; otherwise in file order.

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
                    f"node {node.name!r} ({node.op_type}) reads tensor {name!r}, which is not "
                    "defined",
                    code="model.undefined_tensor",
                    where=node.name,
                    hint=nearest(name, [*producer, *known]) or "export the model again",
                )
    # sorted, and so a heap: of the ready nodes the first in the file is next
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
        loop = _find_cycle(nodes, producer, waiting)
        raise ModelError(
            f"the graph has a cycle: {' -> '.join(loop)}",
            code="model.cycle",
            where=loop[0],
            hint="ONNX graphs must be acyclic; use a Loop, Scan or LSTM node for recurrence",
        )
    return ordered


def _find_cycle(
    nodes: Sequence[onnx.NodeProto], producer: Mapping[str, int], waiting: Sequence[int]
) -> list[str]:
    """Returns a cycle, by walking backwards among the nodes that never became ready."""
    index = next(index for index, count in enumerate(waiting) if count)
    path: list[int] = []
    seen: dict[int, int] = {}
    while index not in seen:
        seen[index] = len(path)
        path.append(index)
        sources = (producer[name] for name in reads(nodes[index]) if name in producer)
        # each node with a count waits for another such node, so the walk meets itself
        index = next(source for source in sources if waiting[source])
    names = [nodes[i].name for i in [*path[seen[index] :], index]]
    return names[::-1]


def reachable(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], stop: Collection[str]
) -> list[onnx.NodeProto]:
    """Returns the nodes (in their order) that ``outputs`` need, up to the tensors in ``stop``."""
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
    """Returns ``did you mean ...`` for a misspelt name, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, [n for n in names if n], n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
