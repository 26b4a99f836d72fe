"""Proofs: what they see, what they let pass, and when one serves several steps."""

import numpy as np
import pytest
from onnx import TensorProto

from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.proof import prove as prove_module
from edgekit.rewriting.proof.prove import Proof, WorstError, prove
from edgekit.rewriting.proof.sides import key
from edgekit.rewriting.step import step_at
from tests.rewriting.nets import Toy, net, node, weight

INF = float("inf")


class Written(Toy):
    """Replaces an operator by what ``write`` writes."""

    def __init__(self, op, write, name="toy"):
        self.operators, self.write, self.name = (op,), write, name

    def replace(self, graph, nodes, new):
        self.write(new, nodes[0])


def first(model, toy):
    graph = RewriteGraph(model)
    at = next(item for item in graph.nodes() if item.op in toy.operators)
    return graph, step_at(graph, toy, at)


def proof(model, toy, **options):
    return prove(*first(model, toy), **options)


def relu_net(name="", shape=(1, 4, 3, 3), op="Relu", **attributes):
    made = node(op, f"{name}x", f"{name}y", **attributes)
    return net([made], {f"{name}x": shape}, [f"{name}y"])


def maximum(scale):
    def write(new, at):
        zero = new.node("Max", [at.inputs[0], new.constant(0.0)])
        new.node("Mul", [zero, new.constant(scale)], output=at.outputs[0])

    return Written("Relu", write)


def test_equal_nodes_hold_and_others_do_not():
    assert proof(relu_net(), maximum(1.0)).holds()
    wrong = proof(relu_net(), maximum(1.001))
    assert not wrong.holds()
    assert wrong.float64 == pytest.approx(1e-3)
    assert wrong.float32 == pytest.approx(1e-3, rel=1e-2)
    # within FP32's tolerance, but not equal in real arithmetic
    near = proof(relu_net(), maximum(1 + 1e-7))
    assert near.float32 <= 1e-5
    assert not near.holds()


def test_inputs_reach_where_functions_saturate():
    bounds = {"a": np.float32(0).reshape(()), "b": np.float32(6).reshape(())}
    clip = net([node("Clip", "x a b", "y")], {"x": (1, 2, 2, 2)}, ["y"], bounds)
    relu = Written("Clip", lambda new, at: new.node("Relu", at.inputs[:1], output=at.outputs[0]))
    assert not proof(clip, relu).holds()


def test_half_precision_is_computed_in_fp32():
    made = [
        node("Cast", "x", "c", to=TensorProto.FLOAT),
        node("Cast", "c", "h", to=10),
        node("Conv", "h w", "y", kernel_shape=[3, 3]),
    ]
    weights = {"w": weight(4, 8, 3, 3).astype(np.float16)}
    shapes = {"x": ((1, 8, 5, 5), TensorProto.FLOAT16)}
    model = net(made, shapes, {"y": TensorProto.FLOAT16}, weights)

    def write(new, at):
        x, w = at.inputs
        halves = [new.node("Conv", [x, new.node("Mul", [w, new.constant(0.5, like=w)])])] * 2
        new.node("Add", halves, output=at.outputs[0])

    found = proof(model, Written("Conv", write))
    assert found.holds()
    assert found.float32 < 1e-6


def test_whole_numbers_and_truth_values_must_be_equal():
    model = net(
        [node("Greater", "x z", "y")], {"x": (2, 8)}, {"y": TensorProto.BOOL}, {"z": np.zeros(8)}
    )
    less = Written("Greater", lambda new, at: new.node("Less", at.inputs, output=at.outputs[0]))
    assert proof(model, less) == Proof(INF, INF)
    turned = Written(
        "Greater", lambda new, at: new.node("Less", at.inputs[::-1], output=at.outputs[0])
    )
    assert proof(model, turned) == Proof(0.0, 0.0)


def worst(new, old):
    found = WorstError(["y"])
    for a, b in zip(new, old, strict=True):
        found.take({"y": np.array(a)}, {"y": np.array(b)})
    return found.error()


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([np.nan, 2.0], [np.nan, 2.0], 0.0),
        ([np.nan, 2.0], [1.0, 2.0], INF),
        ([1.0, 2.0], [np.nan, 2.0], INF),
        ([INF, 1.0], [INF, 1.0], 0.0),
        ([-INF, 1.0], [INF, 1.0], INF),
        ([1.0], [1.0, 1.0], INF),
        ([], [], 0.0),
        ([0.0], [0.0], 0.0),
        ([np.nan], [np.nan], 0.0),
    ],
)
def test_distances(a, b, distance):
    assert worst([a], [b]) == distance


def test_a_run_of_small_values_is_held_against_those_of_all_runs():
    assert worst([[1e-4 + 1e-6], [2.0]], [[1e-4], [2.0]]) == pytest.approx(5e-7)


def test_roots_of_negative_numbers_are_nan_on_both_sides():
    power = Written(
        "Sqrt",
        lambda new, at: new.node("Pow", [at.inputs[0], new.constant(0.5)], output=at.outputs[0]),
    )
    assert proof(relu_net(op="Sqrt"), power).holds()


def test_float64_alone_counts_where_onnx_runtime_has_no_kernel():
    shapes = {"x": ((1, 4), TensorProto.INT16)}
    model = net([node("Relu", "x", "y")], shapes, {"y": TensorProto.INT16}, opset=14)

    def write(new, at):
        wide = new.node("Cast", at.inputs, to=TensorProto.FLOAT)
        new.node("Cast", [new.node("Relu", [wide])], output=at.outputs[0], to=TensorProto.INT16)

    found = proof(model, Written("Relu", write))
    assert found == Proof(None, 0.0)
    assert found.holds()


def test_new_nodes_that_onnx_runtime_cannot_run_fail():
    shapes = {"x": ((1, 4), TensorProto.INT16)}
    model = net([node("Abs", "x", "y")], shapes, {"y": TensorProto.INT16}, opset=14)
    relu = Written("Abs", lambda new, at: new.node("Relu", at.inputs, output=at.outputs[0]))
    assert proof(model, relu) == Proof(INF, 0.0)


def test_of_an_approximate_rewrite_the_error_is_reported():
    toy = maximum(1.25)
    toy.name = "approx-toy"
    toy.approximate = True
    found = proof(relu_net(), toy)
    assert found.holds()
    assert not found.exact
    assert found.float64 == pytest.approx(0.25)
    assert not Proof(INF, 0.0, exact=False).holds()
    assert not Proof(float("nan"), 0.0).holds()


def test_a_constant_output_needs_no_runtime():
    def write(new, at):
        new.node("Expand", [new.constant(0.0), new.constant([1, 4, 3, 3])], output=at.outputs[0])

    assert proof(relu_net(op="Relu"), Written("Relu", write)).float64 == 1.0


def test_equal_steps_have_one_key():
    found = key(*first(relu_net("a"), maximum(1.0)))
    assert found == key(*first(relu_net("b"), maximum(1.0)))
    others = [
        (relu_net("a"), maximum(1.5)),
        (relu_net("a", (1, 4, 3, 4)), maximum(1.0)),
        (net([node("Relu", "ax", "ay")], {"ax": (1, 4, 3, 3)}, ["ay"], opset=14), maximum(1.0)),
    ]
    assert len({found, *(key(*first(*other)) for other in others)}) == 4
    leaky = Written("LeakyRelu", lambda new, at: new.node("Relu", at.inputs, output=at.outputs[0]))
    made = [relu_net(op="LeakyRelu", alpha=alpha) for alpha in (0.1, 0.2, 0.1)]
    keys = [key(*first(model, leaky)) for model in made]
    assert keys[0] == keys[2] != keys[1]


def test_a_step_that_reads_weights_has_no_key():
    model = net([node("Conv", "x w", "y")], {"x": (1, 3, 4, 4)}, ["y"], {"w": weight(2, 3, 3, 3)})
    same = Written("Conv", lambda new, at: new.node("Conv", at.inputs, output=at.outputs[0]))
    assert key(*first(model, same)) is None


def test_equal_steps_are_proved_once(monkeypatch):
    calls = []
    real = prove_module._prove
    monkeypatch.setattr(prove_module, "_prove", lambda *a: calls.append(a) or real(*a))
    shape = (1, 4, 3, 17)
    assert proof(relu_net("a", shape), maximum(1.0)) == proof(relu_net("b", shape), maximum(1.0))
    assert len(calls) == 1
    proof(relu_net("a", shape), maximum(1.0), seed=1)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("float32", "float64", "holds"),
    [(5e-6, 0.0, True), (2e-5, 0.0, False), (None, 5e-10, True), (0.0, 2e-9, False)],
)
def test_both_precisions_have_their_own_tolerance(
    float32: float | None, float64: float, holds: bool
) -> None:
    """Equal in exact numbers is not enough: what cancels in FP32 is refused as well."""
    assert Proof(float32, float64).holds() is holds


def test_results_of_another_shape_are_no_results() -> None:
    worst = WorstError(["y"])
    worst.take({"y": np.ones((6, 1), np.float32)}, {"y": np.ones((1, 6), np.float32)})
    assert worst.error() == float("inf")


def test_the_worst_output_counts() -> None:
    worst = WorstError(["a", "b"])
    worst.take(
        {"a": np.float32([1]), "b": np.float32([1])}, {"a": np.float32([1]), "b": np.float32([2])}
    )
    assert worst.error() == 0.5


@pytest.mark.parametrize(
    ("new", "old", "error"), [(3.0, 2.0, 0.5), (np.nan, np.nan, 0.0), (1.0, np.nan, INF)]
)
def test_the_last_element_of_a_large_tensor_counts(new: float, old: float, error: float) -> None:
    """Large tensors are compared in blocks; transposed ones element by element as well."""
    a, b = np.ones((7, 40_000)), np.ones((40_000, 7)).T
    a[-1, -1], b[-1, -1] = new, old
    worst = WorstError(["y"])
    worst.take({"y": a}, {"y": b})
    assert worst.error() == error
