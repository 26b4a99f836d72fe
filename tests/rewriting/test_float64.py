"""Nodes in float64: the same as ONNX Runtime in FP32, and as onnx's reference in float64."""

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgekit.network.graph import Node, read_node
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.float64.evaluate import evaluate
from tests.tries import tries

RANDOM = np.random.default_rng(3)
FAST = settings(max_examples=tries(25), derandomize=True, database=None)


def made(op, inputs, attributes, opset=19, outputs=1):
    names = ["" if value is None else f"i{k}" for k, value in enumerate(inputs)]
    proto = helper.make_node(op, names, [f"o{k}" for k in range(outputs)], name="n", **attributes)
    feeds = {f"i{k}": value for k, value in enumerate(inputs) if value is not None}
    return proto, feeds, evaluate([read_node(proto)], feeds, opset)


def runtime(proto, feeds, opset):
    """What ONNX Runtime computes; None when it refuses the node."""
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    graph = helper.make_graph(
        [proto],
        "g",
        [helper.make_tensor_value_info(n, kinds[n], v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in proto.output],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds)
    except Exception:
        return None


def assert_as_runtime(op, inputs, attributes, opset=19, tolerance=1e-5):
    proto, feeds, found = made(op, inputs, attributes, opset)
    wanted = runtime(proto, feeds, opset)
    if wanted is None:
        reject()
    for name, value in zip(proto.output, wanted, strict=True):
        mine = found[name]
        assert mine.shape == value.shape
        if value.size:
            assert np.abs(mine - value).max() <= tolerance * max(np.abs(value).max(), 1e-3)


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@st.composite
def windows(draw, rank):
    sizes = [draw(st.integers(1, 9)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    given_ = {"strides": [draw(st.integers(1, 3)) for _ in range(rank)]}
    if draw(st.booleans()):
        given_["dilations"] = [draw(st.integers(1, 2)) for _ in range(rank)]
    auto = draw(st.sampled_from(["", "", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if auto:
        given_["auto_pad"] = auto
    else:
        # a pad as long as the kernel is refused by runtimes
        given_["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    reach = given_.get("dilations", [1] * rank)
    if auto.startswith("SAME"):
        # ONNX Runtime pads by negative numbers where windows leave gaps
        extent = [(k - 1) * d + 1 for k, d in zip(kernel, reach, strict=True)]
        assume(all(s <= e for s, e in zip(given_["strides"], extent, strict=True)))
    for size, k, d in zip(sizes, kernel, reach, strict=True):
        assume(size >= (k - 1) * d + 1)
    return sizes, kernel, given_


@FAST
@given(
    st.integers(1, 3).flatmap(windows),
    st.sampled_from([(1, 3), (2, 2), (3, 1)]),
    st.integers(1, 2),
    st.booleans(),
)
def test_convolutions(window, grouping, maps, biased):
    sizes, kernel, attributes = window
    # ONNX Runtime has padded such windows by its own rule
    assume(not (attributes.get("auto_pad", "").startswith("SAME") and "dilations" in attributes))
    groups, deep = grouping
    x = numbers(2, groups * deep, *sizes)
    w = numbers(groups * maps, deep, *kernel)
    bias = numbers(groups * maps) if biased else None
    assert_as_runtime("Conv", [x, w, bias][: 3 if biased else 2], {**attributes, "group": groups})


@FAST
@given(
    st.integers(1, 2).flatmap(windows),
    st.sampled_from([(1, 3), (2, 2), (3, 1)]),
    st.integers(1, 2),
    st.booleans(),
)
def test_deconvolutions(window, grouping, maps, extra):
    sizes, kernel, attributes = window
    groups, deep = grouping
    if extra:
        attributes = {**attributes, "output_padding": [s - 1 for s in attributes["strides"]]}
        # SAME with more padding at the end is read in two ways
        assume("auto_pad" not in attributes)
    x, w = numbers(2, groups * deep, *sizes), numbers(groups * deep, maps, *kernel)
    assert_as_runtime(
        "ConvTranspose", [x, w, numbers(groups * maps)], {**attributes, "group": groups}
    )


@pytest.mark.parametrize("grouping", [(1, 3), (3, 1)])
def test_deconvolutions_of_more_places_than_their_input_has(grouping):
    groups, deep = grouping
    x, w = numbers(2, groups * deep, 2, 3), numbers(groups * deep, 2, 9, 4)
    assert_as_runtime(
        "ConvTranspose",
        [x, w, numbers(groups * 2)],
        {"strides": [4, 1], "dilations": [1, 2], "pads": [2, 1, 0, 1], "group": groups},
    )


@FAST
@given(st.integers(1, 3).flatmap(windows), st.booleans(), st.booleans(), st.booleans())
def test_pools(window, average, ceil, counted):
    sizes, kernel, attributes = window
    attributes = {**attributes, "kernel_shape": kernel}
    if "auto_pad" in attributes:
        assume("dilations" not in attributes)
    else:
        attributes["ceil_mode"] = int(ceil)
    if average:
        attributes["count_include_pad"] = int(counted)
    op = "AveragePool" if average else "MaxPool"
    assert_as_runtime(op, [numbers(1, 2, *sizes)], attributes, 19)


HOW = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]


@FAST
@given(
    st.sampled_from(HOW),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    st.lists(st.integers(1, 6), min_size=2, max_size=2),
    st.lists(st.sampled_from([0.5, 0.75, 1.0, 1.5, 2.0, 3.0]), min_size=2, max_size=2),
    st.booleans(),
)
def test_resizing(how, mode, rounding, sizes, scales, outside):
    assume(all(int(a * b) for a, b in zip(sizes, scales, strict=True)))
    # ONNX Runtime copies such an axis, whatever is to be cropped
    assume(how != "tf_crop_and_resize" or 1.0 not in scales)
    attributes = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    if mode == "cubic":
        # ONNX Runtime reads the crop's extrapolation differently with cubic
        assume(how != "tf_crop_and_resize")
        attributes["exclude_outside"] = int(outside)
    roi = None
    if how == "tf_crop_and_resize":
        roi = np.array([0, 0, 0.25, 0, 1, 1, 0.75, 1], np.float32)
        attributes["extrapolation_value"] = 2.0
    x = numbers(1, 2, *sizes)
    inputs = [x, roi, np.array([1, 1, *scales], np.float32)]
    assert_as_runtime("Resize", inputs, attributes, 13, tolerance=1e-4)


@pytest.mark.parametrize(("op", "opset"), [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing_before_opset_11(op, opset, mode):
    scales = np.array([1, 1, 2.5, 3], np.float32)
    assert_as_runtime(op, [numbers(1, 2, 4, 5), scales], {"mode": mode}, opset)
    assert_as_runtime(
        "Upsample", [numbers(1, 2, 4, 5)], {"mode": mode, "scales": [1, 1, 2, 3.0]}, 7
    )


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("Softmax", [(2, 3, 4)], {"axis": 1}),
        ("LogSoftmax", [(2, 3, 4)], {}),
        ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), "3"], {"epsilon": 0.01}),
        ("InstanceNormalization", [(2, 3, 4, 4), (3,), (3,)], {}),
        ("LayerNormalization", [(2, 3, 4), (4,), (4,)], {}),
        ("Gemm", [(3, 4), (5, 4), (5,)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
        ("MatMul", [(2, 3, 4), (4, 5)], {}),
        ("HardSigmoid", [(3, 9)], {}),
        ("HardSwish", [(3, 9)], {}),
        ("LeakyRelu", [(3, 9)], {"alpha": 0.2}),
        ("PRelu", [(2, 3, 4), (3, 1)], {}),
        ("Elu", [(3, 9)], {"alpha": 0.3}),
        ("Selu", [(3, 9)], {}),
        ("Celu", [(3, 9)], {"alpha": 0.7}),
        ("Softplus", [(3, 9)], {}),
        ("Erf", [(3, 9)], {}),
        ("Mish", [(3, 9)], {}),
        ("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
        ("SpaceToDepth", [(1, 2, 4, 6)], {"blocksize": 2}),
        ("GlobalMaxPool", [(1, 2, 4, 6)], {}),
        ("ReduceLogSumExp", [(2, 5)], {"keepdims": 0}),
        ("ReduceL2", [(2, 5)], {}),
        ("Gelu", [(3, 9)], {}),
        ("Gelu", [(3, 9)], {"approximate": "tanh"}),
        ("Einsum", [(2, 3, 4), (2, 4, 5)], {"equation": "bij,bjk->bik"}),
    ],
)
def test_other_operators_agree_with_onnx_runtime(op, shapes, attributes):
    inputs = [
        np.abs(numbers(int(shape))) + np.float32(0.5) if isinstance(shape, str) else numbers(*shape)
        for shape in shapes
    ]
    # ONNX Runtime has Gelu, Mish and HardSwish from these opsets on alone
    opset = {"Gelu": 20, "Mish": 18}.get(op, 17)
    assert_as_runtime(op, inputs, attributes, opset)
    # numbers that are only moved keep their width
    kind = np.float32 if op in {"DepthToSpace", "SpaceToDepth"} else np.float64
    assert made(op, inputs, attributes, opset)[2]["o0"].dtype == kind


def test_attributes_are_fp32_and_casts_lose_nothing():
    x = np.array([-1.0, 2.0])
    leaky = Node("n", "LeakyRelu", ("x",), ("y",), {"alpha": 0.2})
    assert evaluate([leaky], {"x": x}, 13)["y"][0] == -float(np.float32(0.2))
    cast = Node("c", "Cast", ("x",), ("y",), {"to": TensorProto.FLOAT16})
    assert evaluate([cast], {"x": x / 3}, 13)["y"][0] == -1 / 3
    whole = Node("c", "Cast", ("x",), ("y",), {"to": TensorProto.INT64})
    assert evaluate([whole], {"x": x * 1.7}, 13)["y"].tolist() == [-1, 3]


def test_moved_weights_keep_their_width_and_their_memory():
    stored = numbers(6, 4)
    nodes = [
        Node("t", "Transpose", ("w",), ("t",), {"perm": [1, 0]}),
        Node("r", "Reshape", ("t", "s"), ("v",)),
        Node("m", "Mul", ("v", "v"), ("y",)),
    ]
    found = evaluate(nodes, {"w": stored, "s": np.array([4, 3, 2])}, 13)
    assert found["v"].dtype == np.float32
    assert np.shares_memory(found["v"], stored)
    assert found["y"].dtype == np.float64
    assert list(evaluate(nodes, {"w": stored, "s": np.array([4, 6])}, 13, ["y"])) == ["y"]


def test_a_large_product_is_computed_in_blocks_of_the_weights():
    w = RANDOM.standard_normal((4096, 1100), dtype=np.float32)
    x = numbers(2, 4096)
    found = evaluate([Node("n", "MatMul", ("x", "w"), ("y",))], {"x": x, "w": w}, 13)["y"]
    assert np.abs(found - x.astype(np.float64) @ w.astype(np.float64)).max() < 1e-9


def test_whole_numbers_are_divided_as_onnx_divides_them():
    feeds = {"a": np.array([-7, 7, 5]), "b": np.array([2, 2, -3])}
    found = evaluate([Node("n", "Div", ("a", "b"), ("y",))], feeds, 13)["y"]
    assert found.tolist() == [-3, 3, -1]


@pytest.mark.parametrize("op", ["Loop", "NoSuchOperator"])
def test_what_cannot_be_computed_is_malformed(op):
    with pytest.raises(MalformedError, match=op):
        evaluate([Node("n", op, ("x",), ("y",))], {"x": np.zeros(2)}, 13)
