"""Pairs: steps that differ in weights alone share what runs them, and nothing else."""

import numpy as np
import onnxruntime
import pytest

from edgekit.rewriting.proof import prove
from edgekit.rewriting.proof import sides as sides_module
from edgekit.rewriting.proof.prove import Proof
from edgekit.rewriting.proof.sides import ProofSide
from tests.rewriting.nets import net, node, weight
from tests.rewriting.test_prove import INF, Written, first, proof


def scaled(seed, factor=1.0, channels=3):
    """A convolution whose weights the toy derives others from."""
    weights = {f"w{seed}": weight(5, channels, 3, 3, seed=seed), f"b{seed}": weight(5, seed=seed)}
    made = node("Conv", f"x w{seed} b{seed}", "y", pads=[1, 1, 1, 1])

    def write(new, at):
        x, w, b = at.inputs
        third = [new.node("Mul", [n, new.constant(factor / 3, like=n)]) for n in (w, b)]
        part = new.node("Conv", [x, *third], pads=[1, 1, 1, 1])
        new.node("Mul", [part, new.constant(3.0)], output=at.outputs[0])

    return net([made], {"x": (1, channels, 6, 7)}, ["y"], weights), Written("Conv", write)


def by_sides(graph, step):
    feeds = prove.random_feeds(graph, step.inputs, 2, 0, prove.input_range(graph, step.old))
    sides = ProofSide(graph, step.old, ()), ProofSide(graph, step.new, step.fixed)
    return prove.compare(*sides, feeds, step.outputs)


def counted(monkeypatch, owner, name):
    calls = []
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *a, **b: calls.append(a) or real(*a, **b))
    return calls


def test_steps_with_other_weights_share_a_session_and_have_the_proofs_of_their_sides(monkeypatch):
    sides_module._cache.cache_clear()
    sides = counted(monkeypatch, prove, "compare")
    sessions = counted(monkeypatch, onnxruntime, "InferenceSession")
    found = [prove.prove(*first(*scaled(seed))) for seed in range(4)]
    assert len(sessions) == 1
    assert sides == []
    assert found == [by_sides(*first(*scaled(seed))) for seed in range(4)]
    assert all(item.holds() and item.float32 > 0 for item in found)
    assert len(set(found)) > 1


def test_a_wrong_constant_is_no_other_weight():
    assert proof(*scaled(0)).holds()
    wrong = proof(*scaled(0, 1.002))
    assert wrong.float64 == pytest.approx(2e-3)
    assert wrong.float32 == pytest.approx(2e-3, rel=1e-2)


def test_weights_that_bound_are_distinguished():
    def made(most):
        chain = [node("MatMul", "x w", "m"), node("Clip", "m low high", "y")]
        bounds = {"low": np.float32(-1).reshape(()), "high": np.float32(most).reshape(())}
        return net(chain, {"x": (2, 64)}, ["y"], {"w": weight(64, 4), **bounds})

    def write(new, at):
        bounds = at.inputs[1], new.constant(3.0, like=at.inputs[0])
        new.node("Clip", [at.inputs[0], *bounds], output=at.outputs[0])

    keys = [
        sides_module.weight_free_key(*first(made(most), Written("Clip", write)))[0]
        for most in (3.0, 6.0)
    ]
    assert keys[0] != keys[1]
    assert proof(made(3.0), Written("Clip", write)).holds()
    assert not proof(made(6.0), Written("Clip", write)).holds()


def test_where_the_pair_fails_the_sides_show_which_of_them_fails(monkeypatch):
    sides_module._cache.cache_clear()

    def fails(*args):
        raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : no memory")

    sides = counted(monkeypatch, prove, "compare")
    tried = []
    monkeypatch.setattr(sides_module, "start_session", lambda *a: tried.append(a) or fails())
    assert [proof(*scaled(seed)).holds() for seed in range(3)] == [True] * 3
    assert len(tried) == 1
    assert len(sides) == 3


def test_values_that_weights_make_and_sessions_want_to_see_are_no_pair():
    shapes = {"x": (1, 4)}
    made = [node("Add", "x w", "s"), node("Relu", "s", "y")]

    def write(new, at):
        low = new.node("ReduceMax", [at.inputs[1]], keepdims=0)
        bounds = [new.node("Min", [low, new.constant(-1e9)])]
        added = new.node("Add", at.inputs)
        new.node("Clip", [added, *bounds], output=at.outputs[0])

    for seed, least in ((1, 1.0), (2, 2.0)):
        model = net(made, shapes, ["y"], {"w": weight(4, seed=seed) * np.float32(least)})
        assert proof(model, Written("Add", write)).holds()


def test_a_step_that_is_wrong_for_some_weights_is_refused_for_those():
    def made(factor):
        model = net(
            [node("Mul", "x w", "y")],
            {"x": (1, 3, 4, 4)},
            ["y"],
            {"w": np.full((1, 3, 1, 1), factor, np.float32)},
        )
        return model, Written("Mul", lambda new, at: new.node("Add", at.inputs, output="y"))

    graph, step = first(*made(2.0))
    assert (
        sides_module.weight_free_key(graph, step)[0]
        == sides_module.weight_free_key(*first(*made(0.0)))[0]
    )
    assert not proof(*made(2.0)).holds()
    same = Written("Mul", lambda new, at: new.node("Div", at.inputs, output=at.outputs[0]))
    assert proof(made(1.0)[0], same) == Proof(0.0, 0.0)
    assert proof(made(2.0)[0], same).float64 == pytest.approx(0.75)
    assert proof(made(0.0)[0], same) == Proof(INF, INF)
