"""Synthetic inputs: what each input gets, and that it depends on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.model import Model
from edgekit.network.synthetic import synthetic_inputs


def model(*inputs: tuple[str, int, list[Any]], nodes: Any = (), weights: Any = ()) -> Model:
    values = [helper.make_tensor_value_info(*spec) for spec in inputs]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    proto: ModelProto = helper.make_model(
        helper.make_graph(list(nodes), "g", values, [out], list(weights))
    )
    return Model(proto, {}, "", "test")


IMAGE = ("x", TensorProto.FLOAT, [2, 3, 64, 48])


def test_images_are_normalised_and_smooth() -> None:
    value = next(iter(synthetic_inputs(model(IMAGE), 1)))["x"]
    assert value.shape == (2, 3, 64, 48)
    assert value.dtype == np.float32
    for image in value:
        assert abs(float(image.mean())) < 1e-3
        assert abs(float(image.std()) - 1) < 1e-3
        assert np.corrcoef(image[:, :, 1:].ravel(), image[:, :, :-1].ravel())[0, 1] > 0.6


def test_images_differ_strongly() -> None:
    values = [item["x"].ravel() for item in synthetic_inputs(model(IMAGE), 12)]
    found = np.corrcoef(values)[np.triu_indices(12, 1)]
    assert np.abs(found).mean() < 0.3
    assert found.max() < 0.8


def test_an_item_depends_on_its_own_input_only() -> None:
    alone = list(synthetic_inputs(model(IMAGE), 3, seed=5))
    other = ("a", TensorProto.FLOAT, [7])
    another = list(synthetic_inputs(model(other, IMAGE), 2, seed=5))
    np.testing.assert_array_equal(alone[1]["x"], another[1]["x"])
    (last,) = synthetic_inputs(model(IMAGE), 1, seed=5, first=2)
    np.testing.assert_array_equal(alone[2]["x"], last["x"])
    reseeded = next(iter(synthetic_inputs(model(IMAGE), 1, seed=6)))
    assert not np.array_equal(alone[0]["x"], reseeded["x"])


def test_other_types() -> None:
    wanted = model(
        ("v", TensorProto.FLOAT16, [1, 500]),
        ("ids", TensorProto.INT64, [4, 50]),
        ("mask", TensorProto.INT32, [400]),
        ("flag", TensorProto.BOOL, [100]),
        ("pixels", TensorProto.UINT8, [1, 3, 32, 32]),
        nodes=[helper.make_node("Gather", ["table", "ids"], ["out"])],
        weights=[numpy_helper.from_array(np.zeros((90, 2), np.float32), "table")],
    )
    item = next(iter(synthetic_inputs(wanted, 1)))
    assert item["v"].dtype == np.float16
    assert abs(float(item["v"].astype(np.float64).std()) - 1) < 0.2
    assert item["ids"].dtype == np.int64
    assert 80 < item["ids"].max() < 90
    assert set(item["mask"].tolist()) == {0, 1}
    assert set(item["flag"].tolist()) == {False, True}
    assert item["pixels"].dtype == np.uint8
    assert 100 < item["pixels"].mean() < 156


def test_what_cannot_be_made_is_said() -> None:
    with pytest.raises(ModelError, match="no static shape"):
        next(iter(synthetic_inputs(model(("x", TensorProto.FLOAT, ["batch", 3])), 1)))
    with pytest.raises(ModelError, match="cannot generate synthetic data"):
        next(iter(synthetic_inputs(model(("x", TensorProto.STRING, [1])), 1)))
