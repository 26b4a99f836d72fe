"""docs/tensorrt.md says what edgekit does."""

import re
from pathlib import Path

import pytest

from edgekit.config.loader import parse_config
from edgekit.errors import ConfigError
from edgekit.tensorrt.options import RequestedBuild, decide

PAGE = (Path(__file__).parents[2] / "docs" / "tensorrt.md").read_text()
TOP = "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: jetson-agx-orin-64gb\n"


def test_the_configuration_is_one_and_says_the_defaults():
    text = re.search(r"```yaml\n(.*?)```", PAGE, re.S)[1]
    given = parse_config(TOP + text, "net.yaml", Path()).file.build
    assert given == parse_config(TOP, "net.yaml", Path()).file.build


def test_the_refusal_is_what_is_said():
    shown = re.search(r"```text\n(.*?)\n```", PAGE, re.S)[1]
    places = {"build.mode": "net.yaml:6:3", "build.strip": "net.yaml:7:3"}
    with pytest.raises(ConfigError) as caught:
        decide(
            RequestedBuild(
                target="jetson-agx-orin-64gb",
                tensorrt="10.3",
                mode="standalone",
                strip=True,
                places=places,
            )
        )
    assert str(caught.value) == shown
