"""Weights by refit name from an ONNX file, against the onnx package and the double's own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit_device.errors import DeviceError
from edgekit_device.tensorrt.weights import named_weights
from tests.edgekit_device.tensorrt.toys import network, weights_of


def model_of(nodes: list[Any], initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [], [value], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def read(model: onnx.ModelProto, *names: str, folder: Path | None = None) -> dict[str, np.ndarray]:
    return named_weights(model.SerializeToString(), folder, names)


@pytest.mark.parametrize("version", ["10.3.0", "10.16.1"])
def test_all_weights_of_a_network_with_a_folded_batch_normalisation(version: str) -> None:
    expected = weights_of(network(), version)
    found = read(network(), *expected, "not there")
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape


@pytest.mark.parametrize(
    "kind",
    [
        "float32",
        "float64",
        "float16",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    ],
)
@pytest.mark.parametrize("raw", [True, False])
def test_every_type_in_every_field(kind: str, raw: bool) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    low = 0 if kind in ("bool", "uint8", "uint16", "uint32", "uint64") else -3
    array = np.arange(low, low + 6).reshape(2, 3).astype(kind)
    data = array.tobytes() if raw else array.ravel().tolist()
    tensor = helper.make_tensor("t", number, array.shape, data, raw=raw)
    found = read(model_of([], [tensor]), "t")["t"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bfloat16_is_bit_patterns() -> None:
    values = [1.0, -2.5, 3.0e38, 0.0]
    tensor = helper.make_tensor("t", TensorProto.BFLOAT16, [4], values)
    found = read(model_of([], [tensor]), "t")["t"]
    assert found.dtype == np.uint16
    widened = (found.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(widened, values, rtol=2**-8)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value": numpy_helper.from_array(np.eye(2, dtype=np.float32))}, np.eye(2)),
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, -2.0]}, np.array([1.5, -2.0], np.float32)),
        ({"value_int": -7}, np.int64(-7)),
        ({"value_ints": [3, -4]}, np.array([3, -4], np.int64)),
    ],
)
def test_constant_nodes_by_their_output(attribute: dict[str, Any], expected: Any) -> None:
    node = helper.make_node("Constant", [], ["y"], **attribute)
    found = read(model_of([node], []), "y")["y"]
    assert found.shape == np.shape(expected)
    np.testing.assert_array_equal(found, expected)


def test_bodies_of_if_loop_and_scan_are_read_deep_down() -> None:
    def body(name: str, *nodes: Any) -> onnx.GraphProto:
        array = np.full(2, len(name), np.float32)
        return helper.make_graph(list(nodes), name, [], [], [numpy_helper.from_array(array, name)])

    scan = helper.make_node("Scan", ["s"], ["z"], body=body("deep"), num_scan_inputs=1)
    loop = helper.make_node("Loop", ["", "c"], ["l"], body=body("loop_w", scan))
    branch = helper.make_node(
        "If", ["c"], ["y"], then_branch=body("then", loop), else_branch=body("else")
    )
    found = read(model_of([branch], []), "deep", "loop_w", "then", "else")
    assert {name: array.tolist() for name, array in found.items()} == {
        name: [float(len(name))] * 2 for name in ("deep", "loop_w", "then", "else")
    }


def norms(count: int, kind: str = "float32", **more: Any) -> tuple[list[Any], list[Any]]:
    nodes, tensors = [], []
    for at in range(count):
        names = [f"{part}{at}" for part in "sbmv"]
        for place, name in enumerate(names):
            values = np.array([at + 1, place + 2], np.float32)
            number = helper.np_dtype_to_tensor_dtype(np.dtype(kind)) if kind != "bf16" else 16
            tensors.append(helper.make_tensor(name, number, [2], values.tolist()))
        source = "x" if not at else f"y{at - 1}"
        nodes.append(helper.make_node("BatchNormalization", [source, *names], [f"y{at}"], **more))
    return nodes, tensors


def test_folded_names_count_in_topological_order() -> None:
    nodes, tensors = norms(3, epsilon=0.25)
    names = ["tmp_batch_norm_weight"] + [f"tmp_batch_norm_weight_{n}" for n in range(5)]
    straight = read(model_of(nodes, tensors), *names)
    # a file out of order counts like one in order
    turned = read(model_of(nodes[::-1], tensors), *names)
    for name in names:
        np.testing.assert_array_equal(straight[name], turned[name])
    scale = np.array([2.0, 2.0]) / np.sqrt(np.array([2.0, 5.0]) + 0.25)
    np.testing.assert_allclose(straight[names[2]], scale, rtol=1e-6)
    bias = np.array([2.0, 3.0]) - np.array([2.0, 4.0]) * scale
    np.testing.assert_allclose(straight[names[3]], bias, rtol=1e-6)


def test_a_batch_normalisation_fed_by_another_node_is_not_counted() -> None:
    nodes, tensors = norms(2)
    nodes.insert(0, helper.make_node("Constant", [], ["s0"], value_floats=[1.0, 2.0]))
    tensors = [tensor for tensor in tensors if tensor.name != "s0"]
    found = read(model_of(nodes, tensors), "tmp_batch_norm_weight", "tmp_batch_norm_weight_1")
    assert set(found) == {"tmp_batch_norm_weight"}
    scale = np.array([2.0, 2.0]) / np.sqrt(np.array([2.0, 5.0]) + 1e-5)
    np.testing.assert_allclose(found["tmp_batch_norm_weight"], scale, rtol=1e-6)


def test_newer_releases_count_the_values_of_constant_of_shape_too() -> None:
    nodes, tensors = norms(2, epsilon=0.25)
    seven = numpy_helper.from_array(np.array([7], np.int64))
    fills = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ConstantOfShape", ["y0"], ["sevens"], value=seven),
    ]
    model = model_of([fills[0], nodes[0], fills[1], nodes[1]], tensors)
    old = ["tmp_batch_norm_weight"] + [f"tmp_batch_norm_weight_{n}" for n in range(3)]
    new = ["tmp_refittable_weight"] + [f"tmp_refittable_weight_{n}" for n in range(5)]
    found = read(model, *old, *new)
    zeros, sevens = found[new[0]], found[new[3]]
    assert (zeros.tolist(), zeros.dtype) == ([0.0], np.float32)
    assert (sevens.tolist(), sevens.dtype) == ([7], np.int64)
    for one, other in zip(old, (new[1], new[2], new[4], new[5]), strict=True):
        np.testing.assert_array_equal(found[one], found[other])
    assert not np.array_equal(found[new[1]], found[new[4]])


@pytest.mark.parametrize(("kind", "dtype"), [("float16", "float16"), ("bf16", "uint16")])
def test_a_narrow_batch_normalisation_stays_narrow(kind: str, dtype: str) -> None:
    found = read(model_of(*norms(1, kind)), "tmp_batch_norm_weight")["tmp_batch_norm_weight"]
    assert found.dtype == dtype
    values = (found.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else found
    scale = np.array([1.0, 2.0]) / np.sqrt(np.array([1.0, 5.0]))
    np.testing.assert_allclose(values, scale, rtol=2**-7)


def external(folder: Path, location: str, **places: Any) -> onnx.ModelProto:
    tensor = numpy_helper.from_array(np.arange(4, dtype=np.float32), "t")
    model = model_of([], [tensor])
    held = model.graph.initializer[0]
    data = held.raw_data
    onnx.external_data_helper.set_external_data(held, location, **places)
    held.ClearField("raw_data")
    (folder / "data.bin").write_bytes(bytes(8) + data)
    return model


def test_external_data_lies_next_to_the_file(tmp_path: Path) -> None:
    model = external(tmp_path, "data.bin", offset=8, length=16)
    found = read(model, "t", folder=tmp_path)["t"]
    np.testing.assert_array_equal(found, np.arange(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("location", "places"),
    [
        ("../data.bin", {"offset": 8}),
        ("/etc/passwd", {}),
        ("link/data.bin", {"offset": 8}),
        ("gone.bin", {}),
        ("data.bin", {"offset": 16}),
        ("data.bin", {"offset": 8, "length": 8}),
        ("data.bin", {"offset": -8}),
        ("", {}),
    ],
)
def test_external_data_elsewhere_is_refused(
    tmp_path: Path, location: str, places: dict[str, int]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    model = external(tmp_path, location, **places)
    (folder / "data.bin").write_bytes((tmp_path / "data.bin").read_bytes())
    with pytest.raises(DeviceError) as caught:
        read(model, "t", folder=folder)
    assert caught.value.code == "model.external-data"


def test_external_data_without_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="outside the file"):
        read(external(tmp_path, "data.bin", offset=8), "t")


@pytest.mark.parametrize("data", [b"", b"\x3a", b"text that is no model", b"\x3a\x05\x0a\x03\x0a"])
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(DeviceError) as caught:
        named_weights(data, None, ["w"])
    assert caught.value.code == "model.invalid"


def test_a_weight_of_an_unknown_type_is_reported_only_when_wanted() -> None:
    tensor = helper.make_tensor("t", TensorProto.FLOAT8E4M3FN, [1], b"\0", raw=True)
    assert read(model_of([], [tensor]), "other") == {}
    with pytest.raises(DeviceError) as caught:
        read(model_of([], [tensor]), "t")
    assert caught.value.code == "model.type"
