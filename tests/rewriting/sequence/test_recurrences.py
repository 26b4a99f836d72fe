"""GRU, LSTM and RNN written out: equal in all their forms, on the DLA, and left alone elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edgekit.network.lowering.layers import layers
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.boards import refused
from tests.rewriting.convolution.refits import assert_refits
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    rewritten,
    weight,
)
from tests.tries import tries

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
ITEMS = {"GRU": "gru-unroll", "LSTM": "lstm-unroll", "RNN": "rnn-unroll"}
ORIN = "jetson-agx-orin-64gb"


def recurrent(op, steps=3, batch=1, features=5, hidden=4, *, ways=1, bias=True, initial="",
              peep=False, layout=0, outputs=None, lengths=None, seed=0, **attrs):  # fmt: skip
    rows = GATES[op] * hidden
    weights = {"w": weight(ways, rows, features, seed=seed),
               "r": weight(ways, rows, hidden, seed=seed + 1)}  # fmt: skip
    read = ["x", "w", "r"] + [""] * 5
    inputs = {"x": (batch, steps, features) if layout else (steps, batch, features)}
    states = (batch, ways, hidden) if layout else (ways, batch, hidden)
    if bias:
        weights["b"], read[3] = weight(ways, 2 * rows, seed=seed + 2), "b"
    if lengths is not None:
        weights["long"], read[4] = np.array([lengths] * batch), "len"
    for index in range(2 if op == "LSTM" else 1):
        name = f"s{index}"
        if initial == "constant":
            weights[name], read[5 + index] = weight(*states, seed=seed + 3 + index), name
        elif initial:
            inputs[name], read[5 + index] = states, name
    if peep:
        weights["p"], read[7] = weight(ways, 3 * hidden, seed=seed + 9), "p"
    while not read[-1]:
        read.pop()
    outputs = outputs or ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    if ways == 2:
        attrs["direction"] = "bidirectional"
    if layout:
        attrs["layout"] = 1
    made = [node(op, read, outputs, hidden_size=hidden, **attrs)]
    if lengths is not None:
        made.insert(0, node("Cast", "long", "len", to=TensorProto.INT32))
    return net(made, inputs, [name for name in outputs if name], weights, opset=14)


@settings(max_examples=tries(20), derandomize=True, database=None)
@given(
    op=st.sampled_from(["GRU", "LSTM", "RNN"]),
    sizes=st.tuples(*[st.integers(1, 3)] * 4),
    way=st.sampled_from(["forward", "reverse", "bidirectional"]),
    initial=st.sampled_from(["", "constant", "fed"]),
    flags=st.tuples(*[st.booleans()] * 3),
)
def test_every_form_is_equal(op, sizes, way, initial, flags):
    bias, option, layout = flags
    attrs = {"direction": way} if way == "reverse" else {}
    if option and op == "GRU":
        attrs["linear_before_reset"] = 1
    if option and op == "RNN":
        attrs["activations"] = ["Relu"] * (2 if way == "bidirectional" else 1)
    model = recurrent(op, *sizes, ways=2 if way == "bidirectional" else 1, bias=bias,
                      initial=initial, peep=option and op == "LSTM", **attrs)  # fmt: skip
    assert_rewrites(model, ITEMS[op], gone=[op])
    if layout:
        # ONNX Runtime does not run this layout: float64 proves it alone
        if "activations" in attrs:
            attrs["activations"] = ["Relu"]
        turned = recurrent(op, *sizes, bias=bias, initial=initial, layout=1, **attrs)
        assert op not in ops(rewritten(turned, ITEMS[op]))


@pytest.mark.parametrize("board", [ORIN, "jetson-agx-xavier"])
@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
def test_all_but_the_reshapes_at_the_border_is_on_the_dla(op, board):
    model = recurrent(op, 4, ways=2, initial="constant", outputs=["y"])
    assert refused(model, board) == ["LOOP"]
    after = assert_rewrites(model, ITEMS[op], gone=[op])
    off = refused(after, board)
    assert set(off) == {"SHUFFLE"}
    if board == ORIN:
        # the sequence to four dimensions, and back
        assert len(off) == 2
    assert sum(layer.kind == "CONVOLUTION" for layer in layers(after).layers) >= 2 * 4


def text_reader(op, ways=1, steps=6):
    """A recurrence behind convolutions, as readers of text have it, exported by PyTorch."""
    rows, hidden = GATES[op] * 8, 8
    weights = {
        "k": weight(16, 3, 3, 3), "w": weight(ways, rows, 16), "r": weight(ways, rows, hidden),
        "b": weight(ways, 2 * rows), "m": weight(ways * hidden, 10), "axis": np.array([2]),
        "one": np.array([1]), "shape": np.array([steps, 1, ways * hidden]),
    }  # fmt: skip
    way = {"direction": "bidirectional"} if ways == 2 else {}
    nodes = [
        node("Conv", "x k", "c", kernel_shape=[3, 3], pads=[0, 1, 0, 1]),
        node("Relu", "c", "a"),
        node("Squeeze", "a axis", "q"),
        node("Transpose", "q", "t", perm=[2, 0, 1]),
        node(op, "t w r b", "s", hidden_size=hidden, **way),
    ]
    if ways == 2:
        nodes += [node("Transpose", "s", "s2", perm=[0, 2, 1, 3]), node("Reshape", "s2 shape", "f")]
    else:
        nodes += [node("Squeeze", "s one", "f")]
    return net([*nodes, node("MatMul", "f m", "y")], {"x": (1, 3, 3, steps)}, ["y"], weights, 14)


@pytest.mark.parametrize(("op", "ways"), [("LSTM", 2), ("GRU", 1)])
def test_a_sequence_made_of_an_image_is_read_from_the_image(op, ways):
    model = text_reader(op, ways)
    after = assert_rewrites(model, ITEMS[op], gone=[op])
    nodes = {item.name: item for item in after.proto.graph.node}
    # the input's convolutions read the image as it was, [N, C, 1, T]
    reads = [item for item in nodes.values() if item.op_type == "Conv" and item.input[0] == "a"]
    assert len(reads) == ways
    assert "Squeeze" not in ops(after) or ways == 1
    assert "transpose_t" not in nodes


def test_the_engine_takes_it_where_it_helps():
    model = text_reader("LSTM", 2)
    after, applied, notes, *_ = rewrite(model, get(ORIN), precision="fp16")
    assert "lstm-unroll" in [item.rewrite for item in applied]
    assert notes == ()
    assert "LOOP" in refused(model)
    assert set(refused(after)) == {"SHUFFLE"}
    assert len(refused(after)) < len(refused(model)) - 1


def test_a_shared_sequence_keeps_what_others_read():
    rows = 12
    weights = {"w": weight(1, rows, 5), "r": weight(1, rows, 4)}
    nodes = [
        node("Relu", "x", "a"),
        node("Transpose", "a", "t", perm=[2, 0, 1]),
        node("GRU", "t w r", "y", hidden_size=4),
        node("Sigmoid", "t", "z"),
    ]
    model = net(nodes, {"x": (1, 5, 3)}, ["y", "z"], weights, 14)
    after = assert_rewrites(model, ITEMS["GRU"], gone=["GRU"])
    assert "transpose_t" in [item.name for item in after.proto.graph.node]


def test_outputs_that_are_left_out_are_not_written():
    for op, outputs in [("GRU", ["", "yh"]), ("LSTM", ["", "", "yc"]), ("LSTM", ["y", "", "yc"])]:
        model = recurrent(op, outputs=outputs)
        # a first output that is left out is no reason to fail
        assert refused(model) == ["LOOP"]
        after = assert_rewrites(model, ITEMS[op], gone=[op])
        assert ("Concat" in ops(after)) == bool(outputs[0])


def test_lengths_that_are_the_whole_length_say_nothing():
    assert_rewrites(recurrent("GRU", 3, 2, lengths=3), ITEMS["GRU"], gone=["GRU"])
    assert_untouched(recurrent("GRU", 3, 2, lengths=2), *ITEMS.values())


@pytest.mark.parametrize(
    "make",
    [
        lambda: recurrent("GRU", clip=3.0),
        lambda: recurrent("LSTM", input_forget=1),
        lambda: recurrent("RNN", steps=65),
        lambda: recurrent("RNN", activations=["Softsign"]),
        lambda: recurrent("GRU", activations=["HardSigmoid", "Tanh"]),
    ],
)
def test_what_cannot_be_unrolled_stays(make):
    assert_untouched(make(), *ITEMS.values())


def test_weights_that_are_computed_stay():
    inputs = {"x": (3, 1, 5), "w": (1, 12, 5)}
    made = node("GRU", "x w r", "y", hidden_size=4)
    model = net([made], inputs, ["y"], {"r": weight(1, 12, 4)}, 14)
    assert_untouched(model, *ITEMS.values())


def test_half_precision():
    weights = {"w": weight(1, 12, 5).astype(np.float16), "r": weight(1, 12, 4).astype(np.float16)}
    half = TensorProto.FLOAT16
    made = node("GRU", "x w r", "y", hidden_size=4)
    model = net([made], {"x": ((3, 1, 5), half)}, {"y": half}, weights, 14)
    after = rewritten(model, ITEMS["GRU"])
    assert "GRU" not in ops(after)
    assert {value.dtype.name for value in after.weights.values()} == {"float16"}


def test_weights_come_from_recipes():
    for op in GATES:
        more = {"peep": True} if op == "LSTM" else {}
        assert_refits(lambda seed, op=op, more=more: recurrent(op, ways=2, seed=seed, **more),
                      ITEMS[op])  # fmt: skip


def test_a_long_sequence_is_written_in_time_and_named_by_step():
    after = rewritten(recurrent("LSTM", 64, features=3, hidden=2), ITEMS["LSTM"], proved=False)
    names = [item.name for item in after.proto.graph.node]
    assert len(set(names)) == len(names)
    assert "lstm_y:0.63.tanh" in names
