"""Networks with loops and conditionals, as exporters write them: between convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["flow_names", "flow_network"]

_SHAPE = [1, 8, 16, 16]


def flow_names() -> list[str]:
    """The networks' names."""
    return ["conditional", "counted", "nested", "recurrent", "until"]


def flow_network(name: str) -> onnx.ModelProto:
    """A network by name.

    "counted": a Loop with a trip count that collects and reads its counter; "until": one with a
    computed condition; "recurrent": an RNN's cell as a Scan; "conditional": an If of a computed
    condition; "nested": an If in a Loop that captures a tensor from before it.
    """
    make = {
        "conditional": _conditional,
        "counted": _counted,
        "nested": _nested,
        "recurrent": _recurrent,
        "until": _until,
    }
    nodes = [*_conv("x", "stem"), *make[name](), *_conv("made", "head", "y")]
    graph = helper.make_graph(
        nodes,
        name,
        [_value("x", _SHAPE)],
        [_value("y", _SHAPE)],
        [numpy_helper.from_array(value, key) for key, value in _constants(nodes).items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _value(name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _node(op: str, read: str, written: str, name: str = "", **more: Any) -> onnx.NodeProto:
    return helper.make_node(op, read.split(), written.split(), name=name or written, **more)


def _conv(read: str, name: str, written: str = "") -> list[onnx.NodeProto]:
    inner = f"{name}_made"
    return [
        _node("Conv", f"{read} {name}.weight", inner, f"{name}.conv", pads=[1, 1, 1, 1]),
        _node("Relu", inner, written or name, f"{name}.relu"),
    ]


def _constants(nodes: Sequence[onnx.NodeProto]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    weights = ("stem.weight", "head.weight", "inner.weight")
    found: dict[str, np.ndarray] = {
        name: rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 9 for name in weights
    }
    found |= {
        "cell.weight": rng.standard_normal((8, 8)).astype(np.float32) / 3,
        "zeros": np.zeros((1, 8), np.float32),
        "true": np.array(True),
        "trips": np.array(3),
        "half": np.array(0.5, np.float32),
        "size": np.array([1, 8, 1, 1]),
    }
    read = {name for node in nodes for name in _reads(node)}
    return {name: value for name, value in found.items() if name in read}


def _reads(node: onnx.NodeProto) -> list[str]:
    bodies = [item.g for item in node.attribute if item.HasField("g")]
    return [*node.input, *(name for body in bodies for part in body.node for name in _reads(part))]


def _looped(nodes: Sequence[onnx.NodeProto], *more: onnx.ValueInfoProto) -> onnx.GraphProto:
    """A Loop's body, which carries ``a`` along as ``next``."""
    return helper.make_graph(
        nodes,
        "body",
        [
            _value("step", [], TensorProto.INT64),
            _value("go", [], TensorProto.BOOL),
            _value("a", _SHAPE),
        ],
        [_value("on", [], TensorProto.BOOL), _value("next", _SHAPE), *more],
    )


def _counted() -> list[onnx.NodeProto]:
    body = _looped(
        [
            _node("Conv", "a inner.weight", "inner", pads=[1, 1, 1, 1]),
            _node("Cast", "step", "number", to=TensorProto.FLOAT),
            _node("Add", "inner number", "raised"),
            _node("Tanh", "raised", "next"),
            _node("ReduceMean", "next", "mean", axes=[2, 3], keepdims=0),
            _node("Identity", "go", "on"),
        ],
        _value("mean", [1, 8]),
    )
    collected = _node("ReduceMean", "means", "level", keepdims=0)
    return [
        _node("Loop", "trips true stem", "looped means", "loop", body=body),
        collected,
        _node("Mul", "looped level", "made"),
    ]


def _until() -> list[onnx.NodeProto]:
    body = _looped(
        [
            _node("Mul", "a half", "next"),
            _node("ReduceMean", "next", "mean", keepdims=0),
            _node("Greater", "mean half", "on"),
        ]
    )
    return [
        _node("ReduceMean", "stem", "level", keepdims=0),
        _node("Greater", "level half", "begins"),
        helper.make_node("Loop", ["", "begins", "stem"], ["made"], name="loop", body=body),
    ]


def _branch(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [_value(nodes[-1].output[0], _SHAPE)])


def _conditional() -> list[onnx.NodeProto]:
    conv = _node("Conv", "stem inner.weight", "inner", pads=[1, 1, 1, 1])
    more = _branch("more", [conv, _node("Relu", "inner", "chosen")])
    less = _branch("less", [_node("Mul", "stem half", "halved")])
    return [
        _node("ReduceMean", "stem", "level", keepdims=0),
        _node("Greater", "level half", "high"),
        _node("If", "high", "made", "if", then_branch=more, else_branch=less),
    ]


def _nested() -> list[onnx.NodeProto]:
    more = _branch("more", [_node("Sub", "a stem", "taken")])
    less = _branch("less", [_node("Add", "a stem", "given")])
    body = _looped(
        [
            _node("ReduceMean", "a", "mean", keepdims=0),
            _node("Greater", "mean half", "high"),
            _node("If", "high", "next", "if", then_branch=more, else_branch=less),
            _node("Identity", "go", "on"),
        ]
    )
    return [_node("Loop", "trips true stem", "made", "loop", body=body)]


def _recurrent() -> list[onnx.NodeProto]:
    body = helper.make_graph(
        [
            _node("MatMul", "h cell.weight", "product"),
            _node("Add", "product row", "sum"),
            _node("Tanh", "sum", "new"),
            _node("Identity", "new", "kept"),
        ],
        "cell",
        [_value("h", [1, 8]), _value("row", [1, 8])],
        [_value("new", [1, 8]), _value("kept", [1, 8])],
    )
    return [
        _node("ReduceMean", "stem", "rows", axes=[3], keepdims=0),
        _node("Transpose", "rows", "steps", perm=[2, 0, 1]),
        _node("Scan", "zeros steps", "last every", "scan", body=body, num_scan_inputs=1),
        _node("Reshape", "last size", "scale"),
        _node("Mul", "stem scale", "made"),
    ]
