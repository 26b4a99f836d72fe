"""Old operators, tensors without elements, loops of known length, and clips between tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.errors import ModelError
from edgekit.network.loading.load import canonical, load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from tests.network.onnx_making import make, node, write

SIZES = [1, 8, 16, 16]
IMAGE = {"x": SIZES}


def made(proto: onnx.ModelProto) -> Model:
    return canonical(proto, None)


def kinds(proto: onnx.ModelProto) -> list[str]:
    return [layer.kind for layer in layers(made(proto)).layers]


def normalised(groups: int, scales: int, opset: int) -> onnx.ModelProto:
    return make(
        [node("GroupNormalization", "x s b", "y", name="gn", num_groups=groups)],
        IMAGE,
        ["y"],
        {"s": np.ones(scales, np.float32), "b": np.ones(scales, np.float32)},
        opset=opset,
    )


def test_group_normalization_of_opset_18_is_read_as_onnx_runtime_reads_it(tmp_path: Path) -> None:
    path = write(normalised(4, 4, 18), tmp_path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.ones(SIZES, np.float32)})

    assert load(path).graph.shape("y") == result.shape
    assert kinds(normalised(4, 4, 18)) == ["NORMALIZATION"]


@pytest.mark.parametrize(
    ("groups", "scales", "words"), [(4, 8, "opset 21"), (3, 3, "num_groups must divide")]
)
def test_group_normalization_of_opset_18_that_does_not_fit(
    groups: int, scales: int, words: str
) -> None:
    with pytest.raises(ModelError) as error:
        made(normalised(groups, scales, 18))
    assert error.value.code == "model.shape_inference"
    assert words in error.value.hint
    assert "deprecated" not in error.value.message


@pytest.mark.parametrize(
    ("operator", "inputs", "last", "instead"),
    [("Upsample", "x k", 9, "Resize"), ("Scatter", "x i u", 10, "ScatterElements")],
)
def test_an_operator_that_onnx_gave_up_is_refused_by_name_and_opset(
    operator: str, inputs: str, last: int, instead: str
) -> None:
    constants = {
        "k": np.array([1, 1, 2, 2], np.float32),
        "i": np.zeros((1, 1, 1, 1), np.int64),
        "u": np.ones((1, 1, 1, 1), np.float32),
    }
    read = {name: value for name, value in constants.items() if name in inputs.split()}
    nodes = [node(operator, inputs, "y", name="old")]

    assert made(make(nodes, IMAGE, ["y"], read, opset=last)).graph.shape("y")
    with pytest.raises(ModelError) as error:
        made(make(nodes, IMAGE, ["y"], read, opset=last + 1))
    assert error.value.code == "model.operator"
    assert error.value.where == "old"
    assert instead in error.value.hint
    assert f"opset {last}" in error.value.hint


CUT = {"from": np.array([0]), "to": np.array([0]), "axes": np.array([1])}


@pytest.mark.parametrize(
    "cut",
    [
        node("Slice", "x from to axes", "e"),
        node("Gather", "x none", "e", axis=1),
    ],
)
def test_an_empty_operand_of_a_concat_folds_away(cut: onnx.NodeProto) -> None:
    constants = {**CUT, "none": np.zeros(0, np.int64)}
    read = {name: value for name, value in constants.items() if name in cut.input}
    relu = node("Relu", "c", "y", name="relu")
    proto = make([cut, node("Concat", "x e", "c", axis=1), relu], IMAGE, ["y"], read)
    stored = make(
        [node("Concat", "e x", "c", axis=1), relu],
        IMAGE,
        ["y"],
        {"e": np.zeros((1, 0, 16, 16), np.float32)},
    )

    for one in (proto, stored):
        assert kinds(one)[-1] == "ACTIVATION"
        assert "CONCATENATION" not in kinds(one)
        assert "SLICE" not in kinds(one)
        assert made(one).graph.shape("y") == tuple(SIZES)


def test_what_follows_an_empty_slice_is_empty_too_and_the_other_operands_stay() -> None:
    proto = make(
        [
            node("Slice", "x from to axes", "e"),
            node("Relu", "e", "r"),
            node("Concat", "x r x", "y", axis=1, name="cat"),
        ],
        IMAGE,
        ["y"],
        CUT,
    )

    (layer,) = layers(made(proto)).layers
    assert (layer.kind, layer.inputs) == ("CONCATENATION", ("x", "x"))
    assert made(proto).graph.shape("y") == (1, 16, 16, 16)


def test_an_empty_operand_of_other_sizes_is_still_an_error() -> None:
    proto = make(
        [node("Concat", "x e", "y", axis=1)],
        IMAGE,
        ["y"],
        {"e": np.zeros((1, 0, 3, 3), np.float32)},
    )
    with pytest.raises(ModelError) as error:
        made(proto)
    assert error.value.code == "model.shape_inference"


def loop(
    steps: list[onnx.NodeProto],
    state: str,
    *,
    collects: str = "",
    turns: str = "m",
    goes: str = "c",
) -> onnx.NodeProto:
    """A Loop whose body makes ``state`` of s, reads i and k, and collects a tensor."""
    value = helper.make_tensor_value_info
    flag = "k2" if any("k2" in step.output for step in steps) else "k1"
    same = [] if flag == "k2" else [helper.make_node("Identity", ["k"], ["k1"])]
    outputs = [value(flag, TensorProto.BOOL, []), value(state, TensorProto.FLOAT, None)]
    if collects:
        outputs.append(value(collects, TensorProto.FLOAT, None))
    body = helper.make_graph(
        [*same, *steps],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("k", TensorProto.BOOL, []),
            value("s", TensorProto.FLOAT, None),
        ],
        outputs,
    )
    written = ["l", "all"] if collects else ["l"]
    return helper.make_node("Loop", [turns, goes, "x"], written, name="loop", body=body)


TURNS = {"m": np.array(3, np.int64), "c": np.array(True)}
AFTER = node("Relu", "l", "y", name="relu")


def test_what_a_loop_of_constant_length_collects_has_a_known_shape() -> None:
    body = [node("Relu", "s", "t"), node("Reshape", "t flat", "row")]
    nodes = [loop(body, "t", collects="row"), node("Relu", "all", "y")]
    flat = {"flat": np.array([-1], np.int64)}

    assert made(make(nodes, IMAGE, ["y"], {**TURNS, **flat})).graph.shape("y") == (3, 2048)
    # a condition that is computed may end it earlier
    stop = [node("ReduceMax", "s", "big", keepdims=0), node("Less", "big one", "k2"), *body]
    nodes = [loop(stop, "t", collects="row"), node("Relu", "all", "y"), node("Relu", "l", "z")]
    open_ = make(nodes, IMAGE, ["y", "z"], {**TURNS, **flat, "one": np.array(1, np.float32)})
    assert "all" in made(open_).graph.unknown
    assert made(open_).graph.shape("z") == tuple(SIZES)


def test_a_loop_that_never_turns_collects_nothing() -> None:
    nodes = [loop([node("Relu", "s", "t")], "t", collects="t"), AFTER, node("Relu", "all", "z")]
    constants = {**TURNS, "m": np.array(0, np.int64)}

    assert made(make(nodes, IMAGE, ["y", "z"], constants)).graph.shape("z") == (0, *SIZES)


@pytest.mark.parametrize(
    "body",
    [
        [node("Concat", "s s", "t", axis=1)],
        [node("NonZero", "s", "n"), node("Cast", "n", "t", to=TensorProto.FLOAT)],
    ],
)
def test_a_loop_whose_body_changes_the_shape_stays_unknown(body: list[onnx.NodeProto]) -> None:
    model = made(make([loop(body, "t"), AFTER], IMAGE, ["y"], TURNS))

    assert "l" in model.graph.unknown
    assert any("--shape" in one for one in model.notes)


def test_a_loop_within_a_loop() -> None:
    inner = loop([node("Sigmoid", "s", "t")], "t")
    inner.input[2] = "s"
    inner.output[0] = "deep"
    proto = make([loop([inner], "deep"), AFTER], IMAGE, ["y"], TURNS)

    assert made(proto).graph.shape("y") == tuple(SIZES)


@pytest.mark.parametrize(
    ("inputs", "functions", "constants"),
    [
        ("x low", ["MAX", "MIN"], {}),
        (["x", "", "low"], ["MAX", "MIN"], {}),
        ("x low high", ["MAX", "MIN"], {"high": np.array(6, np.float32)}),
        ("x high", ["CLIP"], {"high": np.array(0, np.float32)}),
    ],
)
def test_a_clip_of_a_computed_bound_is_a_max_and_a_min(
    inputs: str | list[str], functions: list[str], constants: dict[str, np.ndarray]
) -> None:
    """The parser writes a bound that is left out as a constant, as it was seen to do."""
    read = inputs.split() if isinstance(inputs, str) else inputs
    nodes = [node("ReduceMin", "x", "low", keepdims=0), helper.make_node("Clip", read, ["y"])]
    found = [
        layer.params["function"]
        for layer in layers(made(make(nodes, IMAGE, ["y"], constants))).layers
        if layer.kind in {"ELEMENTWISE", "ACTIVATION"}
    ]

    assert found == functions


def test_a_clip_of_integers_is_a_max_and_a_min() -> None:
    proto = make(
        [
            node("Cast", "x", "i", to=TensorProto.INT32),
            node("Clip", "i low high", "j"),
            node("Cast", "j", "y", to=TensorProto.FLOAT),
        ],
        IMAGE,
        ["y"],
        {"low": np.array(0, np.int32), "high": np.array(6, np.int32)},
    )

    assert kinds(proto) == ["CAST", "ELEMENTWISE", "ELEMENTWISE", "CAST"]


def test_what_becomes_an_identity_at_the_end_keeps_its_name_and_no_rewrite_is_offered(
    tmp_path: Path,
) -> None:
    """Before, it was called Identity:y, and `edgekit rewrite` was offered for a layer of 0 us."""
    proto = make(
        [node("Concat", "x e", "y", name="cat", axis=1)],
        {"x": [1, 8, 4, 4]},
        ["y"],
        {"e": np.zeros((1, 0, 4, 4), np.float32)},
    )
    document = edgekit.check(
        write(proto, tmp_path), target="jetson-agx-orin-64gb", precision="fp16"
    ).to_json()

    (layer,) = document["layers"]
    assert (layer["name"], layer["nodes"], layer["rewrites"]) == ("cat", ["cat"], [])
    assert not any("edgekit rewrite" in reason["fix"] for reason in layer["dla"]["reasons"])
