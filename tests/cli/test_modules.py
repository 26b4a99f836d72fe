"""Commands group by PyTorch modules and take globs of them, of ONNX files that carry names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.cli.main import app
from edgekit.errors import UsageError
from edgekit.placement.plan import Plan
from edgekit.reports.markdown import markdown
from tests.network.torch_files import dynamo_nodes, legacy_nodes, lenet

ORIN = ["-t", "jetson-agx-orin-64gb"]


@pytest.fixture(params=["dynamo", "legacy"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(lenet(tmp_path, dynamo_nodes() if request.param == "dynamo" else legacy_nodes()))


@pytest.fixture
def unnamed(tmp_path: Path) -> str:
    nodes = dynamo_nodes()
    for one in nodes:
        del one.metadata_props[:]
    return str(lenet(tmp_path, nodes))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert app([*words, *ORIN]) == 0
    return capsys.readouterr().out


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(told(capsys, *words, "--json"))


def refused(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        app([*words, *ORIN])
    return caught.value


def test_check_has_the_tree_of_modules(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "check", model)
    modules = {one["module"]: one for one in found["modules"]}
    layers = found["layers"]
    inside = [one for one in layers if re.match(r"classifier(\.|$)", one.get("module", ""))]
    whole, part = modules[""], modules["classifier"]
    assert whole["layers"] == found["summary"]["layers"] == len(layers)
    assert whole["devices"].get("DLA", 0) == found["summary"]["dla_layers"]
    assert part["layers"] == len(inside)
    times = found["predicted"]["layers"]
    assert part["us"] == pytest.approx(sum(times[one["name"]] for one in inside))
    rules = [
        {reason["rule"] for reason in one["dla"]["reasons"]}
        for one in inside
        if not one["dla"]["ok"]
    ]
    assert part["rules"] == {
        rule: sum(rule in one for one in rules) for rule in set().union(*rules)
    }
    text = told(capsys, "check", model)
    assert re.search(r"^  classifier  .*shuffle\.rank", text, re.MULTILINE)
    whole_tree = told(capsys, "check", model, "--by-module")
    assert len(whole_tree.splitlines()) > 5
    assert all(line in text for line in whole_tree.splitlines()[1:3])
    printed = str(edgekit.check(model, target=ORIN[1]))
    assert "classifier.0" in printed
    assert f"{found['summary']['dla_layers']} of" in printed


def test_a_file_without_modules_is_checked_as_before(
    unnamed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, "check", unnamed)
    assert "modules" not in found
    assert not any("module" in layer for layer in found["layers"])
    assert "Modules" not in told(capsys, "check", unnamed)
    assert refused("check", unnamed, "--by-module").code == "check.modules"


def test_layer_takes_globs_of_modules(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = asked(capsys, "check", model, "--layer", "feat")
    assert {one["module"] for one in whole["layers"]} == {"feat", "feat.conv1", "feat.conv2"}
    assert asked(capsys, "check", model, "--layer", "feat.*")["layers"] == whole["layers"]
    one = asked(capsys, "check", model, "--layer", "*.conv1")
    assert [layer["kind"] for layer in one["layers"]] == ["CONVOLUTION"]
    assert "feat.conv1" in told(capsys, "check", model, "--layer", "*.conv1")
    assert "5 layers" in told(capsys, "check", model, "--layer", "feat")
    error = refused("check", model, "--layer", "feet.conv1")
    assert error.code == "layer.unknown"
    assert "layer, ONNX node or module" in error.message
    assert "feat.conv1" in error.hint


def test_why_of_a_module_is_its_tree_with_reasons(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, "plan", model, "--precision", "fp16", "--why", "classifier", "-q")
    assert found["schema"] == "edgekit.why-modules/1"
    assert edgekit.read_document(found).to_json() == found
    paths = [one["module"] for one in found["modules"]]
    assert paths[0] == "classifier"
    assert all(path.startswith("classifier.") for path in paths[1:])
    on_gpu = found["modules"][0]["devices"]["GPU"]
    assert {one["name"] for reason in found["reasons"] for one in reason["layers"]}
    assert on_gpu == len({one["name"] for reason in found["reasons"] for one in reason["layers"]})
    text = told(capsys, "plan", model, "--precision", "fp16", "--why", "classifier.*", "-q")
    assert "classifier.0" in text
    assert found["reasons"][0]["rule"] in text
    one = asked(capsys, "plan", model, "--precision", "fp16", "--why", "feat.conv1", "-q")
    assert one["schema"] == "edgekit.why/1"
    error = refused("plan", model, "--precision", "fp16", "--why", "clasifier", "-q")
    assert "classifier" in error.hint


def test_a_plan_by_module_is_the_tree_of_the_whole_network(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "plan", model, "--precision", "fp16", "--by-module", "-q"
    found = asked(capsys, *words)
    placed = asked(capsys, *words[:4], "-q")
    whole = found["modules"][0]
    assert whole["module"] == ""
    assert whole["layers"] == len(placed["layers"])
    paths = [one["module"] for one in found["modules"]]
    assert paths == [one["module"] for one in asked(capsys, "check", model)["modules"]]
    text = told(capsys, *words)
    assert "(the network)" in text
    assert "classifier" in text
    assert "cannot be combined" in str(refused(*words, "--why", "classifier"))


def test_modules_are_left_out_of_a_file_that_names_them(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = asked(capsys, "check", model)
    found = asked(capsys, "check", model, "--leave", "feat.*")
    modules = {one["module"]: one for one in found["modules"]}
    assert modules["feat"]["devices"] == {"PyTorch": 1}
    rest = {one["module"]: one for one in before["modules"]}["classifier"]
    assert modules["classifier"]["layers"] == rest["layers"]
    assert "PyTorch" in told(capsys, "check", model, "--leave", "feat")
    plan = asked(capsys, "plan", model, "--precision", "fp16", "--leave", "feat", "-q")
    assert "left out of the network, and in no figure: feat" in plan["notes"]
    for words in (["check", model], ["plan", model, "--precision", "fp16", "-q"]):
        error = refused(*words, "--leave", "clasifier")
        assert (error.code, "classifier" in error.hint) == ("torch.leave", True)


def test_a_file_without_modules_has_no_tree_and_leaves_none(unnamed: str) -> None:
    error = refused("plan", unnamed, "--precision", "fp16", "--by-module", "-q")
    assert (error.code, error.where) == ("check.modules", unnamed)
    assert "does not name the modules" in str(refused("check", unnamed, "--leave", "feat"))


def test_globs_of_a_file_without_modules_still_name_one_layer(unnamed: str) -> None:
    assert refused("plan", unnamed, "--precision", "fp16", "--why", "n*", "-q").code == (
        "layer.several"
    )


def test_pins_and_fp16_layers_take_globs_of_modules(model: str) -> None:
    def plan(**more: Any) -> Plan:
        return edgekit.plan(model, target=ORIN[1], precision="int8", **more)

    placed = plan(placement={"pin": [{"layers": "classifier", "device": "GPU"}]})
    assert placed.constraints.pins[0].layers == "classifier"
    kept = plan(calibration={"fp16_layers": ["feat.*"]})
    assert "fp16" in {one.precision for one in kept.layers if one.name.endswith(("n0", "Conv"))}
    for wrong in (
        {"placement": {"pin": [{"layers": "clasifier.*", "device": "GPU"}]}},
        {"calibration": {"fp16_layers": ["clasifier.*"]}},
    ):
        with pytest.raises(UsageError, match="matches no layer, ONNX node or module") as caught:
            plan(**wrong)
        assert "classifier" in caught.value.hint


@pytest.fixture
def config(model: str, tmp_path: Path) -> str:
    path = tmp_path / "lenet.yaml"
    path.write_text(
        "version: 1\nname: lenet\ntarget: jetson-agx-orin-64gb\nprecision: int8\n"
        "model: {onnx: m.onnx}\ncalibration: {count: 2}\nbuild: {backend: reference}\n"
    )
    return str(path)


def test_sensitivity_and_trace_group_by_module(config: str, tmp_path: Path) -> None:
    found = edgekit.sensitivity(config)
    modules = {one.module: one for one in found.modules}
    assert modules[""].kernels == len(found.kernels)
    assert modules[""].floats == len(found.floats)
    worst = min(one.snr_db for one in found.kernels if one.snr_db is not None)
    assert modules[""].snr_db == worst
    assert modules["feat"].kernels + modules["classifier"].kernels <= modules[""].kernels
    assert found.to_json()["modules"][0]["module"] == ""
    traced = edgekit.trace(save=tmp_path / "t.json", config=config)
    totals = {one.module: one for one in traced.modules}
    assert totals[""].layers == totals["feat"].layers + totals["classifier"].layers
    assert totals["feat"].clock == "predicted"
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    named = {one["args"]["module"] for one in events if "module" in one["args"]}
    assert any(path.startswith("feat") for path in named)
    assert any(path.startswith("classifier") for path in named)


@pytest.mark.few(1)
def test_a_report_has_the_tree_of_modules(config: str, tmp_path: Path) -> None:
    made = edgekit.report(config, out=tmp_path / "out")
    report = made.report
    totals = {one.module: one for one in report.modules}
    assert totals[""].layers == len(report.layers)
    assert sum(totals[""].devices.values()) == len(report.layers)
    written = next((tmp_path / "out").rglob("report.json"))
    assert json.loads(written.read_text())["modules"][0]["layers"] == len(report.layers)
    assert "classifier.0" in markdown(report)
    page = made.page.read_text()
    assert re.search(r"<summary>Modules</summary>.*classifier\.0", page, re.DOTALL)


def test_why_names_a_left_out_neighbour(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    layers = [one["name"] for one in asked(capsys, "check", model)["layers"]]
    words = ["plan", model, "--precision", "fp16", "-q", "--leave", "feat.conv1", "--why"]
    near = {
        row["direction"]: row["neighbours"] for row in asked(capsys, *words, layers[1])["borders"]
    }
    assert near == {"reads": ["PyTorch"], "writes": ["GPU"]}
    assert re.search("PyTorch +reads", told(capsys, *words, layers[1]))
