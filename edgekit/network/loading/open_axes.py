"""Loads an ONNX file with dynamic axes, to build an engine for a range of shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from edgekit.network import files, protos
from edgekit.network.loading import validation
from edgekit.network.loading.load import (
    fix_inputs,
    is_weight,
    read_constants,
    select_outputs,
    stub,
    weight_roles,
)
from edgekit.network.loading.raising import RAISED, raise_opset
from edgekit.network.model import Model, materialise, read_only
from edgekit.network.ranges import Profile


def load_open(
    source: Path,
    profiles: Sequence[Profile],
    outputs: Sequence[str] | None = None,
    values: Mapping[str, Sequence[int]] | None = None,
) -> Model:
    """Reads a file for a range of shapes.

    The axes that vary have names in the result, all other sizes of inputs are static. It has no
    layers: these exist only for static networks.

    Args:
        source: The file.
        profiles: The ranges of its inputs.
        outputs: Tensor or node names to cut the network at; the file's outputs if None.
        values: As for ``load``.

    Raises:
        ModelError: As for ``load``.
    """
    proto, weights_of = files.read(source)
    fix_inputs(proto.graph, values or {})
    version = validation.opset(proto)
    if version < RAISED:
        proto = raise_opset(proto, version)
    graph = proto.graph
    files.embed(graph, source.parent)
    protos.name_nodes(graph.node)
    constants = read_constants(
        graph, {n: read_only(v) for n, v in weights_of.items()}, source.parent
    )
    inputs = [value for value in graph.input if value.name not in constants]
    defined = {value.name for value in inputs} | set(constants)
    nodes = protos.sort(list(graph.node), defined)
    wanted = select_outputs(graph, nodes, defined, outputs)
    nodes = protos.reachable(nodes, wanted, defined)
    for value in inputs:
        _set_axes(value, profiles)
    known = {value.name: value for value in (*graph.output, *graph.value_info)}
    roles, weights, kept = weight_roles(nodes), {}, []
    read = {name for node in nodes for name in protos.reads(node)} | set(wanted)
    for tensor in graph.initializer:
        if tensor.name not in read:
            continue
        constant = constants[tensor.name]
        if is_weight(constant, roles.get(tensor.name, set())):
            weights[tensor.name] = materialise(constant)
            kept.append(stub(tensor.name, constant))
        else:
            kept.append(tensor)
    ends = [
        onnx.ValueInfoProto.FromString(known[name].SerializeToString())
        if name in known
        else onnx.ValueInfoProto(name=name)
        for name in wanted
    ]
    # only now: the code above reads these fields
    for part in (graph.node, graph.initializer, graph.input, graph.output, graph.value_info):
        del part[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    graph.output.extend(ends)
    return Model(proto, weights, None, str(source))


def _set_axes(value: onnx.ValueInfoProto, profiles: Sequence[Profile]) -> None:
    """Sets the sizes of an input's axes that no profile varies, and names the others."""
    ranges = [profile[value.name] for profile in profiles if value.name in profile]
    dims = value.type.tensor_type.shape.dim
    if not ranges:
        return
    # an input of unknown rank gets its rank from the range
    while len(dims) < len(ranges[0].min):
        dims.add()
    for axis, dim in enumerate(dims):
        sizes = {(ends.min[axis], ends.max[axis]) for ends in ranges}
        low, high = next(iter(sizes))
        if len(sizes) == 1 and low == high:
            dim.dim_value = low
        elif not dim.dim_param:
            dim.dim_param = f"{value.name}_{axis}"
