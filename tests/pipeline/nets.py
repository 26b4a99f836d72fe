"""A small network for tests of the whole way: fast, and with everything that cuts need."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

CONFIG = """\
version: 1
name: small
model: {{onnx: small.onnx}}
target: {target}
precision: {precision}
calibration: {{method: entropy, count: 3}}
placement: {{objective: {objective}}}
bench: {{warmup_ms: 0, duration_s: 0, iterations: 2}}
"""


def small_net(path: Path, *, seed: int = 0, scale: float = 1.0, classes: int = 10) -> None:
    """Conv, BatchNorm, Relu, MaxPool, Conv, Relu, GlobalAveragePool, Flatten, Gemm, Softmax.

    ``seed`` fills the weights; ``scale`` multiplies the last layer's alone.
    """
    random = np.random.default_rng(seed)

    def tensor(name, *shape, gain=1.0):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        value = random.standard_normal(shape) * gain / np.sqrt(fan)
        return numpy_helper.from_array(value.astype(np.float32), name)

    weights = [
        tensor("conv1.w", 16, 3, 3, 3),
        tensor("bn.scale", 16),
        tensor("bn.bias", 16),
        tensor("bn.mean", 16, gain=0.1),
        numpy_helper.from_array(random.uniform(0.5, 1.5, 16).astype(np.float32), "bn.var"),
        tensor("conv2.w", 32, 16, 3, 3),
        tensor("conv2.b", 32, gain=0.1),
        tensor("fc.w", classes, 32, gain=8 * scale),
        tensor("fc.b", classes),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv1.w"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c1", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["b1"], "bn"
        ),
        helper.make_node("Relu", ["b1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "conv2.w", "conv2.b"], ["c2"], "conv2"),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"], "gap"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "fc.w", "fc.b"], ["l"], "fc", transB=1),
        helper.make_node("Softmax", ["l"], ["y"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", 1, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", 1, [1, classes])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def quantized_product(path: Path, kind: str) -> None:
    """A matrix product "mm": "int4" has weights in blocks of 32, "fp8" stands between Q and DQ."""
    random = np.random.default_rng(0)
    codes = random.integers(-8, 8, 64 * 32).tolist()
    product = helper.make_node("MatMul", ["x" if kind == "int4" else "xd", "wd"], ["y"], "mm")
    if kind == "int4":
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s"], ["wd"], "dq", axis=0, block_size=32)
        ]
        weights = [
            helper.make_tensor("w", onnx.TensorProto.INT4, [64, 32], codes),
            numpy_helper.from_array(np.full((2, 32), 0.1, np.float32), "s"),
        ]
    else:
        pairs = [
            ("Quantize", "x", "xq"),
            ("Dequantize", "xq", "xd"),
            ("Quantize", "w", "wq"),
            ("Dequantize", "wq", "wd"),
        ]
        nodes = [
            helper.make_node(f"{name}Linear", [read, "s", "z"], [written], written)
            for name, read, written in pairs
        ]
        weights = [
            helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0]),
            numpy_helper.from_array(np.float32(0.1), "s"),
            numpy_helper.from_array(np.array(codes, np.float32).reshape(64, 32), "w"),
        ]
    ends = [helper.make_tensor_value_info(n, 1, [4, size]) for n, size in (("x", 64), ("y", 32))]
    graph = helper.make_graph([*nodes, product], "product", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def small_config(
    folder: Path,
    *,
    target: str = "jetson-agx-orin-64gb",
    precision: str = "int8",
    objective: str = "gpu_time",
    extra: str = "",
) -> Path:
    """Writes the network and a configuration into ``folder`` and returns the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    small_net(folder / "small.onnx")
    path = folder / "small.yaml"
    text = CONFIG.format(target=target, precision=precision, objective=objective)
    path.write_text(text + extra)
    return path


OPEN_CONFIG = """\
version: 1
name: open
target: jetson-agx-orin-64gb
precision: {precision}
model:
  onnx: open.onnx
  shapes: {{x: [1, 3, 16..64, 16..64]}}
  buckets: [32x32, 16x32, 64x64]
{model}calibration: {{method: entropy, count: 3}}
placement: {{objective: gpu_time, max_loadables: {loadables}}}
bench: {{warmup_ms: 0, duration_s: 0, iterations: 2}}
"""


def open_net(path: Path, *, seed: int = 0) -> None:
    """Conv, Relu, Conv, Relu, Conv: any height and width, and any batch."""
    random = np.random.default_rng(seed)
    nodes, weights, last, channels = [], [], "x", 3
    for number, (out, stride) in enumerate([(16, 2), (32, 1), (8, 1)], 1):
        name = f"conv{number}"
        values = random.standard_normal((out, channels, 3, 3)) / np.sqrt(9 * channels)
        weights += [
            numpy_helper.from_array(values.astype(np.float32), f"{name}.w"),
            numpy_helper.from_array(random.standard_normal(out).astype(np.float32), f"{name}.b"),
        ]
        result = "y" if number == 3 else f"c{number}"
        nodes.append(
            helper.make_node(
                "Conv",
                [last, f"{name}.w", f"{name}.b"],
                [result],
                name,
                strides=[stride, stride],
                pads=[1, 1, 1, 1],
            )
        )
        last, channels = result, out
        if number < 3:
            nodes.append(helper.make_node("Relu", [last], [f"r{number}"], f"relu{number}"))
            last = f"r{number}"
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", 1, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("y", 1, ["batch", 8, "rows", "columns"])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def open_config(
    folder: Path, *, precision: str = "int8", loadables: int = 16, model: str = ""
) -> Path:
    """Writes a network with open height and width and its configuration of three shapes."""
    folder.mkdir(parents=True, exist_ok=True)
    open_net(folder / "open.onnx")
    path = folder / "open.yaml"
    text = OPEN_CONFIG.format(
        precision=precision, loadables=loadables, model=f"  {model}\n" if model else ""
    )
    path.write_text(text)
    return path


VALUES_CONFIG = """\
version: 1
name: sized
target: jetson-agx-orin-64gb
precision: {precision}
model:
  onnx: sized.onnx
{model}calibration: {{method: entropy, count: 3}}
placement: {{objective: gpu_time}}
bench: {{warmup_ms: 0, duration_s: 0, iterations: 2}}
deploy: {{health: {{samples: 1}}}}
"""


def sized_config(folder: Path, *model: str, precision: str = "int8") -> Path:
    """Writes a network that takes the size of its result as an input, and its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)

    def tensor(name, *shape):
        values = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Concat", ["first", "size"], ["sizes"], "join", axis=0),
        helper.make_node("Resize", ["r1", "", "", "sizes"], ["z"], "resize", mode="nearest"),
        helper.make_node("Conv", ["z", "w2"], ["y"], "conv2", pads=[1, 1, 1, 1]),
    ]
    inputs = [("x", 1, [1, 3, 32, 32]), ("size", 7, [2])]
    graph = helper.make_graph(
        nodes,
        "sized",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", 1, [1, 4, "rows", "columns"])],
        [
            tensor("w1", 16, 3, 3, 3),
            tensor("w2", 4, 16, 3, 3),
            numpy_helper.from_array(np.array([1, 16], np.int64), "first"),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(proto)
    onnx.save(proto, folder / "sized.onnx")
    path = folder / "sized.yaml"
    lines = "".join(f"  {line}\n" for line in model)
    path.write_text(VALUES_CONFIG.format(precision=precision, model=lines))
    return path
