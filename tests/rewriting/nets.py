"""Small networks for tests of rewrites, and the test that every rewrite has to pass."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.session import session
from edgekit.rewriting.graph import RewriteGraph, emit
from edgekit.rewriting.proof.prove import prove
from edgekit.rewriting.rules.order import REWRITES
from edgekit.rewriting.step import step_at

_MOST_STEPS = 500


def node(op, inputs, outputs, name="", **attrs):
    """A node; inputs and outputs as lists or words of one string."""
    split = [part.split() if isinstance(part, str) else list(part) for part in (inputs, outputs)]
    return helper.make_node(op, *split, name=name or f"{op.lower()}_{split[1][0]}", **attrs)


def net(nodes, inputs, outputs, weights=None, opset=13):
    """A model: ``inputs`` are shapes by name (or (shape, elem type)), ``weights`` arrays by name.

    Floating-point weights become FP32; whole numbers int64.
    """
    infos = []
    for name, given in inputs.items():
        typed = len(given) == 2 and isinstance(given[0], (tuple, list))
        shape, elem = given if typed else (given, TensorProto.FLOAT)
        infos.append(helper.make_tensor_value_info(name, elem, list(shape)))
    constants = []
    for name, value in (weights or {}).items():
        array = np.asarray(value)
        if array.dtype.kind == "f" and array.dtype != np.float16:
            array = array.astype(np.float32)
        elif array.dtype.kind == "i":
            array = array.astype(np.int64)
        constants.append(
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
    elems = outputs if isinstance(outputs, dict) else dict.fromkeys(outputs, TensorProto.FLOAT)
    ends = [helper.make_tensor_value_info(name, elem, None) for name, elem in elems.items()]
    graph = helper.make_graph(list(nodes), "net", infos, ends, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return canonical(proto, None)


def weight(*shape, seed=0):
    """Random weights of a given shape, about as large as a trained layer's."""
    fan = math.prod(shape[1:]) or 1
    return np.random.default_rng(seed).standard_normal(shape) / math.sqrt(fan)


class Toy:
    """A rewrite made up for a test: ``match`` says which nodes go, ``replace`` writes others."""

    name = "toy"
    reason = "for a test"
    operators = ()
    enabling = False
    deviation = None
    approximate = False

    def match(self, graph, at):
        return (at,)

    def replace(self, graph, nodes, new):
        raise NotImplementedError

    def at(self, graph, at):
        nodes = self.match(graph, at)
        if nodes is not None:
            self.replace(graph, nodes, (yield nodes))


def rewrite_of(item):
    """A rewrite, given as it is or by its name."""
    return next((known for known in REWRITES if known.name == item), item)


def rewrites_of(*modules):
    """The rewrites of some modules of edgekit.rewriting.rules."""
    return [item for item in REWRITES if item.at.__module__.rpartition(".")[2] in modules]


def rewrite_step(graph, item, at):
    """What a rewrite, given as it is or by its name, would do at a node."""
    return step_at(graph, rewrite_of(item), at)


def rewritten(model, *items, proved=True):
    """``model`` with ``items`` (names) applied wherever they match, each step proved.

    No verdict is asked: the engine decides where a rewrite helps, this shows that it is right.
    """
    graph, items = RewriteGraph(model), [rewrite_of(item) for item in items]
    for _ in range(_MOST_STEPS):
        step = _next(graph, items)
        if step is None:
            return emit(graph)
        if proved:
            proof = prove(graph, step)
            assert proof.holds(), f"{step.rewrite.name} at {step.anchor}: {proof}"
        graph.apply(step)
    raise AssertionError(f"{[item.name for item in items]} do not come to an end")


def _next(graph, items):
    for item in items:
        for at in list(graph.nodes()):
            step = step_at(graph, item, at)
            if step is not None:
                return step
    return None


def ops(model):
    """The operators of a model's nodes, in order."""
    return [item.op_type for item in model.proto.graph.node]


def assert_same(before, after, runs=2, tolerance=1e-5):
    """Both models have the same inputs and outputs and give the same results in FP32."""
    for part in ("input", "output"):
        assert [_signature(v) for v in getattr(before.proto.graph, part)] == [
            _signature(v) for v in getattr(after.proto.graph, part)
        ]
    random = np.random.default_rng(7)
    old, new = (session(item, optimise=False, threads=1) for item in (before, after))
    for _ in range(runs):
        feed = {v.name: any_values(random, v) for v in old.get_inputs()}
        for a, b in zip(old.run(None, feed), new.run(None, feed), strict=True):
            if a.dtype.kind != "f":
                assert (a == b).all()
                continue
            largest = np.abs(a).max() or 1.0
            assert np.abs(a.astype(np.float64) - b).max() <= tolerance * largest


def assert_rewrites(model, *items, gone=(), tolerance=1e-5):
    """Applies ``items``, proves each step, compares the whole, and returns the new model.

    ``gone`` are operators that must not be left.
    """
    after = rewritten(model, *items)
    assert ops(after) != ops(model) or after.digest != model.digest, "nothing was rewritten"
    assert not set(gone) & set(ops(after)), ops(after)
    assert_same(model, after, tolerance=tolerance)
    return after


def assert_untouched(model, *items):
    """None of ``items`` matches anywhere in ``model``."""
    graph = RewriteGraph(model)
    for at in list(graph.nodes()):
        for item in map(rewrite_of, items):
            assert step_at(graph, item, at) is None, f"{item.name} matches {at.name}"


def _signature(value):
    tensor = value.type.tensor_type
    return value.name, tensor.elem_type, [d.dim_value for d in tensor.shape.dim]


def any_values(random, value):
    """Random values for an input of an ONNX Runtime session."""
    if value.type == "tensor(bool)":
        return random.random(value.shape) < 0.5
    if "int" in value.type:
        return random.integers(0, 4, value.shape).astype(value.type[7:-1])
    kind = np.float16 if value.type == "tensor(float16)" else np.float32
    return random.standard_normal(value.shape).astype(kind)
