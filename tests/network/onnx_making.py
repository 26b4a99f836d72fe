"""Small ONNX models for tests of the network package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def light(name: str) -> Path:
    """One of the nine graphs that the onnx package ships."""
    return DATA / "light" / f"light_{name}.onnx"


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str] | None],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A float model; outputs have no declared shape."""
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info(name, float32, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, float32, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def write(proto: onnx.ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """``node("Add", "a b", "y")``."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def values(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv_net(rows: int = 1) -> onnx.ModelProto:
    """Conv, Relu, global pool, Flatten, Gemm: the end of a classifier."""
    return make(
        [
            node("Conv", "x w b", "c", pads=[1, 1, 1, 1], name="conv"),
            node("Relu", "c", "r", name="relu"),
            node("GlobalAveragePool", "r", "p", name="pool"),
            node("Flatten", "p", "f", name="flatten"),
            node("Gemm", "f fw fb", "y", transB=1, name="fc"),
        ],
        {"x": [rows, 3, 8, 8]},
        ["y"],
        {
            "w": values([16, 3, 3, 3]),
            "b": values([16], 1),
            "fw": values([40, 16], 2),
            "fb": values([40], 3),
        },
    )
