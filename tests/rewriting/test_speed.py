"""What the engine does once for all equal blocks, counted; nothing here is timed."""

import gc
from collections import Counter

import numpy as np
import onnx
import onnxruntime

from edgekit.network.lowering.layers import layers
from edgekit.network.lowering.placer import Placer
from edgekit.placement.forecast import forecast
from edgekit.rewriting import step as step_module
from edgekit.rewriting.engine import scoring
from edgekit.rewriting.engine.scoring import (
    _READS_FLOATS,
    PartialNetwork,
    both_key,
    find_neighbours,
)
from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.proof import prove, sessions, sides
from edgekit.rewriting.rewrite import choose_rewrites, rewrite
from tests.rewriting.made_up import ORIN
from tests.rewriting.nets import net, node, rewrite_step, weight
from tests.rewriting.zoo import ZOO


def blocks(count, width=8):
    """Blocks of a fully connected layer, squeeze and excitation's gate, and an NHWC sum."""
    chain, constants = [], {"flat": [1, width], "image": [1, 7, 7, width]}
    shape = (1, width, 7, 7)
    last = "x"
    for i in range(count):
        constants[f"w{i}"] = weight(width, width, 3, 3, seed=i)
        constants[f"b{i}"] = weight(width, seed=i)
        constants[f"g{i}"] = weight(width, width, seed=i)
        constants[f"a{i}"] = weight(width, seed=100 + i)
        chain += [
            node("Conv", f"{last} w{i} b{i}", f"c{i}", pads=[1, 1, 1, 1]),
            node("HardSwish", f"c{i}", f"h{i}"),
            node("GlobalAveragePool", f"h{i}", f"p{i}"),
            node("Flatten", f"p{i}", f"f{i}"),
            node("Gemm", f"f{i} g{i} a{i}", f"d{i}"),
            node("Reshape", f"d{i} wide", f"e{i}"),
            node("Mul", f"h{i} e{i}", f"m{i}"),
            node("Transpose", f"m{i}", f"n{i}", perm=[0, 2, 3, 1]),
            node("Add", f"n{i} a{i}", f"s{i}"),
            node("Transpose", f"s{i}", f"t{i}", perm=[0, 3, 1, 2]),
        ]
        last = f"t{i}"
    constants["wide"] = [1, width, 1, 1]
    used = {name for item in chain for name in item.input}
    constants = {name: value for name, value in constants.items() if name in used}
    return net(chain, {"x": shape}, [last], constants, opset=14)


def work(monkeypatch, model):
    """Counts what is done for a rewriting that remembers nothing from before."""
    for module in (step_module, prove, sides, sessions):
        module._cache.cache_clear()
    counts = Counter()

    def count(patch, owner, name):
        real = getattr(owner, name)

        def call(*args, **options):
            counts[name] += 1
            return real(*args, **options)

        patch.setattr(owner, name, call)

    with monkeypatch.context() as patch:
        count(patch, onnx.shape_inference, "infer_shapes")
        count(patch, scoring.Judge, "judge")
        count(patch, scoring, "parts")
        count(patch, onnxruntime, "InferenceSession")
        count(patch, prove, "_prove")
        _, applied, notes, *_ = rewrite(
            model, ORIN, precision="fp16", cost=lambda net, judged: forecast(net, judged, ORIN)
        )
    assert notes == ()
    return counts, Counter(item.rewrite for item in applied)


def test_equal_blocks_are_inferred_and_judged_once_and_share_sessions(monkeypatch):
    few, short = work(monkeypatch, blocks(4))
    many, long = work(monkeypatch, blocks(12))
    assert long["hard-swish"] == 12 > short["hard-swish"]
    assert sum(long.values()) > 2 * sum(short.values())
    for name in ("infer_shapes", "judge", "parts", "InferenceSession"):
        assert many[name] == few[name] > 0, name
    # what reads weights is proved for each block, and nothing else is
    assert few["_prove"] < many["_prove"] < sum(long.values())


def branches(count):
    """Equal branches that one Concat joins."""
    chain = [node("HardSwish", "x", f"h{i}") for i in range(count)]
    chain.append(node("Concat", [f"h{i}" for i in range(count)], ["y"], axis=1))
    return net(chain, {"x": (1, 2, 4, 4)}, ["y"], opset=14)


def test_a_step_next_to_a_wide_node_is_judged_without_all_of_it(monkeypatch):
    few, short = work(monkeypatch, branches(12))
    many, long = work(monkeypatch, branches(60))
    assert (short["hard-swish"], long["hard-swish"]) == (12, 60)
    assert many["judge"] == few["judge"]


def test_parts_differ_by_the_numbers_that_layers_read_and_by_no_others():
    def key(op, value):
        model = net([node(op, "x v", "y")], {"x": (1, 8, 7, 7)}, ["y"], {"v": np.float32(value)})
        graph = RewriteGraph(model)
        return PartialNetwork(graph, list(graph.nodes()), {"y"}, None).key()

    assert key("Clip", 0.0) == key("Clip", 0.0) != key("Clip", 1.0)
    assert key("Mul", 0.5) == key("Mul", 2.0)
    assert key("Mul", 0.5) != key("Mul", np.full((1, 8, 1, 1), 0.5))


def test_equal_steps_among_other_neighbours_are_judged_apart():
    def key(neighbour, returned):
        chain = [node("Relu", "x", "r"), node("HardSwish", "r", "h"), node(neighbour, "h", "y")]
        model = net(chain, {"x": (1, 8, 7, 7)}, ["y", "h"] if returned else ["y"], opset=14)
        graph = RewriteGraph(model)
        (item,) = choose_rewrites(["hard-swish"], (), ())
        step = rewrite_step(graph, item, next(n for n in graph.nodes() if n.op == "HardSwish"))
        return both_key(graph, step, find_neighbours(graph, step))

    found = [key(op, returned) for op in ("Sqrt", "Tanh") for returned in (False, True)]
    assert len(set(found)) == 4
    assert key("Sqrt", returned=False) == found[0]


def test_the_collector_rests_while_a_network_is_rewritten_and_no_longer():
    seen = []
    assert gc.isenabled()
    rewrite(blocks(1), ORIN, precision="fp16", progress=lambda _: seen.append(gc.isenabled()))
    assert seen
    assert not any(seen)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_layers_read_no_other_numbers(monkeypatch):
    read = set()
    real = Placer.value

    def value(self, at, index):
        found = real(self, at, index)
        if found is not None and np.asarray(found).dtype.kind == "f":
            read.add(at.op)
        return found

    monkeypatch.setattr(Placer, "value", value)
    for entry in ZOO.values():
        layers(entry.make())
    assert read
    assert read <= _READS_FLOATS
