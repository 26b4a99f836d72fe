"""What operators without a cost model of their own compute, and those of which nobody knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.cli.main import main
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from tests.network.onnx_making import make, node, values, write

ORIN = "jetson-agx-orin-64gb"
NEW = "11.4.1"


def macs(tmp_path: Path, one: onnx.NodeProto, inputs: dict[str, Any], opset: int, **more: Any):
    outputs = [name for name in one.output if name]
    (layer,) = layers(
        load(write(make([one], inputs, outputs, opset=opset, **more), tmp_path))
    ).layers
    return layer.macs if layer.formula else None


@pytest.mark.parametrize(
    ("given", "shapes", "expected"),
    [
        # queries times keys and weights times values: 4 heads, 16 queries, 32 keys
        ({}, [[2, 4, 16, 8], [2, 4, 32, 8], [2, 4, 32, 10]], 2 * 4 * 16 * 32 * (8 + 10)),
        # two heads of keys and values serve four of queries
        ({}, [[1, 4, 16, 8], [1, 2, 32, 8], [1, 2, 32, 8]], 4 * 16 * 32 * (8 + 8)),
        (
            {"q_num_heads": 4, "kv_num_heads": 2},
            [[1, 16, 32], [1, 24, 16], [1, 24, 16]],
            4 * 16 * 24 * (8 + 8),
        ),
    ],
)
def test_attention(
    tmp_path: Path, given: dict[str, Any], shapes: list[list[int]], expected: int
) -> None:
    inputs = dict(zip("qkv", shapes, strict=True))
    assert macs(tmp_path, node("Attention", "q k v", "y", **given), inputs, 23) == expected


def test_attention_to_a_past(tmp_path: Path) -> None:
    one = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"])
    now, past = [1, 2, 4, 8], [1, 2, 12, 8]
    inputs = {"q": now, "k": now, "v": now, "pk": past, "pv": past}
    assert macs(tmp_path, one, inputs, 23) == 2 * 4 * (4 + 12) * (8 + 8)


def test_other_formulas(tmp_path: Path) -> None:
    constants = {"cos": values([8, 2]), "sin": values([8, 2])}
    turn = node("RotaryEmbedding", "x cos sin ids", "y")
    ids = {"ids": np.arange(8).reshape(1, 8)}
    found = macs(tmp_path, turn, {"x": [1, 2, 8, 4]}, 23, constants={**constants, **ids})
    assert found == 2 * 2 * 8 * 4
    for mode, taps in (("bilinear", 4), ("bicubic", 16), ("nearest", 0)):
        sample = node("GridSample", "x g", "y", mode=mode)
        found = macs(tmp_path, sample, {"x": [1, 3, 8, 8], "g": [1, 5, 6, 2]}, 16)
        assert found == 3 * 5 * 6 * taps
    deform = node("DeformConv", "x w o", "y", kernel_shape=[3, 3])
    found = macs(
        tmp_path,
        deform,
        {"x": [1, 4, 8, 8], "o": [1, 18, 6, 6]},
        19,
        constants={"w": values([5, 4, 3, 3])},
    )
    assert found == 5 * 36 * 4 * 9 + 4 * (4 * 36 * 9)


@pytest.mark.parametrize(("ratio", "expected"), [(2, 5 * 4 * 9 * 4 * 4), (0, None)])
def test_a_region_s_samples_may_depend_on_it(
    tmp_path: Path, ratio: int, expected: int | None
) -> None:
    one = node("RoiAlign", "x r i", "y", output_height=3, output_width=3, sampling_ratio=ratio)
    found = macs(
        tmp_path, one, {"x": [1, 4, 8, 8], "r": [5, 4]}, 16, constants={"i": np.zeros(5, np.int64)}
    )
    assert found == expected


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def regions(tmp_path: Path) -> Path:
    """A convolution, and regions of its result of unknown work."""
    nodes = [
        node("Conv", "x w", "c", name="conv", pads=[1, 1, 1, 1]),
        node("RoiAlign", "c r i", "y", name="roi", output_height=3, output_width=3),
    ]
    constants = {"w": values([16, 3, 3, 3]), "i": np.zeros(5, np.int64)}
    return write(make(nodes, {"x": [1, 3, 32, 32], "r": [5, 4]}, ["y"], constants), tmp_path)


def test_the_time_of_attention_is_that_of_its_products(tmp_path: Path) -> None:
    path = write(
        make(
            [node("Attention", "q k v", "y", name="att", q_num_heads=16, kv_num_heads=16)],
            {name: [1, 4096, 1024] for name in "qkv"},
            ["y"],
            opset=23,
        ),
        tmp_path,
    )
    document = edgekit.check(path, target=ORIN, precision="fp16", tensorrt=NEW).to_json()
    (layer,) = document["layers"]
    assert layer["macs"] == 2 * 4096 * 4096 * 1024
    assert not document["unknown_cost"]
    # 21.2 T multiply-accumulates per second are the board's most in FP16
    assert document["predicted"]["gpu_only_us"] > layer["macs"] / 21.3e6


def test_check_names_a_layer_that_it_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = edgekit.check(regions(tmp_path), target=ORIN).to_json()
    assert document["unknown_cost"] == [
        {"layer": "roi", "operator": "RoiAlign", "why": "formula", "plugin": None}
    ]
    assert document["predicted"]["layers"]["roi"] is None
    assert document["predicted"]["layers"]["conv"] > 0
    assert run("check", str(regions(tmp_path)), "--target", ORIN) in {0, None}
    shown = " ".join(capsys.readouterr().out.split())
    assert "not counted: 1 layer of unknown cost: roi (RoiAlign)" in shown


def test_no_list_of_layers_takes_their_sum_for_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(regions(tmp_path))
    assert run("check", path, "--target", ORIN, "--by-layer") in {0, None}
    shown = " ".join(capsys.readouterr().out.split())
    assert "and conversions, not counting 1 layer of unknown cost. Layers of 0" in shown
    assert "not counted: 1 layer of unknown cost: roi (RoiAlign)" in shown
    assert run("check", path, "--target", ORIN, "--markdown", "-") in {0, None}
    shown = capsys.readouterr().out
    assert "Layers of unknown cost, not counted" in shown
    assert "| <code>roi</code> | RoiAlign |" in shown


def test_no_plan_is_optimal_without_saying_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = edgekit.plan(regions(tmp_path), target=ORIN)
    assert plan.unknown_cost == ("roi",)
    devices = {layer.name: layer.device for layer in plan.layers}
    assert devices["roi"] == "GPU"
    (optimal,) = (note for note in plan.notes if note.startswith("Optimal"))
    assert "except for 1 layer not counted" in optimal
    assert any("1 layer has no cost model (roi); its time is not" in note for note in plan.notes)
    command = ["plan", str(regions(tmp_path)), "--target", ORIN]
    assert run(*command) in {0, None}
    shown = " ".join(capsys.readouterr().out.split())
    assert "proved optimal, except for 1 layer not counted" in shown
    assert run(*command, "--json") in {0, None}
    assert json.loads(capsys.readouterr().out)["unknown_cost"] == ["roi"]


def test_what_if_names_it_in_both_plans(tmp_path: Path) -> None:
    found = edgekit.what_if(regions(tmp_path), target=ORIN, changes="pin conv GPU")
    assert found.before.unknown_cost == found.after.unknown_cost == ("roi",)


def test_a_loop_runs_its_body_who_knows_how_often(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", "go", "on"), node("Add", "a a", "b")],
        "body",
        [
            info("step", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("a", TensorProto.FLOAT, [1, 4, 8, 8]),
        ],
        [info("on", TensorProto.BOOL, []), info("b", TensorProto.FLOAT, [1, 4, 8, 8])],
    )
    one = node("Loop", "n t x", "y", name="loop", body=body)
    model = make([one], {"x": [1, 4, 8, 8], "n": []}, ["y"], {"t": np.array(True)})
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    network = layers(load(write(model, tmp_path)))
    assert network.uncounted == ("loop",)
