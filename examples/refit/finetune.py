"""A small classifier, and the same after fine-tuning: only its last layer differs.

python finetune.py        writes out/base.onnx and out/finetuned.onnx
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

OUT = Path(__file__).parent / "out"
LAYERS = ((3, 32, 2), (32, 64, 2), (64, 128, 2), (128, 256, 2))


def network() -> onnx.ModelProto:
    """Returns the network with its first weights."""
    random = np.random.default_rng(0)
    nodes, weights, x = [], {}, "image"
    for number, (into, out, stride) in enumerate(LAYERS):
        name = f"conv{number}"
        scale = (2 / (9 * into)) ** 0.5
        weights[f"{name}.w"] = random.normal(0, scale, (out, into, 3, 3))
        weights[f"{name}.b"] = random.normal(0, 0.1, out)
        reads, pads = [x, f"{name}.w", f"{name}.b"], [1] * 4
        nodes.append(
            helper.make_node(
                "Conv",
                reads,
                [name],
                name=name,
                strides=[stride] * 2,
                kernel_shape=[3, 3],
                pads=pads,
            )
        )
        x = f"{name}.relu"
        nodes.append(helper.make_node("Relu", [name], [x], name=x))
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pool"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["pool"], ["flat"], name="flat"))
    weights["fc.w"] = random.normal(0, 0.1, (10, LAYERS[-1][1]))
    weights["fc.b"] = np.zeros(10)
    nodes.append(
        helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["classes"], name="fc", transB=1)
    )
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("classes", onnx.TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def finetuned(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy with another last layer, as training the head alone leaves it."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    random = np.random.default_rng(1)
    for tensor in other.graph.initializer:
        if tensor.name.startswith("fc."):
            value = numpy_helper.to_array(tensor)
            step = random.normal(0, 0.05, value.shape).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value + step, tensor.name))
    return other


if __name__ == "__main__":
    base = network()
    OUT.mkdir(exist_ok=True)
    onnx.save(base, OUT / "base.onnx")
    onnx.save(finetuned(base), OUT / "finetuned.onnx")
