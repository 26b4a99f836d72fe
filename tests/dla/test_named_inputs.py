"""A refusal shows the tensor that breaks the rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit

BOARD = "jetson-agx-orin-64gb"


def reasons(
    tmp_path: Path,
    nodes: list[onnx.NodeProto],
    kind: int,
    constants: dict[str, np.ndarray] | None = None,
    sizes: tuple[int, ...] = (1, 3, 16, 16),
) -> dict[str, dict[str, str]]:
    """What was found of each layer, by layer and rule."""
    proto = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", kind, sizes)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    found = edgekit.check(str(path), target=BOARD).to_json()
    return {
        layer["name"]: {reason["rule"]: reason["found"] for reason in layer["dla"]["reasons"]}
        for layer in found["layers"]
    }


@pytest.mark.parametrize("between", ["", "Transpose", "MaxPool"])
def test_a_uint8_input_is_blamed_on_its_type(tmp_path: Path, between: str) -> None:
    weights = np.ones((8, 3, 3, 3), np.float32)
    given = {"Transpose": {"perm": [0, 1, 3, 2]}, "MaxPool": {"kernel_shape": [2, 2]}}
    first = [
        helper.make_node(name, ["x"], ["t"], name="first", **attributes)
        for name, attributes in given.items()
        if name == between
    ]
    found = reasons(
        tmp_path,
        [
            *first,
            helper.make_node("Cast", ["t" if between else "x"], ["f"], name="cast", to=1),
            helper.make_node("Conv", ["f", "w"], ["y"], name="conv"),
        ],
        TensorProto.UINT8,
        {"w": weights},
    )

    assert found["cast"] == {"general.uint8": "uint8"}
    assert not between or found["first"]["general.uint8"] == "uint8"
    assert found["conv"] == {}


def test_a_tensor_without_dimensions_is_called_a_scalar(tmp_path: Path) -> None:
    found = reasons(
        tmp_path,
        [helper.make_node("ReduceMax", ["x"], ["y"], name="largest", keepdims=0)],
        TensorProto.FLOAT,
    )

    assert found["largest"]["reduce.rank"] == "1x3x16x16 to a scalar"


def test_the_rank_rule_names_one_of_several_inputs(tmp_path: Path) -> None:
    found = reasons(
        tmp_path,
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dql"),
            helper.make_node("ConvInteger", ["q", "w", "z"], ["i"], name="conv"),
            helper.make_node("Cast", ["i"], ["y"], name="cast", to=1),
        ],
        TensorProto.FLOAT,
        {"w": np.ones((8, 3, 1, 1), np.int8)},
    )

    assert found["conv"]["general.rank"] == "input 'z': a scalar"
