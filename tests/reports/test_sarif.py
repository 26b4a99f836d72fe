"""SARIF and Markdown of checks, and the limits that a CI sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli import main
from edgekit.dla.rules import load_rules
from edgekit.error_document import VerdictReason
from edgekit.reports.sarif import sarif
from tests.pipeline.nets import open_net, small_net
from tests.reports.handmade_check import document, layer

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_net(tmp_path / "a net.onnx")
    small_net(tmp_path / "b.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(["check", *arguments, "-t", ORIN, "-q"])
    return int(end.value.code or 0)


def test_sarif_has_what_the_standard_and_code_scanning_require(folder: Path) -> None:
    whole = str(folder / "b.onnx")
    assert check("a net.onnx", whole, "--sarif", "out.sarif") == 0
    log: dict[str, Any] = json.loads((folder / "out.sarif").read_text())
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "edgekit"
    rules = driver["rules"]
    for rule in rules:
        assert rule["id"] in load_rules().rules
        assert rule["shortDescription"]["text"]
        assert "Fix: " in rule["help"]["text"]
        assert "**Sources:**" in rule["help"]["markdown"]
        assert rule["helpUri"].startswith("https://")
        assert " " not in rule["helpUri"]
    assert {rule["id"] for rule in rules} == {"general.rank", "reduce.function", "shuffle.rank"}
    prints = set()
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("warning", "note")
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] in ("a%20net.onnx", "b.onnx")
        assert place["physicalLocation"]["region"]["startLine"] == 1
        assert place["logicalLocations"][0]["name"] in result["message"]["text"]
        prints.add(
            (
                place["physicalLocation"]["artifactLocation"]["uri"],
                result["partialFingerprints"]["primaryLocationLineHash"],
            )
        )
    assert len(prints) == len(run["results"]) == 6


def test_layers_without_a_slot_are_results() -> None:
    dropped = layer("conv", placed="GPU") | {"dropped": "memory.loadables"}
    (result,) = sarif([document(layers=[dropped])])["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("memory.loadables", "note")


def test_a_certain_reason_is_a_warning_and_a_disputed_one_a_note() -> None:
    reason = VerdictReason("reduce.function", "AVG", "AVG", "MAX", "a guide", "")
    layers = [
        layer(certainty, ok=False, certainty=certainty, reasons=[reason])
        for certainty in ("certain", "disputed")
    ]
    results = sarif([document(layers=layers)])["runs"][0]["results"]
    assert [result["level"] for result in results] == ["warning", "note"]


def test_one_document_of_several_models_and_one_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("a net.onnx", "b.onnx", "--max-loadables", "1", "--json") == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["schema"] == "edgekit.checks/1"
    assert [one["model"] for one in found["checks"]] == ["a net.onnx", "b.onnx"]
    assert [one["where"] for one in found["failures"]] == ["a net.onnx", "b.onnx"]
    assert "2 of 2 models miss the limits" in said.err
    assert "b.onnx: 2 loadables, above the limit of 1" in said.err


def test_text_of_several_models_names_each(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("a net.onnx", "b.onnx", "--fail-under", "50") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"a net.onnx", "b.onnx"} <= set(lines)


def test_markdown_says_what_failed_and_why(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("b.onnx", "--max-loadables", "1", "--markdown", "-") == 1
    page = capsys.readouterr().out
    assert page.startswith("### ❌ edgekit check: 1 model\n")
    assert "b.onnx</code>: 2 loadables, above the limit of 1" in page
    assert "| <code>reduce.function</code> | 1 | <code>gap</code> |" in page
    assert check("b.onnx", "--markdown", "-") == 0
    assert capsys.readouterr().out.startswith("### ✅")


def test_files_are_written_before_a_limit_fails_and_never_over_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("b.onnx", "--max-loadables", "1", "--sarif", "x.sarif") == 1
    assert (folder / "x.sarif").exists()
    before = (folder / "b.onnx").read_bytes()
    assert check("a net.onnx", "b.onnx", "--sarif", "b.onnx") == 2
    assert (folder / "b.onnx").read_bytes() == before


def test_what_prints_one_model_takes_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("a net.onnx", "b.onnx", "--layer", "gap") == 2
    assert "--layer takes one model" in capsys.readouterr().err


def test_both_list_the_shapes_of_a_range(folder: Path) -> None:
    open_net(folder / "open.onnx")
    shape = "x:1x3x16..32..64x16..64"
    options = ("--sarif", "out.sarif", "--markdown", "out.md")
    assert check("open.onnx", "--shape", shape, *options) == 0
    shown = (folder / "out.md").read_text()
    assert "Shapes of the range (predicted, not measured): open.onnx" in shown
    assert "| 1x3x32x64 | own |" in shown
    assert "in one engine with 1 profile" in shown
    (run,) = json.loads((folder / "out.sarif").read_text())["runs"]
    (found,) = [one for one in run["results"] if one["ruleId"] == "model.buckets"]
    assert found["level"] == "note"
    assert found["message"]["text"].startswith("Shape 1x3x32x64: engine own, ")
    assert run["tool"]["driver"]["rules"][found["ruleIndex"]]["id"] == "model.buckets"
