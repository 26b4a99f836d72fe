"""What is offered to bring layers to the DLA: with a saving only where the whole is faster then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.cli import main
from edgekit.placement.costs.kernel_costs import noise

ORIN = "jetson-agx-orin-64gb"


def chain(path: Path, channels: int, size: int, layers: int, splits: int = 1) -> Path:
    """Convolutions, with maximum pools between them whose window is too large for a DLA."""
    nodes, last = [], "x"
    for part in range(splits + 1):
        for number in range(layers):
            out = f"c{part}_{number}"
            nodes.append(
                helper.make_node(
                    "Conv", [last, "w"], [out], name=f"conv{part}_{number}", pads=[1] * 4
                )
            )
            last = out
        if part < splits:
            nodes.append(
                helper.make_node(
                    "MaxPool",
                    [last],
                    [f"p{part}"],
                    name=f"pool{part}",
                    kernel_shape=[9, 9],
                    pads=[4] * 4,
                )
            )
            last = f"p{part}"
    weights = numpy_helper.from_array(np.ones((channels, channels, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main.main(list(words))
    return " ".join(capsys.readouterr().out.split())


def faster(document: dict[str, Any]) -> float:
    times = document["predicted"]
    return float(min(times["auto_us"], times["gpu_only_us"]))


def test_no_saving_is_offered_where_the_gpu_alone_is_faster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One loadable instead of two is 60 us less, and still far more than the GPU takes."""
    path = chain(tmp_path / "few.onnx", 64, 14, 2)
    document = edgekit.check(path, target=ORIN).to_json()
    (fix,) = document["fixes"]
    assert document["predicted"]["gpu_only_us"] < fix["auto_us"]
    assert fix["auto_us"] < document["predicted"]["auto_us"] - 50
    assert (fix["gain_us"], fix["offer"]) == (None, "legality")
    text = printed(capsys, "check", str(path), "-t", ORIN)
    assert "saves" not in text
    assert "Fixes that put more layers on the DLA but may not be faster" in text


def test_a_saving_is_against_the_faster_of_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = chain(tmp_path / "many.onnx", 64, 14, 8)
    document = edgekit.check(path, target=ORIN).to_json()
    (fix,) = document["fixes"]
    assert document["predicted"]["gpu_only_us"] < document["predicted"]["auto_us"]
    assert fix["offer"] == "latency"
    assert fix["gain_us"] == pytest.approx(faster(document) - fix["auto_us"])
    assert "Fixes that shorten the predicted latency" in printed(
        capsys, "check", str(path), "-t", ORIN
    )


@pytest.mark.parametrize("layers", [1, 4, 7, 20])
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("target", [ORIN, "jetson-agx-xavier"])
def test_a_saving_is_more_than_the_noise_of_the_prediction(
    tmp_path: Path, layers: int, splits: int, target: str
) -> None:
    document = edgekit.check(
        chain(tmp_path / "c.onnx", 32, 14, layers, splits), target=target
    ).to_json()
    assert document["fixes"]
    together = document["fixes_together"]
    for fix in [*document["fixes"], *([together] if together else [])]:
        pays = fix["auto_us"] < faster(document) * (1 - noise())
        assert (fix["gain_us"] is not None) is pays
        assert (fix["offer"] == "latency") is pays


def test_what_only_splits_the_network_is_no_offer(tmp_path: Path) -> None:
    """A softmax behind the layers of the DLA would be another loadable, with no arithmetic."""
    path = tmp_path / "tail.onnx"
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Flatten", ["c"], ["f"], name="flat"),
        helper.make_node("Softmax", ["f"], ["y"], name="soft"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1024])],
        [numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    document = edgekit.check(path, target=ORIN).to_json()
    for fix in document["fixes"]:
        assert fix["loadables"] <= max(1, document["loadables"])


def test_what_makes_the_automatic_placement_slower_is_no_offer(tmp_path: Path) -> None:
    """Mended, the exponentials bring a large tensor to the DLA that the GPU does in no time."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], name="exp"),
        helper.make_node("Exp", ["e"], ["f"], name="exp2"),
        helper.make_node(
            "AveragePool", ["f"], ["p"], name="pool", kernel_shape=[8, 8], strides=[8, 8]
        ),
        helper.make_node("Sigmoid", ["p"], ["y"], name="sig"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 256, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 32, 32])],
    )
    path = tmp_path / "slow.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    document = edgekit.check(path, target=ORIN).to_json()
    assert [layer["name"] for layer in document["layers"] if not layer["dla"]["ok"]] == [
        "exp",
        "exp2",
    ]
    assert document["fixes"] == []


@pytest.mark.parametrize(("layers", "pays"), [(2, False), (20, True)])
def test_sparsity_is_offered_where_it_shortens_the_latency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layers: int, pays: bool
) -> None:
    path = chain(tmp_path / "c.onnx", 128, 14, layers, 0)
    document = edgekit.check(path, target=ORIN).to_json()
    assert document["sparsity"]["possible"] == layers
    assert document["sparsity"]["pays"] is pays
    assert ("sparse weights" in printed(capsys, "check", str(path), "-t", ORIN)) is pays
    reported = printed(capsys, "check", str(path), "-t", ORIN, "--sparsity")
    assert ("saved (predicted)" in reported) is pays


def test_check_of_a_layer_names_the_rewrite_that_does_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = chain(tmp_path / "c.onnx", 16, 14, 2)
    done = edgekit.rewrite(path, target=ORIN, rewrite={"always": True}).to_json()["rewrites"]
    (name,) = {one["rewrite"] for one in done}
    text = printed(capsys, "check", str(path), "-t", ORIN, "--layer", "pool0")
    assert f"apply with edgekit rewrite: {name}" in text
    assert "edgekit rewrite" not in printed(
        capsys, "check", str(path), "-t", ORIN, "--layer", "conv0_0"
    )
    layers = {row["name"]: row for row in edgekit.check(path, target=ORIN).to_json()["layers"]}
    assert layers["pool0"]["rewrites"] == [name]
    assert layers["conv0_0"]["rewrites"] == []
