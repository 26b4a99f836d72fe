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
from edgekit_device.protocol.codec import write

FLOAT, HALF, UINT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8
IMAGE = ("x", FLOAT, [1, 4, 8, 8])
RESULT = ("y", FLOAT, [1, 4, 8, 8])
ONES = np.ones(8, np.float32)


@pytest.fixture
def graph(tmp_path):
    """Returns the graph of a model of these nodes."""

    def made(*nodes, opset=18, inputs=(IMAGE,), outputs=(RESULT,), constants=None, domains=()):
        proto = helper.make_model(
            helper.make_graph(
                nodes,
                "g",
                [helper.make_tensor_value_info(*value) for value in inputs],
                [helper.make_tensor_value_info(*value) for value in outputs],
                [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()],
            ),
            opset_imports=[helper.make_opsetid("", opset)]
            + [helper.make_opsetid(domain, 1) for domain in domains],
            ir_version=10,
        )
        path = tmp_path / "model.onnx"
        onnx.save(proto, path)
        return load(path).graph

    return made


def node(operator, inputs="x", outputs="y", **attributes):
    return helper.make_node(operator, inputs.split(","), outputs.split(","), name="n", **attributes)


def refused(graph, release):
    return [(one.node, one.operator) for one in parse_check(graph, release).problems]


@pytest.mark.parametrize(
    ("operator", "opset", "before", "since"),
    [
        ("Hardmax", 13, "8.6.2", "10.0"),
        ("Gelu", 20, "8.6.2", "10.0.1"),
        ("Mish", 18, "8.6.2", "10.0"),
        ("Trilu", 14, "8.4.1", "8.6"),
        ("MeanVarianceNormalization", 13, "8.4.1", "8.5.2"),
        ("Swish", 24, "10.16.2", "11.0"),
    ],
)
def test_an_operator_of_one_input_is_imported_from_its_release_on(
    graph, operator, opset, before, since
):
    made = graph(node(operator), opset=opset)

    assert refused(made, before) == [("n", operator)]
    assert parse_check(made, since).ok


def test_layer_normalization_needs_8_6_and_the_fix_names_release_jetpack_and_opset(graph):
    made = graph(node("LayerNormalization", "x,s"), opset=17, constants={"s": ONES})

    problem = parse_check(made, "8.5.2", get("jetson-agx-orin-64gb")).problems[0]
    assert "8.6" in problem.message
    order = [
        problem.fix.index(word)
        for word in ("TensorRT 8.6", "JetPack 6.0", "opset 16", "--outputs", '"LayerNormalization"')
    ]
    assert order == sorted(order)
    assert parse_check(made, "8.6.2").ok
    # no JetPack of a Xavier has it
    assert "JetPack" not in parse_check(made, "8.5.2", get("jetson-agx-xavier")).problems[0].fix


def test_grid_sample_needs_8_5(graph):
    made = graph(
        node("GridSample", "x,g"),
        opset=16,
        inputs=(IMAGE, ("g", FLOAT, [1, 8, 8, 2])),
    )

    assert refused(made, "8.4") == [("n", "GridSample")]
    assert parse_check(made, "8.5").ok


def test_deformable_convolution_needs_10_1_and_no_plugin_after(graph):
    made = graph(
        node("DeformConv", "x,w,o", kernel_shape=[1, 1]),
        opset=19,
        inputs=(IMAGE, ("o", FLOAT, [1, 2, 8, 8])),
        constants={"w": np.ones((4, 4, 1, 1), np.float32)},
    )

    assert refused(made, "10.0") == [("n", "DeformConv")]
    assert parse_check(made, "10.1").ok


@pytest.mark.parametrize("release", ["8.4", "8.5.2", "10.3", "10.16.2", "11.5"])
def test_no_release_imports_integer_operators_and_the_fix_names_the_plugin(graph, release):
    shift = graph(
        node("BitShift", "x,x", direction="LEFT"),
        inputs=[("x", UINT8, [4])],
        outputs=[("y", UINT8, [4])],
    )
    product = graph(
        node("MatMulInteger", "x,w"),
        inputs=[("x", TensorProto.INT8, [4, 4])],
        outputs=[("y", TensorProto.INT32, [4, 4])],
        constants={"w": np.ones((4, 4), np.int8)},
    )

    assert refused(shift, release) == [("n", "BitShift")]
    assert refused(product, release) == [("n", "MatMulInteger")]
    fix = parse_check(shift, release).problems[0].fix
    assert '"BitShift", version "1", namespace ""' in fix


@pytest.mark.parametrize(
    ("zero", "release", "ok"),
    [
        (np.int16(0), "10.3", False),
        (np.uint16(0), "11.5", False),
        (np.uint8(128), "8.4", False),
        (np.uint8(128), "11.5", False),
        (np.uint8(0), "10.3", False),
        (np.uint8(0), "10.10", True),
        (np.int8(3), "10.3", False),
        (np.int8(0), "8.4", True),
    ],
)
def test_quantisation_is_symmetric_int8(graph, zero, release, ok):
    made = graph(
        node("QuantizeLinear", "x,s,z", "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
        opset=21,
        constants={"s": np.float32(0.1), "z": np.asarray(zero)},
    )

    assert refused(made, release) == (
        [] if ok else [("n", "QuantizeLinear"), ("d", "DequantizeLinear")]
    )


@pytest.mark.parametrize(
    ("made_of", "options", "release", "ok"),
    [
        (node("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]), {}, "10.3", False),
        (node("MaxPool", kernel_shape=[2, 2], dilations=[1, 1]), {}, "10.3", True),
        (node("AveragePool", kernel_shape=[2, 2], dilations=[1, 2]), {"opset": 19}, "8.5", False),
        (node("LpPool", kernel_shape=[2, 2]), {}, "8.4", True),
        (node("LpPool", kernel_shape=[2, 2], p=3), {}, "10.3", False),
        (node("ScatterND", "x,i,u", reduction="add"), {}, "10.3", False),
        (node("ScatterND", "x,i,u", reduction="none"), {}, "10.16", True),
        (node("ScatterElements", "x,j,v", reduction="add"), {}, "8.6", False),
        (node("ScatterElements", "x,j,v", reduction="add"), {}, "10.0", True),
        (node("GroupNormalization", "x,c4,c4", num_groups=2), {"opset": 21}, "10.3", False),
        (node("GroupNormalization", "x,c4,c4", num_groups=2), {"opset": 21}, "10.9", True),
        (node("Resize", "x,,k", mode="linear"), {}, "8.4", True),
        (node("Resize", "x,,k", mode="linear", antialias=1), {}, "11.5", False),
        (node("Resize", "x,,k", mode="cubic"), {}, "8.4", False),
        (node("Resize", "x,,k", mode="cubic"), {}, "8.5", True),
        (
            node("Resize", "x,,,z", keep_aspect_ratio_policy="not_larger"),
            {},
            "10.3",
            False,
        ),
        (
            node("Resize", "x,,k", coordinate_transformation_mode="half_pixel_symmetric"),
            {"opset": 19},
            "10.3",
            False,
        ),
        (node("Pow", "x,e"), {}, "10.7", False),
        (node("Pow", "x,e"), {}, "10.8", True),
        (node("MatMul", "v3,m"), {}, "10.3", False),
        (node("MatMul", "v3,m1"), {}, "10.3", True),
        (node("MatMul", "m,v4"), {}, "11.5", True),
        (node("RandomUniformLike", "x", dtype=TensorProto.DOUBLE), {}, "10.3", False),
        (node("RandomNormalLike", "x", dtype=TensorProto.DOUBLE), {}, "11.5", False),
        (node("RandomUniformLike", "x", dtype=HALF), {}, "10.3", True),
        (node("Resize", "x,,f", axes=[2, 3]), {}, "10.3", False),
        (node("Resize", "x,,k2", axes=[2, 3]), {}, "10.3", True),
    ],
)
def test_attributes_and_types_that_the_parser_refuses(graph, made_of, options, release, ok):
    constants = {
        "i": np.zeros((1, 1), np.int64),
        "u": np.ones((1, 4, 8, 8), np.float32),
        "j": np.zeros((1, 1, 1, 1), np.int64),
        "v": np.ones((1, 1, 1, 1), np.float32),
        "c4": np.ones(4, np.float32),
        "k": np.array([1, 1, 2, 2], np.float32),
        "z": np.array([1, 4, 16, 16], np.int64),
        "e": np.asarray(3, np.int64),
        "k2": np.array([2, 2], np.float32),
    }
    others = {"v3": [3], "v4": [4], "m": [2, 3, 4], "m1": [1, 3, 4], "f": [2]}
    read = {name: value for name, value in constants.items() if name in made_of.input}
    inputs = [IMAGE, *((n, FLOAT, shape) for n, shape in others.items() if n in made_of.input)]
    made = graph(made_of, inputs=inputs, outputs=[("y", FLOAT, None)], constants=read, **options)

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(
    ("made_of", "release", "word", "newer"),
    [
        (node("ScatterND", "x,i,u", reduction="add"), "8.6", "ignores", False),
        (node("ScatterND", "x,i,u", reduction="add"), "10.3", "refuses", False),
        (node("ScatterND", "x,i,u", reduction="none"), "10.1", "refuses", True),
        (node("ScatterElements", "x,j,v", reduction="add"), "8.5.2", "ignores", True),
        (node("Resize", "x,,k", mode="linear", antialias=1), "8.6", "ignores", False),
        (node("Resize", "x,,k", mode="linear", antialias=1), "10.0", "refuses", False),
        (
            node("Resize", "x,,,z", keep_aspect_ratio_policy="not_larger"),
            "8.5.2",
            "ignores",
            False,
        ),
        (node("LpPool", kernel_shape=[2, 2], ceil_mode=1), "8.6", "ignores", True),
        (node("LpPool", kernel_shape=[2, 2], dilations=[2, 2]), "8.6", "ignores", False),
        (node("LpPool", kernel_shape=[2, 2], dilations=[2, 2]), "10.3", "refuses", False),
    ],
)
def test_what_old_parsers_ignore_is_a_problem_with_its_own_words(
    graph, made_of, release, word, newer
):
    """An ignored attribute gives wrong results; a release that then refuses it is no remedy."""
    constants = {
        "i": np.zeros((1, 1), np.int64),
        "u": np.ones((1, 4, 8, 8), np.float32),
        "j": np.zeros((1, 1, 1, 1), np.int64),
        "v": np.ones((1, 1, 1, 1), np.float32),
        "k": np.array([1, 1, 2, 2], np.float32),
        "z": np.array([1, 4, 16, 16], np.int64),
    }
    read = {name: value for name, value in constants.items() if name in made_of.input}
    made = graph(made_of, outputs=[("y", FLOAT, None)], constants=read)

    (problem,) = parse_check(made, release).problems
    assert f" {word} " in problem.message
    assert ("results would be wrong" in problem.message) is (word == "ignores")
    assert ("use TensorRT" in problem.fix) is newer


@pytest.mark.parametrize("release", ["8.4", "10.3", "11.4"])
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_no_parser_reads_the_layout_of_a_recurrent_operator(graph, operator, gates, release):
    def made(layout):
        return graph(
            node(operator, "x,w,r", hidden_size=8, layout=layout),
            inputs=[("x", FLOAT, [2, 5, 4])],
            outputs=[("y", FLOAT, None)],
            constants={
                "w": np.ones((1, 8 * gates, 4), np.float32),
                "r": np.ones((1, 8 * gates, 8), np.float32),
            },
        )

    assert parse_check(made(0), release).ok
    assert "ignores" in parse_check(made(1), release).problems[0].message


@pytest.mark.parametrize(
    ("equation", "release", "ok"),
    [
        ("...i,...i->...i", "8.6", False),
        ("...i,...i->...i", "10.1", True),
        ("ab,ab->a", "8.5", True),
    ],
)
def test_an_ellipsis_of_einsum_is_read_from_10_on(graph, equation, release, ok):
    made = graph(
        node("Einsum", "x,x", equation=equation),
        inputs=[("x", FLOAT, [4, 8])],
        outputs=[("y", FLOAT, None)],
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize("release", ["8.6", "10.3", "11.4"])
def test_capital_letters_of_einsum_are_refused_by_every_parser(graph, release):
    made = graph(
        node("Einsum", "x,x", equation="bI,bJ->IJ"),
        inputs=[("x", FLOAT, [4, 8])],
        outputs=[("y", FLOAT, None)],
    )

    (problem,) = parse_check(made, release).problems
    assert "lower-case" in problem.fix


@pytest.mark.parametrize("release", ["8.4", "10.1", "11.4"])
@pytest.mark.parametrize(("operator", "opset"), [("Resize", 18), ("Upsample", 9)])
def test_computed_scales_are_imported_as_computed_sizes(graph, operator, opset, release):
    made = graph(
        node("Cast", "h", "s", to=FLOAT),
        helper.make_node(operator, ["x", "", "s"] if operator == "Resize" else ["x", "s"], ["y"]),
        opset=opset,
        inputs=[IMAGE, ("h", TensorProto.INT32, [4])],
        outputs=[("y", FLOAT, None)],
    )

    assert parse_check(made, release).ok


@pytest.mark.parametrize(
    ("operator", "inputs", "release", "ok"),
    [
        ("Gather", "b,i", "8.4", False),
        ("Gather", "b,i", "8.5", True),
        ("Where", "b,b,b", "8.4", False),
        ("Where", "b,x,x", "8.4", True),
        ("Equal", "b,b", "8.4", False),
        ("Equal", "b,b", "8.5.2", True),
    ],
)
def test_bool_data_of_8_4(graph, operator, inputs, release, ok):
    made = graph(
        node(operator, inputs),
        inputs=[("b", TensorProto.BOOL, [4]), ("x", FLOAT, [4])],
        outputs=[("y", FLOAT if inputs == "b,x,x" else TensorProto.BOOL, None)],
        constants={"i": np.zeros(1, np.int64)},
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(("release", "ok"), [("8.6.2", False), ("10.0", True)])
def test_zero_points_may_be_left_out_from_10_on(graph, release, ok):
    made = graph(
        node("QuantizeLinear", "x,s", "q"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], name="d"),
        constants={"s": np.float32(0.1)},
    )
    codes = {found.operator for found in parse_check(made, release).problems}

    assert ("DequantizeLinear" not in codes) is ok


def test_an_output_beyond_the_first_is_refused(graph):
    indices = ("i", TensorProto.INT64, None)
    pool = graph(node("MaxPool", "x", "y,i", kernel_shape=[1, 1]), outputs=[RESULT, indices])
    norm = graph(
        node("LayerNormalization", "x,s", "y,m", axis=-1),
        outputs=[RESULT, ("m", FLOAT, None)],
        constants={"s": ONES},
    )

    assert refused(pool, "10.3") == [("n", "MaxPool")]
    assert refused(norm, "10.3") == [("n", "LayerNormalization")]


def test_uint8_is_for_inputs_and_casts_alone(graph):
    image = ("x", UINT8, [1, 4, 8, 8])
    cast = graph(node("Cast", to=FLOAT), inputs=[image])
    moved = graph(
        node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        helper.make_node("Cast", ["t"], ["y"], name="c", to=FLOAT),
        inputs=[image],
        outputs=[("y", FLOAT, None)],
    )

    assert parse_check(cast, "10.3").ok
    assert refused(cast, "8.4") == [("n", "Cast")]
    assert refused(moved, "10.3") == [("n", "Transpose")]


def test_reductions_of_bool_are_refused(graph):
    made = graph(
        node("ReduceMax", "x", keepdims=0),
        opset=20,
        inputs=[("x", TensorProto.BOOL, [4])],
        outputs=[("y", TensorProto.BOOL, [])],
    )

    assert refused(made, "11.5") == [("n", "ReduceMax")]


@pytest.mark.parametrize(("release", "ok"), [("10.3", False), ("10.16.2", True), ("11.5", True)])
def test_attention_of_three_dimensions(graph, release, ok):
    made = graph(
        node("Attention", "x,x,x", q_num_heads=2, kv_num_heads=2),
        opset=23,
        inputs=[("x", FLOAT, [1, 16, 8])],
        outputs=[("y", FLOAT, None)],
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(
    ("value", "mask", "ok"),
    [
        ([1, 2, 6, 8], [4, 6], True),
        ([1, 2, 6, 8], [1, 1, 1, 6], True),
        ([1, 2, 6, 8], [6], True),
        ([1, 2, 6, 8], [4, 4], False),
        ([1, 2, 6, 8], [1, 2, 3, 6], False),
        ([1, 2, 6, 10], [4, 6], False),
    ],
)
def test_attention_takes_keys_like_values_and_a_mask_of_queries_by_keys(graph, value, mask, ok):
    """By TensorRT for RTX 1.7, whose parser refuses the others."""
    shapes = {"q": [1, 2, 4, 8], "k": [1, 2, 6, 8], "v": value, "m": mask}
    made = graph(
        node("Attention", "q,k,v,m"),
        opset=23,
        inputs=[(name, FLOAT, shape) for name, shape in shapes.items()],
        outputs=[("y", FLOAT, None)],
    )

    assert parse_check(made, "11.5").ok is ok


@pytest.mark.parametrize(("zero", "ok"), [(UINT8, False), (TensorProto.INT8, True)])
def test_computed_zero_points_are_int8_to_the_parser(graph, zero, ok):
    made = graph(
        node("QuantizeLinear", "x,s,z", "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
        inputs=[IMAGE, ("z", zero, [])],
        constants={"s": np.float32(0.1)},
    )
    problems = parse_check(made, "11.5").problems

    assert not problems if ok else "the results would be wrong" in problems[0].message


def test_nodes_of_bodies_count(graph):
    def body(name, operator):
        out = helper.make_tensor_value_info(name, FLOAT, [1, 4, 8, 8])
        return helper.make_graph(
            [helper.make_node(operator, ["x"], [name], name=f"inner_{name}")], name, [], [out]
        )

    made = graph(
        node("If", "c", then_branch=body("t", "Hardmax"), else_branch=body("e", "Relu")),
        inputs=[IMAGE, ("c", TensorProto.BOOL, [])],
    )

    assert refused(made, "8.6.2") == [("inner_t", "Hardmax")]
    assert parse_check(made, "10.0").ok


def test_a_node_of_a_body_is_named_with_its_place(graph):
    def body(name, nodes):
        out = helper.make_tensor_value_info(name, FLOAT, [1, 4, 8, 8])
        return helper.make_graph(nodes, name, [], [out])

    deep = helper.make_node("Hardmax", ["x"], ["d"], name="deep")
    flat = helper.make_node("Relu", ["x"], ["f"], name="flat")
    inner = helper.make_node(
        "If",
        ["c"],
        ["i"],
        name="inner",
        then_branch=body("d", [deep]),
        else_branch=body("f", [flat]),
    )
    other = helper.make_node("Neg", ["x"], ["o"], name="other")
    made = graph(
        helper.make_node(
            "If",
            ["c"],
            ["y"],
            name="outer",
            then_branch=body("i", [inner]),
            else_branch=body("o", [other]),
        ),
        inputs=[IMAGE, ("c", TensorProto.BOOL, [])],
    )

    parse = parse_check(made, "8.6.2")
    (problem,) = parse.problems
    assert (problem.node, problem.operator) == ("deep", "Hardmax")
    assert problem.place == "the then_branch of If 'inner' in the then_branch of If 'outer'"
    assert problem.place in str(parse.refusal())


def looped(graph, nodes, inputs="n,t,x", outputs="y", results="on,b", **constants):
    """A network of one Loop, whose body carries ``a`` along as ``b``."""
    first, *more = results.split(",")
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes,
        "body",
        [
            info("step", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("a", FLOAT, None),
        ],
        [info(first, TensorProto.BOOL, []), *(info(name, FLOAT, None) for name in more)],
    )
    one = helper.make_node("Loop", inputs.split(","), outputs.split(","), name="loop", body=body)
    values = {"n": np.array(3), "t": np.array(True), **constants}
    used = {*one.input, *(name for part in nodes for name in part.input)}
    values = {name: value for name, value in values.items() if name in used}
    return graph(one, inputs=[IMAGE], constants=values)


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
    assert said("10.3", [twice, *LOWER], ",t,x", **HIGH) == []
    assert said("10.3", [*step, stays]) == []
    for release in ("8.6", "10.3", "11.4"):
        ((name, text),) = said(release, [*step, *LOWER], ",t,x", **HIGH)
        assert name == "loop"
        assert text.startswith("refuses Loop without a trip count whose body reads the number")
        ((_, text),) = said(release, [twice, stays], "n,,x")
        assert text.startswith("refuses Loop without a first condition")
        ((_, text),) = said(release, both)
        assert text == "refuses Loop that carries along a tensor whose shape changes"
        ((_, text),) = said(release, [twice, *LOWER], **collects)
        assert text.startswith("ignores that a Loop's condition ends it early")
    ((_, text),) = said("10.3", [twice, *LOWER], ",t,x", **collects)
    assert text.startswith("ignores how many iterations")
    ((_, text),) = said("11.4", [twice, *LOWER], ",t,x", **collects)
    assert text.startswith("refuses Loop that collects")


def test_a_scan_needs_a_state(graph):
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Relu", ["r"], ["s"])],
        "body",
        [info("r", FLOAT, [4, 8, 8])],
        [info("s", FLOAT, [4, 8, 8])],
    )
    made = graph(
        helper.make_node("Scan", ["x"], ["y"], name="scan", body=body, num_scan_inputs=1),
        inputs=[IMAGE],
    )
    assert refused(made, "10.3") == [("scan", "Scan")]


def test_branches_of_other_shapes_are_refused_by_the_builder(graph):
    info = helper.make_tensor_value_info
    one = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "one", [], [info("r", FLOAT, None)]
    )
    other = helper.make_graph(
        [helper.make_node("GlobalAveragePool", ["x"], ["p"])], "other", [], [info("p", FLOAT, None)]
    )
    made = graph(
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=one, else_branch=other),
        inputs=[IMAGE, ("c", TensorProto.BOOL, [])],
    )
    (problem,) = parse_check(made, "10.3").problems
    assert problem.message.startswith("the builder of TensorRT 10.3 refuses If whose branches")
    assert parse_check(made, "11.4").ok


def test_what_edgekit_has_folded_is_not_parsed(graph):
    made = graph(
        node("BitShift", "a,a", "t", direction="LEFT"),
        helper.make_node("Cast", ["t"], ["u"], to=FLOAT),
        helper.make_node("Add", ["x", "u"], ["y"]),
        constants={"a": np.ones(8, np.uint8)},
    )

    assert parse_check(made, "10.3").ok


@pytest.mark.parametrize("domain", ["", "TRT"])
def test_a_plugin_that_tensorrt_ships_is_no_problem(graph, domain):
    made = graph(node("EfficientNMS_TRT", domain=domain), domains=[domain] if domain else [])

    assert parse_check(made, "8.5.2").ok


@pytest.mark.parametrize("release", ["8.5.2", "10.3", "11.4.1"])
@pytest.mark.parametrize(
    ("operator", "domain"),
    [
        ("Inverse", "com.microsoft"),
        ("BiasGelu", "com.microsoft"),
        ("Normalizer", "ai.onnx.ml"),
        ("MyOp", "acme"),
        ("MyOperation", ""),
    ],
)
def test_an_operator_of_no_importer_and_no_plugin_is_refused(graph, operator, domain, release):
    made = graph(node(operator, domain=domain), domains=[domain] if domain else [])

    assert refused(made, release) == [("n", operator)]
    assert f"--plugin {operator}" in parse_check(made, release).problems[0].fix
    # unless the user says that the board has a plugin for it
    assert parse_check(made, release, plugins=[operator]).ok
    assert not parse_check(made, release, plugins=["Another"]).ok


def test_an_operator_of_onnx_may_be_a_plugin_of_the_user_too(graph):
    made = graph(node("Hardmax"))

    assert parse_check(made, "8.5.2", plugins=["Hardmax"]).ok


@pytest.mark.parametrize(
    ("release", "says"),
    [("10.3", "which is no operator of ONNX"), ("10.16.2", "takes com.microsoft.Attention for")],
)
def test_an_operator_that_only_shares_a_name_is_refused_whatever_the_release(graph, release, says):
    """ONNX Runtime's Attention has weights among its inputs; the parser ignores the domain."""
    made = graph(
        node("Attention", "x,w,b", num_heads=2, domain="com.microsoft"),
        inputs=[("x", FLOAT, [1, 4, 8])],
        outputs=[("y", FLOAT, [1, 4, 8])],
        constants={"w": np.ones((8, 24), np.float32), "b": np.ones(24, np.float32)},
        domains=["com.microsoft"],
    )

    (problem,) = parse_check(made, release, get("jetson-agx-orin-64gb")).problems
    assert says in problem.message
    assert "TensorRT 10.14 or newer" not in problem.fix


def test_a_dead_branch_is_not_parsed(graph):
    """NVIDIA's parser imports the taken branch alone where the condition is a constant."""

    def body(name, operator):
        out = helper.make_tensor_value_info(name, FLOAT, [1, 4, 8, 8])
        inner = helper.make_node(operator, ["x"], [name], name=f"inner_{name}")
        return helper.make_graph([inner], name, [], [out])

    def made(condition):
        branches = {"then_branch": body("t", "Relu"), "else_branch": body("e", "Hardmax")}
        return graph(node("If", "c", **branches), constants={"c": np.array(condition)})

    assert parse_check(made(True), "8.6.2").ok
    assert not parse_check(made(False), "8.6.2").ok


@pytest.mark.parametrize("release", ["8.5.2", "10.3", "11.5"])
@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_16_bits_of_quantisation_are_told_to_be_8(graph, operator, release):
    made = graph(
        node("QuantizeLinear", "x,s,z", "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
        opset=21,
        constants={"s": np.float32(0.1), "z": np.int16(0)},
    )
    (problem,) = (one for one in parse_check(made, release).problems if one.operator == operator)

    assert "int16" in problem.message
    assert "quantise to 8 bits" in problem.fix
    assert "Cast" not in problem.fix


def test_a_remedy_is_within_the_board_s_reach_and_says_if_the_dla_is_lost(graph):
    mish = graph(node("Mish"), opset=18)
    attention = graph(node("Attention", "x,x,x"), opset=23)
    stft = graph(
        node("STFT", "a,t"),
        inputs=[("a", FLOAT, [1, 64, 1])],
        outputs=[("y", FLOAT, None)],
        constants={"t": np.asarray(8, np.int64)},
    )

    def fix(made, board, release):
        return parse_check(made, release, get(board)).problems[0].fix

    assert not fix(mish, "jetson-xavier-nx", "8.5.2").startswith("use TensorRT")
    assert "JetPack 6.1 brings 10.3" in fix(mish, "jetson-orin-nx-16gb", "8.6.2")
    assert "DLA" not in fix(mish, "jetson-orin-nx-16gb", "8.6.2")
    lost = fix(attention, "jetson-orin-nx-16gb", "10.3")
    assert "10.16.2, which does not support this board's DLA" in lost
    kept = fix(attention, "jetson-agx-orin-64gb", "10.3")
    assert "JetPack 7.2.2 brings 11.4.1, which supports it" in kept
    # a board without a DLA loses none, and a release that can be installed is within reach
    assert "DLA" not in fix(attention, "jetson-orin-nano-8gb", "10.3")
    assert "JetPack 6.1 takes up to 10.7)" in fix(stft, "jetson-orin-nx-16gb", "10.3")


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_a_fix_is_for_every_value_that_is_refused(graph, reduction):
    made = graph(
        node("ScatterND", "x,i,u", reduction=reduction),
        outputs=[("y", FLOAT, None)],
        constants={"i": np.zeros((1, 1), np.int64), "u": np.ones((1, 4, 8, 8), np.float32)},
    )

    fix = parse_check(made, "10.3").problems[0].fix
    assert {"Add", "Mul", "Max", "Min"} <= {word.strip(",") for word in fix.split()}
    assert fix.count("cut") == 1


def test_no_row_repeats_the_remedy_of_a_cut():
    table = operator_table()
    rows = [*table.operators.values(), *table.missing.values(), *table.refusals]

    assert [row.avoid for row in rows if "cut before" in row.avoid] == []


def test_the_parser_ignores_domains(graph):
    """com.microsoft.LpPool meets the importer of LpPool, with its refusals."""
    made = graph(
        node("LpPool", kernel_shape=[2, 2], p=3, domain="com.microsoft"),
        domains=["com.microsoft"],
    )

    assert refused(made, "10.3") == [("n", "LpPool")]


@pytest.mark.parametrize(("one", "other"), [("10.3", "10.3.0"), ("10.3", "10.3.0.30")])
def test_releases_compare_by_numbers(graph, one, other):
    made = graph(node("Hardmax"))

    assert parse_check(made, one).problems == parse_check(made, other).problems
    # as texts 8.10 would be older than 8.6
    assert parse_check(graph(node("IsInf"), outputs=[("y", TensorProto.BOOL, None)]), "8.10").ok


def test_what_is_no_release_is_refused(graph):
    with pytest.raises(UsageError) as error:
        parse_check(graph(node("Relu")), "latest")
    assert error.value.code == "tensorrt.version"


def test_the_document_has_the_form_of_the_check_document(graph):
    found = write(parse_check(graph(node("Hardmax")), "8.5.2"))

    assert set(found) == {"ok", "release", "problems", "model", "converted"}
    assert set(found["problems"][0]) == {"node", "operator", "message", "fix"}


@pytest.mark.parametrize(
    ("operator", "axes", "opset", "release", "ignored"),
    [
        ("ReduceMean", [2, 3], 18, "8.5.2", True),
        ("ReduceMax", [1], 18, "8.6.2", True),
        ("ReduceL2", None, 18, "8.6.2", True),  # computed
        ("ReduceLogSumExp", [2, 3], 18, "10.0", False),
        ("ReduceMean", [0, -1, 1, 2], 18, "8.5.2", False),
        ("ReduceSum", [2, 3], 18, "8.5.2", False),
    ],
)
def test_8_6_reads_the_axes_of_reduce_sum_alone_from_an_input(
    graph, operator, axes, opset, release, ignored
):
    given = {} if axes is None else {"a": np.array(axes, np.int64)}
    inputs = [IMAGE] if given else [IMAGE, ("a", TensorProto.INT64, [1])]
    made = graph(
        node(operator, "x,a"),
        opset=opset,
        inputs=inputs,
        outputs=[("y", FLOAT, None)],
        constants=given,
    )
    problems = parse_check(made, release).problems

    assert bool(problems) is ignored
    if ignored:
        assert "results would be wrong" in problems[0].message
        assert "opset 17" in problems[0].fix


@pytest.mark.parametrize(
    ("operator", "release", "ok"),
    [("ReduceSum", "8.6.2", False), ("ReduceMax", "8.5.2", False), ("ReduceMax", "10.0", True)],
)
def test_8_6_reduces_every_dimension_where_none_is_to_be_reduced(graph, operator, release, ok):
    made = graph(node(operator, noop_with_empty_axes=1))

    assert parse_check(made, release).ok is ok


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
    made = graph(node(operator, domain=domain), domains=[domain])

    (problem,) = parse_check(made, before, get("jetson-agx-orin-64gb")).problems
    release = "10.0" if since == "8.6.2" else since.removesuffix(".4.1")
    assert f"{release}" in problem.message
    assert ("optimizer" in problem.fix) is (domain == "com.microsoft")
    assert parse_check(made, since).ok


@pytest.mark.parametrize(
    ("scale", "ok"),
    [(0.1, True), (0.0, False), (-0.1, False), ([0.1, -0.1, 0.1, 0.1], False)],
)
@pytest.mark.parametrize("release", ["8.5.2", "10.3", "11.5"])
def test_scales_of_quantisation_are_positive(graph, scale, ok, release):
    scales = np.asarray(scale, np.float32)
    zeros = np.zeros(scales.shape, np.int8)
    made = graph(
        node("QuantizeLinear", "x,s,z", "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
        constants={"s": scales, "z": zeros},
    )

    assert bool(refused(made, release)) is not ok


@pytest.mark.parametrize(
    ("operator", "opset", "mode", "scales", "ok"),
    [
        ("Resize", 18, "linear", [1, 2, 2, 2], True),
        ("Resize", 18, "linear", [2, 1, 1, 1], False),
        ("Resize", 18, "linear", [2, 2, 2, 2], False),
        ("Resize", 18, "cubic", [1, 1, 2, 2], True),
        ("Resize", 18, "cubic", [1, 2, 1, 1], False),
        ("Resize", 18, "nearest", [2, 2, 2, 2], True),
        ("Resize", 10, "linear", [2, 2, 2, 2], False),
        ("Upsample", 9, "linear", [2, 1, 2, 2], False),
        ("Upsample", 9, "nearest", [2, 1, 2, 2], True),
    ],
)
@pytest.mark.parametrize("release", ["8.6.2", "10.3", "11.4.1"])
def test_dimensions_that_may_be_resized(graph, operator, opset, mode, scales, ok, release):
    reads = "x,,k" if opset == 18 else "x,k"
    made = graph(
        node(operator, reads, mode=mode),
        opset=opset,
        outputs=[("y", FLOAT, None)],
        constants={"k": np.array(scales, np.float32)},
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(
    ("axes", "scales", "release", "ok"),
    [
        ([2, 3], [2, 2], "8.6.2", False),
        ([0, 1, 2, 3], [1, 1, 2, 2], "8.6.2", True),
        ([2, 3], [2, 2], "10.0", True),
        ([3, 2, 1, 0], [2, 2, 2, 2], "10.0", False),
    ],
)
def test_axes_of_resize(graph, axes, scales, release, ok):
    made = graph(
        node("Resize", "x,,k", mode="linear", axes=axes),
        outputs=[("y", FLOAT, None)],
        constants={"k": np.array(scales, np.float32)},
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(("rounding", "ok"), [("round_prefer_floor", True), ("ceil", False)])
def test_tf_half_pixel_for_nn_rounds_by_default_alone(graph, rounding, ok):
    made = graph(
        node(
            "Resize",
            "x,r,k",
            coordinate_transformation_mode="tf_half_pixel_for_nn",
            nearest_mode=rounding,
        ),
        opset=11,
        outputs=[("y", FLOAT, None)],
        constants={"r": np.zeros(0, np.float32), "k": np.array([1, 1, 2, 2], np.float32)},
    )

    assert parse_check(made, "10.3").ok is ok


@pytest.mark.parametrize("release", ["8.5.2", "10.3", "11.5"])
@pytest.mark.parametrize(
    ("operator", "gates", "attributes", "ok"),
    [
        ("GRU", 3, {"activations": ["Sigmoid", "Tanh"] * 2}, True),
        ("GRU", 3, {"activations": ["Sigmoid", "Tanh", "HardSigmoid", "Tanh"]}, False),
        ("GRU", 3, {"activations": ["Affine", "Tanh"] * 2}, False),
        ("RNN", 1, {"activations": ["Relu", "Tanh"]}, False),
        ("RNN", 1, {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.1, 0.2]}, False),
        ("RNN", 1, {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.1]}, False),
        ("RNN", 1, {"activations": ["LeakyRelu"] * 2, "activation_alpha": [0.01]}, True),
        ("LSTM", 4, {}, True),
        ("LSTM", 4, {"activations": ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Relu", "Tanh"]}, False),
    ],
)
def test_activations_of_recurrent_operators(graph, operator, gates, attributes, ok, release):
    made = graph(
        node(operator, "x,w,r", hidden_size=8, direction="bidirectional", **attributes),
        inputs=[("x", FLOAT, [2, 5, 4])],
        outputs=[("y", FLOAT, None)],
        constants={
            "w": np.ones((2, 8 * gates, 4), np.float32),
            "r": np.ones((2, 8 * gates, 8), np.float32),
        },
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(
    ("outputs", "release", "ok"),
    [(3, "8.6.2", False), (4, "8.6.2", True), (3, "10.0", True)],
)
def test_parts_of_split_that_are_not_equal(graph, outputs, release, ok):
    names = [f"y{number}" for number in range(outputs)]
    made = graph(
        helper.make_node("Split", ["x"], names, name="n", axis=-1, num_outputs=outputs),
        outputs=[(name, FLOAT, None) for name in names],
    )

    assert parse_check(made, release).ok is ok


@pytest.mark.parametrize(
    ("mode", "release", "ok"),
    [
        ("linear", "8.6.2", False),
        ("cubic", "10.3", False),
        ("linear", "10.16.2", False),
        ("linear", "11.4.1", True),
        ("nearest", "10.3", True),
        (None, "10.3", True),
    ],
)
def test_names_of_opset_20_for_the_mode_of_grid_sample(graph, mode, release, ok):
    made = graph(
        node("GridSample", "x,g", **({"mode": mode} if mode else {})),
        opset=20,
        inputs=(IMAGE, ("g", FLOAT, [1, 8, 8, 2])),
    )

    assert parse_check(made, release).ok is ok


def test_pad_wraps_from_10_0_on(graph):
    made = graph(
        node("Pad", "x,p", mode="wrap"),
        opset=19,
        outputs=[("y", FLOAT, None)],
        constants={"p": np.array([0, 0, 1, 1] * 2, np.int64)},
    )

    assert refused(made, "8.6.2") == [("n", "Pad")]
    assert parse_check(made, "10.0").ok


@pytest.mark.parametrize("release", ["10.3", "11.4.1"])
def test_uint8_is_dequantised_where_it_was_quantised_alone(graph, release):
    scale = {"s": np.float32(0.1), "z": np.uint8(0)}
    image = graph(
        node("DequantizeLinear", "x,s,z"), inputs=[("x", UINT8, [1, 4, 8, 8])], constants=scale
    )
    typed = graph(
        node("QuantizeLinear", "x,s", "q", output_dtype=UINT8),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], name="d"),
        opset=21,
        constants={"s": np.float32(0.1)},
    )

    assert refused(image, release) == [("n", "DequantizeLinear")]
    assert ("n", "QuantizeLinear") in refused(typed, release)


@pytest.mark.parametrize("release", ["8.5.2", "11.5"])
@pytest.mark.parametrize(
    ("made_of", "shape", "ok"),
    [
        (node("Unsqueeze", "x,a"), [1] * 8, False),
        (node("Unsqueeze", "x,a"), [1] * 7, True),
        (node("Relu"), [1] * 9, False),
    ],
)
def test_a_tensor_has_8_dimensions_at_most(graph, made_of, shape, ok, release):
    constants = {"a": np.array([0], np.int64)} if len(made_of.input) > 1 else {}
    made = graph(
        made_of, inputs=[("x", FLOAT, shape)], outputs=[("y", FLOAT, None)], constants=constants
    )

    assert parse_check(made, release).ok is ok


BFLOAT16 = TensorProto.BFLOAT16


@pytest.mark.parametrize(
    ("made_of", "kind", "release", "ok"),
    [
        (node("Mish"), BFLOAT16, "10.3", False),
        (node("Mish"), HALF, "10.3", True),
        (node("HardSwish"), BFLOAT16, "11.5", False),
        (node("GlobalLpPool"), BFLOAT16, "11.5", False),
        (node("LpPool", kernel_shape=[2, 2]), BFLOAT16, "11.5", False),
        (node("LpNormalization"), BFLOAT16, "11.5", False),
        (node("Mod", "x,x"), FLOAT, "10.3", False),
        (node("Mod", "x,x"), TensorProto.INT8, "11.5", False),
        (node("Mod", "x,x"), TensorProto.INT32, "8.5.2", True),
        (node("Mod", "x,x", fmod=1), FLOAT, "10.3", True),
        (node("ReduceL2"), TensorProto.INT32, "11.5", False),
        (node("ReduceSumSquare"), TensorProto.INT32, "11.5", True),
        (node("Relu"), TensorProto.INT32, "11.5", False),
        (node("Relu"), TensorProto.INT64, "8.6.2", False),
        (node("Relu"), TensorProto.INT64, "11.5", True),
    ],
)
def test_types_that_importers_refuse(graph, made_of, kind, release, ok):
    made = graph(made_of, opset=22, inputs=[("x", kind, [1, 4, 8, 8])], outputs=[("y", kind, None)])

    assert parse_check(made, release).ok is ok


def test_constants_of_a_computed_shape_are_not_uint8(graph):
    made = graph(
        node("ConstantOfShape", "s", value=helper.make_tensor("v", UINT8, [1], [1])),
        inputs=[("s", TensorProto.INT64, [2])],
        outputs=[("y", UINT8, [None, None])],
    )

    assert refused(made, "10.3") == [("n", "ConstantOfShape")]


@pytest.mark.parametrize(
    ("shape", "ok"), [([15, 15], True), ([17, 17], True), ([18, 18], True), ([19, 19], False)]
)
def test_an_output_shape_of_convtranspose_needs_no_negative_padding(graph, shape, ok):
    made = graph(
        node("ConvTranspose", "x,w", output_shape=shape, strides=[2, 2]),
        outputs=[("y", FLOAT, [1, 4, *shape])],
        constants={"w": np.ones((4, 4, 3, 3), np.float32)},
    )

    # 8 x 8 gives 17 x 17 without padding, and half of the rest is put before
    assert parse_check(made, "10.3").ok is ok


@pytest.mark.parametrize(("size", "ok"), [(5, True), (4, False), (17, False)])
def test_a_window_of_lrn_is_odd_and_small(graph, size, ok):
    made = graph(node("LRN", size=size))

    assert parse_check(made, "11.5").ok is ok


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_of_one_dimension(graph, operator):
    made = graph(node(operator), inputs=[("x", FLOAT, [8])], outputs=[("y", FLOAT, [8])])

    assert refused(made, "11.5") == [("n", operator)]


def test_the_type_of_attention_s_softmax_is_the_parser_s(graph):
    made = graph(node("Attention", "x,x,x", softmax_precision=FLOAT), opset=23)

    assert refused(made, "11.5") == [("n", "Attention")]


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
    values = [helper.make_tensor_value_info(*one) for one in (IMAGE, RESULT)]
    proto = helper.make_model(
        helper.make_graph([hard], "g", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save(proto, tmp_path / "model.onnx")
    found = edgekit.check(tmp_path / "model.onnx", target="jetson-agx-xavier")
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
        edgekit.plan(tmp_path / "model.onnx", target="jetson-agx-xavier")
    assert named in refused.value.message
