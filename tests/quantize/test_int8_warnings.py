"""Warnings about INT8 end in what to do, as YAML or a command; what they count can be."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml

from edgekit.network.lowering.layers import layers
from edgekit.quantize.calibration.calibrate import describe_missing, scales_from
from edgekit.quantize.calibration.measure import measure
from edgekit.quantize.missing_scales import MissingScale
from edgekit.quantize.scales import change_rows, make_scales, tie_cache_scales
from tests.quantize.quantize_nets import make, node

F = np.float32
JOIN = "join: [0]"
_YAML = re.compile(r"\b(?:calibration|placement): \{.*?\}(?=$|, or |; |\))")


def keys_of(warning: str) -> list[dict[str, object]]:
    """The YAML in a warning, read."""
    return [yaml.safe_load(text) for text in _YAML.findall(warning)]


def test_a_shared_scale_names_the_keys_that_keep_the_layer_out() -> None:
    _, network = make(
        [node("Concat", "a b", JOIN, axis=1)],
        {},
        {"a": [1, 4, 8, 8], "b": [1, 4, 8, 8]},
        [JOIN],
    )
    # 27 bits lie between the two: no tensor has more than 8 to lose
    given = make_scales({"a": 2.0**-27, "b": 1.0, JOIN: 1.0}, method="cache", data="")
    found = tie_cache_scales(given, network)
    (warning,) = [text for text in found.warnings if "'a'" in text]
    assert "loses 8.0 of the 8 bits" in warning
    assert {"calibration": {"fp16_layers": [JOIN]}} in keys_of(warning)
    assert {"placement": {"pin": [{"layers": JOIN, "device": "GPU"}]}} in keys_of(warning)
    assert change_rows(found.changes)[0].bits == 8


def test_products_with_scales_of_their_own_say_how_to_be_sure() -> None:
    _, network = make([node("Mul", "a b", "y")], {}, {"a": [1, 8], "b": [1, 8]}, ["y"])
    given = make_scales({"a": 2.0**-20, "b": 1.0, "y": 1.0}, method="cache", data="")
    (warning,) = tie_cache_scales(given, network).warnings
    assert "8.0 of the 8 bits" in warning
    assert {"calibration": {"fp16_layers": ["y"]}} in keys_of(warning)


def test_warnings_about_data_say_how_to_give_more() -> None:
    nodes = [node("Relu", "x", "zero"), node("Sigmoid", "zero", "half"), node("Neg", "x", "y")]
    model, _ = make(nodes, {}, {"x": [1, 16]}, ["half", "y"])
    row = -np.arange(1, 17, dtype=F)[None]
    found = measure(model, [{"x": row}, {"x": 2 * row}], network=layers(model))
    assert len(found.warnings) == 3
    few = {
        name: [one for one in scales_from(layers(model), found, name).warnings if "entropy" in one]
        for name in found.amax
    }
    assert [name for name, told in few.items() if told] == ["entropy"]
    for warning in (*found.warnings, *few["entropy"]):
        assert keys_of(warning)[-1]["calibration"] == {"data": "FOLDER", "count": 500}, warning


@pytest.mark.parametrize(
    ("lacks", "ending"),
    [
        ([MissingScale("t", ("conv",))], "and calibration: {cache: NEW}"),
        ([], "there is nothing to do"),
    ],
)
def test_tensors_without_a_scale_say_what_can_be_done(
    lacks: list[MissingScale], ending: str
) -> None:
    (warning,) = describe_missing(["t"], lacks)
    assert warning.endswith(ending)
