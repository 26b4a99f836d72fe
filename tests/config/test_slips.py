"""Slips that a person makes in a configuration: each is said with what to write."""

from pathlib import Path

import pytest

from edgekit.config.loader import parse_config
from edgekit.errors import ConfigError

HEAD = "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\n"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "model: {onnx: ${MYMODEL}.onnx}",
            "not valid YAML",
            'inside { } put a text with ${NAME} in quotes: {key: "${NAME}"}',
        ),
        (
            'model: {onnx: m.onnx}\nplacement: {pin: {"conv1": NPU}}',
            "placement.pin: expected a list",
            'write [{layers: "conv1", device: DLA}]',
        ),
        (
            "model: {onnx: m.onnx}\nplacement: {dla_cores: [0, 0]}",
            "placement.dla_cores: core 0 is listed twice",
            "",
        ),
    ],
)
def test_a_slip_is_said_with_what_to_write(text, message, hint):
    with pytest.raises(ConfigError) as caught:
        parse_config(HEAD + text + "\n", "c.yaml", Path())
    (problem,) = caught.value.problems
    assert problem.where.startswith("c.yaml:")
    assert message in problem.message
    assert problem.hint == hint


def test_other_mistakes_in_braces_have_no_hint_of_variables():
    with pytest.raises(ConfigError) as caught:
        parse_config(HEAD + 'model: {onnx: "${A}.onnx", batch: }}\n', "c.yaml", Path())
    assert "quotes" not in caught.value.problems[0].hint
