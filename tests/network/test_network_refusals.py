"""Bad models: each one clear ModelError with a stable code and a place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import edgekit
from edgekit.errors import ModelError
from edgekit.network.loading.load import load
from tests.network.onnx_making import conv_net, light, make, node, values, write
from tests.tries import tries


def refused(path: Path, **how: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load(path, **how)
    error = caught.value
    assert "\n" not in error.message
    assert error.where
    return error


def test_directory(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "model.directory"


@pytest.mark.parametrize(
    "content", [b"hello, world", b"\x89PNG\r\n\x1a\n" + bytes(60), b"PK\x03\x04" + bytes(90)]
)
def test_other_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "o.onnx"
    path.write_bytes(content)
    assert refused(path).code == "model.not_onnx"


@pytest.mark.parametrize("part", [0.02, 0.3, 0.9, 0.999])
def test_truncated_anywhere(tmp_path: Path, part: float) -> None:
    whole = light("squeezenet").read_bytes()
    path = tmp_path / "t.onnx"
    path.write_bytes(whole[: int(len(whole) * part)])
    assert refused(path).code == "model.truncated"


@settings(max_examples=tries(60))
@given(data=st.data())
def test_any_damage_is_a_model_error(tmp_path_factory: Any, data: st.DataObject) -> None:
    whole = bytearray(conv_net().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damage") / "d.onnx"
    path.write_bytes(whole)
    with contextlib.suppress(ModelError):
        load(path)


def _external(location: str, length: int | None = None) -> onnx.ModelProto:
    weight = TensorProto(
        name="kernel",
        data_type=TensorProto.FLOAT,
        dims=[5, 3, 1, 1],
        data_location=TensorProto.EXTERNAL,
    )
    weight.external_data.add(key="location", value=location)
    if length is not None:
        weight.external_data.add(key="length", value=str(length))
    proto = make([node("Conv", "x kernel", "y")], {"x": [1, 3, 4, 4]}, ["y"])
    proto.graph.initializer.append(weight)
    return proto


def test_external_data_missing(tmp_path: Path) -> None:
    error = refused(write(_external("weights.bin"), tmp_path))
    assert error.code == "model.external_missing"
    assert "kernel" in error.message
    assert "weights.bin" in error.message


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "", "sub/../../secret.bin"])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(60))
    assert refused(write(_external(location), folder)).code == "model.external_escape"


def test_external_data_through_a_link_outside(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(60))
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    assert refused(write(_external("w.bin"), folder)).code == "model.external_escape"


def test_external_data_too_short(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(40))
    assert refused(write(_external("w.bin", 60), tmp_path)).code == "model.external_truncated"
    assert refused(write(_external("w.bin", 40), tmp_path)).code == "model.tensor_size"


def test_operators_on_codes_name_node_and_domain(tmp_path: Path) -> None:
    nodes = [node("QLinearAdd", "x", "y", domain="com.microsoft", name="head")]
    error = refused(write(make(nodes, {"x": [2]}, ["y"], domains=["com.microsoft"]), tmp_path))
    assert (error.code, error.where) == ("model.domain", "head")
    assert "com.microsoft" in error.message
    assert "Q/DQ" in error.hint


@pytest.mark.parametrize(("op", "opset"), [("Reluu", 17), ("Gelu", 17)])
def test_unknown_operator(tmp_path: Path, op: str, opset: int) -> None:
    proto = make([node(op, "x", "y", name="act")], {"x": [2]}, ["y"], opset=opset)
    error = refused(write(proto, tmp_path))
    assert (error.code, error.where) == ("model.operator", "act")
    assert ("Relu" in error.hint) or ("later opset" in error.message)


def _duplicate(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].output[0] = "c"


def _undefined(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].input[0] = "d"


def _no_opset(proto: onnx.ModelProto) -> None:
    del proto.opset_import[:]


def _future(proto: onnx.ModelProto) -> None:
    proto.opset_import[0].version = 999


def _no_nodes(proto: onnx.ModelProto) -> None:
    del proto.graph.node[:]


def _twice_initialised(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(proto.graph.initializer[0])


def _short_tensor(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]


def _wrong_channels(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4


def _lost_output(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].name = "nowhere"


def _strings(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_duplicate, "model.duplicate_tensor"),
        (_undefined, "model.undefined_tensor"),
        (_no_opset, "model.opset_missing"),
        (_future, "model.opset"),
        (_no_nodes, "model.empty_graph"),
        (_twice_initialised, "model.duplicate_tensor"),
        (_short_tensor, "model.tensor_size"),
        (_wrong_channels, "model.shape_inference"),
        (_lost_output, "model.undefined_tensor"),
        (_strings, "model.type"),
    ],
)
def test_broken_graphs(
    tmp_path: Path, damage: Callable[[onnx.ModelProto], None], code: str
) -> None:
    proto = conv_net()
    damage(proto)
    assert refused(write(proto, tmp_path)).code == code


@pytest.mark.parametrize(
    ("last", "constants", "shape"),
    [
        (node("Pad", "c p", "y", name="last"), {"p": [0, 0, -9, 0, 0, 0, -9, 0]}, "-10, 8"),
        (node("MaxPool", "c", "y", kernel_shape=[11, 1], name="last"), {}, "-2, 8"),
    ],
)
def test_results_of_negative_size_name_their_node(
    tmp_path: Path, last: onnx.NodeProto, constants: dict[str, list[int]], shape: str
) -> None:
    """Before, they were planned as results of unknown size, and ONNX Runtime failed later."""
    path = write(
        make(
            [node("Conv", "x w", "c", pads=[1, 1, 1, 1], name="first"), last],
            {"x": [1, 3, 8, 8]},
            ["y"],
            {"w": values((4, 3, 3, 3))} | {n: np.array(v) for n, v in constants.items()},
        ),
        tmp_path,
    )
    error = refused(path)
    assert (error.code, error.where) == ("model.shape_inference", "last")
    assert f"outputs 'y' [1, 4, {shape}], with a negative size" in error.message
    with pytest.raises(ModelError, match="a negative size"):
        edgekit.plan(path, target="jetson-agx-orin-64gb")


def test_a_concat_may_read_a_part_without_elements(tmp_path: Path) -> None:
    """Exporters write torch.roll by 0 so, and it runs."""
    nodes = [
        node("Slice", "x s e", "none"),
        node("Concat", "x none", "j", axis=2),
        node("Relu", "j", "y"),
    ]
    ends = {"s": np.array([0, 0, 0]), "e": np.array([1, 3, 0])}
    load(write(make(nodes, {"x": [1, 3, 8, 8]}, ["y"], ends), tmp_path))


def test_dynamic_shapes_say_how_to_give_them(tmp_path: Path) -> None:
    proto = make([node("Relu", "image", "y")], {"image": ["batch", 3, "h", "w"]}, ["y"])
    error = refused(write(proto, tmp_path))
    assert error.code == "model.dynamic_shape"
    assert "'image' [batch, 3, h, w]" in error.message
    assert "model.shapes: {image: [1, 3, 224, 224]}" in error.hint
    assert "--shape image:1x3x224x224" in error.options


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (None, "model.dynamic_shape"),
        ([1, 4, 0, 2], "model.shape_value"),
        ([0, 4, 2, 2], "model.shape_value"),
    ],
)
def test_inputs_of_unknown_rank_or_without_elements(
    tmp_path: Path, shape: list[int] | None, code: str
) -> None:
    error = refused(write(make([node("Relu", "x", "y")], {"x": shape}, ["y"]), tmp_path))
    assert code == error.code
    assert error.where.endswith("x")


def test_a_negative_size_is_not_repeated_as_advice(tmp_path: Path) -> None:
    proto = make([node("Relu", "x", "y")], {"x": [1, -5, 4, 4]}, ["y"])
    error = refused(write(proto, tmp_path))
    assert error.code == "model.dynamic_shape"
    assert "--shape x:1x3x4x4" in error.options


@pytest.mark.parametrize(
    ("shapes", "code"),
    [
        ({"x": [1, 3, 8]}, "model.shape_rank"),
        ({"x": [1, 4, 8, 8]}, "model.shape_conflict"),
        ({"x": [1, 3, 0, 8]}, "model.shape_value"),
        ({"xx": [1, 3, 8, 8]}, "model.unknown_input"),
    ],
)
def test_wrong_given_shapes(tmp_path: Path, shapes: dict[str, list[int]], code: str) -> None:
    assert refused(write(conv_net(), tmp_path), shapes=shapes).code == code


def test_unknown_outputs_get_the_nearest_names(tmp_path: Path) -> None:
    error = refused(write(conv_net(), tmp_path), outputs=["flaten"])
    assert error.code == "model.unknown_output"
    assert "'flatten'" in error.hint


def test_data_dependent_shapes_name_the_first_tensor(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("NonZero", "a", "where", name="find"),
        node("Cast", "where", "y", to=1),
    ]
    model = load(write(make(nodes, {"x": [2, 2]}, ["y"]), tmp_path))
    (note,) = model.notes
    assert "--shape where:" in note
    assert model.graph.opaque == {"find": "shapes", "Cast_2": "shapes"}
    assert [node.op_type for node in load(tmp_path / "m.onnx", outputs=["a"]).proto.graph.node] == [
        "Relu"
    ]


def test_sequences_are_refused(tmp_path: Path) -> None:
    nodes = [
        node("SequenceConstruct", "x", "s", name="list"),
        node("SequenceAt", "s i", "y"),
    ]
    proto = make(nodes, {"x": [2]}, ["y"], {"i": np.array(0, np.int64)})
    assert refused(write(proto, tmp_path)).code == "model.type"


def test_nan_weights_are_allowed(tmp_path: Path) -> None:
    weight = values([5, 3, 1, 1])
    weight[0, 0] = np.nan
    proto = make([node("Conv", "x w", "y")], {"x": [1, 3, 4, 4]}, ["y"], {"w": weight})
    assert np.isnan(load(write(proto, tmp_path)).weights["w"]).any()


def test_sparse_initialisers_are_refused(tmp_path: Path) -> None:
    proto = conv_net()
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    data = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(data, indices, [4]))
    assert refused(write(proto, tmp_path)).code == "model.sparse"


def body(nodes: list[onnx.NodeProto], *outputs: str, **constants: Any) -> onnx.GraphProto:
    """A branch of an If."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    values = [onnx.numpy_helper.from_array(np.array(v), name) for name, v in constants.items()]
    return helper.make_graph(nodes, "body", [], ends, values)


def choice(condition: str, output: str, then: onnx.GraphProto, other: onnx.GraphProto) -> Any:
    return node("If", condition, output, name="if", then_branch=then, else_branch=other)


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("where", ["graph", "body", "constant", "computed"])
def test_an_if_in_an_if_whose_bodies_use_the_same_names(
    tmp_path: Path, outer: bool, inner: bool, where: str
) -> None:
    """A body may give a name of the graph around it another value."""
    first, known = [node("Relu", "x", "t", name="n")], {}
    if where == "body":
        known = {"c": inner}
    elif where == "constant":
        value = onnx.numpy_helper.from_array(np.array(inner))
        first.append(node("Constant", "", "c", name="n", value=value))
    elif where == "computed":
        first.append(node("Identity" if inner == outer else "Not", "o", "c", name="n"))
    nested = choice(
        "c",
        "y",
        body([node("Tanh", "t", "t", name="n"), node("Relu", "t", "y", name="n")], "y"),
        body([node("Sigmoid", "t", "y", name="n")], "y"),
    )
    taken = body([*first, nested], "y", **known)
    plain = body([node("Abs", "x", "y", name="n")], "y")
    then, other = (taken, plain) if outer else (plain, taken)
    net = make(
        [choice("o", "z", then, other), node("Neg", "z", "y", name="end")],
        {"x": [1, 4, 8, 8]},
        ["y"],
        {"o": np.array(outer), "c": np.array(inner)}
        if where == "graph"
        else {"o": np.array(outer)},
    )
    found = [one.op_type for one in load(write(net, tmp_path)).proto.graph.node]
    assert found == ["Relu", *(["Tanh", "Relu"] if inner else ["Sigmoid"]), "Neg"]


def test_external_data_of_a_body_lies_next_to_the_model(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    for location, code in (("data.bin", ""), ("../data.bin", "model.external_escape")):
        weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8])
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        held = node("Constant", "", "w", value=weight)
        for then in (
            body([node("Add", "x w", "a")], "a"),
            body([held, node("Add", "x w", "a")], "a"),
        ):
            if len(then.node) == 1:
                then.initializer.append(weight)
            net = make(
                [choice("c", "y", then, body([node("Relu", "x", "a")], "a"))],
                {"x": [1, 4, 8, 8]},
                ["y"],
                {"c": np.array(True)},
            )
            if code:
                assert refused(write(net, tmp_path)).code == code
            else:
                values_of = load(write(net, tmp_path)).weights.values()
                assert any(np.array_equal(one, np.arange(8)) for one in values_of)


def function(name: str, *calls: str, domain: str = "own") -> Any:
    names = ["a", *(f"t{i}" for i in range(1, len(calls))), "b"]
    nodes = [
        helper.make_node(op, [names[i]], [names[i + 1]], domain="" if op == "Relu" else domain)
        for i, op in enumerate(calls)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_function(domain, name, ["a"], ["b"], nodes, opsets)


@pytest.mark.parametrize(
    ("functions", "code"),
    [
        ([function("F", "F")], "model.functions"),
        ([function("F", "G"), function("G", "Relu", "F")], "model.functions"),
        ([function("F", "Relu"), function("F", "Relu")], "model.functions"),
        (
            [
                function("F", "F0"),
                function("F0", "Relu"),
                *(function(f"F{i}", f"F{i - 1}") for i in range(1, 400)),
                function("G", "F399"),
            ],
            "model.functions",
        ),
        (
            [
                function("F", "F398"),
                function("F0", "Relu"),
                *(function(f"F{i}", f"F{i - 1}") for i in range(1, 399)),
            ],
            "model.functions",
        ),
        # 2^40 nodes
        (
            [
                function("F", "F40"),
                function("F0", "Relu"),
                *(function(f"F{i}", f"F{i - 1}", f"F{i - 1}") for i in range(1, 41)),
            ],
            "model.too_large",
        ),
        ([function("F", "G", "G"), function("G", "Relu", "Relu")], ""),
    ],
    ids=["itself", "each other", "twice", "deep and unused", "deep", "bomb", "nested"],
)
def test_functions_of_functions(tmp_path: Path, functions: list[Any], code: str) -> None:
    net = make(
        [node("F", "x", "y", name="f", domain="own")], {"x": [1, 4, 8, 8]}, ["y"], domains=["own"]
    )
    net.functions.extend(functions)
    if code:
        assert refused(write(net, tmp_path)).code == code
    else:
        load(write(net, tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_scale_that_is_none(tmp_path: Path, value: float) -> None:
    scales = np.array([1, 1, value, 1], np.float32)
    net = make(
        [node("Resize", "x e s", "y", name="r")],
        {"x": [1, 4, 8, 8]},
        ["y"],
        {"s": scales, "e": np.zeros(0, np.float32)},
    )
    with pytest.raises(ModelError) as caught:
        edgekit.check(str(write(net, tmp_path)), target="jetson-agx-orin-64gb")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("missing", ["condition", "branch", "output"])
def test_an_if_that_lacks_a_part(tmp_path: Path, missing: str) -> None:
    branch = body([node("Relu", "x", "a")], "a")
    broken = choice("" if missing == "condition" else "c", "y", branch, branch)
    if missing == "branch":
        del broken.attribute[0]
    if missing == "output":
        broken.output.append("z")
    net = make([broken], {"x": [1, 4, 8, 8]}, ["y"], {"c": np.array(True)})
    with contextlib.suppress(ModelError):
        load(write(net, tmp_path))
