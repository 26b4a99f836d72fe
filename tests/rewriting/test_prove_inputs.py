"""Inputs of proofs: how far they go, one run at a time, and what a failure means."""

import tracemalloc

import numpy as np
import pytest

from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.proof import prove
from edgekit.rewriting.proof import sides as sides_module
from edgekit.rewriting.proof.prove import Proof
from edgekit.rewriting.proof.sides import ProofSide
from tests.rewriting.nets import net, node
from tests.rewriting.test_prove import INF, Written, maximum, proof, relu_net


@pytest.mark.parametrize(
    ("op", "numbers", "attributes", "saturated"),
    [
        ("Clip", (0, 300), {}, "Relu"),
        ("Clip", (-2000, 2000), {}, "Identity"),
        ("HardSigmoid", (), {"alpha": 1e-3, "beta": 0.0}, "Scale"),
        ("Min", (50,), {}, "Identity"),
    ],
)
def test_inputs_reach_beyond_the_bounds_of_what_is_replaced(op, numbers, attributes, saturated):
    weights = {f"c{i}": np.float32(value) for i, value in enumerate(numbers)}
    made = node(op, ["x", *weights], "y", **attributes)

    def write(new, at):
        x, y = at.inputs[0], at.outputs[0]
        if saturated == "Scale":
            positive = new.node("Relu", [x])
            new.node("Mul", [positive, new.constant(1e-3)], output=y)
        else:
            new.node(saturated, [x], output=y)

    found = proof(net([made], {"x": (1, 4, 5, 5)}, ["y"], weights), Written(op, write))
    assert not found.holds()
    assert found.float64 > 0.1


def test_inputs_are_those_of_the_seed_whatever_runs_there_are():
    graph = RewriteGraph(relu_net())
    few, many = (list(prove.random_feeds(graph, ["x"], runs, 5)) for runs in (2, 4))
    assert all((a["x"] == b["x"]).all() for a, b in zip(few, many[:2], strict=True))
    assert abs(many[3]["x"]).max() <= 10
    far = list(prove.random_feeds(graph, ["x"], 2, 5, 600.0))
    assert (far[0]["x"] == few[0]["x"]).all()
    assert 100 < abs(far[1]["x"]).max() <= 1000


def test_one_run_is_held_at_a_time():
    graph = RewriteGraph(relu_net(shape=(1, 4, 300, 300)))
    at = next(graph.nodes())
    sides = [ProofSide(graph, [at], ()) for _ in range(2)]
    tracemalloc.start()
    try:
        found = prove.compare(*sides, prove.random_feeds(graph, ["x"], 16, 0), ["y"])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == Proof(0.0, 0.0)
    # a run has 2.9 MB for each float64 tensor
    assert most < 30e6


@pytest.mark.parametrize(
    "said",
    [
        "6 : RUNTIME_EXCEPTION : Failed to allocate memory",
        "6 : RUNTIME_EXCEPTION : Exception during initialization: std::bad_alloc",
        "2 : INVALID_ARGUMENT : indices element out of data bounds",
    ],
)
def test_a_failure_of_the_old_nodes_is_no_missing_kernel(monkeypatch, said):
    def fails(*args):
        raise RuntimeError(f"[ONNXRuntimeError] : {said}")

    monkeypatch.setattr(sides_module, "start_graph_session", fails)
    monkeypatch.setattr(sides_module, "share_session", fails)
    found = proof(relu_net(shape=(1, 4, 3, 19)), maximum(1.0), seed=len(said))
    assert found == Proof(INF, 0.0)
    assert not found.holds()
    assert "the old nodes failed" in found.failure
    assert said in found.failure
