"""Cuts a network at the modules that stay in PyTorch (nodes ``edgekit.pytorch::Module``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member

if TYPE_CHECKING:
    import onnx

DOMAIN, OPERATOR = "edgekit.pytorch", "Module"


@dataclass(frozen=True)
class CompiledPart:
    """A part that is compiled.

    Attributes:
        model: Its network; tensors keep their names.
        inputs: What it reads: inputs of the network, results of earlier steps.
        outputs: What later steps read, and outputs of the network.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@document(frozen=True)
class LeftModule:
    """A call of a module that stays in PyTorch: a node ``edgekit.pytorch::Module`` of the file.

    Attributes:
        module: The module's path.
        call: The call's number in the order of the network, from 0.
        inputs: The tensors among its arguments.
        outputs: The tensors among its results.
        bytes: Bytes that its inputs and outputs take, in the types of the ONNX file.
    """

    module: str = member(long_text)
    call: int = member(fields.count)
    inputs: tuple[str, ...] = member(array(long_text))
    outputs: tuple[str, ...] = member(array(long_text))
    bytes: int = member(fields.count)


def parts(model: onnx.ModelProto) -> list[CompiledPart | LeftModule]:
    """Returns the steps of a network in an order in which they can run.

    A compiled part is as large as the left-out modules allow: a node is in the earliest part in
    which its inputs are known. A network without left-out modules is one part.

    Args:
        model: Types and shapes of all tensors are in ``value_info``.
    """
    depth: dict[str, int] = {value.name: 0 for value in model.graph.input}
    stages: dict[int, list[onnx.NodeProto]] = {}
    left: dict[int, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        here = max((depth.get(name, 0) for name in _read(node)), default=0)
        leaves = (node.domain, node.op_type) == (DOMAIN, OPERATOR)
        (left if leaves else stages).setdefault(here, []).append(node)
        depth.update(dict.fromkeys(node.output, here + leaves))
    steps: list[CompiledPart | LeftModule] = []
    for stage in range(max([*stages, *left], default=0) + 1):
        if stage in stages:
            steps.append(_compiled(model, stages[stage]))
        steps.extend(_left(model, node) for node in left.get(stage, ()))
    return steps


def _read(node: onnx.NodeProto) -> list[str]:
    """Returns the tensors that a node reads, those of its bodies (If, Loop, Scan) included."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            inner = {name for each in body.node for name in each.output}
            inner |= {value.name for value in (*body.input, *body.initializer)}
            found += [name for each in body.node for name in _read(each) if name not in inner]
            found += [value.name for value in body.output if value.name not in inner]
    return found


def _compiled(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> CompiledPart:
    import onnx

    made = {name for node in nodes for name in node.output if name}
    wanted = [name for node in nodes for name in _read(node)]
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    inside = {id(node) for node in nodes}
    used = {v.name for v in model.graph.output}
    used |= {name for node in model.graph.node if id(node) not in inside for name in _read(node)}
    inputs = tuple(n for n in dict.fromkeys(wanted) if n not in made and n not in initializers)
    outputs = tuple(name for node in nodes for name in node.output if name in used)
    known = {
        value.name: value
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    graph = onnx.helper.make_graph(
        nodes,
        model.graph.name,
        [known[name] for name in inputs],
        [known[name] for name in outputs],
        [initializers[name] for name in dict.fromkeys(wanted) if name in initializers],
        value_info=[known[name] for name in made if name in known and name not in outputs],
    )
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    cut.graph.CopyFrom(graph)
    return CompiledPart(cut, inputs, outputs)


def _left(model: onnx.ModelProto, node: onnx.NodeProto) -> LeftModule:
    import onnx

    known = {
        value.name: value.type.tensor_type
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    size = 0
    for name in (*node.input, *node.output):
        kind = known[name]
        count = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
        for axis in kind.shape.dim:
            count *= axis.dim_value
        size += count
    facts = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return LeftModule(
        facts["module"].decode(), facts["call"], tuple(node.input), tuple(node.output), size
    )
