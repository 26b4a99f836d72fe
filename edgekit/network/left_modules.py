"""Modules that are left out of a network: nodes ``edgekit.pytorch::Module``, at which it is cut.

PyTorch's exporter writes these nodes for modules that stay in PyTorch. In a file with the modules'
own operators, :func:`with_left_modules` replaces the operators by these nodes.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import helper

from edgekit.errors import UsageError
from edgekit.network.model import Model, joined_weights
from edgekit.network.module_names import enclosing_modules, fits_module, write_module_name
from edgekit.network.protos import LEFT_DOMAIN, LEFT_OPERATOR, reads
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member


@dataclass(frozen=True)
class CompiledPart:
    """A part that is compiled.

    Attributes:
        model: Its network; tensors keep their names.
        inputs: Its inputs: inputs of the network, or results of earlier steps.
        outputs: Its outputs: inputs of later steps, or outputs of the network.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@document(frozen=True)
class LeftModule:
    """A call of a module that is left out: a node ``edgekit.pytorch::Module`` of the file.

    Attributes:
        module: The module's path.
        call: The call's number in the order of the network, from 0.
        inputs: The tensors among its arguments.
        outputs: The tensors among its results.
        bytes: Size of its inputs and outputs in bytes, with the types of the ONNX file.
        file: The call's ONNX file if ONNX Runtime runs it instead of PyTorch.
    """

    module: str = member(long_text)
    call: int = member(fields.count)
    inputs: tuple[str, ...] = member(array(long_text))
    outputs: tuple[str, ...] = member(array(long_text))
    bytes: int = member(fields.count)
    file: str = member(long_text, absent="", default="")


def left_paths(names: Sequence[str], globs: Sequence[str]) -> dict[str, list[str]]:
    """Returns the modules that each glob matches, in the order of ``names``.

    Raises:
        UsageError: "torch.leave": a glob matches no module.
    """
    found = {glob: [name for name in names if fits_module(name, glob)] for glob in globs}
    for glob, matched in found.items():
        if not matched:
            near = difflib.get_close_matches(glob, names, n=3, cutoff=0.3)
            are = "are" if len(near) > 1 else "is"
            raise UsageError(
                f"no module matches {glob!r}",
                code="torch.leave",
                where="leave",
                hint=f"the nearest {are} {', '.join(near)}"
                if near
                else "the network has no modules",
            )
    return found


def with_left_modules(model: Model, globs: Sequence[str]) -> tuple[Model, list[Model]]:
    """Leaves modules out of a file that names the modules of its nodes.

    Args:
        model: The network.
        globs: Paths of the modules to leave out.

    Returns:
        The network with a node ``edgekit.pytorch::Module`` for each call of a left-out module; and
        the model of each call, in the order of the network. A module has two calls if some of its
        operators need a result that is computed outside from others.

    Raises:
        UsageError: "torch.leave": the file names no modules, or a glob matches none.
    """
    graph, names = model.proto.graph, model.graph.modules
    if names is None:
        raise UsageError(
            "the file does not name the modules of its operators, so that none can be left out",
            code="torch.leave",
            where="leave",
            hint="give the torch.nn.Module, a program of torch.export (.pt2) or "
            "package.module:factory",
        )
    every = dict.fromkeys(
        module for path in names.nodes.values() for module in enclosing_modules(path)[1:]
    )
    # lists of modules are never called, and have no class in the file; without any classes, as from
    # the legacy exporter, every module may have been called
    called = [item for item in every if item in names.classes] or list(every)
    chosen = {path for matched in left_paths(called, globs).values() for path in matched}

    def left_out(node: onnx.NodeProto) -> str:
        around = enclosing_modules(names.nodes.get(node.name, ""))[1:]
        return next((path for path in around if path in chosen), "")

    stages = _stages(graph, left_out)
    made: list[onnx.NodeProto] = []
    calls: list[Model] = []
    # by stage; within a stage the compiled nodes first
    for key in sorted(stages, key=lambda key: (key[0], bool(key[1]))):
        path, nodes = key[1], stages[key]
        if not path:
            made += nodes
            continue
        own = {name for node in nodes for name in node.output if name}
        inside = {node.name for node in nodes}
        # tensors that leave the module: outputs, and inputs of other nodes
        used = {value.name for value in graph.output}
        used |= {name for node in graph.node if node.name not in inside for name in reads(node)}
        inputs = list(
            dict.fromkeys(
                name
                for node in nodes
                for name in reads(node)
                if name not in own and not model.graph.constant(name)
            )
        )
        outputs = [name for node in nodes for name in node.output if name in used]
        calls.append(model.cut(inside, inputs, outputs))
        node = helper.make_node(
            LEFT_OPERATOR,
            inputs,
            outputs,
            f"{path}/{LEFT_OPERATOR}_{len(calls)}",
            domain=LEFT_DOMAIN,
            module=path,
            call=len(calls) - 1,
        )
        write_module_name(node, names, path)
        made.append(node)
    held = {name for node in made for name in reads(node)}
    known = {name for node in made for name in node.output}
    proto = helper.make_model(
        helper.make_graph(
            made,
            graph.name,
            graph.input,
            graph.output,
            [tensor for tensor in graph.initializer if tensor.name in held],
            value_info=[value for value in graph.value_info if value.name in known],
        ),
        opset_imports=[*model.proto.opset_import, helper.make_opsetid(LEFT_DOMAIN, 1)],
        ir_version=model.proto.ir_version,
    )
    names_held = [name for name in model.weights if name in held]
    weights = joined_weights({}, model.weights, names_held)
    return replace(model, proto=proto, weights=weights, stored_digest=None), calls


def _stages(
    graph: onnx.GraphProto,
    left_out: Callable[[onnx.NodeProto], str],
) -> dict[tuple[int, str], list[onnx.NodeProto]]:
    """Returns nodes by stage and left-out module, "" for compiled nodes.

    In a stage the compiled nodes run first; left-out modules of the same stage do not read from
    each other.
    """
    known: dict[str, tuple[int, str]] = {}
    stages: dict[tuple[int, str], list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        path = left_out(node)
        before = (known[name] for name in reads(node) if name in known)
        # a result of another left-out module is known only after its stage
        stage = max((at + (other not in ("", path)) for at, other in before), default=0)
        stages[stage, path].append(node)
        known.update(dict.fromkeys(node.output, (stage, path)))
    return stages


def parts(model: onnx.ModelProto) -> list[CompiledPart | LeftModule]:
    """Returns the steps of a network in order of execution.

    A compiled part is as large as the left-out modules allow: a node is in the earliest part in
    which its inputs are known. A network without left-out modules is one part.

    Args:
        model: Types and shapes of all tensors are in ``value_info``.
    """
    depth: dict[str, int] = {value.name: 0 for value in model.graph.input}
    stages: dict[int, list[onnx.NodeProto]] = {}
    left: dict[int, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        here = max((depth.get(name, 0) for name in reads(node)), default=0)
        leaves = (node.domain, node.op_type) == (LEFT_DOMAIN, LEFT_OPERATOR)
        (left if leaves else stages).setdefault(here, []).append(node)
        depth.update(dict.fromkeys(node.output, here + leaves))
    steps: list[CompiledPart | LeftModule] = []
    for stage in range(max([*stages, *left], default=0) + 1):
        if stage in stages:
            steps.append(_compiled_part(model, stages[stage]))
        steps.extend(_left_module(model, node) for node in left.get(stage, ()))
    return steps


def _compiled_part(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> CompiledPart:
    made = {name for node in nodes for name in node.output if name}
    wanted = [name for node in nodes for name in reads(node)]
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    inside = {id(node) for node in nodes}
    used = {v.name for v in model.graph.output}
    used |= {name for node in model.graph.node if id(node) not in inside for name in reads(node)}
    inputs = tuple(n for n in dict.fromkeys(wanted) if n not in made and n not in initializers)
    outputs = tuple(name for node in nodes for name in node.output if name in used)
    known = {
        value.name: value
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    graph = helper.make_graph(
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


def _left_module(model: onnx.ModelProto, node: onnx.NodeProto) -> LeftModule:
    known = {
        value.name: value.type.tensor_type
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    size = 0
    for name in (*node.input, *node.output):
        kind = known[name]
        count = helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
        for axis in kind.shape.dim:
            count *= axis.dim_value
        size += count
    facts = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return LeftModule(
        facts["module"].decode(), facts["call"], tuple(node.input), tuple(node.output), size
    )
