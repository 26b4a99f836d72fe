"""Refuses unsupported models before any computation: opsets, control flow, misspelt operators,
dynamic shapes, sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from edgekit.errors import ModelError
from edgekit.network.loading.axes import is_batch, is_fixed
from edgekit.network.model import QDQ
from edgekit.network.operators import has_importer
from edgekit.network.protos import UNLISTED, is_plugin, nearest, subgraphs
from edgekit.text import counted

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_NAME = 1024
_SHOWN_NAME = 60
# "Dims volume must be at most 2^31-1": NvInferRuntimeBase.h, Dims
#: Most elements of a tensor (also TensorRT 10.7 developer guide, section 2.6).
MOST_ELEMENTS = (1 << 31) - 1
# the largest exports have about 10,000 nodes; time and memory of a check grow with their number
_MOST_NODES = 30_000

# newest ai.onnx opset that ONNX Runtime 1.31 (the reference backend) opens; measured
NEWEST_OPSET = 26
# ONNX Runtime's operators on INT8 codes: QLinearAdd, QGemm, QAttention, DynamicQuantizeMatMul
_INTEGER = ("QLinear", "QGemm", "QAttention", "QEmbed", "DynamicQuantize", "MatMulInteger")
_INTEGERS = (
    "this model uses ONNX Runtime's QOperator format or dynamic quantisation: quantise it in the "
    "Q/DQ format (quantize_static(..., quant_format=QuantFormat.QDQ))"
)
# names of TensorRT's own plugins, and of most others
_PLUGIN = re.compile(r"_TRT|(?i:plugin)")
_MISSPELT = 0.74
# operators that ai.onnx removed: their replacement, and the last opset that has them
_GIVEN_UP = {"Scatter": ("ScatterElements", 10), "Upsample": ("Resize", 9)}
# opset since which ai.onnx's pair has the axis that com.microsoft's has
_QDQ_SINCE = 13


def opset(proto: onnx.ModelProto) -> int:
    """Returns the model's ai.onnx opset.

    Raises:
        ModelError: ``model.opset_missing`` or ``model.opset``.
    """
    found = [item.version for item in proto.opset_import if item.domain in {"", "ai.onnx"}]
    if not found:
        raise ModelError(
            "the model does not specify its ai.onnx opset",
            code="model.opset_missing",
            hint="export it again, or add an opset_import with domain '' to the file",
        )
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    if not 1 <= found[0] <= newest:
        raise ModelError(
            f"the model uses ai.onnx opset {found[0]} (edgekit reads 1 to {newest})",
            code="model.opset",
            hint="export with an older opset, for example torch.onnx.export(opset_version=17)",
        )
    return int(found[0])


def check_names_are_text(graph: onnx.GraphProto) -> None:
    """Checks that every name is text: protobuf returns damaged names as bytes.

    Raises:
        ModelError: ``model.not_onnx``.
    """
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    found: list[object] = [graph.name, *(value.name for value in values)]
    for node in graph.node:
        found += [node.name, node.op_type, node.domain, *node.input, *node.output]
        found += [item.name for item in node.attribute]
        for body in subgraphs(node):
            check_names_are_text(body)
    if {*map(type, found)} <= {str}:
        return
    # only now: looking at every name would slow down each valid model
    for name in found:
        if not isinstance(name, str):
            raise ModelError(
                f"a name in the model is not text: {name!r}",
                code="model.not_onnx",
                hint="the file is damaged; copy or export it again",
            )


def check_node_count(graph: onnx.GraphProto) -> None:
    """Checks that the number of nodes is small enough for a check within seconds.

    Raises:
        ModelError: ``model.too_large``.
    """
    if len(graph.node) > _MOST_NODES:
        raise ModelError(
            f"the graph has {len(graph.node):,} nodes (edgekit reads up to {_MOST_NODES:,})",
            code="model.too_large",
            hint="export loops and recurrences as Loop, LSTM or GRU instead of unrolling them, or "
            "split the network",
        )


def check_calls(proto: onnx.ModelProto) -> None:
    """Checks that the model's own functions expand to few nodes: nested functions can expand to
    2^40 nodes.

    Raises:
        ModelError: ``model.too_large``, or ``model.functions`` if a function calls itself.
    """
    bodies = {(function.domain, function.name): function.node for function in proto.functions}
    made: dict[tuple[str, str], int] = {}
    begun: set[tuple[str, str]] = set()

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            total += made.get(key, 1) + sum(count(body.node) for body in subgraphs(node))
        return total

    # an explicit stack: a chain of calls may be deeper than Python's recursion limit
    waiting = list(bodies)
    while waiting:
        key = waiting[-1]
        if key in made:
            waiting.pop()
            continue
        inner = [(node.domain, node.op_type) for node in _all_nodes(bodies[key])]
        open_ = [item for item in inner if item in bodies and item not in made]
        # its callees were counted since, except those that call it: a cycle
        if key in begun and open_:
            raise ModelError(
                f"the model's local function {open_[0][1]!r} calls itself",
                code="model.functions",
                hint="ONNX functions are not recursive; export the model again",
            )
        begun.add(key)
        if open_:
            waiting += open_
            continue
        made[key] = count(bodies[key])
    most = count(proto.graph.node)
    if most > _MOST_NODES:
        raise ModelError(
            f"the model's local functions expand to {most:,} nodes (edgekit reads up to "
            f"{_MOST_NODES:,})",
            code="model.too_large",
            hint="export loops and recurrences as Loop, LSTM or GRU instead of unrolling them",
        )


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from _all_nodes(body.node)


def check_names_unique(graph: onnx.GraphProto) -> None:
    """Checks that every tensor is defined once.

    Raises:
        ModelError: ``model.empty_graph``, ``model.duplicate_tensor``, ``model.sparse``,
            ``model.name``.
    """
    if not graph.node or not graph.output:
        raise ModelError("the graph has no nodes or no outputs", code="model.empty_graph")
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ModelError(
            f"initializer {name!r} is a sparse tensor, which TensorRT cannot read",
            code="model.sparse",
            hint="store it as a dense initializer",
        )
    inputs = [value.name for value in graph.input]
    constants = [value.name for value in graph.initializer]
    for kind, listed in (("input", inputs), ("initializer", constants)):
        _refuse_duplicates(kind, listed)
    seen = set(inputs) | set(constants)
    for node in graph.node:
        for name in node.output:
            if name and name in seen:
                raise ModelError(
                    f"tensor {name!r} is defined twice, the second time by node {node.name!r}",
                    code="model.duplicate_tensor",
                    where=node.name,
                    hint="export the model again; tensor names must be unique in an ONNX graph",
                )
            seen.add(name)
    for name in (*seen, *(node.name for node in graph.node)):
        if len(name) > _LONGEST_NAME or _CONTROL.search(name):
            shown = name if len(name) <= _SHOWN_NAME else name[:_SHOWN_NAME] + "..."
            raise ModelError(
                f"the name {shown!r} contains control characters or is too long (limit "
                f"{_LONGEST_NAME} characters)",
                code="model.name",
                hint="rename it in the exporter; names appear in logs, engines and bundles",
            )


def _refuse_duplicates(kind: str, listed: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in listed:
        if name in seen or not name:
            raise ModelError(
                f"{kind} {name!r} exists twice" if name else f"an {kind} has no name",
                code="model.duplicate_tensor",
                hint="export the model again; tensor names must be unique in an ONNX graph",
            )
        seen.add(name)


def check_operators(nodes: Iterable[onnx.NodeProto], version: int, *, inside: bool = False) -> None:
    """Checks that every operator belongs to ai.onnx at the model's opset, or to a plugin.

    Q/DQ nodes of com.microsoft become those of ai.onnx. ``inside``: the nodes belong to the body of
    a Loop or an If, in which plugins are not supported.

    Raises:
        ModelError: ``model.domain`` or ``model.operator``, with the node's name.
    """
    there: set[str] = set()
    for node in nodes:
        if node.domain == "com.microsoft" and node.op_type in QDQ and version >= _QDQ_SINCE:
            node.domain = ""
        if node.domain == "ai.onnx" or _is_onnx(node, version):
            node.domain = ""
        if node.domain and (inside or node.op_type.startswith(_INTEGER)):
            raise ModelError(
                f"node {node.name!r} uses operator {node.op_type!r} of domain {node.domain!r}, "
                "which edgekit cannot read",
                code="model.domain",
                where=node.name,
                hint="export with standard ai.onnx operators, or cut the network before this "
                "node with model.outputs (--outputs)"
                if inside and not node.op_type.startswith(_INTEGER)
                else _INTEGERS,
            )
        # once an operator: the look-up in onnx's schemas is slow
        if node.op_type not in there and not node.domain and is_plugin(node, version):
            _plugin_or_mistake(node, version, inside)
        if not node.domain and version > _GIVEN_UP.get(node.op_type, ("", version))[1]:
            raise _removed_operator(node, version)
        there.add(node.op_type)
        for body in subgraphs(node):
            check_operators(body.node, version, inside=True)


def _is_onnx(node: onnx.NodeProto, version: int) -> bool:
    """Returns True if the parser imports a node of another domain as an operator of the model's
    opset."""
    return bool(
        node.domain
        and not is_plugin(node, version)
        and (node.op_type in UNLISTED or onnx.defs.has(node.op_type, version))
    )


def _plugin_or_mistake(node: onnx.NodeProto, version: int, inside: bool) -> None:
    """Refuses operators of later opsets and misspelt operators; any other name is a plugin's."""
    import difflib

    known = {s.name for s in onnx.defs.get_all_schemas() if not s.domain}
    later = node.op_type in known
    if not later and not inside and has_importer(node.op_type):
        return
    # a name that is close to an ONNX operator is a mistake, unless it is marked as a plugin's
    near = difflib.get_close_matches(node.op_type, known, 1, _MISSPELT)
    if not (later or inside or near) or (_PLUGIN.search(node.op_type) and not inside):
        return
    raise ModelError(
        f"node {node.name!r}: operator {node.op_type!r} is not part of "
        f"ai.onnx opset {version}" + (" (a later opset has it)" if later else ""),
        code="model.operator",
        where=node.name,
        hint=nearest(node.op_type, known - {node.op_type}) or "check the exporter's opset_version",
    )


def _removed_operator(node: onnx.NodeProto, version: int) -> ModelError:
    """Returns the error for an operator that ai.onnx removed; ONNX Runtime refuses such files."""
    instead, last = _GIVEN_UP[node.op_type]
    return ModelError(
        f"node {node.name!r}: ai.onnx gave up operator {node.op_type!r} after opset {last}, and "
        f"the model uses opset {version}",
        code="model.operator",
        where=node.name,
        hint=f"export it with {instead}, or with opset {last}",
    )


def no_size(node: onnx.NodeProto, name: str, shape: Sequence[int]) -> ModelError:
    """Returns the error for a node whose result has a negative size."""
    return ModelError(
        f"node {node.name!r} ({node.op_type}) outputs {name!r} {list(shape)}, with a negative size",
        code="model.shape_inference",
        where=node.name,
        hint="check the node's pads, window, starts and ends, and the sizes given for the inputs",
    )


def _with_batch(
    inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]], batch: int | None
) -> tuple[dict[str, Sequence[int]], tuple[str, ...]]:
    """Returns ``shapes`` with those of inputs whose only dynamic size is the batch, and notes.

    The batch is a dynamic first size, or a dynamic size with the batch's name. Its value is
    ``batch``, else that of the same symbol in the shape of another input, else 1.

    Raises:
        ModelError: ``model.batch`` if ``batch`` is not possible.
    """
    bound = {
        dim.dim_param: size
        for value in inputs
        for dim, size in zip(
            value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False
        )
        if dim.dim_param
    }
    found: dict[str, Sequence[int]] = dict(shapes)
    assumed = []
    fixed = []
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        at = [i for i, dim in enumerate(dims) if not is_fixed(dim)]
        if value.name in shapes:
            fixed += [
                (value.name, found[value.name][i])
                for i in at
                if i < len(found[value.name]) and is_batch(i, dims[i])
            ]
        # an input with another dynamic size needs its whole shape from the user
        elif at and all(is_batch(i, dims[i]) for i in at):
            own = batch or next(
                (bound[dims[i].dim_param] for i in at if dims[i].dim_param in bound), 1
            )
            sizes = [dim.dim_value if is_fixed(dim) else own for dim in dims]
            found[value.name] = sizes
            if batch is None and not any(dims[i].dim_param in bound for i in at):
                assumed.append(f"--shape {value.name}:{'x'.join(map(str, sizes))}")
        elif dims and not at:
            fixed.append((value.name, dims[0].dim_value))
    # no input took the batch: that is an error unless some input already has this size
    if batch is not None and len(found) == len(shapes):
        other = next(((name, size) for name, size in fixed if size != batch), None)
        if other is not None and all(size != batch for _, size in fixed):
            way = "change its shape" if other[0] in shapes else "export it with an open batch"
            raise ModelError(
                f"the batch cannot be {batch}: it is {other[1]} in input {other[0]!r}",
                code="model.batch",
                where=other[0],
                hint=f"{way}, or remove model.batch",
            )
    note = (
        "the file leaves the batch open: it is set to 1, as with --batch 1 or "
        f"{' '.join(assumed)}; set another with --batch N (model.batch)",
    )
    return found, note if assumed else ()


def input_shapes(
    inputs: Sequence[onnx.ValueInfoProto],
    shapes: Mapping[str, Sequence[int]],
    batch: int | None = None,
    model: onnx.ModelProto | None = None,
) -> tuple[dict[str, tuple[int, tuple[int, ...]]], tuple[str, ...]]:
    """Returns element type and static shape of each input, and the assumptions on the batch.

    Args:
        inputs: The graph's inputs.
        shapes: Sizes by input, for dynamic sizes.
        batch: The batch if it is the only dynamic size; 1 if None.
        model: The file, from which an error proposes sizes.

    Raises:
        ModelError: ``model.batch``, ``model.unknown_input``, ``model.shape_rank``,
            ``model.shape_conflict``, ``model.shape_value``, ``model.dynamic_shape`` or
            ``model.type``.
    """
    known = [value.name for value in inputs]
    for name in shapes:
        if name not in known:
            raise ModelError(
                f"a shape is given for {name!r}, which is not a tensor of the network",
                code="model.unknown_input",
                hint=f"{nearest(name, known)} the inputs are: {', '.join(known)}".strip(),
            )
    shapes, notes = _with_batch(inputs, shapes, batch)
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    dynamic: dict[str, str] = {}
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise ModelError(
                f"input {value.name!r} is a {value.type.WhichOneof('value') or 'value of no type'}"
                ", not a tensor",
                code="model.type",
                where=value.name,
                hint="only tensors can be inputs of a TensorRT network",
            )
        tensor = value.type.tensor_type
        has_rank = tensor.HasField("shape")
        declared = [dim.dim_value if is_fixed(dim) else None for dim in tensor.shape.dim]
        shape = declared
        if value.name in shapes:
            shape = list(shapes[value.name])
            _check_agreement(value.name, shapes[value.name], declared if has_rank else None)
        if (not has_rank and value.name not in shapes) or None in shape:
            labels = [dim.dim_param or str(dim.dim_value or "?") for dim in tensor.shape.dim]
            dynamic[value.name] = f"[{', '.join(labels)}]" if has_rank else "of unknown rank"
            continue
        sizes = tuple(int(size or 0) for size in shape)
        if not 0 < math.prod(sizes) <= MOST_ELEMENTS:
            raise ModelError(
                f"input {value.name!r} has {math.prod(sizes):,} elements ({list(sizes)})",
                code="model.shape_value",
                where=value.name,
                hint=f"TensorRT allows 1 to {MOST_ELEMENTS:,}; give sizes with model.shapes",
            )
        found[value.name] = (tensor.elem_type, sizes)
    # after all inputs: one error proposes sizes for all of them
    if dynamic:
        _refuse_dynamic(inputs, dynamic, model)
    return found, notes


def _check_agreement(
    name: str, given: Sequence[int], declared: Sequence[int | None] | None
) -> None:
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in given):
        raise ModelError(
            f"the shape given for input {name!r} is {list(given)}, but sizes must be whole "
            "numbers of at least 1",
            code="model.shape_value",
            where=name,
        )
    if declared is None:
        return
    shown = [size if size is not None else "?" for size in declared]
    if len(given) != len(declared):
        raise ModelError(
            f"the shape given for input {name!r}, {list(given)}, has "
            f"{counted(len(given), 'dimension')}, but the model's has {len(declared)}: {shown}",
            code="model.shape_rank",
            where=name,
        )
    if any(
        fixed is not None and fixed != size for size, fixed in zip(given, declared, strict=True)
    ):
        raise ModelError(
            f"the shape given for input {name!r}, {list(given)}, conflicts with the model's "
            f"{shown}",
            code="model.shape_conflict",
            where=name,
            hint="only the dimensions shown as ? can be set",
        )


def _refuse_dynamic(
    inputs: Sequence[onnx.ValueInfoProto],
    dynamic: Mapping[str, str],
    model: onnx.ModelProto | None,
) -> None:
    listed = ", ".join(f"input {name!r} {shape}" for name, shape in dynamic.items())
    graph = None if model is None else model.graph
    metadata = {} if model is None else {entry.key: entry.value for entry in model.metadata_props}
    from edgekit.network.loading.proposals import propose

    proposal = propose([tensor for tensor in inputs if tensor.name in dynamic], graph, metadata)
    error = ModelError(
        f"the model has dynamic shapes: {listed}",
        code="model.dynamic_shape",
        where=next(iter(dynamic)),
        hint=f"give every size, for example {proposal.yaml()}, or a range: "
        f"{proposal.yaml(ranged=True)} ({proposal.rule})",
    )
    error.options = f"{proposal.options()}, or {proposal.options(ranged=True)}"
    raise error
