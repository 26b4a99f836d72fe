"""The build section and a board's container."""

import json
from pathlib import Path

import pytest

from edgekit.config.loader import parse_config
from edgekit.errors import ConfigError
from edgekit.tensorrt.releases import features

ROOT = Path(__file__).parents[2]
GOOD = "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: jetson-agx-orin-64gb\n"
BOARD = "deploy:\n  boards:\n    - {name: lab, host: h, container: %s}\n"


def read(text):
    return parse_config(GOOD + text, "f.yaml", Path()).file


def problem(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    "given",
    [
        "refit: some",
        "refit: []",
        "refit: [a, a]",
        "refit: ['']",
        "lean: inside",
        "strip: maybe",
        "optimization_level: 6",
        "optimization_level: -1",
        "workspace_mib: 0",
        "constraints: none",
        "hardware_compatible: auto",
        "workspace: 1",
    ],
)
def test_what_is_refused_stands_on_its_line(given):
    found = problem(f"build:\n  {given}\n")
    assert found.where.startswith("f.yaml:6:")


def test_a_container():
    (board,) = read(
        BOARD % '{image: "registry/image:1.0", options: ["--device", /dev/x]}'
    ).deploy.boards
    assert board.container.image == "registry/image:1.0"
    assert board.container.runtime == "nvidia"
    assert board.container.options == ["--device", "/dev/x"]
    assert read(BOARD % "{image: i, runtime: null}").deploy.boards[0].container.runtime is None


@pytest.mark.parametrize(
    "given",
    [
        "{}",
        "{image: '--privileged'}",
        "{image: 'a b'}",
        "{image: i, runtime: '-x'}",
        "{image: i, options: ['']}",
        "{image: i, more: 1}",
    ],
)
def test_a_container_that_is_none(given):
    assert problem(BOARD % given).where.startswith("f.yaml:7:")


def test_every_feature_names_a_key_that_there_is():
    schema = json.loads((ROOT / "docs" / "config.schema.json").read_text())
    for feature in features().values():
        if not feature.key:
            continue
        part = schema
        for name in feature.key.split("."):
            reference = part["properties"][name] if "properties" in part else {}
            options = [reference, *reference.get("anyOf", ())]
            found = next((o["$ref"] for o in options if "$ref" in o), "")
            part = schema["$defs"].get(found.rsplit("/", 1)[-1], {})
            assert reference, feature.key
