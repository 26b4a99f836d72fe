"""Shapes that onnx's inference leaves open, or takes for others than runtimes have."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgekit.network.loading.load import canonical
from edgekit.network.session import session
from tests.network.onnx_making import make, node, values
from tests.tries import tries


def shape_of(model, name="y"):
    infos = [*model.proto.graph.output, *model.proto.graph.value_info]
    return [
        d.dim_value for info in infos if info.name == name for d in info.type.tensor_type.shape.dim
    ]


@pytest.mark.parametrize("op", ["GreaterOrEqual", "LessOrEqual"])
@pytest.mark.parametrize("opset", [12, 13, 15, 16])
def test_comparisons_broadcast_in_every_opset(op, opset):
    nodes = [node(op, "x k", "m"), node("Where", "m x k", "y")]
    model = canonical(
        make(nodes, {"x": [2, 1, 4]}, ["y"], {"k": values([3, 1])}, opset=opset), None
    )
    assert shape_of(model, "m") == [2, 3, 4] == shape_of(model)
    (info,) = [v for v in model.proto.graph.value_info if v.name == "m"]
    assert info.type.tensor_type.elem_type == onnx.TensorProto.BOOL
    x = values([2, 1, 4], 1)
    (got,) = session(model, optimise=False, threads=1).run(None, {"x": x})
    k = values([3, 1])
    assert (got == (np.maximum(x, k) if op == "GreaterOrEqual" else np.minimum(x, k))).all()


def test_mean_variance_normalization_keeps_its_shape():
    made = node("MeanVarianceNormalization", "x", "m"), node("Relu", "m", "y")
    assert shape_of(canonical(make(made, {"x": [1, 2, 3, 4]}, ["y"]), None)) == [1, 2, 3, 4]


@settings(max_examples=tries(40))
@given(data=st.data(), op=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
def test_a_pool_that_rounds_up_has_the_size_that_is_computed(data, op):
    def two(low, high):
        return [data.draw(st.integers(low, high)) for _ in range(2)]

    kernel, strides, size = two(1, 3), two(1, 4), two(3, 8)
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    dilations = two(1, 2) if op == "MaxPool" else [1, 1]
    assume(all((k - 1) * d < i for k, d, i in zip(kernel, dilations, size, strict=True)))
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1}
    if op == "AveragePool":
        attrs["count_include_pad"] = data.draw(st.integers(0, 1))
    if op == "MaxPool":
        attrs["dilations"] = dilations
    nodes = [node(op, "x", "p", **attrs), node("Relu", "p", "y")]
    proto = make(nodes, {"x": [1, 2, *size]}, ["y"], opset=18)
    x = np.abs(values([1, 2, *size]))
    before = onnx.ModelProto.FromString(proto.SerializeToString())
    model = canonical(proto, None)
    (want,) = run(before, x)
    (got,) = session(model, optimise=False, threads=1).run(None, {"x": x})
    assert shape_of(model) == list(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert canonical(model.proto, None).digest == model.digest


def run(proto, x):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers).run(
        None, {"x": x}
    )


def test_a_window_after_the_input_fits_what_is_joined_to_it():
    pool = node("MaxPool", "x", "p", kernel_shape=[1, 1], strides=[2, 3], ceil_mode=1)
    slim = node("Concat", "p k", "y", axis=1)
    proto = make([pool, slim], {"x": [1, 2, 1, 14]}, ["y"], {"k": values([1, 3, 1, 5])})
    model = canonical(proto, None)
    assert shape_of(model) == [1, 5, 1, 5]
    # said so that onnx and every runtime have this size
    onnx.shape_inference.infer_shapes(model.proto, strict_mode=True, data_prop=True)
    attrs = {
        a.name: onnx.helper.get_attribute_value(a) for a in model.proto.graph.node[0].attribute
    }
    assert attrs["ceil_mode"] == 0


def test_an_axis_that_needs_rounding_up_is_padded_instead():
    attrs = {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}
    proto = make([node("MaxPool", "x", "y", **attrs)], {"x": [1, 2, 6, 3]}, ["y"])
    (made,) = canonical(proto, None).proto.graph.node
    found = {a.name: onnx.helper.get_attribute_value(a) for a in made.attribute}
    assert (found["ceil_mode"], found["pads"]) == (0, [0, 0, 1, 0])
