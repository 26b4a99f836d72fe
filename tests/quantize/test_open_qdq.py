"""Q/DQ nodes and FP16 types in a network with open axes: right at every size of the range."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from edgekit.network.loading.load import load
from edgekit.network.loading.open_axes import load_open
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.network.ranges import Range
from edgekit.network.writing import save
from edgekit.quantize.qdq.to_explicit import to_open_qdq
from tests.pipeline.nets import open_net

BEST = (1, 3, 64, 64)
PROFILES = [{"x": Range((1, 3, 16, 16), BEST, BEST)}]
SCALES = {"x": 4.5 / 127, "c1": 0.1, "r1": 0.1, "c2": 0.1, "r2": 0.1, "y": 0.1}


def typed(path: Path, scales: dict[str, float], **more) -> Model | None:
    network = layers(load(path, shapes={"x": BEST}))
    return to_open_qdq(load_open(path, PROFILES), network, scales, **more)


def answers(path: Path, *shape: int) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize(("scales", "most"), [(SCALES, 0.1), ({}, 0.01)], ids=["int8", "fp16"])
def test_every_size_of_the_range_is_near_fp32(tmp_path, scales, most):
    open_net(tmp_path / "open.onnx")
    made = typed(tmp_path / "open.onnx", scales)
    save(made, tmp_path / "typed.onnx")
    kinds = {node.op_type for node in made.proto.graph.node}
    added = {"QuantizeLinear", "DequantizeLinear"} if scales else {"Cast"}
    assert kinds == {"Conv", "Relu"} | added
    for sizes in ((16, 16), (24, 56), (64, 64)):
        found = answers(tmp_path / "typed.onnx", 1, 3, *sizes)
        expected = answers(tmp_path / "open.onnx", 1, 3, *sizes)
        assert found.shape == expected.shape
        assert 0 < np.abs(found - expected).max() < most * np.abs(expected).max()


def test_a_layer_kept_in_fp16_has_no_codes(tmp_path):
    open_net(tmp_path / "open.onnx")
    made = typed(tmp_path / "open.onnx", SCALES, fp16_layers={"conv3"})
    node = next(one for one in made.proto.graph.node if one.name == "conv3")
    assert all(name.endswith("_fp16") for name in node.input)


def test_a_file_below_opset_13_has_no_typed_form(tmp_path):
    open_net(tmp_path / "open.onnx")
    proto = onnx.load(tmp_path / "open.onnx")
    proto.opset_import[0].version = 12
    onnx.save(proto, tmp_path / "open.onnx")
    assert typed(tmp_path / "open.onnx", SCALES) is None


def test_a_tensor_that_only_a_body_reads_keeps_its_name(tmp_path):
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["c"], [f"{kind}_y"], f"{kind}_inner")],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}_y", 1, None)],
        )
        for kind in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("ReduceSum", ["x"], ["sum"], "sum", keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"], "greater"),
        helper.make_node(
            "If", ["positive"], ["y"], "if", then_branch=branches[0], else_branch=branches[1]
        ),
    ]
    weight = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "branch",
        [helper.make_tensor_value_info("x", 1, [1, 3, "height", "width"])],
        [helper.make_tensor_value_info("y", 1, [1, 4, "height", "width"])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.float32(0), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "branch.onnx")
    save(typed(tmp_path / "branch.onnx", {}), tmp_path / "typed.onnx")
    found = answers(tmp_path / "typed.onnx", 1, 3, 24, 56)
    expected = answers(tmp_path / "branch.onnx", 1, 3, 24, 56)
    np.testing.assert_allclose(found, expected, atol=0.02)
