"""What is no network for a DLA: one error with a code, a place and a way out, or a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import edgekit
from edgekit.errors import EdgekitError
from tests.dla.limits.sheet import Sheet
from tests.dla.one_layer import ORIN
from tests.network.onnx_making import conv_net, make, node, write

GOOD = {"x": [1, 4, 2, 2]}


def _cycle() -> onnx.ModelProto:
    nodes = [node("Add", "x b", "a", name="one"), node("Relu", "a", "b", name="two")]
    return make(nodes, GOOD, ["b"])


def _dynamic(*shape: int | str) -> onnx.ModelProto:
    return make([node("Relu", "x", "y")], {"x": list(shape)}, ["y"])


def _shapeless() -> onnx.ModelProto:
    return make([node("Relu", "x", "y")], {"x": None}, ["y"])


def _on_codes() -> onnx.ModelProto:
    nodes = [node("QGemm", "x", "y", domain="com.microsoft", name="head")]
    return make(nodes, GOOD, ["y"], domains=["com.microsoft"])


def _two_tensors_of_one_name() -> onnx.ModelProto:
    return make([node("Relu", "x", "y", name="a"), node("Abs", "x", "y", name="b")], GOOD, ["y"])


# model, code, where, what message or hint must hold
BAD: list[tuple[onnx.ModelProto | bytes, str, str, str]] = [
    (conv_net().SerializeToString()[:-40], "model.truncated", "", "truncated"),
    (b"not a model at all", "model.not_onnx", "", ""),
    (_cycle(), "model.cycle", "", "two"),
    (_shapeless(), "model.dynamic_shape", "x", "model.shapes: {x: ["),
    (_dynamic("batch", 4, "h", 2), "model.dynamic_shape", "x", "{x: [1, 4, "),
    (_dynamic(1, 4, -1, 2), "model.dynamic_shape", "x", "{x: [1, 4, "),
    (_dynamic(1, 4, 0, 2), "model.shape_value", "x", "0 elements"),
    (_dynamic(0, 4, 2, 2), "model.shape_value", "x", "0 elements"),
    (_on_codes(), "model.domain", "head", "com.microsoft"),
    (_two_tensors_of_one_name(), "model.duplicate_tensor", "b", "'y'"),
]


@pytest.mark.parametrize(("model", "code", "where", "words"), BAD)
def test_one_clear_error(
    tmp_path: Path, model: onnx.ModelProto | bytes, code: str, where: str, words: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(path, target=ORIN, precision="int8")
    error = caught.value
    assert error.code == code
    assert where in error.where if where else error.where
    assert error.hint
    assert "\n" not in error.message
    assert words in f"{error.message} {error.hint}"


def test_a_given_shape_makes_a_dynamic_model_good(tmp_path: Path) -> None:
    path = write(_dynamic("batch", 4, "h", 2), tmp_path)
    document = edgekit.check(
        path,
        target=ORIN,
        precision="int8",
        model={"onnx": str(path), "shapes": {"x": [1, 4, 2, 2]}},
    ).to_json()
    assert [layer["dla"]["ok"] for layer in document["layers"]] == [True]


def _verdicts(sheet: Sheet, folder: Path) -> dict[str, dict[str, Any]]:
    path = sheet.save(folder / "model.onnx", 17)
    document = edgekit.check(path, target=ORIN, precision="int8").to_json()
    found = {layer["name"]: layer["dla"] for layer in document["layers"]}
    assert len(found) == len(document["layers"])
    return found


def test_a_tensor_without_elements_is_refused(tmp_path: Path) -> None:
    sheet = Sheet()
    bounds = [sheet.constant([value]) for value in (2, 2, 2)]
    sheet.add("Relu", "after", sheet.add("Slice", "nothing", sheet.input(1, 4, 6, 6), *bounds))
    for verdict in _verdicts(sheet, tmp_path).values():
        assert not verdict["ok"]
        assert verdict["reasons"][0]["rule"] == "general.dimension"
        assert "0" in verdict["reasons"][0]["found"]


def test_nodes_of_one_name_and_of_none_get_layers_of_their_own(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a", name="n"),
        node("Abs", "a", "b", name="n"),
        node("Exp", "b", "c"),
        node("Tanh", "c", "y"),
    ]
    path = write(make(nodes, GOOD, ["y"]), tmp_path)
    layers = edgekit.check(path, target=ORIN, precision="int8").to_json()["layers"]
    assert len({layer["name"] for layer in layers}) == 4
    assert [layer["kind"] for layer in layers] == ["ACTIVATION", "UNARY", "UNARY", "ACTIVATION"]
    assert [layer["dla"]["ok"] for layer in layers] == [True, True, False, True]


def test_types_that_no_dla_has(tmp_path: Path) -> None:
    sheet = Sheet()
    for kind in (TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE):
        sheet.add("Abs", f"kind{kind}", sheet.input(1, 4, 2, 2, kind=kind))
    sheet.add("Add", "good", sheet.input(1, 4, 2, 2), sheet.constant(np.ones(1, np.float32)))
    found = _verdicts(sheet, tmp_path)
    assert [name for name, verdict in found.items() if verdict["ok"]] == ["good"]
