"""``with_structure``: another export of a compiled network, with the compiled network's nodes.

PyTorch's exporter simplifies by values: it drops a bias of zeros, and merges equal constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import UsageError
from edgekit.network.left_modules import LeftModule, parts
from edgekit.network.module_names import ModuleNames, read_module_names
from edgekit.pytorch import export_cache
from edgekit.pytorch.document import Exported
from edgekit.pytorch.export import digests
from edgekit.pytorch.exporters import is_float, rename
from edgekit.pytorch.signature import tensor_size
from edgekit.text import counted, listed

_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")


def with_structure(compiled: Exported, other: Exported) -> Exported:
    """Returns an export with a compiled export's nodes and its own weights, in the cache.

    Raises:
        UsageError: "compile.structure": the networks differ.
    """
    if compiled.structure == other.structure:
        return other
    mine, theirs = _tensors(compiled), _tensors(other)
    if mine != theirs:
        raise UsageError(
            "the network is another one than the compiled one: its inputs and outputs are "
            f"{listed(theirs)}, those of the compiled one {listed(mine)}",
            code="compile.structure",
            hint="compile it: edgekit.compile(model, ...)",
        )
    proto = onnx.load(compiled.file)
    _take_weights(proto, onnx.load(other.file))
    structure, weights = digests(proto)
    left = [part for part in parts(proto) if isinstance(part, LeftModule)]
    key = export_cache.key("of structure", compiled.structure, Path(other.file).parent.name)
    with export_cache.new_entry(key) as folder:
        export_cache.write(proto, folder / export_cache.FILE)
        for number, part in enumerate(left):
            if not (file := other.left[part.call].file):
                continue
            # another kind of source has other names for the tensors between the parts
            alone = onnx.load(file)
            rename(alone, part.inputs, part.outputs)
            name = f"left-{part.call}.onnx"
            (folder / name).write_bytes(alone.SerializeToString())
            left[number] = replace(part, file=str(export_cache.entry_folder(key) / name))
        made = other.model_copy(
            update={
                "file": str(export_cache.entry_folder(key) / export_cache.FILE),
                "structure": structure,
                "weights": weights,
                "left": left,
            }
        )
        export_cache.write_record(made, folder)
    return made


def _take_weights(proto: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives a network the weights of another export of the same network."""
    mine = {weight.name: numpy_helper.to_array(weight) for weight in proto.graph.initializer}
    theirs = {weight.name: numpy_helper.to_array(weight) for weight in other.graph.initializer}
    floats = {weight.name for weight in proto.graph.initializer if is_float(weight.data_type)}
    renamed = {value.name: value.name for value in proto.graph.input}
    taken: dict[str, np.ndarray] = {}
    another = partial(_structure_error, read_module_names(proto.graph), mine, theirs)
    # in pairs: an exporter writes equal networks in equal order
    for node, found in itertools.zip_longest(proto.graph.node, other.graph.node):
        if node is not None and found is not None and _lost_bias(node, found, theirs):
            raise UsageError(
                f"the compiled network has no parameter {found.input[2]!r}: it was zero when the "
                "network was compiled, and exporters drop a bias of zeros",
                code="compile.structure",
                where=found.input[2],
                hint="compile it again with its weights now: edgekit.compile(model, ...)",
            )
        if node is None or found is None or not _same_operator(node, found):
            raise another(node, found)
        for name, given in itertools.zip_longest(node.input, found.input):
            if name not in mine:
                if renamed.get(name, name) != given:
                    raise another(node, found)
                continue
            # the other export dropped this bias, because it is zero
            value = np.zeros_like(mine[name]) if given is None else theirs.get(given)
            kind = (mine[name].shape, mine[name].dtype)
            if value is None or (value.shape, value.dtype) != kind:
                raise another(node, found)
            # a shared weight must be equal at all its readers; integers (shapes, axes) are part of
            # the engine
            before = taken.setdefault(name, value) if name in floats else mine[name]
            if not np.array_equal(before, value, equal_nan=name in floats):
                raise another(node, found)
        # outputs at the same place are the same tensor, whatever their names
        renamed.update(zip(node.output, found.output, strict=True))
    for tensor in proto.graph.initializer:
        if tensor.name in taken:
            tensor.CopyFrom(numpy_helper.from_array(taken[tensor.name], tensor.name))


def _tensors(exported: Exported) -> list[str]:
    """Returns the names of inputs and outputs."""
    return [tensor.name for tensor in (*exported.inputs, *exported.outputs)]


def _lost_bias(
    node: onnx.NodeProto, other: onnx.NodeProto, weights: Mapping[str, np.ndarray]
) -> bool:
    """Returns True if an operator has a bias only in the other network."""
    inputs = (len(node.input), len(other.input))
    alike = node.op_type == other.op_type and node.op_type in _WITH_BIAS
    return alike and inputs == (2, 3) and other.input[2] in weights


def _same_operator(node: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    lacking = len(node.input) - len(other.input)
    bias = node.op_type in _WITH_BIAS and len(node.input) == 3
    return (
        (node.domain, node.op_type) == (other.domain, other.op_type)
        and lacking in ((0, 1) if bias else (0,))
        and len(node.output) == len(other.output)
        and sorted(map(str, node.attribute)) == sorted(map(str, other.attribute))
    )


def _structure_error(
    names: ModuleNames | None,
    mine: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    node: onnx.NodeProto | None,
    other: onnx.NodeProto | None,
) -> UsageError:
    """Returns the error for an operator that differs; ``mine`` and ``node`` are the compiled
    network's.
    """
    here, there = _operator(node), _operator(other)
    if here == there and node is not None and other is not None:
        own, given = _details(node, mine), _details(other, theirs)
        here = _operator(node, [item for item in own if item not in given])
        there = _operator(other, [value for value in given if value not in own])
    differs = f"it has {there}, the compiled one has {here}"
    if here == there:
        differs = f"its {there} has other inputs or constants"
    module = names.nodes.get(node.name, "") if names is not None and node is not None else ""
    inside = f" in module {module!r}" if module else ""
    return UsageError(
        f"the network is another one than the compiled one: {differs}{inside}",
        code="compile.structure",
        hint="compile it: edgekit.compile(model, ...)",
    )


def _operator(node: onnx.NodeProto | None, details: Sequence[str] = ()) -> str:
    if node is None:
        return "no more operators"
    return f"{node.op_type} with {listed(details) or counted(len(node.input), 'input')}"


def _details(node: onnx.NodeProto, weights: Mapping[str, np.ndarray]) -> list[str]:
    """Returns an operator's attributes, and the sizes of its weights."""
    sizes = [f"weights {tensor_size(weights[name])}" for name in node.input if name in weights]
    return [*sizes, *(str(helper.printable_attribute(attribute)) for attribute in node.attribute)]
