"""The layer graph: kinds, parameters, inserted and erased shuffles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Layer, Network
from tests.network.onnx_making import conv_net, make, node, values, write


def graph(tmp_path: Path, proto: onnx.ModelProto) -> Network:
    return layers(load(write(proto, tmp_path)))


def only(tmp_path: Path, proto: onnx.ModelProto) -> Layer:
    (layer,) = graph(tmp_path, proto).layers
    return layer


def test_the_end_of_a_classifier_is_what_the_builder_logs(tmp_path: Path) -> None:
    # TensorRT 10.3 erases Flatten with reshape_before_/fc/Gemm and keeps reshape_after_/fc/Gemm
    network = graph(tmp_path, conv_net())
    shown = [(layer.kind, layer.name, layer.nodes, layer.origin) for layer in network.layers]
    assert shown == [
        ("CONVOLUTION", "conv", ("conv",), ("conv",)),
        ("ACTIVATION", "relu", ("relu",), ("relu",)),
        ("REDUCE", "pool", ("pool",), ("pool",)),
        ("CONVOLUTION", "fc", ("flatten", "fc"), ("flatten", "fc")),
        ("SHUFFLE", "reshape_after_fc", (), ("fc",)),
    ]
    fc = network.layer("fc")
    assert fc.params["gemm"] is True
    assert fc.inputs == ("p",)
    assert network.tensors[fc.outputs[0]].shape == (1, 40, 1, 1)
    assert network.views == {"fc:out4d": "y"}
    assert (fc.macs, fc.weight_elements, fc.weights) == (640, 680, ("fw", "fb"))


def test_a_reshape_that_changes_something_is_fused_by_name(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c", name="conv"),
        node("Flatten", "c", "f", name="flat"),
        node("Gemm", "f fw", "y", name="fc"),
    ]
    constants = {"w": values([4, 3, 1, 1]), "fw": values([16, 7])}
    network = graph(tmp_path, make(nodes, {"x": [2, 3, 2, 2]}, ["y"], constants))
    joined = network.layers[1]
    assert (joined.kind, joined.name) == ("SHUFFLE", "flat + reshape_before_fc")
    assert joined.nodes == ("flat",)
    assert joined.origin == ("flat", "fc")
    assert network.tensors[joined.outputs[0]].shape == (2, 16, 1, 1)


def shuffles(tmp_path: Path, *steps: tuple[int, ...] | list[int]) -> list[Layer]:
    """The shuffles of reshapes (tuples) and transpositions (lists) in a row."""
    nodes, constants, names = [], {}, "abcdef"
    for index, step in enumerate(steps):
        source, made = (names[index], names[index + 1])
        if isinstance(step, list):
            nodes.append(node("Transpose", source, made, name=f"T{index}", perm=step))
        else:
            nodes.append(node("Reshape", f"{source} s{index}", made, name=f"R{index}"))
            constants[f"s{index}"] = np.array(step, np.int64)
    proto = make(nodes, {"a": [1, 6, 4, 2]}, [names[len(steps)]], constants)
    return list(graph(tmp_path, proto).layers)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(1, 24, 2), [0, 2, 1]], ["R0 + T1"]),
        ([[0, 2, 1, 3], (1, 4, 12)], ["T0 + R1"]),
        ([[0, 2, 1, 3], (1, 4, 12), [0, 2, 1]], ["T0 + R1 + T2"]),
        ([[0, 2, 1, 3], [0, 1, 3, 2]], ["T0 + T1"]),
        ([(6, 8), (1, 6, 8), [0, 2, 1], [2, 1, 0]], ["R0 + R1 + T2 + T3"]),
        # a shuffle transposes, reshapes and transposes; a channel shuffle reshapes twice
        ([(1, 2, 3, 4, 2), [0, 2, 1, 3, 4], (1, 6, 4, 2)], ["R0 + T1", "R2"]),
        # ... but where the transpositions between cancel each other
        ([(1, 24, 2), [0, 2, 1], [0, 2, 1], (1, 6, 8)], ["R0 + T1 + T2 + R3"]),
    ],
)
def test_shuffles_in_a_row_are_what_one_of_tensorrt_can_do(
    tmp_path: Path, steps: list[tuple[int, ...] | list[int]], expected: list[str]
) -> None:
    """As in the log of DETR: Transpose_3 + Reshape_3 + Reshape_5 + reshape_before_Gemm_6."""
    found = shuffles(tmp_path, *steps)
    assert [layer.name for layer in found] == expected
    assert {layer.kind for layer in found} == {"SHUFFLE"}
    assert [name for layer in found for name in layer.nodes] == [
        f"{'T' if isinstance(step, list) else 'R'}{i}" for i, step in enumerate(steps)
    ]
    turned = [any("perm" in step for step in x.params.get("parts", ())) for x in found]
    assert [x.params["mode"] == "TRANSPOSE" for x in found] == [
        turns and "T1 + T2 + R3" not in x.name for turns, x in zip(turned, found, strict=True)
    ]


def test_transpositions_that_undo_each_other_are_erased(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a", name="first"),
        node("Transpose", "a", "b", name="there", perm=[0, 2, 3, 1]),
        node("Transpose", "b", "c", name="back", perm=[0, 3, 1, 2]),
        node("Relu", "c", "y", name="second"),
    ]
    network = graph(tmp_path, make(nodes, {"x": [1, 6, 4, 2]}, ["y"]))
    assert [layer.name for layer in network.layers] == ["first", "second"]
    assert network.layers[1].nodes == ("there", "back", "second")


@pytest.mark.parametrize(
    ("attributes", "pads", "out"),
    [
        ({"pads": [0, 1, 2, 3]}, (0, 1, 2, 3), None),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (0, 0, 1, 1), None),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 1, 0, 0), None),
        ({"auto_pad": "VALID"}, (0, 0, 0, 0), None),
    ],
)
def test_convolution(
    tmp_path: Path, attributes: dict[str, object], pads: tuple[int, ...], out: None
) -> None:
    nodes = [node("Conv", "x w b", "y", group=2, **attributes)]
    constants = {"w": values([6, 2, 3, 3]), "b": values([6])}
    network = graph(tmp_path, make(nodes, {"x": [1, 4, 8, 8]}, ["y"], constants))
    (layer,) = network.layers
    assert layer.kind == "CONVOLUTION"
    assert layer.params["pads"] == pads
    assert layer.params["kernel"] == (3, 3)
    assert layer.params["groups"] == 2
    assert layer.params["out_maps"] == 6
    assert layer.macs == network.tensors["y"].elements * 2 * 9
    assert layer.weight_elements == 6 * 2 * 9 + 6


def test_one_dimensional_convolution_is_made_two_dimensional(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y", name="c", pads=[1, 1])]
    network = graph(tmp_path, make(nodes, {"x": [1, 4, 9]}, ["y"], {"w": values([5, 4, 3])}))
    assert [layer.kind for layer in network.layers] == ["SHUFFLE", "CONVOLUTION", "SHUFFLE"]
    assert network.layers[1].params["kernel"] == (3, 1)
    assert network.layers[1].params["pads"] == (1, 0, 1, 0)
    assert network.views == {"c:in4d": "x", "c:out4d": "y"}


@pytest.mark.parametrize(
    ("op", "shape", "kind", "mode"),
    [
        ("Mul", [4, 1, 1], "SCALE", "CHANNEL"),
        ("Add", [1, 4, 1, 1], "SCALE", "CHANNEL"),
        ("Sub", [], "SCALE", "UNIFORM"),
        ("Add", [4, 6, 6], "SCALE", "ELEMENTWISE"),
        ("Add", [6], "ELEMENTWISE", None),
        ("Max", [4, 1, 1], "ELEMENTWISE", None),
        ("Pow", [], "ELEMENTWISE", None),
    ],
)
def test_arithmetic_by_constants(
    tmp_path: Path, op: str, shape: list[int], kind: str, mode: str | None
) -> None:
    proto = make([node(op, "x k", "y")], {"x": [1, 4, 6, 6]}, ["y"], {"k": np.abs(values(shape))})
    layer = only(tmp_path, proto)
    assert layer.kind == kind
    assert layer.params.get("mode") == mode
    assert layer.inputs == ("x",)


def test_a_constant_on_the_left_of_a_difference_is_no_scale(tmp_path: Path) -> None:
    proto = make([node("Sub", "k x", "y")], {"x": [1, 4, 6, 6]}, ["y"], {"k": values([4, 1, 1])})
    assert only(tmp_path, proto).kind == "ELEMENTWISE"


def test_sum_of_many_is_a_chain(tmp_path: Path) -> None:
    inputs = {name: [1, 2, 3, 3] for name in "abcd"}
    network = graph(tmp_path, make([node("Sum", "a b c d", "y", name="s")], inputs, ["y"]))
    assert [layer.name for layer in network.layers] == ["s", "s_1", "s_2"]
    assert all(layer.nodes == ("s",) for layer in network.layers)
    assert network.layers[2].inputs == (network.layers[1].outputs[0], "d")
    assert network.layers[2].outputs == ("y",)


def test_split_is_one_slice_an_output(tmp_path: Path) -> None:
    proto = make(
        [node("Split", "x sizes", "a b c", axis=1, name="cut")],
        {"x": [1, 12, 2, 2]},
        ["a", "b", "c"],
        {"sizes": np.array([2, 4, 6], np.int64)},
    )
    network = graph(tmp_path, proto)
    assert [layer.name for layer in network.layers] == ["cut", "cut_1", "cut_2"]
    assert [layer.params["starts"][1] for layer in network.layers] == [0, 2, 6]
    assert [layer.params["sizes"][1] for layer in network.layers] == [2, 4, 6]


def test_matmul_by_a_constant_runs_over_rows(tmp_path: Path) -> None:
    proto = make(
        [node("MatMul", "x w", "y", name="mm")], {"x": [2, 5, 8]}, ["y"], {"w": values([8, 3])}
    )
    network = graph(tmp_path, proto)
    assert [layer.kind for layer in network.layers] == ["SHUFFLE", "CONVOLUTION", "SHUFFLE"]
    assert network.tensors["mm:in4d"].shape == (10, 8, 1, 1)
    assert network.layer("mm").macs == 10 * 8 * 3


def test_matmul_of_activations(tmp_path: Path) -> None:
    layer = only(
        tmp_path, make([node("MatMul", "a b", "y")], {"a": [2, 4, 8], "b": [2, 8, 3]}, ["y"])
    )
    assert (layer.kind, layer.macs) == ("MATRIX_MULTIPLY", 2 * 4 * 8 * 3)


@pytest.mark.parametrize(("opset", "kinds"), [(11, 3), (13, 1)])
def test_softmax_before_opset_13_is_flattened(tmp_path: Path, opset: int, kinds: int) -> None:
    proto = make([node("Softmax", "x", "y", axis=1)], {"x": [2, 3, 4, 4]}, ["y"], opset=opset)
    network = graph(tmp_path, proto)
    assert len(network.layers) == kinds
    (softmax,) = (layer for layer in network.layers if layer.kind == "SOFTMAX")
    assert softmax.params["axis"] == 1
    assert network.tensors[softmax.inputs[0]].shape == ((2, 48) if opset == 11 else (2, 3, 4, 4))


def test_quantized_weights_belong_to_their_convolution(tmp_path: Path) -> None:
    constants = {
        "wq": np.arange(12, dtype=np.int8).reshape(4, 3, 1, 1),
        "s": np.array(0.1, np.float32),
        "z": np.array(0, np.int8),
    }
    nodes = [
        node("QuantizeLinear", "x s z", "xq", name="q"),
        node("DequantizeLinear", "xq s z", "xd", name="dq"),
        node("DequantizeLinear", "wq s z", "w", name="dqw"),
        node("Conv", "xd w", "y", name="conv"),
    ]
    network = graph(tmp_path, make(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants))
    assert [layer.kind for layer in network.layers] == ["QUANTIZE", "DEQUANTIZE", "CONVOLUTION"]
    assert network.layers[2].nodes == ("dqw", "conv")
    assert network.layers[2].inputs == ("xd",)


def test_resize_in_tensorrts_terms(tmp_path: Path) -> None:
    nodes = [
        node(
            "Resize",
            "x none scales",
            "y",
            mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel",
        )
    ]
    constants = {"none": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 3], np.float32)}
    layer = only(tmp_path, make(nodes, {"x": [1, 4, 5, 5]}, ["y"], constants))
    assert layer.params["scales"] == (1.0, 1.0, 2.0, 3.0)
    assert layer.params["sizes"] is None
    assert (layer.params["coordinates"], layer.params["selector"]) == ("HALF_PIXEL", "UPPER")


@pytest.mark.parametrize(
    ("nodes", "kind", "expected"),
    [
        (
            [node("Clip", "x", "y")],
            "ACTIVATION",
            {"function": "CLIP", "beta": 3.4028234663852886e38},
        ),
        ([node("LeakyRelu", "x", "y")], "ACTIVATION", {"function": "LEAKY_RELU", "alpha": 0.01}),
        ([node("Transpose", "x", "y")], "SHUFFLE", {"perm": (3, 2, 1, 0)}),
        ([node("Concat", "x x", "y", axis=-3)], "CONCATENATION", {"axis": 1, "inputs": 2}),
        ([node("LRN", "x", "y", size=5)], "LRN", {"window": 5, "k": 1.0, "beta": 0.75}),
        ([node("AveragePool", "x", "y", kernel_shape=[2, 2])], "POOLING", {"mode": "AVERAGE"}),
        (
            [node("ReduceMean", "x", "y", axes=[-1, 2])],
            "REDUCE",
            {"axes": (2, 3), "keepdims": True},
        ),
        ([node("Abs", "x", "y")], "UNARY", {"function": "ABS"}),
        ([node("Cast", "x", "y", to=10)], "CAST", {"to": "float16"}),
        ([node("Det", "x", "y")], "UNKNOWN", {}),
        ([node("ArgMax", "x", "y", axis=1)], "TOPK", {"k": 1, "axis": 1}),
    ],
)
def test_kinds_and_parameters(
    tmp_path: Path, nodes: list[onnx.NodeProto], kind: str, expected: dict[str, object]
) -> None:
    layer = only(tmp_path, make(nodes, {"x": [1, 4, 6, 6]}, ["y"]))
    assert layer.kind == kind
    assert {key: layer.params[key] for key in expected} == expected


def test_slices_count_from_the_end(tmp_path: Path) -> None:
    constants = {
        "a": np.array([-3, 1], np.int64),
        "b": np.array([9999, 3], np.int64),
        "axes": np.array([3, -3], np.int64),
        "steps": np.array([2, 1], np.int64),
    }
    proto = make([node("Slice", "x a b axes steps", "y")], {"x": [1, 4, 6, 6]}, ["y"], constants)
    params = only(tmp_path, proto).params
    assert params["starts"] == (0, 1, 0, 3)
    assert params["sizes"] == (1, 2, 6, 2)
    assert params["strides"] == (1, 1, 1, 2)
