"""What load makes of good models."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from edgekit.network.loading.load import canonical, load, open_inputs
from edgekit.network.model import weight_digests
from tests.network.onnx_making import conv_net, light, make, node, values, write


def test_weights_leave_the_proto_and_parameters_stay(tmp_path: Path) -> None:
    sizes = np.array([2, -1], np.int64)
    low = np.array(0.0, np.float32)
    proto = make(
        [node("Conv", "x w", "c"), node("Clip", "c low", "d"), node("Reshape", "d sizes", "y")],
        {"x": [2, 3, 4, 4]},
        ["y"],
        {"w": values([5, 3, 1, 1]), "low": low, "sizes": sizes},
    )
    model = load(write(proto, tmp_path))
    assert set(model.weights) == {"w"}
    stubs = {t.name: t for t in model.proto.graph.initializer}
    assert set(stubs) == {"w", "low", "sizes"}
    assert stubs["w"].data_location == TensorProto.EXTERNAL
    assert stubs["w"].raw_data == b""
    assert numpy_helper.to_array(stubs["sizes"]).tolist() == [2, -1]
    assert [n.name for n in model.proto.graph.node] == ["Conv_0", "Clip_1", "Reshape_2"]
    assert [d.dim_value for d in model.proto.graph.output[0].type.tensor_type.shape.dim] == [2, 80]
    with pytest.raises(ValueError, match="read-only"):
        model.weights["w"][0] = 1


def test_large_inline_weights_are_mapped_from_the_file(tmp_path: Path) -> None:
    weight = values([64, 3, 3, 3])
    proto = make([node("Conv", "x w", "y")], {"x": [1, 3, 8, 8]}, ["y"], {"w": weight})
    model = load(write(proto, tmp_path))
    assert isinstance(model.weights["w"], np.memmap)
    np.testing.assert_array_equal(model.weights["w"], weight)


def test_weights_in_many_files_hold_no_descriptors(tmp_path: Path) -> None:
    weights = {f"w{index}": np.full(2000, index, np.float32) for index in range(50)}
    proto = make([node("Sum", " ".join(["x", *weights]), "y")], {"x": [1, 2000]}, ["y"], weights)
    path = tmp_path / "many.onnx"
    onnx.save_model(
        proto,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
    )
    before = len(os.listdir("/proc/self/fd"))
    model = load(path)
    assert len(os.listdir("/proc/self/fd")) == before
    for name, weight in weights.items():
        assert isinstance(model.weights[name], np.memmap)
        np.testing.assert_array_equal(model.weights[name], weight)


def test_digest_follows_every_weight_and_the_graph(tmp_path: Path) -> None:
    first = load(write(conv_net(), tmp_path))
    changed = conv_net()
    raw = bytearray(changed.graph.initializer[3].raw_data)
    raw[-1] ^= 1
    changed.graph.initializer[3].raw_data = bytes(raw)
    second = load(write(changed, tmp_path, "b.onnx"))
    assert first.digest != second.digest
    a, b = weight_digests(first), weight_digests(second)
    assert [name for name in a if a[name] != b[name]] == ["fb"]
    assert load(write(conv_net(), tmp_path, "c.onnx")).digest == first.digest
    other = conv_net()
    other.graph.node[1].op_type = "Tanh"
    assert load(write(other, tmp_path, "d.onnx")).digest != first.digest


def test_shape_arithmetic_and_constants_fold(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 minus", "target", axis=0),
        node("Reshape", "x target", "flat"),
        node("Mul", "half half", "quarter"),
        node("Unsqueeze", "quarter axes", "row"),
        node("Mul", "flat row", "y"),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "axes": np.array([0], np.int64),
        "minus": np.array([-1], np.int64),
        "half": np.full(48, 0.5, np.float32),
    }
    model = load(write(make(nodes, {"x": [2, 3, 4, 4]}, ["y"], constants), tmp_path))
    assert [n.op_type for n in model.proto.graph.node] == ["Reshape", "Mul"]
    np.testing.assert_array_equal(model.weights["row"], np.full((1, 48), 0.25, np.float32))


def test_identity_and_dropout_go_and_output_names_stay(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Identity", "a", "b"),
        node("Dropout", "b", "c mask"),
        node("Sigmoid", "c", "d"),
        node("Identity", "d", "y"),
        node("Identity", "x", "same"),
        node("Identity", "a", "z"),
    ]
    model = load(write(make(nodes, {"x": [1, 4]}, ["y", "same", "z"]), tmp_path))
    got = [(n.op_type, list(n.input), list(n.output)) for n in model.proto.graph.node]
    assert got == [
        ("Relu", ["x"], ["z"]),
        ("Sigmoid", ["z"], ["y"]),
        ("Identity", ["x"], ["same"]),
    ]
    assert [v.name for v in model.proto.graph.output] == ["y", "same", "z"]


def test_names_are_unique_and_unused_things_go(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a", name="act"),
        node("Relu", "a", "b", name="act"),
        node("Relu", "b", "y"),
        node("Tanh", "x", "unused"),
    ]
    proto = make(nodes, {"x": [2], "idle": [3]}, ["y"], {"w": values([4])})
    model = load(write(proto, tmp_path))
    assert [n.name for n in model.proto.graph.node] == ["act", "act_1", "Relu_2"]
    assert [v.name for v in model.proto.graph.input] == ["x"]
    assert not model.proto.graph.initializer


def test_unsorted_graphs_are_sorted(tmp_path: Path) -> None:
    nodes = [node("Relu", "b", "y"), node("Tanh", "a", "b"), node("Exp", "x", "a")]
    model = load(write(make(nodes, {"x": [2]}, ["y"]), tmp_path))
    assert [n.op_type for n in model.proto.graph.node] == ["Exp", "Tanh", "Relu"]


@pytest.mark.parametrize("cut", [["c"], ["conv"]])
def test_outputs_cut_at_tensors_and_nodes(tmp_path: Path, cut: list[str]) -> None:
    model = load(write(conv_net(), tmp_path), outputs=cut)
    assert [n.name for n in model.proto.graph.node] == ["conv"]
    assert [v.name for v in model.proto.graph.output] == ["c"]
    assert set(model.weights) == {"w", "b"}


def test_open_inputs_are_listed(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "a"), node("Add", "a z", "y")]
    inputs = {"x": ["N", 3, "H", 8], "z": None, "fixed": [1], "w": [5, 3, 1, 1]}
    proto = make(nodes, inputs, ["y"], {"w": values([5, 3, 1, 1])})
    assert open_inputs(write(proto, tmp_path)) == {"x": (None, 3, None, 8), "z": ()}


def test_weights_given_for_produced_tensors_replace_their_nodes() -> None:
    proto = onnx.load(light("squeezenet"))
    made = next(n for n in proto.graph.node if n.op_type == "ConstantOfShape").output[0]
    shape = load(light("squeezenet")).weights[made].shape
    given = values(shape)
    model = canonical(proto, None, weights={made: given})
    np.testing.assert_array_equal(model.weights[made], given)


def test_exporters_traces_do_not_reach_the_digest(tmp_path: Path) -> None:
    plain = load(write(conv_net(), tmp_path))
    noted = conv_net()
    noted.graph.node[0].doc_string = "exporter.py, line 12"
    noted.doc_string = "made on a laptop"
    noted.producer_name = "pytorch"
    assert load(write(noted, tmp_path, "n.onnx")).digest == plain.digest
