"""Loops and conditionals: whole on the GPU, with what is around them placed, and their costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.cli.main import main
from edgekit.errors import ModelError
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Layer
from edgekit.network.session import session
from tests.flow_networks import flow_names, flow_network
from tests.network.onnx_making import make, node, write

ORIN = "jetson-orin-nx-16gb"
SHAPE = [1, 8, 16, 16]


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def flow(name: str, folder: Path) -> Path:
    return write(flow_network(name), folder, f"{name}.onnx")


def controlled(name: str, folder: Path) -> Layer:
    network = layers(load(flow(name, folder)))
    return next(layer for layer in network.layers if layer.kind in {"LOOP", "CONDITION"})


def value(name: str, shape: list[int] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def loop_of(
    nodes: list[onnx.NodeProto],
    inputs: str = "n t x",
    outputs: str = "y",
    results: tuple[str, ...] = ("on", "b"),
    shape: list[int] | None = SHAPE,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """A network of one Loop, whose body carries ``a`` along as ``b``."""
    body = helper.make_graph(
        nodes,
        "body",
        [
            value("step", [], TensorProto.INT64),
            value("go", [], TensorProto.BOOL),
            value("a", shape),
        ],
        [value(results[0], [], TensorProto.BOOL), *(value(name, None) for name in results[1:])],
    )
    one = helper.make_node(
        "Loop",
        [name.strip("-") for name in inputs.split()],
        outputs.split(),
        name="loop",
        body=body,
    )
    values = {"n": np.array(3), "t": np.array(True), **constants}
    read = {*one.input, *(name for part in nodes for name in part.input)}
    used = {name: array for name, array in values.items() if name in read}
    return make([one], {"x": SHAPE}, outputs.split(), used)


@pytest.mark.parametrize(
    ("name", "read", "params", "inside"),
    [
        ("counted", ("stem",), {"trip_count": 3, "trip_limit": 3}, 3 * 16 * 16 * 8 * 8 * 9),
        ("until", ("begins", "stem"), {"trip_count": None, "trip_limit": None}, 0),
        ("recurrent", ("steps",), {"trip_count": 16, "trip_limit": 16}, 16 * 8 * 8),
        ("conditional", ("high", "stem"), {}, 16 * 16 * 8 * 8 * 9),
        ("nested", ("stem",), {"trip_count": 3, "trip_limit": 3}, 0),
    ],
)
def test_the_layer_reads_captures_and_counts_iterations(
    name: str, read: tuple[str, ...], params: dict[str, int], inside: int, tmp_path: Path
) -> None:
    layer = controlled(name, tmp_path)

    assert set(layer.inputs) == set(read)
    assert layer.params == params
    assert layer.macs == inside
    assert layer.formula == (name != "until")


def test_captured_weights_are_the_layers_own(tmp_path: Path) -> None:
    assert "inner.weight" in controlled("conditional", tmp_path).weights


@pytest.mark.parametrize("name", flow_names())
def test_what_is_around_is_placed_and_the_rest_is_on_the_gpu(name: str, tmp_path: Path) -> None:
    pins = [{"layers": "stem.conv", "device": "DLA"}, {"layers": "head.conv", "device": "DLA"}]
    path = flow(name, tmp_path)
    plan = edgekit.plan(path, target=ORIN, precision="fp16", placement={"pin": pins})
    device = {layer.name: layer.device for layer in plan.layers}

    assert device["stem.conv"] == device["head.conv"] == "DLA0"
    whole = {"conditional": "if", "recurrent": "scan"}.get(name, "loop")
    assert device[whole] == "GPU"


def test_iterations_cost_as_many_times(tmp_path: Path) -> None:
    def us(trips: int) -> float:
        body = [node("Tanh", "a", "b", name="tanh"), node("Identity", "go", "on")]
        path = write(loop_of(body, n=np.array(trips)), tmp_path)
        predicted = edgekit.check(path, target=ORIN).predicted
        return 0.0 if predicted is None else predicted.layer_us["loop"] or 0.0

    assert us(3) == pytest.approx(3 * us(1), rel=1e-3)
    assert us(0) == 0


def test_a_condition_that_needs_no_data_is_counted(tmp_path: Path) -> None:
    """As ``torch.while_loop`` exports a counter: no trip count, and a carried number."""
    body = helper.make_graph(
        [
            node("Add", "i one", "j"),
            node("Less", "j five", "on"),
            node("Add", "a a", "b"),
        ],
        "body",
        [
            value("step", [], TensorProto.INT64),
            value("go", [], TensorProto.BOOL),
            value("i", [], TensorProto.INT64),
            value("a", SHAPE),
        ],
        [value("on", [], TensorProto.BOOL), value("j", [], TensorProto.INT64), value("b", SHAPE)],
    )
    one = helper.make_node("Loop", ["", "t", "zero", "x"], ["k", "y"], name="loop", body=body)
    numbers = {"t": np.array(True), "zero": np.array(0), "one": np.array(1), "five": np.array(5)}
    model = load(write(make([one], {"x": SHAPE}, ["y"], numbers), tmp_path))

    (layer,) = layers(model).layers
    assert layer.params["trip_count"] == 5
    x = np.ones(SHAPE, np.float32)
    assert np.array_equal(session(model).run(["y"], {"x": x})[0], x * 2**5)


def test_check_and_plan_say_how_they_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, words in {
        "counted": "loop (Loop): the body runs 3 times, and all of them count",
        "recurrent": "scan (Scan): the body runs 16 times, and all of them count",
        "conditional": "if (If): the branch that takes longer counts, whatever the condition is",
        "until": "loop (Loop): the data decide how often the body runs: of unknown cost",
    }.items():
        path = str(flow(name, tmp_path))
        for command in (["check", path, "-t", ORIN], ["plan", path, "--target", ORIN]):
            assert run(*command) in {0, None}
            assert words in " ".join(capsys.readouterr().out.split())
    assert run("check", str(flow("until", tmp_path)), "-t", ORIN, "--json") in {0, None}
    (unknown,) = json.loads(capsys.readouterr().out)["unknown_cost"]
    assert (unknown["layer"], unknown["why"]) == ("loop", "trip_count")


def test_a_limit_of_iterations_is_named(tmp_path: Path) -> None:
    body = [
        node("Mul", "a a", "b"),
        node("ReduceMean", "b", "m", keepdims=0),
        node("Less", "m high", "on"),
    ]
    path = write(loop_of(body, high=np.array(9, np.float32)), tmp_path)
    check = edgekit.check(path, target=ORIN)
    assert any("runs (at most 3 times): of unknown cost" in note for note in check.warnings)


def test_a_body_with_unknown_costs_makes_the_loop_unknown(tmp_path: Path) -> None:
    body = [
        node("Unique", "a", "u", name="inner"),
        node("ReduceMax", "u", "m", keepdims=0),
        node("Add", "a m", "b"),
        node("Identity", "go", "on"),
    ]
    (layer,) = layers(load(write(loop_of(body), tmp_path))).layers
    assert not layer.formula
    assert layer.macs == 0


def test_inner_names_are_the_graphs_own(tmp_path: Path) -> None:
    """The board tells layers apart by the names of their nodes."""
    body = [node("Tanh", "a", "b", name="same"), node("Identity", "go", "on")]
    proto = loop_of(body)
    proto.graph.node.append(node("Relu", "y", "z", name="same"))
    proto.graph.output[0].name = "z"
    (loop, outer) = load(write(proto, tmp_path)).proto.graph.node
    inner = [part.name for part in loop.attribute[0].g.node]
    assert outer.name == "same"
    assert inner == ["loop/same", "Identity_1"]


@pytest.mark.parametrize("name", flow_names())
def test_rewrites_leave_bodies_and_captures_alone(name: str, tmp_path: Path) -> None:
    path, out = flow(name, tmp_path), tmp_path / "out.onnx"
    assert run("rewrite", str(path), "-t", ORIN, "-o", str(out), "-q") in {0, None}
    before, after = load(path), load(out)

    def bodies(model: edgekit.Model) -> list[list[tuple[str, list[str], list[str]]]]:
        return [
            [(part.op_type, list(part.input), list(part.output)) for part in item.g.node]
            for one in model.proto.graph.node
            for item in one.attribute
            if item.HasField("g")
        ]

    assert bodies(before) == bodies(after)
    x = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}
    made = [session(m).run(["y"], x)[0] for m in (before, after)]
    assert np.allclose(*made, atol=1e-5)


def test_shapes_in_nested_bodies(tmp_path: Path) -> None:
    """onnx gives the results of an inner Loop no shape; the bodies do."""
    inner = helper.make_graph(
        [node("Add", "c c", "d", name="add"), node("Identity", "g2", "o2")],
        "inner",
        [value("s2", [], TensorProto.INT64), value("g2", [], TensorProto.BOOL), value("c", None)],
        [value("o2", [], TensorProto.BOOL), value("d", None)],
    )
    branch = helper.make_graph(
        [helper.make_node("Loop", ["n", "t", "x"], ["p"], name="inner", body=inner)],
        "then",
        [],
        [value("p", None)],
    )
    other = helper.make_graph([node("Neg", "x", "q")], "else", [], [value("q", None)])
    nodes = [
        node("ReduceMean", "x", "m", keepdims=0),
        node("Greater", "m zero", "c"),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=other),
    ]
    numbers = {"n": np.array(2), "t": np.array(True), "zero": np.array(0, np.float32)}
    model = load(write(make(nodes, {"x": SHAPE}, ["y"], numbers), tmp_path))

    assert not model.graph.unknown
    assert model.graph.shape("y") == tuple(SHAPE)
    layer = layers(model).layers[-1]
    (nested,) = next(one for one in layer.bodies if one.name == "then_branch").network.layers
    assert (nested.kind, nested.params["trip_count"]) == ("LOOP", 2)


def test_a_collected_tensor_of_unknown_length_takes_a_given_shape(tmp_path: Path) -> None:
    body = [
        node("Add", "a a", "b"),
        node("ReduceMean", "b", "m", keepdims=0),
        node("Less", "m high", "on"),
    ]
    proto = loop_of(body, outputs="y all", results=("on", "b", "m"), high=np.array(9, np.float32))
    path = write(proto, tmp_path)

    notes = load(path).notes
    assert any("the shape of 'all' is only known at run time" in note for note in notes)
    assert load(path, shapes={"all": [2]}).graph.shape("all") == (2,)


def test_a_body_that_does_not_fit_is_one_error(tmp_path: Path) -> None:
    body = [node("MatMul", "a w", "b", name="product"), node("Identity", "go", "on")]
    path = write(loop_of(body, w=np.zeros((3, 3), np.float32)), tmp_path)
    with pytest.raises(ModelError) as raised:
        load(path)
    assert raised.value.code == "model.shape_inference"
