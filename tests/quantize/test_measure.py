"""Measuring: like ONNX Runtime's calibrators, whatever the batch; bad data and weights are told."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import calibrate as theirs

from edgekit.errors import DataError, ModelError
from edgekit.network.model import Model
from edgekit.network.writing import save
from edgekit.quantize.calibration.histograms import METHODS
from edgekit.quantize.calibration.measure import measure
from tests.quantize.quantize_nets import branches, make, node
from tests.quantize.test_calibrate import images

F = np.float32
MODEL, NETWORK = branches()


class Reader:
    """Inputs as onnxruntime.quantization wants them."""

    def __init__(self, feeds: list[dict]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict | None:
        return next(self._feeds, None)


def ranges_of(
    model: Model, feeds: list[dict], folder: Path, method: theirs.CalibrationMethod, **extra: int
) -> dict[str, float]:
    """Clipping magnitudes by onnxruntime.quantization."""
    save(model, folder / "plain.onnx")
    made = theirs.create_calibrator(
        folder / "plain.onnx", None, str(folder / "augmented.onnx"), method, extra_options=extra
    )
    made.collect_data(Reader(feeds))
    found = {name: value.range_value for name, value in made.compute_data().items()}
    return {name: float(np.abs([low, high]).max()) for name, (low, high) in found.items()}


def test_minmax_is_that_of_onnxruntime_to_the_bit(tmp_path: Path) -> None:
    feeds = images(5)
    expected = ranges_of(MODEL, feeds, tmp_path, theirs.CalibrationMethod.MinMax)
    found = measure(MODEL, feeds).amax["minmax"]
    assert set(expected) == set(found) == {"x", "a", "b", "joined", "pooled", "c", "y"}
    assert {n: F(v) for n, v in found.items()} == {n: F(v) for n, v in expected.items()}


@pytest.mark.whole
def test_entropy_is_that_of_onnxruntime_within_a_bin(tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(F)}
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "y")]
    model, _ = make(nodes, weights, {"x": [1, 3, 32, 32]}, ["y"])
    feeds = images(6, shape=(1, 3, 32, 32))
    kind = theirs.CalibrationMethod.Entropy
    expected = ranges_of(model, feeds, tmp_path, kind, num_bins=2048)
    found = measure(model, feeds).amax
    for name, value in found["entropy"].items():
        assert value == pytest.approx(expected[name], abs=found["minmax"][name] / 1024)
    assert found["entropy"]["y"] < found["minmax"]["y"]


def batched(batch: int) -> Model:
    """Convolutions that ONNX Runtime computes image by image, and what goes value by value."""
    rng = np.random.default_rng(2)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(F),
        "k": rng.standard_normal((1, 8, 1, 1)).astype(F),
    }
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Mul", "a k", "b"),
        node("Relu", "b", "c"),
        node("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "d", "y"),
    ]
    return make(nodes, weights, {"x": [batch, 3, 16, 16]}, ["y"])[0]


class Filled:
    """Runs of which the last has rows that only fill it up."""

    def __init__(self, feeds: list[dict], last: int) -> None:
        self.batch = 4
        self._feeds = feeds
        self._last = last

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._feeds)

    def valid(self, index: int) -> int:
        return self._last if index == len(self._feeds) - 1 else 4


def test_batch_and_order_change_nothing() -> None:
    singles = images(8, shape=(1, 3, 16, 16))
    expected = measure(batched(1), singles).amax
    assert measure(batched(1), singles[::-1]).amax == expected
    for batch in (2, 4):
        feeds = [
            {"x": np.concatenate([feed["x"] for feed in singles[i : i + batch]])}
            for i in range(0, 8, batch)
        ]
        found = measure(batched(batch), feeds).amax
        for method in METHODS:
            assert found[method] == expected[method]
    # six samples in batches of four: what fills the second up does not count
    filler = {
        "x": np.concatenate(
            [
                singles[4]["x"],
                singles[5]["x"],
                9 * images(2)[0]["x"].repeat(4, axis=2).reshape(2, 3, 8, 16).repeat(2, axis=2),
            ]
        )
    }
    first = {"x": np.concatenate([feed["x"] for feed in singles[:4]])}
    assert (
        measure(batched(4), Filled([first, filler], 2)).amax
        == measure(batched(1), singles[:6]).amax
    )


def test_rows_are_those_of_the_datas_own_batch() -> None:
    data = Filled(images(2, shape=(4, 3, 16, 16)), 1)
    data.batch = 1  # a run is one sample
    assert measure(batched(4), data).amax == measure(batched(4), list(data)).amax


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(MODEL, images(3)).amax
    for limit in (1, 1100, 2500):
        monkeypatch.setattr("edgekit.quantize.calibration.measure._CHUNK_BYTES", limit)
        assert measure(MODEL, images(3)).amax == whole


def test_the_first_node_that_makes_a_bad_value_is_named() -> None:
    nodes = [
        node("Relu", "x", "fine"),
        node("Exp", "fine", "huge"),
        node("Sub", "huge huge", "none"),
        node("Relu", "none", "y"),
    ]
    model, _ = make(nodes, {}, {"x": [1, 4]}, ["y"])
    good = {"x": np.ones((1, 4), F)}
    with pytest.raises(DataError, match=r"the first come from node 'huge' \(Exp\)") as caught:
        measure(model, [good, {"x": np.full((1, 4), 1000, F)}])
    assert (caught.value.code, caught.value.where) == ("calibration.nonfinite", "huge")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_before_anything_runs(value: float) -> None:
    weights = {"w": np.ones((64, 64), F), "v": np.ones((64, 64), F)}
    weights["v"][3, 5] = value
    model, _ = make(
        [node("MatMul", "x w", "a"), node("MatMul", "a v", "y")], weights, {"x": [1, 64]}, ["y"]
    )

    def never():  # type: ignore[no-untyped-def]
        raise AssertionError("the data was read")
        yield

    with pytest.raises(ModelError, match=r"'v', which node 'y' \(MatMul\) reads") as caught:
        measure(model, never())
    assert (caught.value.code, caught.value.where) == ("model.nonfinite", "v")


def test_an_infinite_bound_of_a_clip_is_no_weight() -> None:
    bounds = {"low": np.array(0, F), "high": np.array(np.inf, F)}
    model, _ = make([node("Clip", "x low high", "y")], bounds, {"x": [1, 4]}, ["y"])
    assert measure(model, [{"x": np.arange(4, dtype=F)[None]}]).amax["minmax"]["y"] == 3


def test_tensors_that_never_change_and_few_inputs_are_reported() -> None:
    nodes = [node("Relu", "x", "zero"), node("Sigmoid", "zero", "half"), node("Neg", "x", "y")]
    model, _ = make(nodes, {}, {"x": [1, 1024]}, ["half", "y"])
    row = -np.arange(1, 1025, dtype=F)[None]
    feeds = [{"x": row * i} for i in range(1, 21)]
    found = measure(model, feeds)
    assert found.samples == 20
    assert found.warnings == (
        "always zero in this data, so the range is unknown: 'zero'; give inputs that reach them: "
        "calibration: {data: FOLDER, count: 500}",
        "only one value in this data: 'half'; give inputs that vary them: "
        "calibration: {data: FOLDER, count: 500}",
    )
    assert all(amax["zero"] == 0 and amax["half"] == 0.5 for amax in found.amax.values())
    assert "on only 1 input;" in measure(model, feeds[:1]).warnings[0]
    few = measure(model, feeds[:15])
    assert "on only 15 inputs" in few.warnings[0]
    # 15360 values: too few for a divergence
    assert few.few == ("x", "half", "y")
    assert found.few == ()
    assert few.amax["entropy"] == few.amax["minmax"]


def test_half_precision_tensors_are_measured() -> None:
    nodes = [node("Relu", "x", "a"), node("Neg", "a", "y")]
    model, _ = make(nodes, {}, {"x": [1, 64]}, ["y"], elem=onnx.TensorProto.FLOAT16)
    feed = {"x": np.linspace(-3, 2, 64, dtype=np.float16)[None]}
    found = measure(model, [feed]).amax["minmax"]
    assert found == {"x": 3.0, "a": 2.0, "y": 2.0}


def test_values_up_to_the_largest_float32_are_measured_like_others() -> None:
    model, network = make([node("Relu", "x", "y")], {}, {"x": [1, 20000]}, ["y"])
    values = np.random.default_rng(0).standard_normal((1, 20000)).astype(F)
    values /= np.abs(values).max() * F(1.01)  # below a power of two
    # 2**128 in two steps, since float32 does not hold it
    plain, large, largest = (
        measure(model, [{"x": values * F(2.0**exponent) * F(2.0**more)}], network=network).amax
        for exponent, more in ((0, 0), (127, 0), (127, 1))
    )
    for method, amax in plain.items():
        for name, value in amax.items():
            assert large[method][name] == value * 2.0**127, method
            assert largest[method][name] == value * 2.0**128, method
