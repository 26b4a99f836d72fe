"""Operators of real networks that a DLA lacks: what ``check`` says, and what ``rewrite`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.placement.check_document import CheckedLayer

ORIN = "jetson-agx-orin-64gb"
INTEGERS = TensorProto.INT64


def between(
    path: Path,
    nodes: list[onnx.NodeProto],
    outputs: dict[str, int],
    constants: dict[str, np.ndarray] | None = None,
) -> Path:
    """Writes a network whose first node, a convolution, gives "c" [1, 32, 32, 32]."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((32, 16, 3, 3)).astype(np.float32),
        "last": random.standard_normal((16, 32, 1, 1)).astype(np.float32),
        **(constants or {}),
    }
    first = helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1])
    graph = helper.make_graph(
        [first, *nodes],
        "between",
        [helper.make_tensor_value_info("x", 1, [1, 16, 32, 32])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def last(tensor: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [tensor, "last"], ["y"], name="last")


def normalization(path: Path) -> Path:
    norm = helper.make_node("LpNormalization", ["c"], ["n"], name="norm", axis=1)
    return between(path, [norm, last("n")], {"y": 1})


def normalize(path: Path) -> Path:
    """PyTorch's F.normalize, as both exporters write it."""
    nodes = [
        helper.make_node("ReduceL2", ["c"], ["l"], name="norm", axes=[1], keepdims=1),
        helper.make_node("Clip", ["l", "low"], ["above"], name="clip"),
        helper.make_node("Expand", ["above", "size"], ["norms"], name="expand"),
        helper.make_node("Div", ["c", "norms"], ["n"], name="divide"),
    ]
    given = {"low": np.float32(1e-12), "size": np.array([1, 32, 32, 32])}
    return between(path, [*nodes, last("n")], {"y": 1}, given)


def reasons(layer: CheckedLayer) -> dict[str, str]:
    assert not layer.dla.ok
    return {one.rule: one.fix for one in layer.dla.reasons if not one.mends}


@pytest.mark.parametrize(
    ("operator", "outputs", "words"),
    [
        ("TopK", {"y": 1, "i": INTEGERS}, "no DLA layer sorts"),
        ("ArgMax", {"y": INTEGERS}, "no DLA tensor holds indices"),
        ("ArgMin", {"y": INTEGERS}, "no DLA tensor holds indices"),
    ],
)
def test_indices_stay_on_the_gpu(
    operator: str, outputs: dict[str, int], words: str, tmp_path: Path
) -> None:
    inputs = ["c", "k"] if operator == "TopK" else ["c"]
    node = helper.make_node(operator, inputs, list(outputs), name="chosen", axis=1)
    path = between(tmp_path / "net.onnx", [node], outputs, {"k": np.array([3])})
    found = edgekit.check(path, target=ORIN)
    (layer,) = [one for one in found.layers if one.name == "chosen"]
    fix = reasons(layer)["general.kind"]
    assert fix.startswith("keep it on the GPU, or cut the network before it (--outputs)")
    assert words in fix
    # nothing is promised that would bring it to the DLA
    assert not [one for one in found.fixes if "chosen" in one.layers]
    # the cut that the hint names leaves nothing on the GPU
    cut = edgekit.check(path, target=ORIN, model={"outputs": ["c"]})
    assert cut.summary.dla_layers == cut.summary.layers == 1


def test_grouped_query_attention_stays_on_the_gpu(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes = {"wq": (64, 64), "wk": (64, 32), "wv": (64, 32), "wo": (64, 64)}
    weights = {name: random.standard_normal(size) for name, size in sizes.items()}
    attention = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "pk", "pv", "lengths", "total"],
        ["a", "keys", "values"],
        name="attention",
        domain="com.microsoft",
        num_heads=4,
        kv_num_heads=2,
        scale=0.25,
    )
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], name="query"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], name="key"),
        helper.make_node("MatMul", ["x", "wv"], ["v"], name="value"),
        attention,
        helper.make_node("MatMul", ["a", "wo"], ["y"], name="out"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            info("x", 1, [1, 8, 64]),
            *(info(name, 1, [1, 2, 16, 16]) for name in ("pk", "pv")),
            *(info(name, TensorProto.INT32, [1]) for name in ("lengths", "total")),
        ],
        [info("y", 1, [1, 8, 64]), *(info(name, 1, [1, 2, 24, 16]) for name in ("keys", "values"))],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
        value_info=[info("a", 1, [1, 8, 64])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    found = edgekit.check(path, target=ORIN, tensorrt="11.4.1")
    layers = {layer.name: layer for layer in found.layers}
    fix = reasons(layers["attention"])["general.kind"]
    assert fix.startswith("keep it on the GPU: it multiplies computed matrices")
    # the linear layers around it run there, as the hint says
    for name in ("query", "key", "value", "out"):
        assert layers[name].dla.ok


@pytest.mark.parametrize("write", [normalization, normalize])
def test_of_a_norm_only_the_root_stays_on_the_gpu(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write(tmp_path / "net.onnx")
    before = edgekit.check(path, target=ORIN)
    roots = [one for one in before.layers if one.kind == "UNARY"]
    (fix,) = [reasons(one)["unary.function"] for one in roots]
    assert "no finite composition of the DLA's functions equals a square root" in fix
    saved = tmp_path / "rewritten.onnx"
    done = edgekit.rewrite(path, save=saved, target=ORIN)
    assert "l2-norm" in {one.rewrite for one in done.rewrites}
    after = edgekit.check(saved, target=ORIN)
    assert [one.kind for one in after.layers if one.placed == "GPU"] == ["UNARY"]
    assert after.predicted is not None
    assert before.predicted is not None
    assert after.predicted.auto_us < before.predicted.auto_us
    values = {"x": np.random.default_rng(1).standard_normal((1, 16, 32, 32)).astype(np.float32)}
    old, new = (
        onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, values)[0]
        for one in (path, saved)
    )
    np.testing.assert_allclose(new, old, atol=1e-4)
