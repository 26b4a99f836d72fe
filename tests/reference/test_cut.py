"""Cutting: FP32 changes nothing, every border is right, equal segments share an engine."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgekit.errors import BuildError, DataError, ModelError
from edgekit.network.loading.load import canonical
from edgekit.network.model import Layer, Model, Network
from edgekit.network.protos import reads
from edgekit.network.session import session
from edgekit.placement.segments import cut_segments
from edgekit.reference.accuracy import accuracy
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference, full_engine
from edgekit.reference.run import Runner, run
from tests.flow_networks import flow_names, flow_network
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of


def residual(seed: int = 0) -> Model:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    weights = {
        "w1": normal(8, 3, 3, 3),
        "b1": normal(8),
        "w2": normal(8, 8, 3, 3),
        "w3": normal(8, 10),
        "b3": normal(10),
        "gain": normal(8) ** 2 + 1,
        "shift": normal(8),
        "mean": normal(8),
        "var": normal(8) ** 2 + 0.5,
    }
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c2 gain shift mean var", "bn"),
        node("Add", "bn r1", "sum"),
        node("Relu", "sum", "r2"),
        node("MaxPool", "r2", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "pool", "mean_pool"),
        node("Flatten", "mean_pool", "flat"),
        node("Gemm", "flat w3 b3", "y"),
    ]
    return model_of(nodes, weights, {"x": [1, 3, 12, 12]}, ["y"])


MODEL = residual()
NETWORK = network_of(MODEL)


def image(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(100 + seed)
    return {"x": rng.standard_normal((1, 3, 12, 12)).astype(np.float32)}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_fp32_cut_is_bit_equal_without_optimisations(size: int) -> None:
    plan = plan_of(place_all(NETWORK, "fp32", lambda i: i // size))
    artefacts = build_reference(cut_segments(MODEL, NETWORK, plan), None)
    assert len(artefacts.lanes[0][1]) == -(-10 // size)
    expected = session(MODEL, optimise=False).run(None, image())[0]
    found = Runner(artefacts, optimise=False).run(image())["y"]
    assert np.array_equal(found, expected)
    optimised = Runner(artefacts).run(image())["y"]
    assert np.abs(optimised - expected).max() / np.abs(expected).max() <= 1e-5


def with_shuffle(before: str, segment_of_shuffle: int) -> tuple[Network, list[int]]:
    """Adds an inserted layer (no nodes) before a layer, alone in its segment."""
    layers: list[Layer] = []
    segments = []
    for number, layer in enumerate(NETWORK.layers):
        if layer.name == before:
            inserted = Layer("shuffle", "SHUFFLE", layer.op, (), layer.nodes, (), ())
            layers.append(inserted)
            segments.append(segment_of_shuffle)
        layers.append(layer)
        segments.append(0 if number < 9 else 2)
    return replace(NETWORK, layers=tuple(layers)), segments


def test_segment_of_inserted_layers_disappears() -> None:
    network, segments = with_shuffle("y", 1)
    plan = plan_of(place_all(network, "fp32", segments.__getitem__))
    cuts = build_reference(cut_segments(MODEL, network, plan), None).lanes[0][1]
    assert [s.layers[-2:] for s in cuts] == [("mean_pool", "flat"), ("shuffle", "y")]
    assert [s.index for s in cuts] == [0, 1]


def test_nodes_of_no_layer_stay_with_what_they_read() -> None:
    layers = tuple(layer for layer in NETWORK.layers if layer.name not in ("flat", "c1"))
    network = replace(NETWORK, layers=layers)
    plan = plan_of(place_all(network, "fp32", lambda i: 0 if i < 7 else 1))
    artefacts = build_reference(cut_segments(MODEL, network, plan), None)
    assert [s.outputs for s in artefacts.lanes[0][1]] == [("flat",), ("y",)]
    expected = session(MODEL, optimise=False).run(None, image())[0]
    assert np.array_equal(Runner(artefacts, optimise=False).run(image())["y"], expected)


def test_a_plan_out_of_order_is_refused() -> None:
    plan = plan_of(place_all(NETWORK, "fp32", lambda i: 0 if i == 5 else 1))
    with pytest.raises(BuildError, match="before it is written") as caught:
        build_reference(cut_segments(MODEL, NETWORK, plan), None)
    assert caught.value.code == "build.order"
    assert caught.value.where == "sum"


def test_a_plan_of_another_model_is_refused() -> None:
    plan = plan_of(place_all(NETWORK, "fp32")[:-1])
    with pytest.raises(BuildError, match="does not place 1 layer, such") as caught:
        build_reference(cut_segments(MODEL, NETWORK, plan), None)
    assert caught.value.where == "y"


def test_two_lanes_share_engines_and_weights() -> None:
    lane0 = place_all(NETWORK, "fp16", lambda i: i // 5, ("GPU", "DLA0").__getitem__)
    lane1 = place_all(NETWORK, "fp16", lambda i: i // 5, ("GPU", "DLA1").__getitem__)
    lane2 = place_all(NETWORK, "fp16", device=lambda _: "GPU")
    artefacts = build_reference(cut_segments(MODEL, NETWORK, plan_of(lane0, lane1, lane2)), None)
    first, second, third = (segments for _, segments in artefacts.lanes)
    assert [s.engine for s in first] == [s.engine for s in second]
    assert [s.device for s in second] == ["GPU", "DLA1"]
    assert len(artefacts.engines) == 3
    assert third[0].engine not in {s.engine for s in first}
    assert [share for share, _ in artefacts.lanes] == pytest.approx([1 / 3] * 3)
    outputs = [run(artefacts, image(), lane=lane)["y"] for lane in range(3)]
    assert np.array_equal(outputs[0], outputs[1])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_engines_hold_no_weight_and_full_engines_equal_refitted_ones(precision: str) -> None:
    plan = plan_of(place_all(NETWORK, precision, lambda i: i // 4))
    artefacts = build_reference(cut_segments(MODEL, NETWORK, plan), None)
    for data in artefacts.engines.values():
        proto = onnx.ModelProto.FromString(data)
        for tensor in proto.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                assert tensor.name in artefacts.weights
                assert tensor.external_data[0].value == "stripped"
            else:
                assert len(tensor.raw_data) < 64
    stripped = run(artefacts, image())["y"]
    assert np.array_equal(stripped, run(artefacts, image(), stripped=False)["y"])
    digest = artefacts.lanes[0][1][0].engine
    onnx.checker.check_model(full_engine(artefacts, digest))


def test_subgraphs_keep_what_they_capture() -> None:
    then = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["c", "w2"], ["t"])],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("t", 1, [1, 4])],
    )
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["c", "w2"], ["e"])],
        "else",
        [],
        [onnx.helper.make_tensor_value_info("e", 1, [1, 4])],
    )
    nodes = [
        node("Mul", "x w1", "c"),
        node("ReduceSum", "c", "total", keepdims=0),
        node("Cast", "total", "flag", to=9),
        node("If", "flag", "y", then_branch=then, else_branch=other),
    ]
    assert reads(nodes[3]) == ["flag", "c", "w2"]
    weights = {"w1": np.full((1, 4), 1 / 3, np.float32), "w2": np.full((1, 4), 1 / 7, np.float32)}
    model = model_of(nodes, weights, {"x": [1, 4]}, ["y"])
    network = network_of(model)
    plan = plan_of(place_all(network, "fp16", lambda i: i))
    artefacts = build_reference(cut_segments(model, network, plan), None)
    x = {"x": np.ones((1, 4), np.float32)}
    c = np.float16(np.float32(1) * np.float32(np.float16(1 / 3))).astype(np.float32)
    expected = (c + np.float32(1 / 7)).astype(np.float16).astype(np.float32)
    assert np.array_equal(run(artefacts, x)["y"], np.full((1, 4), expected))


@pytest.mark.parametrize("name", flow_names())
def test_fp32_cut_around_a_loop_or_conditional_is_exact(name: str) -> None:
    """What a body captures crosses the border as what the node reads does."""
    model = canonical(flow_network(name), None)
    network = network_of(model)
    x = {"x": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)}
    plan = plan_of(place_all(network, "fp32", lambda i: i))
    artefacts = build_reference(cut_segments(model, network, plan), None)
    expected = session(model, optimise=False).run(["y"], x)[0]
    assert np.allclose(run(artefacts, x)["y"], expected, atol=1e-5)


def test_a_given_shape_that_does_not_hold_is_named() -> None:
    """How many values there are the data decide."""
    nodes = [
        node("Relu", "x", "r"),
        node("NonZero", "r", "n"),
        node("Cast", "n", "y", to=onnx.TensorProto.FLOAT),
    ]
    proto = model_of(nodes, {}, {"x": [1, 4]}, ["y"]).proto
    model = canonical(proto, None, shapes={"n": [2, 3]})
    network = network_of(model)
    plan = plan_of(place_all(network, "fp32", lambda i: 0))
    runner = Runner(build_reference(cut_segments(model, network, plan), None))
    assert runner.run({"x": np.float32([[1, 2, 3, -1]])})["y"].shape == (2, 3)
    with pytest.raises(ModelError, match=r"'y' is \[2, 4\] on these inputs") as raised:
        runner.run({"x": np.ones((1, 4), np.float32)})
    assert raised.value.code == "model.shape_conflict"


def build(precision: str = "fp32") -> Artefacts:
    return build_reference(
        cut_segments(MODEL, NETWORK, plan_of(place_all(NETWORK, precision, lambda i: i // 4))), None
    )


def test_wrong_inputs_are_named() -> None:
    runner = Runner(build())
    with pytest.raises(DataError, match="'z'"):
        runner.run({"z": image()["x"]})
    with pytest.raises(DataError, match=r"float32 \[1, 3, 12, 11\]"):
        runner.run({"x": image()["x"][..., :11]})
    with pytest.raises(DataError, match="float64"):
        runner.run({"x": image()["x"].astype(np.float64)})


def test_an_engine_that_onnx_runtime_refuses_names_segment_and_node() -> None:
    artefacts = build()
    digest = artefacts.lanes[0][1][1].engine
    proto = onnx.ModelProto.FromString(artefacts.engines[digest])
    proto.graph.node[0].op_type = "NoSuchOperator"
    broken = replace(artefacts, engines={**artefacts.engines, digest: proto.SerializeToString()})
    with pytest.raises(BuildError, match=r"segment 1 \(DLA0\).*NoSuchOperator") as caught:
        Runner(broken)
    assert caught.value.code == "build.runtime"
    assert caught.value.where == proto.graph.node[0].name


def test_a_large_unstripped_engine_reads_its_weights_in_place() -> None:
    columns = 20_000_000
    weight = np.zeros((4, columns), np.float32)
    weight[3, -1] = 2
    model = model_of([node("MatMul", "x W", "y")], {"W": weight}, {"x": (1, 4)}, ["y"])
    built = build_reference(
        cut_segments(model, network := network_of(model), plan_of(place_all(network, "fp32"))), None
    )
    tracemalloc.start()
    runner = Runner(built, stripped=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < weight.nbytes
    assert runner.run({"x": np.ones((1, 4), np.float32)})["y"][0, -1] == 2


def test_accuracy_of_an_exact_build_is_json_safe() -> None:
    plan = plan_of(place_all(NETWORK, "fp32"))
    result = accuracy(
        MODEL, build_reference(cut_segments(MODEL, NETWORK, plan), None), [image(0), image(1)]
    )
    assert result.exact is True
    assert result.snr_db is None
    assert result.cosine == 1.0
    assert (result.max_abs, result.top1_agreement, result.count) == (0.0, 1.0, 2)


def test_accuracy_measures_what_numpy_measures() -> None:
    artefacts = build("fp16")
    images = [image(seed) for seed in range(3)]
    result = accuracy(MODEL, artefacts, images)
    reference = session(MODEL)
    runner = Runner(artefacts)
    a = np.stack([reference.run(None, feed)[0] for feed in images]).astype(np.float64)
    b = np.stack([runner.run(feed)["y"] for feed in images]).astype(np.float64)
    assert result.snr_db == pytest.approx(10 * np.log10(a.var() / ((a - b) ** 2).mean()), abs=0.01)
    assert result.max_abs == pytest.approx(np.abs(a - b).max(), rel=1e-3)
    cosines = [
        float((p * q).sum() / np.sqrt((p * p).sum() * (q * q).sum()))
        for p, q in zip(a, b, strict=True)
    ]
    assert result.cosine == pytest.approx(np.mean(cosines), abs=1e-9)
    assert result.cosine_min == pytest.approx(np.min(cosines), abs=1e-9)
    assert [s.segment for s in result.per_segment] == [0, 1, 2]
    assert result.per_segment[0].device == "GPU"
    with pytest.raises(DataError, match="no data"):
        accuracy(MODEL, artefacts, [])


def test_accuracy_counts_top1_disagreement() -> None:
    artefacts = build()
    name = next(w for w in artefacts.weights if w == "b3")
    weight = artefacts.weights[name]
    values = dict(artefacts.values)
    values[weight.digest] = np.eye(10, dtype=np.float32)[0] * 1000
    result = accuracy(MODEL, replace(artefacts, values=values), [image(0)])
    expected = session(MODEL).run(None, image(0))[0].argmax()
    assert result.top1_agreement == float(expected == 0)
    assert result.per_segment[0].exact is True
    assert result.per_segment[-1].max_abs > 900


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_weights_with_the_same_bytes_may_have_other_shapes(precision: str) -> None:
    """Their value is kept once; light models, whose weights are constants, have many of them."""
    weights = {"w1": np.full((6, 3, 1, 1), 0.5, "f4"), "w2": np.full((3, 6, 1, 1), 0.5, "f4")}
    nodes = [node("Conv", "x w1", "c1"), node("Conv", "c1 w2", "y")]
    model = model_of(nodes, weights, {"x": [1, 3, 4, 4]}, ["y"])
    network = network_of(model)
    plan = plan_of(place_all(network, precision, lambda i: i))
    artefacts = build_reference(cut_segments(model, network, plan), None)
    feed = {"x": np.ones((1, 3, 4, 4), "f4")}
    assert len(artefacts.values) == 1
    assert np.array_equal(Runner(artefacts).run(feed)["y"], np.full((1, 3, 4, 4), 4.5, "f4"))
