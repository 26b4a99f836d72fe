"""Compares edgekit with a verbose TensorRT build log that holds the whole build.

    scripts/compare_log.py LOG [--target BOARD] [--save MODEL.onnx]

The network is rebuilt from what the ONNX parser wrote into the log (names, shapes, constants
without their values), judged, and compared with what the builder did: layers, loadables, memory
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
from edgekit.buildlog.parser import parse_log
from edgekit.dla.judge import judge
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit.targets.loader import get

__all__ = ["compared", "model_of", "read_lines"]

_NODE = re.compile(r"\[TRT\] (?P<name>\S.*) \[(?P<op>\w+)\] (?P<side>inputs|outputs): (?P<rest>.*)")
_TENSOR = re.compile(r"\[(?P<name>[^\[\]]*?) -> \((?P<shape>[\d, ]*)\)\[(?P<type>\w+)\]\]")
_WINDOW = re.compile(
    r"Using kernel: (.*?), strides: (.*?), prepadding: (.*?), postpadding: (.*?), "
    r"dilations: (.*?), numOutputs: \d+, nbGroups: (\d+)"
)
_OUTPUT = re.compile(r"\[TRT\] Marking \S+ as output: (\S+)")
_PRECISION = re.compile(r"\[I\] Precision: (\S+)")
_TYPES = {
    "FLOAT": TensorProto.FLOAT, "HALF": TensorProto.FLOAT16, "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64, "BOOL": TensorProto.BOOL,
}  # fmt: skip
_OPSET = 17
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


def model_of(lines: Iterable[str]) -> onnx.ModelProto:
    """Returns the ONNX model that a log's parser read; every weight is one.

    Raises:
        ValueError: The log has no lines of the parser, or a shape that does not tell an attribute.
    """
    nodes, outputs = _nodes(lines)
    if not nodes:
        raise ValueError("the log has no lines of the ONNX parser: build with trtexec --verbose")
    written = {tensor.name for node in nodes for tensor in node.outputs}
    known: dict[str, onnx.TensorProto] = {}
    weights: list[onnx.NodeProto] = []
    fed: dict[str, _Tensor] = {}
    for node in nodes:
        _complete(node, known)
        for index, tensor in enumerate(node.inputs):
            if tensor.name in written or tensor.name in known or tensor.name in fed:
                continue
            # a network is fed images or tokens first; what else nobody writes is a constant
            if index == 0 and node is nodes[0]:
                fed[tensor.name] = tensor
            else:
                known[tensor.name] = _constant(tensor, weights)
    graph = helper.make_graph(
        [*weights, *(_proto(node) for node in nodes)],
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])


def _nodes(lines: Iterable[str]) -> tuple[list[_Node], set[str]]:
    nodes: list[_Node] = []
    outputs: set[str] = set()
    for line in lines:
        if found := _NODE.search(line):
            tensors = [
                _Tensor(
                    one["name"],
                    tuple(int(size) for size in one["shape"].split(",") if size.strip()),
                    _TYPES[one["type"]],
                )
                for one in _TENSOR.finditer(found["rest"])
            ]
            if found["side"] == "inputs":
                nodes.append(_Node(found["name"], found["op"], tensors))
            else:
                nodes[-1].outputs = tensors
        elif nodes and (found := _WINDOW.search(line)):
            kernel, stride, before, after, dilation = (_ints(part) for part in found.groups()[:5])
            nodes[-1].attributes = {
                "kernel_shape": kernel, "strides": stride, "pads": [*before, *after],
                "dilations": dilation, "group": int(found[6]),
            }  # fmt: skip
        elif found := _OUTPUT.search(line):
            outputs.add(found[1])
        elif "Finished parsing network model" in line:
            break
    return nodes, outputs


def _ints(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _constant(tensor: _Tensor, weights: list[onnx.NodeProto]) -> onnx.TensorProto:
    """A constant of ones; a large one is written by a node that fills it, into ``weights``."""
    dtype = helper.tensor_dtype_to_np_dtype(tensor.type)
    if np.prod(tensor.shape, dtype=np.int64) <= 64:
        return numpy_helper.from_array(np.ones(tensor.shape, dtype), tensor.name)
    shape = numpy_helper.from_array(np.array(tensor.shape, np.int64), f"{tensor.name}:shape")
    one = numpy_helper.from_array(np.ones(1, dtype))
    weights.append(
        helper.make_node(
            "ConstantOfShape", [shape.name], [tensor.name], f"{tensor.name}:fill", value=one
        )
    )
    return shape


def _complete(node: _Node, known: dict[str, onnx.TensorProto]) -> None:
    """Adds the attributes that shapes tell, and the values of the shapes that a node reads."""
    source, target = node.inputs[0].shape, node.outputs[0].shape
    if node.op == "Reshape":
        # several nodes may share a constant with a -1 in it
        name = f"{node.name}:target"
        known[name] = numpy_helper.from_array(np.array(target, np.int64), name)
        node.inputs[1] = _Tensor(name, (len(target),), TensorProto.INT64)
    elif node.op == "Transpose":
        node.attributes["perm"] = _permutation(node.name, source, target)
    elif node.op == "MaxPool":
        node.attributes.update(_pool(source, target))
    elif node.op == "Gemm":
        node.attributes["transB"] = int(node.inputs[1].shape[0] != source[1])
    elif node.op in _LAST_AXIS:
        node.attributes["axis"] = -1


def _permutation(name: str, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    for perm in itertools.permutations(range(len(source))):
        moved = tuple(source[axis] for axis in perm)
        if moved == target and perm != tuple(range(len(source))):
            return perm
    raise ValueError(f"node {name!r} transposes {source} to {target}")


def _pool(source: tuple[int, ...], target: tuple[int, ...]) -> dict[str, Any]:
    stride = [-(-s // t) for s, t in zip(source[2:], target[2:], strict=True)]
    # 3 with 1 beside it halves a size, rounding up, as in every ResNet
    return {"kernel_shape": [3, 3], "strides": stride, "pads": [1, 1, 1, 1]}


def _proto(node: _Node) -> onnx.NodeProto:
    return helper.make_node(
        node.op,
        [tensor.name for tensor in node.inputs],
        [tensor.name for tensor in node.outputs],
        node.name,
        **node.attributes,
    )


def compared(
    lines: list[str], board: str = "jetson-agx-orin-64gb", save: Path | None = None
) -> tuple[Network, LogComparison]:
    """Returns the network of a log, and the comparison of edgekit with what the log says."""
    model = model_of(lines)
    if save:
        onnx.save(model, save)
    network = layers(canonical(model, None))
    log = parse_log(lines)
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
        _, found = compared(read_lines(given.log), given.target, given.save)
    except ValueError as error:
        sys.exit(f"{given.log}: {error}")
    _print(found)


if __name__ == "__main__":
    main()
