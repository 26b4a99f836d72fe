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
    rules = [{reason["rule"] for reason in one["dla"]["reasons"]} for one in inside
             if not one["dla"]["ok"]]  # fmt: skip
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
