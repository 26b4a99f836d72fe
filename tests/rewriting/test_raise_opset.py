"""Opset 13: the same network with the same names and weights."""

import os
from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest

from edgekit.errors import ModelError
from edgekit.network.loading.load import load
from edgekit.network.session import session
from edgekit.rewriting.engine.opset import find_obstacle, prove_raising, raise_opset
from tests.rewriting.nets import assert_same, net, node, ops

DATA = Path(os.path.dirname(onnx.backend.test.__file__), "data")
OLD = [7, 9, 11, 12]


def opset(model):
    return next(item.version for item in model.proto.opset_import if not item.domain)


def names(model):
    return [item.name for item in model.proto.graph.node]


def raised(nodes, inputs, outputs=("y",), weights=None, opset=9):
    before = net(nodes, inputs, list(outputs), weights, opset)
    after = raise_opset(before)
    assert after is not None
    assert next(o.version for o in after.proto.opset_import) == 13
    onnx.checker.check_model(session_proto(after))
    assert_same(before, after, tolerance=0)
    assert set(names(before)) <= set(names(after))
    assert dict(before.weights).keys() <= dict(after.weights).keys()
    return after


def session_proto(model):
    """The model with stubs as inputs: the checker looks for the files of external data."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model.proto)
    inline = [item for item in copy.graph.initializer if not item.external_data]
    for item in copy.graph.initializer:
        if item.external_data:
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims)
            )
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(inline)
    return copy


def test_a_newer_model_stays_the_same_object():
    model = net([node("Relu", "x", "y")], {"x": (1, 3)}, ["y"], opset=13)
    assert raise_opset(model) is model
    old = net([node("Relu", "x", "y")], {"x": (1, 3)}, ["y"], opset=11)
    assert raise_opset(old, 11) is old


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_a_softmax_over_one_real_axis_gets_that_axis(version, op):
    for shape, attributes, axis in [
        ((1, 10, 1, 1), {}, 1),
        ((4, 10), {}, 1),
        ((4, 10), {"axis": -1}, 1),
        ((1, 1, 7), {"axis": 0}, 2),
        ((2, 1, 1), {}, 1),
    ]:
        after = raised([node(op, "x", "y", **attributes)], {"x": shape}, opset=version)
        (made,) = after.proto.graph.node
        assert [item.i for item in made.attribute] == [axis]


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
def test_a_softmax_over_several_axes_is_flattened(axis):
    attributes = {} if axis is None else {"axis": axis}
    after = raised([node("Softmax", "x", "y", **attributes)], {"x": (2, 3, 4)})
    several = axis in {None, 0, 1, -2}
    assert ops(after) == (["Flatten", "Softmax", "Reshape"] if several else ["Softmax"])
    assert len(set(names(after))) == len(names(after))


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "since"),
    [
        ("Clip", {"min": -0.5, "max": 0.7}, (2, 3), 11),
        ("Clip", {"max": 0.7}, (2, 3), 11),
        ("Clip", {}, (2, 3), 11),
        ("Pad", {"pads": [0, 1, 2, 0], "value": 1.5}, (2, 3), 11),
        ("Pad", {"pads": [0, 1, 0, 1], "mode": "reflect"}, (2, 3), 11),
        ("Slice", {"starts": [1, 0], "ends": [3, -1], "axes": [1, 2]}, (2, 3, 4), 10),
        ("Slice", {"starts": [1, 0], "ends": [3, 2]}, (2, 3, 4), 10),
        ("Squeeze", {"axes": [0]}, (1, 3, 1), 13),
        ("Squeeze", {}, (1, 3, 1), 13),
        ("Unsqueeze", {"axes": [0, 2]}, (1, 3), 13),
        ("ReduceSum", {"axes": [1], "keepdims": 0}, (2, 3), 13),
        ("ReduceSum", {}, (2, 3), 13),
        ("ReduceMean", {"axes": [1]}, (2, 3), 13),
        ("Upsample", {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}, (1, 2, 3, 3), 9),
        ("Upsample", {"scales": [1.0, 1.0, 2.5, 3.0], "mode": "nearest"}, (1, 2, 3, 3), 9),
    ],
)
def test_attributes_become_constants(op, attributes, shape, since):
    for version in OLD:
        if version < since:
            after = raised([node(op, "x", "y", **attributes)], {"x": shape}, opset=version)
            assert names(after) == [f"{op.lower()}_y"]


def test_nodes_of_several_outputs():
    for version in OLD:
        raised(
            [node("Split", "x", "y z", axis=1, split=[1, 2])], {"x": (2, 3)}, "yz", opset=version
        )
        raised([node("Split", "x", "y z", axis=0)], {"x": (2, 3)}, "yz", opset=version)
    raised([node("TopK", "x", "y z", k=2)], {"x": (3, 4)}, {"y": 1, "z": 7}, opset=9)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_of_opset_10_and_upsample_of_9(mode):
    for version, op, scales in [
        (9, "Upsample", [2.5, 1.5]),
        (10, "Resize", [2.5, 1.5]),
        (10, "Resize", [0.5, 0.7]),
    ]:
        made = [node(op, "x s", "y", mode=mode)]
        weights = {"s": np.array([1.0, 1.0, *scales])}
        raised(made, {"x": (1, 2, 6, 6)}, weights=weights, opset=version)


@pytest.mark.parametrize("word", ["floor", "round_prefer_floor", None])
@pytest.mark.parametrize("factors", [[2.0, 3.0], [0.5, 0.25], [1.5, 1.0], [0.75, 2.5]], ids=str)
def test_a_mode_of_opset_11_alone_becomes_one_of_13(word, factors):
    how = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    item = node("Resize", "x r s", "y", nearest_mode=word, **how)
    weights = {"r": np.ones(0), "s": np.array([1.0, 1.0, *factors])}
    for version in (11, 12):
        after = raised([item], {"x": (1, 2, 8, 8)}, weights=weights, opset=version)
        (made,) = after.proto.graph.node
        found = {a.name: a.s.decode() for a in made.attribute}
        assert found["coordinate_transformation_mode"] == "half_pixel"
    entry = prove_raising(net([item], {"x": (1, 2, 8, 8)}, ["y"], weights, 11), after)
    assert (entry.max_error, entry.max_error_float64) == (0, 0)


@pytest.mark.parametrize(
    "modes", [{"nearest_mode": "ceil"}, {"nearest_mode": "round_prefer_ceil"}, {"mode": "linear"}]
)
def test_what_opset_13_has_no_mode_for_is_not_raised(modes):
    how = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", **modes}
    weights = {"r": np.ones(0), "s": np.array([1.0, 1.0, 2.0, 2.0])}
    model = net(
        [node("Resize", "x r s", "y", "up", **how)], {"x": (1, 2, 4, 4)}, ["y"], weights, 11
    )
    assert raise_opset(model) is None
    assert find_obstacle(model) == "Resize 'up'"


def test_weights_and_their_names_stay():
    weights = {"w": np.ones((8, 3, 3, 3)), "b": np.ones(8), "s": np.ones(8)}
    nodes = [
        node("Conv", "x w b", "a", kernel_shape=[3, 3]),
        node("BatchNormalization", "a s b b s", "n"),
        node("Clip", "n", "y", min=0.0, max=6.0),
    ]
    after = raised(nodes, {"x": (1, 3, 5, 5)}, weights=weights, opset=8)
    assert list(after.weights) == ["w", "b", "s"]
    assert ops(after) == ["Conv", "BatchNormalization", "Clip"]


def test_what_cannot_be_raised_is_reported_by_none():
    scales = {"s": np.array([1.0, 1.0, 2.0, 0.5])}
    both = net([node("Resize", "x s", "y")], {"x": (1, 2, 6, 6)}, ["y"], scales, 10)
    assert raise_opset(both) is None
    ones = {"a": np.ones((3, 2, 2))}
    item = node("BatchNormalization", "x a a a a", "y", spatial=0)
    assert raise_opset(net([item], {"x": (1, 3, 2, 2)}, ["y"], ones, 7)) is None


def test_models_of_the_onnx_backend_tests_give_the_same_results():
    random = np.random.default_rng(0)
    compared = 0
    for path in sorted(DATA.glob("pytorch-*/*/model.onnx"))[::4]:
        try:
            before = load(path)
        except ModelError:
            continue
        after = raise_opset(before)
        assert after is not None, path
        assert opset(after) >= 13
        if after is before:
            continue
        old, new = (session(m, optimise=False, threads=1) for m in (before, after))
        feed = {}
        for value in old.get_inputs():
            kind = value.type[7:-1].replace("float", "float32").replace("double", "float64")
            numbers = random.standard_normal(value.shape) * 3
            feed[value.name] = (numbers if "float" in kind else np.abs(numbers) % 3).astype(kind)
        for a, b in zip(old.run(None, feed), new.run(None, feed), strict=True):
            assert np.array_equal(a, b, equal_nan=True), path
        compared += 1
    assert compared > 20
