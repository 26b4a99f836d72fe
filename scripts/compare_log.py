"""Compares edgekit with a verbose TensorRT build log that holds the whole build.

    scripts/compare_log.py LOG [--target BOARD] [--save MODEL.onnx]

The network is rebuilt from the ONNX parser's lines of the log (names, shapes, constants
without their values), judged, and compared with the builder's result: layers, loadables, memory
pools. The log may be packed with gzip; of several builds the first is read.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.buildlog.comparison import LogComparison, compare
from edgekit.buildlog.lines import strip
from edgekit.buildlog.parser import parse_log
from edgekit.dla.judge import judge
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import FOLLOWED, Network
from edgekit.targets.loader import get

__all__ = ["compare_network", "read_lines", "read_model"]

_NODE = re.compile(r"(?P<name>\S.*) \[(?P<op>\w+)\] (?P<side>inputs|outputs):(?P<rest>.*)")
_TENSOR = re.compile(r"\[(?P<name>[^\[\]]*?) -> \((?P<shape>[\d, ]*)\)\[(?P<type>\w+)\]\]")
_WINDOW = re.compile(
    r"Using kernel: (.*?), strides: (.*?), prepadding: (.*?), postpadding: (.*?), "
    r"dilations: (.*?), numOutputs: \d+, nbGroups: (\d+)"
)
_OUTPUT = re.compile(r"Marking \S+ as output: (\S+)")
_OPSET_LINE = re.compile(r"Opset version:\s+(\d+)")
_PRECISION = re.compile(r"\[I\] Precision: (\S+)")
_TYPES = {
    "FLOAT": TensorProto.FLOAT,
    "HALF": TensorProto.FLOAT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "BOOL": TensorProto.BOOL,
    "INT8": TensorProto.INT8,
    "UINT8": TensorProto.UINT8,
    "BF16": TensorProto.BFLOAT16,
}
_OPSET = 17  # if the log does not have it
# since these opsets the axes are an input
_AXES_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}
_AXES_INPUT_OF_REDUCTIONS = 18
_LAST_AXIS = {"Softmax", "LogSoftmax", "LayerNormalization"}


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    type: int


@dataclass
class _Node:
    name: str
    op: str
    inputs: list[_Tensor]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: list[_Tensor] = field(default_factory=list)


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a log, packed or not."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data.decode("utf-8", "replace").splitlines()


def read_model(lines: Iterable[str]) -> onnx.ModelProto:
    """Returns the ONNX model that a log's parser read; every weight is one.

    Raises:
        ValueError: The log has no lines of the parser, or a shape that does not determine an
            attribute.
    """
    nodes, outputs, opset = _read_nodes(lines)
    if not nodes:
        raise ValueError("the log has no lines of the ONNX parser: build with trtexec --verbose")
    written = {tensor.name for node in nodes for tensor in node.outputs}
    known: dict[str, onnx.TensorProto] = {}
    weights: list[onnx.NodeProto] = []
    fed: dict[str, _Tensor] = {}
    for node in nodes:
        _complete_node(node, known, opset)
        for index, tensor in enumerate(node.inputs):
            if tensor.name in written or tensor.name in known or tensor.name in fed:
                continue
            # a network is fed images or tokens first; any other tensor without a writer is a
            # constant
            if index == 0 and node is nodes[0]:
                fed[tensor.name] = tensor
            else:
                known[tensor.name] = _make_constant(tensor, weights)
    graph = helper.make_graph(
        [*weights, *(_make_proto(node) for node in nodes)],
        "log",
        [helper.make_tensor_value_info(x.name, x.type, x.shape) for x in fed.values()],
        [
            helper.make_tensor_value_info(tensor.name, tensor.type, tensor.shape)
            for node in nodes
            for tensor in node.outputs
            if tensor.name in outputs
        ],
        list(known.values()),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _read_nodes(lines: Iterable[str]) -> tuple[list[_Node], set[str], int]:
    """The nodes, the names of the network's outputs and the opset; constants are no nodes."""
    nodes: list[_Node] = []
    outputs: set[str] = set()
    opset = _OPSET
    for written in lines:
        line = strip(written)[1]
        if found := _NODE.match(line):
            if found["op"] == "Constant":
                continue
            tensors = [
                _Tensor(
                    match["name"],
                    tuple(int(size) for size in match["shape"].split(",") if size.strip()),
                    _TYPES[match["type"]],
                )
                for match in _TENSOR.finditer(found["rest"])
            ]
            if found["side"] == "inputs":
                nodes.append(_Node(found["name"], found["op"], tensors))
            else:
                nodes[-1].outputs = tensors
        elif nodes and (found := _WINDOW.search(line)):
            kernel, stride, before, after, dilation = (
                [int(number) for number in re.findall(r"\d+", part)] for part in found.groups()[:5]
            )
            nodes[-1].attributes = {
                "kernel_shape": kernel,
                "strides": stride,
                "pads": [*before, *after],
                "dilations": dilation,
                "group": int(found[6]),
            }
        elif found := _OUTPUT.match(line):
            outputs.add(found[1])
        elif found := _OPSET_LINE.match(line):
            opset = int(found[1])
        elif "Finished parsing network model" in line:
            break
    return nodes, outputs, opset


def _make_constant(tensor: _Tensor, weights: list[onnx.NodeProto]) -> onnx.TensorProto:
    """A constant of ones; a large one is written by a node that fills it, into ``weights``."""
    dtype = helper.tensor_dtype_to_np_dtype(tensor.type)
    if np.prod(tensor.shape, dtype=np.int64) <= 64:
        return numpy_helper.from_array(np.ones(tensor.shape, dtype), tensor.name)
    shape = numpy_helper.from_array(np.array(tensor.shape, np.int64), f"{tensor.name}:shape")
    ones = numpy_helper.from_array(np.ones(1, dtype))
    weights.append(
        helper.make_node(
            "ConstantOfShape", [shape.name], [tensor.name], f"{tensor.name}:fill", value=ones
        )
    )
    return shape


def _complete_node(node: _Node, known: dict[str, onnx.TensorProto], opset: int) -> None:
    """Adds the attributes that shapes determine, and the values of the shapes that a node reads."""
    source, target = node.inputs[0].shape, node.outputs[0].shape

    def give(index: int, values: Iterable[int]) -> None:
        # several nodes may share a constant, such as a shape with a -1 in it
        name = f"{node.name}:{index}"
        array = np.array(tuple(values), np.int64)
        known[name] = numpy_helper.from_array(array, name)
        node.inputs[index:] = [
            _Tensor(name, array.shape, TensorProto.INT64),
            *node.inputs[index + 1 :],
        ]

    if node.op in {"Reshape", "Expand"}:
        give(1, target)
    elif node.op == "Slice" and opset >= 10:
        del node.inputs[1:]
        # where it begins is not in the log, and no layer depends on it
        for index, values in enumerate(([0] * len(target), target, range(len(target))), 1):
            give(index, values)
    elif node.op == "Split" and len(node.inputs) > 1:
        sizes = [tensor.shape for tensor in node.outputs]
        # the axis along which the parts make up the whole
        whole = [sum(shape[axis] for shape in sizes) for axis in range(len(source))]
        axis = next(n for n, size in enumerate(whole) if size == source[n] and len(sizes) > 1)
        node.attributes["axis"] = axis
        give(1, [shape[axis] for shape in sizes])
    elif node.op.startswith("Reduce") or node.op in {"Squeeze", "Unsqueeze"}:
        axes = _find_axes(node.name, source, target)
        if node.op.startswith("Reduce"):
            node.attributes["keepdims"] = int(len(source) == len(target))
        if opset >= _AXES_INPUT.get(node.op, _AXES_INPUT_OF_REDUCTIONS):
            give(1, axes)
        else:
            node.attributes["axes"] = axes
    elif node.op == "Transpose":
        node.attributes["perm"] = _permutation(node.name, source, target)
    elif node.op == "MaxPool":
        stride = [-(-s // t) for s, t in zip(source[2:], target[2:], strict=True)]
        # 3 with 1 beside it halves a size, rounding up, as in every ResNet
        node.attributes.update(kernel_shape=[3, 3], strides=stride, pads=[1, 1, 1, 1])
    elif node.op == "Gemm":
        node.attributes["transB"] = int(node.inputs[1].shape[0] != source[1])
    elif node.op in _LAST_AXIS:
        node.attributes["axis"] = -1


def _find_axes(name: str, source: tuple[int, ...], target: tuple[int, ...]) -> list[int]:
    """The axes that a reduction, a Squeeze or an Unsqueeze acts on: the last ones that fit."""
    if len(source) == len(target):
        return [n for n, size in enumerate(source) if target[n] != size]
    longer, shorter = sorted((source, target), key=len, reverse=True)
    for chosen in itertools.combinations(range(len(longer)), len(shorter)):
        axes = [axis for axis in range(len(longer)) if axis not in chosen]
        if tuple(longer[axis] for axis in chosen) == shorter and (
            len(source) > len(target) or all(longer[axis] == 1 for axis in axes)
        ):
            return axes
    raise ValueError(f"node {name!r} makes {target} of {source}")


def _permutation(name: str, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    for perm in itertools.permutations(range(len(source))):
        moved = tuple(source[axis] for axis in perm)
        if moved == target and perm != tuple(range(len(source))):
            return perm
    raise ValueError(f"node {name!r} transposes {source} to {target}")


def _make_proto(node: _Node) -> onnx.NodeProto:
    return helper.make_node(
        node.op,
        [tensor.name for tensor in node.inputs],
        [tensor.name for tensor in node.outputs],
        node.name,
        **node.attributes,
    )


def compare_network(
    lines: list[str], board: str = "jetson-agx-orin-64gb", save: Path | None = None
) -> tuple[Network, LogComparison]:
    """Returns the network of a log, and the comparison of edgekit's plan with the log."""
    model = read_model(lines)
    if save:
        onnx.save(model, save)
    log = parse_log(lines)
    network = layers(canonical(model, None), log.tensorrt or FOLLOWED)
    target = get(board)
    words = next((found[1] for line in lines if (found := _PRECISION.search(line))), "")
    precision = next((p for p in ("int8", "fp16") if p.upper() in words.split("+")), "fp32")
    judgement = judge(network, target, precision=precision, tensorrt=log.tensorrt or None)
    return network, compare(network, judgement, log, target=target)


def _print(found: LogComparison) -> None:
    total = len(found.layers)
    print(f"{total} layers, {found.counts['agree']} agree ({found.counts['agree'] / total:.1%})")
    for status, count in found.counts.items():
        print(f"  {status}: {count}")
    for layer in found.layers:
        if layer.status != "agree":
            print(
                f"  {layer.kind} {layer.layer}: predicted {layer.predicted}, "
                f"built {layer.builder or 'unknown'} ({layer.certainty}) {' '.join(layer.rules)}"
            )
    print(f"{sum(row.same for row in found.loadables)} loadables are the same")
    for row in found.loadables:
        pools = ", ".join(
            f"{pool.pool} {pool.predicted >> 20} for {pool.builder >> 20} MiB" for pool in row.pools
        )
        print(f"  {row.name or 'predicted only'}: {'same' if row.same else 'different'}; {pools}")
        for words, names in (("ours", row.only_predicted), ("builder's", row.only_builder)):
            if names:
                print(f"    only {words}: {' '.join(names)}")
    for name in found.only_builder:
        print(f"  only in the log: {name.kind} {name.name}")
    for warning in found.warnings:
        print(f"warning: {warning}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--target", default="jetson-agx-orin-64gb")
    parser.add_argument("--save", type=Path, help="where to write the rebuilt model")
    given = parser.parse_args()
    try:
        _, found = compare_network(read_lines(given.log), given.target, given.save)
    except ValueError as error:
        sys.exit(f"{given.log}: {error}")
    _print(found)


if __name__ == "__main__":
    main()
