"""Outputs and segments that are the same for all inputs say nothing about accuracy."""

import numpy as np
import pytest

from edgekit.build import accuracy, build_reference
from tests.build.toy_nets import model_of, network_of, node, place_all, plan_of


def measured(scale: float, inputs: int) -> dict:
    """A sum of a large constant and the input times ``scale``, over inputs of size 1."""
    model = model_of(
        [node("Mul", "x scale", "small"), node("Add", "small bias", "y"), node("Mul", "y y", "z")],
        {"scale": np.float32([scale]), "bias": np.linspace(50, 100, 8, dtype=np.float32)},
        {"x": (1, 8)}, ["z"],
    )  # fmt: skip
    network = network_of(model)
    plan = plan_of(place_all(network, "fp16", lambda i: i // 2))
    artefacts = build_reference(model, network, plan, None)
    rng = np.random.default_rng(5)
    feeds = [{"x": rng.standard_normal((1, 8), np.float32)} for _ in range(inputs)]
    return accuracy(model, artefacts, feeds)


@pytest.mark.parametrize(("scale", "constant"), [(0.0, True), (0.1, True), (30.0, False)])
def test_an_output_that_does_not_vary_is_named(scale, constant):
    found = measured(scale, 6)
    assert found["cosine"] > 0.9999
    assert [one["output"] for one in found["constant"]] == (["z"] if constant else [])
    assert [one["constant"] for one in found["per_segment"]] == [constant, constant]
    for one in found["constant"]:
        assert one["variation"] == pytest.approx(2 * scale / 75, rel=0.5, abs=1e-6)
        assert "these figures say nothing about the network's accuracy" in one["told"]


def test_one_input_leaves_it_open():
    assert measured(0.0, 1)["constant"] == []
