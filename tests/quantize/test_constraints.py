import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.network.model import Layer, Network, Tensor
from edgekit.quantize.scales import Change, tie
from tests.quantize.quantize_nets import branches, make, node

# kind, parameters, how many inputs, and what must be equal, written out by hand
KINDS = [
    ("POOLING", {"mode": "MAX"}, 1, "all"),
    ("POOLING", {"mode": "AVERAGE"}, 1, "all"),
    ("CONCATENATION", {"axis": 1}, 3, "all"),
    ("RESIZE", {"mode": "LINEAR"}, 1, "all"),
    ("SLICE", {"mode": "DEFAULT"}, 1, "all"),
    ("SHUFFLE", {"mode": "RESHAPE"}, 1, "all"),
    ("IDENTITY", {}, 1, "all"),
    ("ELEMENTWISE", {"function": "SUM"}, 2, "inputs"),
    ("ELEMENTWISE", {"function": "MAX"}, 2, "inputs"),
    ("ELEMENTWISE", {"function": "PROD"}, 2, ""),
    ("CONVOLUTION", {}, 1, ""),
    ("ACTIVATION", {"function": "RELU"}, 1, ""),
]
# a GPU's kernels rescale, those that copy into a concatenation too; these do what
# IInt8EntropyCalibrator2 does everywhere
ON_GPU = {"POOLING", "SHUFFLE", "IDENTITY"}
SCALES = st.sampled_from([0.0, 1e-6, 0.1, 0.5, 0.5000001, 3.0, 1e4])


def network_of(layers):
    names = dict.fromkeys(["x", *(n for la in layers for n in (*la.inputs, *la.outputs))])
    tensors = {name: Tensor(name, (1, 4, 8, 8), "float32") for name in names}
    return Network("random", tuple(layers), tensors, ("x",), ())


def layer_of(number, kind, params, inputs):
    return Layer(f"l{number}", kind, kind, (), (), tuple(inputs), (f"t{number}",), params)


@st.composite
def cases(draw):
    """A random graph, scales of most of its tensors, and the layers on the DLA."""
    names, layers, wanted = ["x"], [], {}
    for number in range(draw(st.integers(0, 25))):
        kind, params, count, _ = form = draw(st.sampled_from(KINDS))
        layer = layer_of(number, kind, params, [draw(st.sampled_from(names)) for _ in range(count)])
        layers.append(layer)
        wanted[layer.name] = form
        names.append(layer.outputs[0])
    scales = {name: draw(SCALES) for name in names if draw(st.integers(0, 4))}
    on_dla = draw(st.none() | st.sets(st.sampled_from([la.name for la in layers] or ["none"])))
    return network_of(layers), scales, on_dla, wanted


def equal_sets(network, wanted, on_dla):
    for layer in network.layers:
        kind, _, _, what = wanted[layer.name]
        if what and (on_dla is None or layer.name in on_dla or kind in ON_GPU):
            yield {*layer.inputs, *(layer.outputs if what == "all" else ())}


@given(cases())
def test_what_tie_returns_keeps_every_constraint_and_changes_as_little_as_can_be(case):
    network, scales, on_dla, wanted = case
    tied, changes = tie(network, scales, dla_layers=on_dla)
    sets = list(equal_sets(network, wanted, on_dla))
    for names in sets:
        assert len({tied[name] for name in names if name in tied}) <= 1
    # slow and plain: the largest of all that can be reached
    for name in tied:
        reached, size = {name}, 0
        while size != len(reached):
            size = len(reached)
            reached |= set().union(*(names for names in sets if names & reached))
        assert tied[name] == max(scales[other] for other in reached if other in scales)
        assert name in scales or len(reached) > 1
    assert {c.tensor for c in changes} == {n for n in scales if tied[n] != scales[n]}
    for change in changes:
        assert (change.old, change.new) == (scales[change.tensor], tied[change.tensor])
        assert change.new > change.old
        assert tied[change.widest] == change.new
        assert change.layers
        for name in change.layers:
            layer = network.layer(name)
            assert change.tensor in (*layer.inputs, *layer.outputs)
    assert [c.bits for c in changes] == sorted((c.bits for c in changes), reverse=True)


def test_tensors_that_several_layers_share_are_one_group():
    _, network = make(
        [
            node("Relu", "x", "a"),
            node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2]),
            node("Sigmoid", "b", "c"),
            node("Add", "b c", "d"),
            node("Relu", "a", "far"),
            node("Mul", "a far", "e"),
        ],
        {},
        {"x": [1, 4, 8, 8]},
        ["d", "e"],
    )
    tied, changes = tie(network, {"x": 9.0, "a": 4.0, "b": 3.0, "c": 1.0, "d": 7.0, "far": 0.5})
    assert tied == {"x": 9.0, "a": 4.0, "b": 4.0, "c": 4.0, "d": 7.0, "far": 0.5}
    assert changes == (
        Change("c", 1.0, 4.0, "elementwise.int8_ranges", ("d",), "a"),
        Change("b", 3.0, 4.0, "pooling.int8_ranges", ("b", "d"), "a"),
    )
    assert changes[0].bits == 2.0


def test_a_gpu_keeps_its_operands_apart_and_an_fp16_layer_binds_nothing():
    _, network = branches()
    scales = {"x": 1.0, "a": 0.1, "b": 2.0, "joined": 2.0, "pooled": 1.5, "c": 3.0, "y": 3.0}
    on_gpu = {**scales, "pooled": 2.0}
    assert tie(network, scales)[0] == {**on_gpu, "a": 2.0}
    assert tie(network, scales, dla_layers=set())[0] == on_gpu
    tied, changes = tie(network, scales, fp16_layers={"joined"})
    assert tied == {**scales, "pooled": 2.0}
    assert [change.tensor for change in changes] == ["pooled"]

    _, network = make([node("Add", "x y", "z")], {}, {"x": [1, 4], "y": [1, 4]}, ["z"])
    apart = {"x": 1.0, "y": 2.0, "z": 3.0}
    assert tie(network, apart, dla_layers=set()) == (apart, ())
    assert tie(network, apart, dla_layers={"z"})[0] == {"x": 2.0, "y": 2.0, "z": 3.0}


def test_only_what_moves_values_hands_a_scale_to_a_tensor_without_one():
    _, network = make(
        [
            node("AveragePool", "x", "p", kernel_shape=[2, 2], strides=[1, 1]),
            node("Reshape", "p shape", "flat"),
            node("Gemm", "flat w", "g", transB=1),
            node("Add", "g h", "y"),
        ],
        {"shape": np.array([1, -1]), "w": np.ones((4, 4 * 49), np.float32)},
        {"x": [1, 4, 8, 8], "h": [1, 4]},
        ["y"],
    )
    tied, changes = tie(network, {"p": 1.0, "g": 5.0})
    inner = {"flat", "g:in4d", "g:out4d"} & network.tensors.keys()
    assert inner
    assert tied.keys() - {"p", "g"} <= inner  # neither the pool's input nor the other operand
    assert set(tied.values()) == {1.0, 5.0}
    assert changes == ()


class Counted(dict):
    """Scales that count how often they are looked at."""

    looks = 0

    def __getitem__(self, key):
        Counted.looks += 1
        return super().__getitem__(key)

    def __contains__(self, key):
        Counted.looks += 1
        return super().__contains__(key)


@pytest.mark.parametrize("function", ["SUM", "PROD"])
def test_the_work_grows_with_the_number_of_layers(function):
    def looks(length):
        layers = [
            layer_of(i, "ELEMENTWISE", {"function": function}, [f"t{i - 1}", f"c{i}"])
            if i % 2
            else layer_of(i, "POOLING", {"mode": "MAX"}, [f"t{i - 1}"])
            for i in range(length)
        ]
        network = network_of(layers)
        Counted.looks = 0
        _, changes = tie(network, Counted((n, 1.0 + i) for i, n in enumerate(network.tensors)))
        assert len(changes) >= length // 2
        return Counted.looks

    assert looks(10_000) < 11 * looks(1_000)
