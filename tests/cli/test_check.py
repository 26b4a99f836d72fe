"""`edgekit check` and `edgekit explain`: one process each way, text and JSON."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import onnx
import pytest

import edgekit
from edgekit.cli import main
from edgekit.network.loading.load import load
from edgekit.network.lowering import layers as lowering
from edgekit.text import percent
from tests.command_line import typed
from tests.dla.builder import Builder
from tests.pipeline.nets import CONFIG, small_net

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_net(tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


@pytest.fixture
def run():
    return lambda *arguments, status=0: typed(*arguments, status=status).out


def flat(text: str) -> str:
    return " ".join(text.split())


def test_text_and_json_say_the_same(model, run):
    text = run("check", model, "-t", ORIN)
    document = json.loads(run("check", model, "-t", ORIN, "--json"))
    summary = document["summary"]
    assert f"{summary['dla_layers']} of {summary['layers']} layers" in text
    assert f"{document['loadables']} loadable" in text
    assert {reason["rule"] for layer in document["layers"] for reason in layer["dla"]["reasons"]}
    for layer in document["layers"]:
        for reason in layer["dla"]["reasons"]:
            assert reason["rule"] in text
    assert document["predicted"]["clock"] == "predicted"
    assert document == edgekit.check(model, target=ORIN).to_json()
    # the same words every time
    assert run("check", model, "-t", ORIN) == text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_a_configuration_is_checked_as_its_model_is(model, run):
    config = model.with_name("small.yaml")
    config.write_text(CONFIG.format(target=ORIN, precision="int8", objective="latency"))
    output_of = json.loads(run("check", config, "--json"))
    direct = json.loads(run("check", model, "-t", ORIN, "--json"))
    assert {**output_of, "model": ""} == {**direct, "model": ""}
    assert json.loads(run("check", config, "--jetpack", "6.0", "--json"))["tensorrt"] == "8.6.2"


def test_a_release_is_picked_by_tensorrt_or_jetpack(model, run):
    by_jetpack = json.loads(run("check", model, "-t", ORIN, "--jetpack", "6.2", "--json"))
    by_release = json.loads(run("check", model, "-t", ORIN, "--tensorrt", "10.3", "--json"))
    assert by_jetpack["summary"] == by_release["summary"]
    for release in ("10.3.0", "010.3"):
        spelled = json.loads(run("check", model, "-t", ORIN, "--tensorrt", release, "--json"))
        assert spelled == by_release
    assert by_jetpack["tensorrt"] == by_release["tensorrt"] == "10.3"
    without = run("check", model, "-t", ORIN, "--tensorrt", "10.9")
    assert "general.tensorrt" in without
    assert "all on the GPU" in " ".join(without.split())
    run("check", model, "-t", ORIN, "--jetpack", "6.2", "--tensorrt", "10.3", status=2)
    run("check", model, "-t", ORIN, "--jetpack", "99", status=2)


def test_a_share_of_the_macs_is_said_alike_everywhere(run, tmp_path, capsys):
    """Before, the gate cut 26.86 % off to 26.8 % below a headline of 26.9 %."""
    net = Builder(x=[1, 16, 16, 16])
    on_dla = net.conv("a", "x", 16, 56, kernel=5)
    path = net.save(tmp_path, net.conv("b", on_dla, 56, 1, kernel=33))
    document = json.loads(run("check", path, "-t", ORIN, "--json"))
    share = document["summary"]["dla_macs_fraction"]
    assert 0 < share < 1
    with pytest.raises(SystemExit):
        main.main(["check", str(path), "-t", ORIN, "--fail-under", "99.999"])
    said = capsys.readouterr()
    assert f"and {percent(share)} of the MACs run on the DLA" in said.out
    assert (
        f" {percent(share)} of the MACs would run on the DLA, below the limit of 99.999 "
        "%" in said.err
    )


def test_one_layer_by_its_own_name_or_the_nodes(model, run):
    text = run("check", model, "-t", ORIN, "--layer", "conv2")
    assert "CONVOLUTION (ONNX Conv), INT8" in text
    assert "banks" in text
    # a matrix product brings shuffles, which are told with it
    (fc, *more) = json.loads(run("check", model, "-t", ORIN, "--layer", "fc", "--json"))["layers"]
    assert fc["name"] == "fc"
    assert {one["from"][0] for one in more} == {"fc"}
    assert [one["name"] for one in more] != []
    document = json.loads(run("check", model, "-t", ORIN, "--json"))
    inserted = next(layer for layer in document["layers"] if not layer["nodes"])
    text = run("check", model, "-t", ORIN, "--layer", inserted["name"])
    assert f"inserted for {inserted['from'][0]}" in " ".join(text.split())


def test_a_folded_node_is_reported_with_the_layer_that_took_it_in(run, tmp_path):
    net = Builder(x=(1, 8, 4, 4))
    same = net.add("Identity", "same", net.conv("conv", "x", 8, 8))
    net.add("Relu", "dead", same)
    path = net.save(tmp_path, net.add("Relu", "relu", same))
    text = flat(run("check", path, "-t", ORIN, "--layer", "same"))
    assert "same does nothing at run time it is part of: conv kind CONVOLUTION" in text
    text = flat(run("check", path, "-t", ORIN, "--layer", "dead"))
    assert text == "dead computes what no output needs no layer corresponds to it"
    output_of = json.loads(run("check", path, "-t", ORIN, "--layer", "dead", "--json"))
    assert (output_of["folded"], output_of["layers"]) == ("unused", [])


def test_names_are_copied_from_a_log(model, run):
    def layers(name):
        output_of = json.loads(run("check", model, "-t", ORIN, "--layer", name, "--json"))
        return [one["name"] for one in output_of["layers"]]

    # the bias of a matrix product is a layer of the importer that the builder fuses
    fused = lowering.layers(load(model)).layer("fc").builder_name
    assert fused.startswith("fc + (Unnamed Layer* ")
    for name in (fused, f"CONVOLUTION: {fused}", fused.removeprefix("fc + ")):
        assert layers(name) == ["fc"]
    assert layers("CONVOLUTION: conv2 + relu2") == ["conv2", "relu2"]
    # with the type in front it is the same name, with what was inserted for the node
    assert layers("CONVOLUTION: fc") == layers("fc")


def test_a_loadable_is_reported_by_the_name_in_a_log(model, run):
    document = json.loads(run("check", model, "-t", ORIN, "--json"))
    for entry in document["memory"]:
        arguments = ("check", model, "-t", ORIN, "--layer", entry["name"])
        output_of = json.loads(run(*arguments, "--json"))
        assert [one["name"] for one in output_of["layers"]] == entry["layers"]
        assert (output_of["loadable"]["kept"], output_of["loadable"]["memory"]) == (True, entry)
        text = flat(run(*arguments))
        assert f"{len(entry['layers'])} layer" in text
        assert all(name in text for name in entry["layers"])
    first, last = document["memory"][0]["layers"][0], document["memory"][0]["layers"][-1]
    # another release's name of the same: a fusion at its end
    name = f"{{ForeignNode[{first}...{last} + x]}}"
    output_of = json.loads(run("check", model, "-t", ORIN, "--layer", name, "--json"))
    assert output_of["loadable"]["layers"] == document["memory"][0]["layers"]
    run("check", model, "-t", ORIN, "--layer", "{ForeignNode[a...b]}", status=2)


def test_an_unknown_layer_gets_a_guess(model, run):
    out = run("check", model, "-t", ORIN, "--layer", "conv22", "--json", status=2)
    error = json.loads(out)["error"]
    assert error["code"] == "layer.unknown"
    assert "conv2" in error["hint"]


@pytest.mark.parametrize(
    "gate", [("--fail-under", "1", "--precision", "fp32"), ("--max-loadables", "0")]
)
def test_a_gate_points_to_the_text_only_where_it_was_not_printed(gate, model, capsys):
    for requested, hinted in (((), False), (("--json",), True)):
        with pytest.raises(SystemExit) as caught:
            main.main(["check", str(model), "-t", ORIN, *gate, *requested])
        assert caught.value.code == 1
        assert ("without --json" in capsys.readouterr().err) == hinted


def test_a_convolution_near_the_buffers_limit_is_warned_of(run, tmp_path):
    # a kernel of 7 x 7 x 512 bytes takes one bank; 512 / 32 vectors of 128 columns are 512
    # entries a row, so its seven rows take 14 of 256 entries each
    for width, warned in ((64, False), (128, True)):
        net = Builder(x=(1, 512, 16, width))
        path = net.save(tmp_path, net.conv("wide", "x", 512, 8, kernel=7))
        warnings = json.loads(run("check", path, "-t", ORIN, "--json"))["warnings"]
        assert any("convolution buffer" in warning for warning in warnings) == warned


@pytest.mark.parametrize("width", [128, 144, 160])
def test_at_the_buffers_limit_and_over_it_it_is_warned_of_as_well(run, tmp_path, width):
    """One bank of weights and 14, 16 and 18 of rows: 15, 17 and 19 of 16, in FP16 even more."""
    net = Builder(x=(1, 512, 16, width))
    path = net.save(tmp_path, net.conv("wide", "x", 512, 8, kernel=7))
    for precision in ("int8", "fp16"):
        out = run("check", path, "-t", ORIN, "--precision", precision, "--json")
        assert (
            sum("convolution buffer" in output_of for output_of in json.loads(out)["warnings"]) == 1
        )


def test_a_loadable_over_a_memory_limit_is_none(run, tmp_path):
    """Two tensors of 32x8192x8192 INT8 alive at once are 4 GiB; 1 GiB is the limit."""
    net = Builder(x=(1, 8, 8192, 8192))
    out = net.add("Relu", "c", net.add("Relu", "b", net.add("Relu", "a", "x")))
    path = net.save(tmp_path, out)
    document = json.loads(run("check", path, "-t", ORIN, "--json"))
    assert (document["loadables"], document["candidates"], document["memory"]) == (0, 1, [])
    (refused,) = document["memory_refused"]
    assert refused["layers"] == ["a", "b", "c"]
    assert {layer["dropped"] for layer in document["layers"]} == {"memory.internal"}
    assert document["predicted"]["dla_us"] == 0
    assert any("memory.internal" in output_of for output_of in document["warnings"])
    run("check", path, "-t", ORIN, "--fail-under", "1", status=1)
    text = flat(run("check", path, "-t", ORIN))
    assert "memory.internal {ForeignNode[a...c]} needs 4 GiB of local DRAM" in text
    assert "0 of 3 layers" in text


def test_one_layer_over_a_pool_is_told_of_its_tensors(run, tmp_path):
    """2 GiB of tensors beside 74 KB of weights: the verdict, the reason and what helps."""
    net = Builder(x=(32, 64, 592, 784))
    path = net.save(tmp_path, net.conv("y", "x", 64, 64, kernel=3))
    document = json.loads(run("check", path, "-t", ORIN, "--json"))
    (note,) = [one for one in document["warnings"] if "memory.pool" in one]
    assert document["summary"]["dla_layers"] == document["loadables"] == 0
    said = flat(run("check", path, "-t", ORIN))
    assert "0 of 1 layer and 0.0 % of the MACs run on the DLA" in said
    assert "needs 2 GiB of local DRAM, at most 1 GiB" in said
    assert "{ForeignNode[y]} stays on the GPU (1 layer, predicted): it needs 2,048 MiB" in note
    assert "of local DRAM, and the limit is 1,024 MiB" in note
    assert "use a smaller batch or input size for y, or ask for a larger local DRAM pool" in note
    assert "--pool local_dram=2048MiB" in note
    assert "weights" not in note


def test_a_strongly_typed_release_is_warned_of(model, run):
    out = run("check", model, "-t", ORIN, "--tensorrt", "11.4.1", "--precision", "fp16", "--json")
    (output_of,) = [one for one in json.loads(out)["warnings"] if "general.strongly_typed" in one]
    assert "strongly typed" in output_of


def test_gates_hold_after_the_whole_answer(model, run):
    arguments = ("check", model, "-t", ORIN, "--precision", "fp32", "--fail-under", "0.5")
    out = run(*arguments, "--json", status=1)
    assert json.loads(out)["schema"] == "edgekit.check/1"
    run("check", model, "-t", ORIN, "--max-loadables", "0", status=1)
    run("check", model, "-t", ORIN, "--fail-under", "10", "--max-loadables", "16")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_cannot_say_are_texts(value, run, tmp_path):
    net = Builder(x=[1, 8, 4, 4])
    path = net.save(tmp_path, net.add("LeakyRelu", "act", "x", alpha=value))
    output_of = json.loads(run("check", path, "-t", ORIN, "--layer", "act", "--json"))
    assert output_of["layers"][0]["params"]["alpha"] == str(value)
    assert str(value) in run("check", path, "-t", ORIN, "--layer", "act")
    run("check", path, "-t", ORIN, "--json")


def test_a_network_without_macs_is_whole_where_its_layers_are(run, tmp_path):
    net = Builder(x=[1, 8, 4, 4])
    path = net.save(tmp_path, net.add("Relu", "act", "x"))
    output_of = json.loads(run("check", path, "-t", ORIN, "--fail-under", "100", "--json"))
    assert output_of["summary"]["dla_macs_fraction"] == 1.0
    assert "MACs" not in run("check", path, "-t", ORIN)
    arguments = ("check", path, "-t", ORIN, "--precision", "fp32", "--fail-under", "1", "--json")
    assert json.loads(run(*arguments, status=1))["summary"]["dla_macs_fraction"] == 0.0


def test_a_power_mode_changes_the_prediction_alone(model, run):
    fast = json.loads(run("check", model, "-t", ORIN, "--json"))
    slow = json.loads(run("check", model, "-t", ORIN, "--power-mode", "15w", "--json"))
    assert slow["predicted"]["auto_us"] > fast["predicted"]["auto_us"]
    assert slow["layers"] == fast["layers"]
    run("check", model, "-t", ORIN, "--power-mode", "1W", status=2)


def test_a_stdout_without_greek_letters_gets_plain_ones(model, monkeypatch):
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii", write_through=True))
    with pytest.raises(SystemExit) as caught:
        main.main(["check", str(model), "-t", ORIN])
    assert caught.value.code == 0
    assert b" us, " in out.getvalue()


def test_explain_prints_rules_and_operators(run):
    text = run("explain", "pooling.window")
    assert "fix" in text
    assert "source" in text
    assert json.loads(run("explain", "pooling.window", "--json"))["schema"] == "edgekit.rule/1"
    assert "HardSwish" in run("explain", "hardswish")
    operator = json.loads(run("explain", "HardSwish", "--json"))
    assert operator["schema"] == "edgekit.operator/1"
    error = json.loads(run("explain", "pooling.windw", "--json", status=2))["error"]
    assert "pooling.window" in error["hint"]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("shape", "code"),
    [("nope:1x3x224x224", "model.unknown_input"), ("data_0:2x3x224x224", "model.shape_conflict")],
)
def test_a_built_in_network_has_its_own_sizes(run, shape: str, code: str) -> None:
    """They were ignored, and the answer was of another network than the one asked for."""
    out = run("check", "builtin:light_squeezenet", "-t", ORIN, "--shape", shape, "--json", status=2)
    assert json.loads(out)["error"]["code"] == code


def test_what_tensorrt_fuses_into_a_layer_is_reported_in_words(run, tmp_path):
    net = Builder(x=[1, 6, 5, 7])
    apart = net.add("Reshape", "apart", "x", net.constant("shape", [1, 2, 3, 5, 7]))
    path = net.save(tmp_path, net.add("Transpose", "turned", apart, perm=[0, 2, 1, 3, 4]))
    output_of = flat(run("check", path, "-t", ORIN, "--layer", "turned"))
    assert "RESHAPE (shape 1x2x3x5x7) then TRANSPOSE (perm 0 2 1 3 4, shape 1x3x2x5x7)" in output_of
    assert "{" not in output_of
    assert "(1, 2" not in output_of


def test_a_network_of_unknown_cost_has_no_latency(run, tmp_path):
    """0 us and 0 frames a second would be an answer."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("NonZero", ["x"], ["y"], name="where")],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [2, "n"])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "unknown.onnx")
    path = str(tmp_path / "unknown.onnx")
    assert json.loads(run("check", path, "-t", ORIN, "--json"))["predicted"] is None
    said = flat(run("check", path, "-t", ORIN))
    assert "predicted latency unknown: no layer that takes time has a cost model" in said
    assert "0 µs" not in said
    planned = flat(run("plan", path, "-t", ORIN))
    assert "latency unknown: no layer that takes time has a cost model" in planned
    assert "0 µs" not in planned
    assert "proved optimal" not in planned


@pytest.mark.parametrize("release", ["11.5", "11.6"])
def test_a_release_without_a_source_is_no_dispute_and_a_plain_file_gets_qdq(model, run, release):
    text = flat(run("check", model, "-t", ORIN, "--tensorrt", release))
    known = json.loads(run("check", model, "-t", ORIN, "--tensorrt", "11.4.1", "--json"))
    summary = known["summary"]
    assert summary["dla_layers"] > 0
    assert f"{summary['dla_layers']} of {summary['layers']} layers" in text
    assert f"DLA on TensorRT {release}: not stated" in text
    assert f"No source covers TensorRT {release}: " in text
    assert f"On the DLA, but no source covers TensorRT {release}" in text
    disputes = re.findall(r"Sources disagree on \d+ verdicts?", text)
    with_sources = flat(run("check", model, "-t", ORIN, "--tensorrt", "11.4.1"))
    assert disputes == re.findall(r"Sources disagree on \d+ verdicts?", with_sources)
    assert "implicit INT8" not in text
    assert "not stated" not in with_sources


def test_a_jetpack_whose_tensorrt_sources_dispute_is_said_to_have_either(model, run):
    text = run("check", model, "-t", ORIN, "--jetpack", "7.2")
    assert "Sources differ on the TensorRT of JetPack 7.2: 10.16.1 or 10.16.2" in text
    assert "Sources differ on the TensorRT" not in run("check", model, "-t", ORIN)
