"""2:4 sparsity: every condition at its limit, the pattern in the weights, what it saves."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from edgekit.dla.explanation import explain
from edgekit.dla.judge import judge
from edgekit.dla.sparsity import Sparsity, assess_sparsity, pattern_share
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import write
from tests.dla.builder import Builder

ORIN = get("jetson-agx-orin-64gb")


def sparse_weight(maps: int, channels: int, kernel: int = 3) -> np.ndarray:
    """Ones, of which the first two in every four along the channels are zero."""
    weight = np.ones((maps, channels, kernel, kernel), np.float32)
    weight[:, np.arange(channels) % 4 < 2] = 0
    return weight


def model_of(path: Path, weight: np.ndarray, groups: int = 1) -> Model:
    b = Builder(x=(1, weight.shape[1] * groups, 8, 8))
    b.weights.append(numpy_helper.from_array(weight, "w"))
    out = b.add("Conv", "c", "x", "w", group=groups)
    return load(b.save(path, out))


def report(
    model: Model, board: str = ORIN.name, precision: str = "int8", read: bool = False
) -> Sparsity:
    target = get(board)
    net = layers(model)
    judgement = judge(net, target, precision=precision)
    return assess_sparsity(net, judgement, target, model if read else None)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, set()),
        ({"channels": 65}, set()),
        ({"channels": 64}, {"sparsity.channels"}),
        ({"channels": 128, "groups": 2}, set()),
        ({"channels": 64, "groups": 2}, {"sparsity.channels"}),
        ({"maps": 256, "channels": 1024, "kernel": 1}, set()),
        ({"maps": 256, "channels": 1025, "kernel": 1}, {"sparsity.weights"}),
        ({"maps": 65}, set()),
        ({"maps": 96}, set()),
        ({"maps": 67}, {"sparsity.maps"}),
        ({"maps": 112}, {"sparsity.maps"}),
        ({"board": "jetson-agx-xavier"}, {"sparsity.generation"}),
        ({"precision": "fp16"}, {"sparsity.precision"}),
    ],
)
def test_conditions_on_both_sides(
    tmp_path: Path, changes: dict[str, Any], broken: set[str]
) -> None:
    size = {"maps": 64, "channels": 128, "kernel": 3, "groups": 1, **changes}
    weight = sparse_weight(size["maps"], size["channels"], size["kernel"])
    found = report(
        model_of(tmp_path, weight, size["groups"]),
        changes.get("board", ORIN.name),
        changes.get("precision", "int8"),
    )
    (one,) = found.convolutions
    assert {reason.rule for reason in one.reasons} == broken
    assert one.possible is not bool(broken)
    assert one.weight_bytes == weight.size
    assert (one.macs_saved, one.weight_bytes_saved) == (
        (0, 0) if broken else (one.macs // 2, weight.size // 2)
    )
    for reason in one.reasons:
        assert reason.source
        assert explain(reason.rule).to_json()["text"].rstrip(".") in reason.message


def test_what_newer_releases_may_have_lifted_is_disputed(tmp_path: Path) -> None:
    (wide,) = report(model_of(tmp_path, sparse_weight(67, 128))).convolutions
    assert wide.certainty == "disputed"
    (narrow,) = report(model_of(tmp_path, sparse_weight(67, 64))).convolutions
    assert narrow.certainty == "certain"
    (fits,) = report(model_of(tmp_path, sparse_weight(64, 128))).convolutions
    assert fits.certainty == "certain"


def test_one_element_breaks_the_pattern(tmp_path: Path) -> None:
    weight = sparse_weight(64, 130)
    (whole,) = report(model_of(tmp_path, weight), read=True).convolutions
    assert (whole.present, whole.share) == (True, 1.0)
    weight[63, 5, 2, 1] = 1e-30
    (broken,) = report(model_of(tmp_path, weight), read=True).convolutions
    groups = 64 * 33 * 9
    assert broken.present is False
    assert broken.share == pytest.approx((groups - 1) / groups, abs=1e-9)
    assert broken.possible


def test_weights_are_read_only_when_requested(tmp_path: Path) -> None:
    model = model_of(tmp_path, sparse_weight(64, 128))

    class Unreadable(dict[str, np.ndarray]):
        def __getitem__(self, name: str) -> np.ndarray:
            raise AssertionError(f"{name} was read")

    net = layers(model)
    locked = replace(model, weights=Unreadable(model.weights))
    (one,) = assess_sparsity(net, judge(net, ORIN), ORIN).convolutions
    assert (one.present, one.share) == (None, None)
    with pytest.raises(AssertionError, match="was read"):
        assess_sparsity(net, judge(net, ORIN), ORIN, locked)


@pytest.mark.parametrize("form", ["MatMul", "Gemm", "Gemm transB"])
@pytest.mark.parametrize("maps", [128, 192])
def test_matrices_are_read_along_the_input_channels(tmp_path: Path, form: str, maps: int) -> None:
    weight = sparse_weight(maps, 128, 1)[:, :, 0, 0]
    stored = weight if form == "Gemm transB" else np.ascontiguousarray(weight.T)
    b = Builder(x=(1, 128))
    b.weights.append(numpy_helper.from_array(stored, "w"))
    given = {"transB": 1} if form == "Gemm transB" else {}
    model = load(b.save(tmp_path, b.add(form.split(maxsplit=1)[0], "m", "x", "w", **given)))
    (one,) = report(model, read=True).convolutions
    assert (one.possible, one.present) == (True, True)


def test_a_block_of_maps_at_a_time_counts_the_same() -> None:
    """More than one block of 4 Mi values; every second map has the pattern."""
    weights = np.zeros((10, 1 << 20), np.int8)
    weights[::2, :3] = 1
    assert pattern_share(weights, 2, 4) == pytest.approx(1 - 5 / (10 << 18), abs=1e-12)
    assert pattern_share(np.ones((2, 3, 1)), 2, 4) == 0
    assert pattern_share(np.ones((2, 2, 1)), 2, 4) == 1


def test_the_report_says_predicted_and_adds_up(tmp_path: Path) -> None:
    b = Builder(x=(1, 64, 8, 8))
    middle = b.conv("a", "x", 64, 128)
    found = report(load(b.save(tmp_path, b.conv("b", middle, 128, 128))))
    narrow, wide = found.convolutions
    assert (narrow.layer, narrow.possible, wide.layer, wide.possible) == ("a", False, "b", True)
    assert found.macs_saved == wide.macs // 2 == 128 * 128 * 9 * 64 // 2
    # half of the products at 8192 a clock and 1.6 GHz
    assert found.seconds_saved == pytest.approx(found.macs_saved / (8192 * 1.6e9))
    document = write(found)
    assert json.loads(json.dumps(document)) == document
    assert (document["kind"], document["possible"], document["present"]) == ("predicted", 1, None)
    assert document["measured_speedup"]["source"]
