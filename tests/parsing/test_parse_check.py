"""What TensorRT's ONNX parser imports, by release."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

import edgekit
from edgekit.errors import GateError, UsageError
from edgekit.knowledge import data_folder, read_knowledge
from edgekit.network.loading.load import load
from edgekit.network.operators import operator_table
from edgekit.parsing.table import parse_check
from edgekit.targets.loader import get

FLOAT, HALF, UINT8, BOOL = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.UINT8,
    TensorProto.BOOL,
)
BFLOAT16, INT8, INT32, INT64 = (
    TensorProto.BFLOAT16,
    TensorProto.INT8,
    TensorProto.INT32,
    TensorProto.INT64,
)
DOUBLE = TensorProto.DOUBLE
ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
SHAPE = [1, 4, 8, 8]
# what nodes may read by these names: inputs of a type and a shape, and constants
READ = {
    "x": (FLOAT, SHAPE),
    "g": (FLOAT, [1, 8, 8, 2]),
    "o": (FLOAT, [1, 2, 8, 8]),
    "v3": (FLOAT, [3]),
    "v4": (FLOAT, [4]),
    "m": (FLOAT, [2, 3, 4]),
    "m1": (FLOAT, [1, 3, 4]),
    "f": (FLOAT, [2]),
    "t": (FLOAT, [1, 16, 8]),
    "r": (FLOAT, [4, 8]),
    "b": (BOOL, [4]),
    "l": (FLOAT, [8]),
    "s8": np.ones(8, np.float32),
    "c4": np.ones(4, np.float32),
    "i0": np.zeros(1, np.int64),
    "i": np.zeros((1, 1), np.int64),
    "u": np.ones((1, 4, 8, 8), np.float32),
    "j": np.zeros((1, 1, 1, 1), np.int64),
    "v": np.ones((1, 1, 1, 1), np.float32),
    "k": np.array([1, 1, 2, 2], np.float32),
    "k2": np.array([2, 2], np.float32),
    "z": np.array([1, 4, 16, 16], np.int64),
    "e": np.asarray(3, np.int64),
    "w1": np.ones((4, 4, 1, 1), np.float32),
    "w3": np.ones((4, 4, 3, 3), np.float32),
    "p": np.array([0, 0, 1, 1] * 2, np.int64),
    "none": np.zeros(0, np.float32),
    "hw": np.array([2, 3], np.int64),
    "c": np.array([1], np.int64),
    "every": np.array([0, -1, 1, 2], np.int64),
    "first": np.array([0], np.int64),
}


def node(operator, inputs="x", outputs="y", **attributes):
    return helper.make_node(operator, inputs.split(","), outputs.split(","), name="n", **attributes)


@pytest.fixture
def graph(tmp_path):
    """Returns the graph of some nodes; what they read is in ``READ``, or ``given`` by its name."""

    def made(*nodes, opset=18, out=FLOAT, shape=None, **given):
        written = {name for one in nodes for name in one.output}
        names = dict.fromkeys(name for one in nodes for name in one.input if name)
        read = {name: given.get(name, READ.get(name)) for name in names if name not in written}
        domains = {one.domain for one in nodes if one.domain}
        proto = helper.make_model(
            helper.make_graph(
                nodes,
                "g",
                [
                    helper.make_tensor_value_info(name, *value)
                    for name, value in {"x": READ["x"], **given, **read}.items()
                    if isinstance(value, tuple)
                ],
                [helper.make_tensor_value_info(name, out, shape) for name in nodes[-1].output],
                [
                    numpy_helper.from_array(np.asarray(value), name)
                    for name, value in {**given, **read}.items()
                    if not isinstance(value, tuple)
                ],
            ),
            opset_imports=[helper.make_opsetid("", opset)]
            + [helper.make_opsetid(domain, 1) for domain in sorted(domains)],
            ir_version=10,
        )
        onnx.save(proto, tmp_path / "model.onnx")
        return load(tmp_path / "model.onnx").graph

    return made


def refused(graph, release):
    return [(one.node, one.operator) for one in parse_check(graph, release).problems]


def split(parts):
    names = ",".join(f"y{number}" for number in range(parts))
    return node("Split", "x", names, axis=-1, num_outputs=parts)


def only(kind, shape=SHAPE):
    """A network whose input and result have a type."""
    return {"x": (kind, shape), "out": kind}


# a node, what else there is to know of its network, and by release if the parser imports it
IMPORTED = [
    (node("Hardmax"), {"opset": 13}, {"8.6.2": False, "10.0": True}),
    (node("Gelu"), {"opset": 20}, {"8.6.2": False, "10.0.1": True}),
    (node("Mish"), {}, {"8.6.2": False, "10.0": True}),
    (node("Trilu"), {"opset": 14}, {"8.4.1": False, "8.6": True}),
    (node("MeanVarianceNormalization"), {"opset": 13}, {"8.4.1": False, "8.5.2": True}),
    (node("Swish"), {"opset": 24}, {"10.16.2": False, "11.0": True}),
    (node("GridSample", "x,g"), {"opset": 16}, {"8.4": False, "8.5": True}),
    (
        node("DeformConv", "x,w1,o", kernel_shape=[1, 1]),
        {"opset": 19, "o": (FLOAT, [1, 2, 8, 8])},
        {"10.0": False, "10.1": True},
    ),
    (node("Pad", "x,p", mode="wrap"), {"opset": 19}, {"8.6.2": False, "10.0": True}),
    # as texts 8.10 would be older than 8.6
    (node("IsInf"), {"out": BOOL}, {"8.10": True}),
    (node("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]), {}, {"10.3": False}),
    (node("MaxPool", kernel_shape=[2, 2], dilations=[1, 1]), {}, {"10.3": True}),
    (node("AveragePool", kernel_shape=[2, 2], dilations=[1, 2]), {"opset": 19}, {"8.5": False}),
    (node("LpPool", kernel_shape=[2, 2]), {}, {"8.4": True}),
    (node("LpPool", kernel_shape=[2, 2], p=3), {}, {"10.3": False}),
    # the parser ignores domains
    (node("LpPool", kernel_shape=[2, 2], p=3, domain="com.microsoft"), {}, {"10.3": False}),
    (node("ScatterND", "x,i,u", reduction="add"), {}, {"10.3": False}),
    (node("ScatterND", "x,i,u", reduction="none"), {}, {"10.16": True}),
    (node("ScatterElements", "x,j,v", reduction="add"), {}, {"8.6": False, "10.0": True}),
    (
        node("GroupNormalization", "x,c4,c4", num_groups=2),
        {"opset": 21},
        {"10.3": False, "10.9": True},
    ),
    (node("Pow", "x,e"), {}, {"10.7": False, "10.8": True}),
    (node("MatMul", "v3,m"), {}, {"10.3": False}),
    (node("MatMul", "v3,m1"), {}, {"10.3": True}),
    (node("MatMul", "m,v4"), {}, {"11.5": True}),
    (node("RandomUniformLike", "x", dtype=DOUBLE), {"out": DOUBLE}, {"10.3": False}),
    (node("RandomNormalLike", "x", dtype=DOUBLE), {"out": DOUBLE}, {"11.5": False}),
    (node("RandomUniformLike", "x", dtype=HALF), {"out": HALF}, {"10.3": True}),
    (node("Einsum", "r,r", equation="...i,...i->...i"), {}, {"8.6": False, "10.1": True}),
    (node("Einsum", "r,r", equation="ab,ab->a"), {}, {"8.5": True}),
    (
        node("Einsum", "r,r", equation="bI,bJ->IJ"),
        {},
        {"8.6": False, "10.3": False, "11.4": False},
    ),
    (node("Gather", "b,i0"), {"out": BOOL}, {"8.4": False, "8.5": True}),
    (node("Where", "b,b,b"), {"out": BOOL}, {"8.4": False}),
    (node("Where", "b,v4,v4"), {}, {"8.4": True}),
    (node("Equal", "b,b"), {"out": BOOL}, {"8.4": False, "8.5.2": True}),
    # an output beyond the first
    (
        node("LayerNormalization", "x,s8", "y,mean", axis=-1),
        {},
        {"10.3": False},
    ),
    (node("Cast", to=FLOAT), {"x": (UINT8, SHAPE)}, {"8.4": False, "10.3": True}),
    (node("ReduceMax", "b", keepdims=0), {"opset": 20, "out": BOOL}, {"11.5": False}),
    (
        node("Attention", "t,t,t", q_num_heads=2, kv_num_heads=2),
        {"opset": 23},
        {"10.3": False, "10.16.2": True, "11.5": True},
    ),
    (node("Attention", "x,x,x", softmax_precision=FLOAT), {"opset": 23}, {"11.5": False}),
    # 8.6 reduces every dimension where none is to be reduced, and reads one operator's axes alone
    (node("ReduceSum", noop_with_empty_axes=1), {}, {"8.6.2": False}),
    (node("ReduceMax", noop_with_empty_axes=1), {}, {"8.5.2": False, "10.0": True}),
    (node("ReduceMean", "x,hw"), {}, {"8.5.2": False}),
    (node("ReduceMax", "x,c"), {}, {"8.6.2": False}),
    (node("ReduceL2", "x,c"), {"c": (INT64, [1])}, {"8.6.2": False}),
    (node("ReduceLogSumExp", "x,hw"), {}, {"10.0": True}),
    (node("ReduceMean", "x,every"), {}, {"8.5.2": True}),
    (node("ReduceSum", "x,hw"), {}, {"8.5.2": True}),
    (split(3), {}, {"8.6.2": False, "10.0": True}),
    (split(4), {}, {"8.6.2": True}),
    # names of opset 20 for the mode
    (
        node("GridSample", "x,g", mode="linear"),
        {"opset": 20},
        {"8.6.2": False, "10.16.2": False, "11.4.1": True},
    ),
    (node("GridSample", "x,g", mode="cubic"), {"opset": 20}, {"10.3": False}),
    (node("GridSample", "x,g", mode="nearest"), {"opset": 20}, {"10.3": True}),
    (node("GridSample", "x,g"), {"opset": 20}, {"10.3": True}),
    # 8 dimensions at most
    (
        node("Unsqueeze", "x,first"),
        {"x": (FLOAT, [1] * 8)},
        {"8.5.2": False, "11.5": False},
    ),
    (node("Unsqueeze", "x,first"), {"x": (FLOAT, [1] * 7)}, {"8.5.2": True, "11.5": True}),
    (node("Relu"), {"x": (FLOAT, [1] * 9)}, {"8.5.2": False, "11.5": False}),
    (node("Mish"), {"opset": 22, **only(BFLOAT16)}, {"10.3": False}),
    (node("Mish"), {"opset": 22, **only(HALF)}, {"10.3": True}),
    (node("HardSwish"), {"opset": 22, **only(BFLOAT16)}, {"11.5": False}),
    (node("GlobalLpPool"), {"opset": 22, **only(BFLOAT16)}, {"11.5": False}),
    (node("LpPool", kernel_shape=[2, 2]), {"opset": 22, **only(BFLOAT16)}, {"11.5": False}),
    (node("LpNormalization"), {"opset": 22, **only(BFLOAT16)}, {"11.5": False}),
    (node("Mod", "x,x"), {"opset": 22}, {"10.3": False}),
    (node("Mod", "x,x"), {"opset": 22, **only(INT8)}, {"11.5": False}),
    (node("Mod", "x,x"), {"opset": 22, **only(INT32)}, {"8.5.2": True}),
    (node("Mod", "x,x", fmod=1), {"opset": 22}, {"10.3": True}),
    (node("ReduceL2"), {"opset": 22, **only(INT32)}, {"11.5": False}),
    (node("ReduceSumSquare"), {"opset": 22, **only(INT32)}, {"11.5": True}),
    (node("Relu"), {"opset": 22, **only(INT32)}, {"11.5": False}),
    (node("Relu"), {"opset": 22, **only(INT64)}, {"8.6.2": False, "11.5": True}),
    (
        node("ConstantOfShape", "s", value=helper.make_tensor("v", UINT8, [1], [1])),
        {"s": (INT64, [2]), "out": UINT8, "shape": [None, None]},
        {"10.3": False},
    ),
    (node("LRN", size=5), {}, {"11.5": True}),
    (node("LRN", size=4), {}, {"11.5": False}),
    (node("LRN", size=17), {}, {"11.5": False}),
    (node("Softmax", "l"), {}, {"11.5": False}),
    (node("LogSoftmax", "l"), {}, {"11.5": False}),
    (node("Hardmax", "l"), {}, {"11.5": False}),
    # 8 x 8 gives 17 x 17 without padding, and half of the rest is put before
    *(
        (
            node("ConvTranspose", "x,w3", output_shape=[side, side], strides=[2, 2]),
            {"shape": [1, 4, side, side]},
            {"10.3": side < 19},
        )
        for side in (15, 17, 18, 19)
    ),
    *(
        (
            node("Attention", "q,k,v,m"),
            {
                "opset": 23,
                "q": (FLOAT, [1, 2, 4, 8]),
                "k": (FLOAT, [1, 2, 6, 8]),
                "v": (FLOAT, [1, 2, 6, width]),
                "m": (FLOAT, mask),
            },
            {"11.5": ok},  # by TensorRT for RTX 1.7
        )
        for width, mask, ok in (
            (8, [4, 6], True),
            (8, [1, 1, 1, 6], True),
            (8, [6], True),
            (8, [4, 4], False),
            (8, [1, 2, 3, 6], False),
            (10, [4, 6], False),
        )
    ),
]


@pytest.mark.parametrize(
    ("one", "more", "imported"), IMPORTED, ids=lambda v: getattr(v, "op_type", "")
)
def test_what_a_release_imports(graph, one, more, imported):
    made = graph(one, **more)
    for release, ok in imported.items():
        assert refused(made, release) == ([] if ok else [("n", one.op_type)]), release


RESIZED = [
    ({"mode": "linear"}, "x,,k", {}, {"8.4": True}),
    ({"mode": "linear", "antialias": 1}, "x,,k", {}, {"11.5": False}),
    ({"mode": "cubic"}, "x,,k", {}, {"8.4": False, "8.5": True}),
    ({"keep_aspect_ratio_policy": "not_larger"}, "x,,,z", {}, {"10.3": False}),
    (
        {"coordinate_transformation_mode": "half_pixel_symmetric"},
        "x,,k",
        {"opset": 19},
        {"10.3": False},
    ),
    ({"axes": [2, 3]}, "x,,f", {}, {"10.3": False}),
    ({"axes": [2, 3]}, "x,,k2", {}, {"10.3": True}),
    ({"axes": [2, 3], "mode": "linear"}, "x,,k2", {}, {"8.6.2": False, "10.0": True}),
    ({"axes": [0, 1, 2, 3], "mode": "linear"}, "x,,k", {}, {"8.6.2": True}),
    (
        {"axes": [3, 2, 1, 0], "mode": "linear"},
        "x,,k",
        {"k": np.full(4, 2, np.float32)},
        {"10.0": False},
    ),
    *(
        (
            {
                "coordinate_transformation_mode": "tf_half_pixel_for_nn",
                "nearest_mode": rounding,
            },
            "x,none,k",
            {"opset": 11},
            {"10.3": ok},
        )
        for rounding, ok in (("round_prefer_floor", True), ("ceil", False))
    ),
    *(
        (
            {"mode": mode},
            "x,,k" if opset == 18 else "x,k",
            {"opset": opset, "k": np.array(scales, np.float32)},
            dict.fromkeys(("8.6.2", "10.3", "11.4.1"), ok),
        )
        for opset, mode, scales, ok in (
            (18, "linear", [1, 2, 2, 2], True),
            (18, "linear", [2, 1, 1, 1], False),
            (18, "linear", [2, 2, 2, 2], False),
            (18, "cubic", [1, 1, 2, 2], True),
            (18, "cubic", [1, 2, 1, 1], False),
            (18, "nearest", [2, 2, 2, 2], True),
            (10, "linear", [2, 2, 2, 2], False),
            (9, "linear", [2, 1, 2, 2], False),
            (9, "nearest", [2, 1, 2, 2], True),
        )
    ),
]


@pytest.mark.parametrize(("attributes", "reads", "more", "imported"), RESIZED)
def test_resizes_that_a_release_imports(graph, attributes, reads, more, imported):
    operator = "Upsample" if more.get("opset") == 9 else "Resize"
    made = graph(node(operator, reads, **attributes), **more)
    for release, ok in imported.items():
        assert parse_check(made, release).ok is ok, release


@pytest.mark.parametrize(("operator", "opset"), [("Resize", 18), ("Upsample", 9)])
def test_computed_scales_are_imported_as_computed_sizes(graph, operator, opset):
    made = graph(
        node("Cast", "h", "s", to=FLOAT),
        helper.make_node(operator, ["x", "", "s"] if operator == "Resize" else ["x", "s"], ["y"]),
        opset=opset,
        h=(INT32, [4]),
    )
    assert all(parse_check(made, release).ok for release in ("8.4", "10.1", "11.4"))


def test_the_fix_names_release_jetpack_and_opset(graph):
    made = graph(node("LayerNormalization", "x,s8"), opset=17)
    problem = parse_check(made, "8.5.2", get(ORIN)).problems[0]
    assert "8.6" in problem.message
    order = [
        problem.fix.index(word)
        for word in ("TensorRT 8.6", "JetPack 6.0", "opset 16", "--outputs", '"LayerNormalization"')
    ]
    assert order == sorted(order)
    assert parse_check(made, "8.6.2").ok
    # no JetPack of a Xavier has it
    assert "JetPack" not in parse_check(made, "8.5.2", get(XAVIER)).problems[0].fix


@pytest.mark.parametrize("release", ["8.4", "11.5"])
def test_no_release_imports_integer_operators_and_the_fix_names_the_plugin(graph, release):
    shift = graph(node("BitShift", "x,x", direction="LEFT"), **only(UINT8, [4]))
    assert refused(shift, release) == [("n", "BitShift")]
    fix = parse_check(shift, release).problems[0].fix
    assert '"BitShift", version "1", namespace ""' in fix
    product = graph(
        node("MatMulInteger", "x,w"), x=(INT8, [4, 4]), w=np.ones((4, 4), np.int8), out=INT32
    )
    assert refused(product, release) == [("n", "MatMulInteger")]


def quantised(graph, scale=0.1, zero=None, **more):
    """A QuantizeLinear "n" and a DequantizeLinear "d"."""
    reads = ["s"] if zero is None else ["s", "z"]
    given = {"s": np.asarray(scale, np.float32)}
    if zero is not None:
        given["z"] = zero if isinstance(zero, tuple) else np.asarray(zero)
    return graph(
        node("QuantizeLinear", ",".join(["x", *reads]), "q", **more.pop("of_q", {})),
        helper.make_node("DequantizeLinear", ["q", *reads], ["y"], name="d"),
        **{"opset": 21, **given, **more},
    )


@pytest.mark.parametrize(
    ("scale", "zero", "release", "ok"),
    [
        (0.1, np.int16(0), "10.3", False),
        (0.1, np.uint16(0), "11.5", False),
        (0.1, np.uint8(128), "8.4", False),
        (0.1, np.uint8(128), "11.5", False),
        (0.1, np.uint8(0), "10.3", False),
        (0.1, np.uint8(0), "10.10", True),
        (0.1, np.int8(3), "10.3", False),
        (0.1, np.int8(0), "8.4", True),
        (0.0, np.int8(0), "8.5.2", False),
        (-0.1, np.int8(0), "10.3", False),
        ([0.1, -0.1, 0.1, 0.1], np.zeros(4, np.int8), "11.5", False),
    ],
)
def test_quantisation_is_symmetric_int8_of_positive_scales(graph, scale, zero, release, ok):
    found = refused(quantised(graph, scale, zero), release)
    assert bool(found) is not ok
    assert ok or ("n", "QuantizeLinear") in found


def test_16_bits_of_quantisation_are_told_to_be_8(graph):
    for problem in parse_check(quantised(graph, zero=np.int16(0)), "10.3").problems:
        assert "int16" in problem.message
        assert "quantise to 8 bits" in problem.fix
        assert "Cast" not in problem.fix


@pytest.mark.parametrize(("release", "ok"), [("8.6.2", False), ("10.0", True)])
def test_zero_points_may_be_left_out_from_10_on(graph, release, ok):
    found = {one.operator for one in parse_check(quantised(graph, opset=18), release).problems}
    assert ("DequantizeLinear" not in found) is ok


@pytest.mark.parametrize(("zero", "ok"), [(UINT8, False), (INT8, True)])
def test_computed_zero_points_are_int8_to_the_parser(graph, zero, ok):
    problems = parse_check(quantised(graph, zero=(zero, []), opset=18), "11.5").problems
    assert not problems if ok else "the results would be wrong" in problems[0].message


@pytest.mark.parametrize("release", ["10.3", "11.4.1"])
def test_uint8_is_dequantised_where_it_was_quantised_alone(graph, release):
    image = graph(
        node("DequantizeLinear", "x,s,z"), x=(UINT8, SHAPE), s=np.float32(0.1), z=np.uint8(0)
    )
    assert refused(image, release) == [("n", "DequantizeLinear")]
    typed = quantised(graph, of_q={"output_dtype": UINT8})
    assert ("n", "QuantizeLinear") in refused(typed, release)


def test_uint8_is_for_inputs_and_casts_alone(graph):
    moved = graph(
        node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        helper.make_node("Cast", ["t"], ["y"], name="c", to=FLOAT),
        x=(UINT8, SHAPE),
    )
    assert refused(moved, "10.3") == [("n", "Transpose")]


@pytest.mark.parametrize(
    ("one", "release", "word", "newer"),
    [
        (node("ScatterND", "x,i,u", reduction="add"), "8.6", "ignores", False),
        (node("ScatterND", "x,i,u", reduction="add"), "10.3", "refuses", False),
        (node("ScatterND", "x,i,u", reduction="none"), "10.1", "refuses", True),
        (node("ScatterElements", "x,j,v", reduction="add"), "8.5.2", "ignores", True),
        (node("Resize", "x,,k", mode="linear", antialias=1), "8.6", "ignores", False),
        (node("Resize", "x,,k", mode="linear", antialias=1), "10.0", "refuses", False),
        (node("Resize", "x,,,z", keep_aspect_ratio_policy="not_larger"), "8.5.2", "ignores", False),
        (node("LpPool", kernel_shape=[2, 2], ceil_mode=1), "8.6", "ignores", True),
        (node("LpPool", kernel_shape=[2, 2], dilations=[2, 2]), "8.6", "ignores", False),
        (node("LpPool", kernel_shape=[2, 2], dilations=[2, 2]), "10.3", "refuses", False),
    ],
)
def test_what_old_parsers_ignore_is_a_problem_with_its_own_words(graph, one, release, word, newer):
    """An ignored attribute gives wrong results; a release that then refuses it is no remedy."""
    (problem,) = parse_check(graph(one), release).problems
    assert f" {word} " in problem.message
    assert ("results would be wrong" in problem.message) is (word == "ignores")
    assert ("use TensorRT" in problem.fix) is newer


RECURRENT = [
    ("GRU", {"activations": ["Sigmoid", "Tanh"] * 2}, True),
    ("GRU", {"activations": ["Sigmoid", "Tanh", "HardSigmoid", "Tanh"]}, False),
    ("GRU", {"activations": ["Affine", "Tanh"] * 2}, False),
    ("RNN", {"activations": ["Relu", "Tanh"]}, False),
    ("RNN", {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.1, 0.2]}, False),
    ("RNN", {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.1]}, False),
    ("RNN", {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.01]}, True),
    ("LSTM", {}, True),
    ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Relu", "Tanh"]}, False),
    *((operator, {"layout": 1}, False) for operator in ("LSTM", "GRU", "RNN")),
]


@pytest.mark.parametrize(("operator", "attributes", "ok"), RECURRENT)
def test_recurrent_operators(graph, operator, attributes, ok):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    made = graph(
        node(operator, "x,w,r", hidden_size=8, direction="bidirectional", **attributes),
        x=(FLOAT, [2, 5, 4]),
        w=np.ones((2, 8 * gates, 4), np.float32),
        r=np.ones((2, 8 * gates, 8), np.float32),
    )
    for release in ("8.5.2", "10.3", "11.5"):
        found = parse_check(made, release)
        assert found.ok is ok
        assert "layout" not in attributes or "ignores" in found.problems[0].message


def body(name, nodes, inputs=(), outputs=None):
    """A branch or the body of a loop."""
    info = helper.make_tensor_value_info
    return helper.make_graph(
        nodes,
        name,
        [info(*one) for one in inputs],
        [info(*one) for one in outputs or [(nodes[-1].output[0], FLOAT, None)]],
    )


def branch(operator, name, out):
    return body(name, [helper.make_node(operator, ["x"], [out], name=name)])


def test_a_node_of_a_body_is_named_with_its_place(graph):
    inner = helper.make_node(
        "If",
        ["c"],
        ["i"],
        name="inner",
        then_branch=branch("Hardmax", "deep", "d"),
        else_branch=branch("Relu", "flat", "f"),
    )
    outer = node("If", "c", then_branch=body("i", [inner]), else_branch=branch("Neg", "other", "o"))
    made = graph(outer, c=(BOOL, []))
    parse = parse_check(made, "8.6.2")
    (problem,) = parse.problems
    assert (problem.node, problem.operator) == ("deep", "Hardmax")
    assert problem.place == "the then_branch of If 'inner' in the then_branch of If 'n'"
    assert problem.place in str(parse.refusal())
    assert parse_check(made, "10.0").ok


def looped(graph, nodes, inputs="count,true,x", outputs="y", results="on,b", **constants):
    """A network of one Loop, whose body carries ``a`` along as ``b``."""
    first, *more = results.split(",")
    inside = body(
        "body",
        nodes,
        [("step", INT64, []), ("go", BOOL, []), ("a", FLOAT, None)],
        [(first, BOOL, []), *((name, FLOAT, None) for name in more)],
    )
    one = helper.make_node("Loop", inputs.split(","), outputs.split(","), name="loop", body=inside)
    values = {"count": np.array(3), "true": np.array(True), **constants}
    used = {*one.input, *(name for part in nodes for name in part.input)}
    return graph(one, **{name: value for name, value in values.items() if name in used})


LOWER = [
    helper.make_node("ReduceMean", ["b"], ["m"], keepdims=0),
    helper.make_node("Less", ["m", "high"], ["on"]),
]
HIGH = {"high": np.array(9, np.float32)}


def test_what_is_refused_of_loops(graph):
    twice = helper.make_node("Add", ["a", "a"], ["b"])
    stays = helper.make_node("Identity", ["go"], ["on"])
    step = [
        helper.make_node("Cast", ["step"], ["s"], to=FLOAT),
        helper.make_node("Add", ["a", "s"], ["b"]),
    ]
    both = [helper.make_node("Concat", ["a", "a"], ["b"], axis=1), stays]
    collects = {"outputs": "y,all", "results": "on,b,m", **HIGH}

    def said(release, nodes, *arguments, **more):
        problems = parse_check(looped(graph, nodes, *arguments, **more), release).problems
        return [(one.node, one.message.partition(f"{release} ")[2]) for one in problems]

    assert said("10.3", [twice, stays]) == []
    assert said("10.3", [twice, *LOWER], ",true,x", **HIGH) == []
    assert said("10.3", [*step, stays]) == []
    for release in ("8.6", "10.3", "11.4"):
        ((name, text),) = said(release, [*step, *LOWER], ",true,x", **HIGH)
        assert name == "loop"
        assert text.startswith("refuses Loop without a trip count whose body reads the number")
        ((_, text),) = said(release, [twice, stays], "count,,x")
        assert text.startswith("refuses Loop without a first condition")
        ((_, text),) = said(release, both)
        assert text == "refuses Loop that carries along a tensor whose shape changes"
        ((_, text),) = said(release, [twice, *LOWER], **collects)
        assert text.startswith("ignores that a Loop's condition ends it early")
    ((_, text),) = said("10.3", [twice, *LOWER], ",true,x", **collects)
    assert text.startswith("ignores how many iterations")
    ((_, text),) = said("11.4", [twice, *LOWER], ",true,x", **collects)
    assert text.startswith("refuses Loop that collects")


def test_a_scan_needs_a_state(graph):
    inside = body(
        "body",
        [helper.make_node("Relu", ["r"], ["s"])],
        [("r", FLOAT, [4, 8, 8])],
        [("s", FLOAT, [4, 8, 8])],
    )
    made = graph(node("Scan", body=inside, num_scan_inputs=1))
    assert refused(made, "10.3") == [("n", "Scan")]


def test_branches_of_other_shapes_are_refused_by_the_builder(graph):
    made = graph(
        node(
            "If",
            "c",
            then_branch=branch("Relu", "one", "r"),
            else_branch=branch("GlobalAveragePool", "other", "p"),
        ),
        c=(BOOL, []),
    )
    (problem,) = parse_check(made, "10.3").problems
    assert problem.message.startswith("the builder of TensorRT 10.3 refuses If whose branches")
    assert parse_check(made, "11.4").ok


def test_a_dead_branch_is_not_parsed(graph):
    """NVIDIA's parser imports the taken branch alone where the condition is a constant."""
    branches = {
        "then_branch": branch("Relu", "inner_t", "t"),
        "else_branch": branch("Hardmax", "inner_e", "e"),
    }
    for condition in (True, False):
        made = graph(node("If", "c", **branches), c=np.array(condition))
        assert parse_check(made, "8.6.2").ok is condition


def test_what_edgekit_has_folded_is_not_parsed(graph):
    made = graph(
        node("BitShift", "a,a", "t", direction="LEFT"),
        helper.make_node("Cast", ["t"], ["u"], to=FLOAT),
        helper.make_node("Add", ["x", "u"], ["y"]),
        a=np.ones(8, np.uint8),
    )
    assert parse_check(made, "10.3").ok


@pytest.mark.parametrize("domain", ["", "TRT"])
def test_a_plugin_that_tensorrt_ships_is_no_problem(graph, domain):
    assert parse_check(graph(node("EfficientNMS_TRT", domain=domain), shape=SHAPE), "8.5.2").ok


@pytest.mark.parametrize(
    ("operator", "domain"),
    [
        ("BiasGelu", "com.microsoft"),
        ("Normalizer", "ai.onnx.ml"),
        ("MyOp", "acme"),
        ("MyOperation", ""),
    ],
)
def test_an_operator_of_no_importer_and_no_plugin_is_refused(graph, operator, domain):
    made = graph(node(operator, domain=domain), shape=SHAPE)
    for release in ("8.5.2", "10.3", "11.4.1"):
        assert refused(made, release) == [("n", operator)]
        assert f"--plugin {operator}" in parse_check(made, release).problems[0].fix
        # unless the user says that the board has a plugin for it
        assert parse_check(made, release, plugins=[operator]).ok
        assert not parse_check(made, release, plugins=["Another"]).ok


def test_an_operator_of_onnx_may_be_a_plugin_of_the_user_too(graph):
    assert parse_check(graph(node("Hardmax")), "8.5.2", plugins=["Hardmax"]).ok


@pytest.mark.parametrize(
    ("release", "says"),
    [("10.3", "which is no operator of ONNX"), ("10.16.2", "takes com.microsoft.Attention for")],
)
def test_an_operator_that_only_shares_a_name_is_refused_whatever_the_release(graph, release, says):
    """ONNX Runtime's Attention has weights among its inputs; the parser ignores the domain."""
    made = graph(
        node("Attention", "x,w,b", num_heads=2, domain="com.microsoft"),
        shape=[1, 4, 8],
        x=(FLOAT, [1, 4, 8]),
        w=np.ones((8, 24), np.float32),
        b=np.ones(24, np.float32),
    )
    (problem,) = parse_check(made, release, get(ORIN)).problems
    assert says in problem.message
    assert "TensorRT 10.14 or newer" not in problem.fix


@pytest.mark.parametrize(
    ("operator", "domain", "before", "since"),
    [
        ("TRT_FP8QuantizeLinear", "trt", "8.5.2", "8.6"),
        ("TRT_INT4DequantizeLinear", "trt", "8.6.2", "10.0"),
        ("TRT_MXFP8DynamicQuantize", "trt", "10.3", "10.15"),
        ("SkipSimplifiedLayerNormalization", "com.microsoft", "10.3", "10.16"),
        ("MultiHeadAttention", "com.microsoft", "10.16.2", "11.4.1"),
        ("TRT_RNNv2", "trt", "10.0", "8.6.2"),
    ],
)
def test_operators_of_nvidia_and_onnx_runtime_are_imported_by_releases_that_know_them(
    graph, operator, domain, before, since
):
    made = graph(node(operator, domain=domain), shape=SHAPE)
    (problem,) = parse_check(made, before, get(ORIN)).problems
    release = "10.0" if since == "8.6.2" else since.removesuffix(".4.1")
    assert f"{release}" in problem.message
    assert ("optimizer" in problem.fix) is (domain == "com.microsoft")
    assert parse_check(made, since).ok


def test_a_remedy_is_within_the_board_s_reach_and_says_if_the_dla_is_lost(graph):
    mish = graph(node("Mish"))
    attention = graph(node("Attention", "x,x,x"), opset=23)
    stft = graph(node("STFT", "a,t"), a=(FLOAT, [1, 64, 1]), t=np.asarray(8, np.int64))

    def fix(made, board, release):
        return parse_check(made, release, get(board)).problems[0].fix

    assert not fix(mish, "jetson-xavier-nx", "8.5.2").startswith("use TensorRT")
    assert "JetPack 6.1 brings 10.3" in fix(mish, "jetson-orin-nx-16gb", "8.6.2")
    assert "DLA" not in fix(mish, "jetson-orin-nx-16gb", "8.6.2")
    lost = fix(attention, "jetson-orin-nx-16gb", "10.3")
    assert "10.16.2, which does not support this board's DLA" in lost
    kept = fix(attention, ORIN, "10.3")
    assert "JetPack 7.2.2 brings 11.4.1, which supports it" in kept
    # a board without a DLA loses none, and a release that can be installed is within reach
    assert "DLA" not in fix(attention, "jetson-orin-nano-8gb", "10.3")
    assert "JetPack 6.1 takes up to 10.7)" in fix(stft, "jetson-orin-nx-16gb", "10.3")


def test_a_fix_is_for_every_value_that_is_refused(graph):
    for reduction in ("add", "mul", "max", "min"):
        made = graph(node("ScatterND", "x,i,u", reduction=reduction))
        fix = parse_check(made, "10.3").problems[0].fix
        assert {"Add", "Mul", "Max", "Min"} <= {word.strip(",") for word in fix.split()}
        assert fix.count("cut") == 1


@pytest.mark.parametrize("other", ["10.3.0", "10.3.0.30"])
def test_releases_compare_by_numbers(graph, other):
    made = graph(node("Hardmax"))
    assert parse_check(made, "10.3").problems == parse_check(made, other).problems


def test_what_is_no_release_is_refused(graph):
    with pytest.raises(UsageError) as error:
        parse_check(graph(node("Relu")), "latest")
    assert error.value.code == "tensorrt.version"


def test_every_operator_of_onnx_has_a_row():
    table = operator_table()
    names = {schema.name for schema in defs.get_all_schemas_with_history() if not schema.domain}

    assert names - table.operators.keys() - table.missing.keys() == set()
    assert not table.operators.keys() & table.missing.keys()


def test_every_row_has_sources_that_are_listed_and_operators_that_are_imported():
    table = operator_table()
    listed = read_knowledge(data_folder("trt") / "_sources.yaml")["sources"].keys()
    rows = [*table.operators.values(), *table.missing.values(), *table.refusals]

    assert {key for row in rows for key in row.source} <= listed
    assert {*table.source, *table.plugins.source} <= listed
    assert all(row.source for row in table.refusals)
    assert {name for row in table.refusals for name in row.operators} <= table.operators.keys()
    assert len({row.id for row in table.refusals}) == len(table.refusals)


def test_a_refused_node_is_named_with_its_module_and_line(tmp_path):
    stack = (
        'File "/home/me/net.py", line 12, in forward\n    return self.head(x)\n'
        'File "/env/lib/python3.12/site-packages/torch/nn/modules/module.py", line 9, in _call\n'
        'File "/home/me/net.py", line 31, in forward\n    return self.norm(x) * 2\n'
        'File "/env/lib/python3.12/site-packages/torch/nn/functional.py", line 3, in hardmax\n'
    )
    hard = node("Hardmax")
    for key, value in (
        ("name_scopes", "['', 'head', 'head.norm', 'hardmax']"),
        ("class_hierarchy", "['net.Net', 'net.Head', 'net.Norm', 'aten.hardmax.default']"),
        ("stack_trace", stack),
    ):
        hard.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    values = [
        helper.make_tensor_value_info(*one) for one in (("x", FLOAT, SHAPE), ("y", FLOAT, SHAPE))
    ]
    proto = helper.make_model(
        helper.make_graph([hard], "g", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save(proto, tmp_path / "model.onnx")
    found = edgekit.check(tmp_path / "model.onnx", target=XAVIER)
    (problem,) = found.parse.problems
    assert (problem.module, problem.kind) == ("head.norm", "net.Norm")
    assert problem.line == "/home/me/net.py:31: return self.norm(x) * 2"
    assert "leave=['head.norm']" in problem.fix
    (error,) = found.failures()
    named = "module 'head.norm' (Norm), /home/me/net.py:31: return self.norm(x) * 2"
    assert named in error.message
    assert named in str(found)
    assert "/home/me" not in str(load(tmp_path / "model.onnx").proto)
    with pytest.raises(GateError) as refused:
        edgekit.plan(tmp_path / "model.onnx", target=XAVIER)
    assert named in refused.value.message
