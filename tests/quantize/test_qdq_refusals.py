"""What implicit INT8 cannot say is refused, with the names of all nodes that say it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from edgekit.errors import ModelError
from edgekit.quantize.qdq.to_implicit import from_qdq
from tests.quantize.qdq_nets import Sheet, normal

TYPES = onnx.TensorProto


def refused(sheet: Sheet, *outputs: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        from_qdq(sheet.model(*outputs))
    assert caught.value.where
    assert caught.value.hint
    return caught.value


def one(**more: object) -> Sheet:
    """A pair on the input, and a ReLU ``y``."""
    sheet = Sheet()
    sheet.node("Relu", sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.1, **more), "y")  # type: ignore[arg-type]
    return sheet


@pytest.mark.parametrize(
    ("zero", "message"),
    [
        (np.int8(3), "int8, zero point 3"),
        (np.uint8(0), "uint8, zero point 0"),
        (np.uint8(127), "uint8, zero point 127"),
    ],
)
def test_asymmetric_activations(zero: np.generic, message: str) -> None:
    error = refused(one(zero=zero), "y")
    assert error.code == "qdq.zero_point"
    assert "x_q" in error.message
    assert message in error.message
    assert "ActivationSymmetric" in error.hint


def test_every_asymmetric_node_is_named() -> None:
    sheet = Sheet()
    for number in range(7):
        x = sheet.input(f"x{number}", 1, 4)
        sheet.node("Relu", sheet.qdq(x, 0.1, zero=np.int8(number + 1)), f"y{number}")
    error = refused(sheet, *(f"y{number}" for number in range(7)))
    assert error.where == "x0_q"
    assert "and 9 more" in error.message


def test_asymmetric_weights() -> None:
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.1)
    codes = sheet.constant("w", np.ones((2, 4, 1, 1), np.int8))
    w = sheet.dq(codes, np.float32([0.1, 0.2]), zero=np.int8([0, 5]), axis=0)
    sheet.node("Conv", f"{x} {w}", "y")
    error = refused(sheet, "y")
    assert (error.code, error.where) == ("qdq.zero_point", "w_dq")


@pytest.mark.parametrize(
    ("elem", "opset"),
    [
        (TYPES.INT16, 21),
        (TYPES.UINT16, 21),
        (TYPES.FLOAT8E4M3FN, 19),
        (TYPES.INT4, 21),
        (TYPES.UINT4, 21),
    ],
)
def test_other_types(elem: int, opset: int) -> None:
    sheet = Sheet(opset)
    sheet.input("x", 1, 4, 4, 4)
    sheet.constant("s", np.float32(0.1))
    sheet.constant("z", 0, elem)
    sheet.node("QuantizeLinear", "x s z", "q")
    sheet.node("Relu", sheet.node("DequantizeLinear", "q s z", "d"), "y")
    error = refused(sheet, "y")
    assert error.code == "qdq.type"
    assert onnx.TensorProto.DataType.Name(elem).lower() in error.message


def test_blocks() -> None:
    sheet = Sheet(21)
    x = sheet.qdq(sheet.input("x", 1, 8), 0.1)
    codes = sheet.constant("w", np.ones((8, 4), np.int8))
    w = sheet.dq(codes, np.full((2, 4), 0.1, np.float32), axis=0, block_size=4)
    sheet.node("MatMul", f"{x} {w}", "y")
    assert refused(sheet, "y").code == "qdq.blocked"


def test_an_activation_with_a_scale_for_each_channel() -> None:
    error = refused(_per_channel(), "y")
    assert error.code == "qdq.axis"
    assert "'x'" in error.message


def _per_channel() -> Sheet:
    sheet = Sheet()
    x = sheet.input("x", 1, 4, 4, 4)
    sheet.node("Relu", sheet.qdq(x, np.full(4, 0.1, np.float32), axis=1), "y")
    return sheet


def _computed() -> Sheet:
    sheet = Sheet()
    sheet.input("x", 1, 4)
    sheet.input("s", elem=1)
    sheet.constant("z", np.int8(0))
    sheet.node("QuantizeLinear", "x s z", "q")
    sheet.node("Relu", sheet.node("DequantizeLinear", "q s z", "d"), "y")
    return sheet


def _dynamic() -> Sheet:
    sheet = Sheet()
    sheet.input("x", 1, 4)
    made = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dynamic")
    sheet.nodes.append(made)
    sheet.node("Relu", sheet.node("DequantizeLinear", "q s z", "d"), "y")
    return sheet


def _qoperator() -> Sheet:
    sheet = Sheet()
    q = sheet.q(sheet.input("x", 1, 4, 4, 4), 0.1)
    sheet.constant("w", np.ones((2, 4, 1, 1), np.int8))
    for name in ("xs", "ws", "ys"):
        sheet.constant(name, np.float32(0.1))
    for name in ("xz", "wz", "yz"):
        sheet.constant(name, np.int8(0))
    sheet.node("QLinearConv", f"{q} xs xz w ws wz ys yz", "conv")
    sheet.node("Relu", sheet.dq("conv", 0.1), "y")
    return sheet


def _other_scale() -> Sheet:
    sheet = Sheet()
    q = sheet.q(sheet.input("x", 1, 4), 0.1)
    sheet.node("Relu", sheet.dq(q, 0.2), "y")
    return sheet


def _nothing_positive() -> Sheet:
    sheet = Sheet()
    sheet.node("Relu", sheet.qdq(sheet.input("x", 1, 4), float("inf")), "y")
    return sheet


def _open_input() -> Sheet:
    sheet = Sheet()
    sheet.node("Relu", sheet.dq(sheet.input("x", 1, 4, elem=TYPES.INT8), 0.1), "y")
    return sheet


def _clipped_codes() -> Sheet:
    sheet = Sheet()
    q = sheet.q(sheet.input("x", 1, 4), 0.1)
    sheet.constant("low", np.int8(0))
    sheet.node("Relu", sheet.dq(sheet.node("Max", f"{q} low", "clipped"), 0.1), "y")
    return sheet


def _no_step() -> Sheet:
    sheet = Sheet()
    sheet.node("Relu", sheet.qdq(sheet.input("x", 1, 4), 0.0), "y")
    return sheet


def _joined_codes() -> Sheet:
    sheet = Sheet()
    a, b = (sheet.q(sheet.input(name, 1, 4), step) for name, step in (("a", 0.1), ("b", 0.2)))
    joined = sheet.node("Concat", f"{a} {b}", "joined", axis=1)
    sheet.node("Relu", sheet.dq(joined, 0.1), "y")
    return sheet


@pytest.mark.parametrize(
    ("make", "code", "names"),
    [
        (_computed, "qdq.scale_computed", ["'q'", "s"]),
        (_dynamic, "qdq.integer", ["dynamic", "DynamicQuantizeLinear"]),
        (_qoperator, "qdq.integer", ["conv", "QLinearConv"]),
        (_other_scale, "qdq.pair", ["x_q", "0.1", "0.2"]),
        (_nothing_positive, "qdq.scale_value", ["x_q"]),
        (_no_step, "qdq.scale_value", ["x_q"]),
        (_joined_codes, "qdq.integer", ["joined", "Concat"]),
        (_open_input, "qdq.open", ["'x'"]),
        (_clipped_codes, "qdq.integer", ["clipped", "Max"]),
    ],
)
def test_refusals(make: Callable[[], Sheet], code: str, names: list[str]) -> None:
    error = refused(make(), "y")
    assert error.code == code
    assert all(name in error.message for name in names)


def test_an_output_of_codes() -> None:
    sheet = Sheet()
    sheet.q(sheet.input("x", 1, 4), 0.1)
    proto = sheet.proto("x_q")
    proto.graph.output[0].type.tensor_type.elem_type = TYPES.INT8
    from edgekit.network.loading.load import canonical

    with pytest.raises(ModelError) as caught:
        from_qdq(canonical(proto, None))
    assert (caught.value.code, caught.value.where) == ("qdq.open", "x_q")


def test_quantised_inside_a_body() -> None:
    sheet = Sheet()
    sheet.input("x", 1, 4)
    sheet.input("go", elem=TYPES.BOOL)
    branches = []
    for side in ("then", "else"):
        inner = Sheet()
        inner.node("Relu", inner.qdq("x", 0.1, name=side), f"{side}_y")
        branches.append(inner.proto(f"{side}_y").graph)
    made = onnx.helper.make_node(
        "If", ["go"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1]
    )
    sheet.nodes.append(made)
    error = refused(sheet, "y")
    assert (error.code, error.where) == ("qdq.subgraph", "choice")


def test_pairs_of_onnx_runtimes_own_domain_are_read() -> None:
    sheet = Sheet()
    weight = normal(0, 4, 4, 1, 1)
    x = sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.1, domain="com.microsoft")
    w = sheet.qdq(sheet.constant("w", weight), np.float32(np.abs(weight).max() / 127))
    sheet.node("Conv", f"{x} {w}", "y")
    assert from_qdq(sheet.model("y")).scales["x"] == float(np.float32(0.1))
