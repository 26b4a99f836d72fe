"""The board's scale constraints on the way from inputs or a cache to scales."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from onnx import helper, numpy_helper, save

from edgekit.cli import main
from edgekit.dla.judge import judge
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.quantize.caches import make_cache, write_cache
from edgekit.quantize.given_scales import scale_binding, warn_unequal
from edgekit.quantize.scales import Scales
from edgekit.targets.loader import get

ORIN = "jetson-agx-orin-64gb"
# its DLA is gone: an element-wise layer on the GPU rescales
NANO = "jetson-orin-nano-8gb"


def residual(path):
    """Two convolutions of different range, added, pooled; and a gate that is multiplied."""
    random = np.random.default_rng(0)

    def weight(name, gain):
        value = random.standard_normal((16, 16, 1, 1)).astype(np.float32) * np.float32(gain)
        return numpy_helper.from_array(value, name)

    nodes = [
        helper.make_node("Conv", ["x", "small.w"], ["a"], "small"),
        helper.make_node("Relu", ["a"], ["ra"], "relu"),
        helper.make_node("Conv", ["x", "large.w"], ["b"], "large"),
        helper.make_node("Tanh", ["b"], ["tb"], "tanh"),
        helper.make_node("Conv", ["tb", "huge.w"], ["h"], "huge"),
        helper.make_node("Add", ["ra", "h"], ["s"], "add"),
        helper.make_node("MaxPool", ["s"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["p"], ["g"], "gate"),
        helper.make_node("Mul", ["p", "g"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", 1, [1, 16, 8, 8])],
        [helper.make_tensor_value_info("y", 1, [1, 16, 4, 4])],
        [weight("small.w", 0.02), weight("large.w", 0.5), weight("huge.w", 2)],
    )
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    residual(tmp_path / "net.onnx")

    def reported(*arguments):
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments])
        captured = capsys.readouterr()
        assert caught.value.code == 0, captured.err
        return captured.out

    return reported


def scales_of(run, *arguments):
    return json.loads(run("calibrate", "net.onnx", "-q", "--json", *arguments))


def test_operands_on_the_dla_share_a_scale_and_what_it_costs_is_reported(run):
    document = scales_of(run, "-t", ORIN)
    scales = document["scales"]
    assert scales["ra"] == scales["h"]
    assert scales["s"] == scales["p"]
    assert scales["p"] != scales["g"]
    change = document["changes"][0]
    assert change["tensor"] == "ra"
    assert change["rule"] == "elementwise.int8_ranges"
    assert change["layers"] == ["add"]
    assert change["widest"] == "h"
    assert change["new"] == scales["h"]
    assert change["bits"] == pytest.approx(math.log2(change["new"] / change["old"]), abs=1e-4)
    assert change["bits"] > 2
    notes = " ".join(document["notes"])
    assert "tensor 'ra' loses" in notes
    assert "elementwise.int8_factors" in notes
    lines = run("calibrate", "net.onnx", "-t", ORIN, "-q").splitlines()
    (row,) = [line.split() for line in lines if line.startswith("ra ")]
    assert row[4:] == ["elementwise.int8_ranges", "add"]


def test_a_board_without_a_dla_and_a_layer_in_fp16_bind_nothing(run, tmp_path):
    # what the methods give differs a little with the placement: one for both
    on_gpu = scales_of(run, "-t", NANO, "--method", "minmax")
    assert on_gpu["scales"]["ra"] != on_gpu["scales"]["h"]
    assert on_gpu["scales"]["s"] == on_gpu["scales"]["p"]  # a calibrator does so for a GPU, too
    assert "ra" not in {change["tensor"] for change in on_gpu["changes"]}
    (tmp_path / "net.yaml").write_text(
        "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: " + ORIN + "\nprecision: int8\n"
        "calibration: {fp16_layers: [add], method: minmax}\n"
    )
    apart = json.loads(run("calibrate", "net.yaml", "-q", "--json"))
    assert apart["scales"]["ra"] == on_gpu["scales"]["ra"]
    assert apart["scales"]["s"] == apart["scales"]["p"]


def test_scales_of_a_cache_are_tied_as_the_builder_would(run, tmp_path):
    names = ["x", "a", "ra", "b", "tb", "h", "s", "p", "g", "y"]
    given = {name: 2.0 ** (number % 4) for number, name in enumerate(names)}
    write_cache(make_cache(given, "10.3"), tmp_path / "net.cache")
    (tmp_path / "net.yaml").write_text(
        "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: " + ORIN + "\nprecision: int8\n"
        "calibration: {cache: net.cache}\n"
    )
    document = json.loads(run("calibrate", "net.yaml", "-q", "--json"))
    equal = {"ra": max(given["ra"], given["h"]), "s": max(given["s"], given["p"])}
    wanted = {**given, **equal, "h": equal["ra"], "p": equal["s"]}
    assert document["scales"] == wanted
    assert {change["tensor"]: change["old"] for change in document["changes"]} == {
        name: scale for name, scale in given.items() if wanted[name] != scale
    }


def test_scales_of_qdq_nodes_stay_and_unequal_ones_are_named(tmp_path):
    residual(tmp_path / "net.onnx")
    network = layers(load(tmp_path / "net.onnx"))
    judgement = judge(network, get(ORIN))
    bound = scale_binding(judgement, frozenset())
    names = ["x", "a", "ra", "b", "tb", "h", "s", "p", "g", "y"]
    even = Scales(dict.fromkeys(names, 0.5), "qdq", "toy", "")
    assert warn_unequal(even, network, bound) is even
    uneven = Scales({**even.scales, "h": 0.25, "s": 0.75}, "qdq", "toy", "")
    reported = warn_unequal(uneven, network, bound)
    assert reported.scales == uneven.scales
    (warning,) = reported.warnings
    for part in ("2 layers", "add: ", "'ra' 0.5, 'h' 0.25", "pool: ", "'s' 0.75, 'p' 0.5"):
        assert part in warning
    (warning,) = warn_unequal(uneven, network, scale_binding(judgement, {"add"})).warnings
    assert "1 layer" in warning
    assert "'ra'" not in warning


def test_a_network_that_is_lowered_to_qdq_is_bound_as_a_whole(tmp_path):
    residual(tmp_path / "net.onnx")
    network = layers(load(tmp_path / "net.onnx"))
    refused = judge(network, get(ORIN), tensorrt="11.4.1")
    assert not any(verdict.ok for verdict in refused.verdicts.values())
    assert scale_binding(refused, frozenset())["dla_layers"] is None
    assert scale_binding(judge(network, get(NANO)), frozenset())["dla_layers"] == frozenset()
