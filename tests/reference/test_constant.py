"""Outputs and segments that are the same for all inputs say nothing about accuracy."""

import numpy as np
import pytest

from edgekit.placement.segments import cut_segments
from edgekit.reference.accuracy import accuracy, describe_parts
from edgekit.reference.build import build_reference
from edgekit.reference.proposal import reaches
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of


def parts(found):
    return describe_parts(found.groups, found.scores, [one.output for one in found.constant])


def measured(scale: float, inputs: int) -> dict:
    """A sum of a large constant and the input times ``scale``, over inputs of size 1."""
    model = model_of(
        [node("Mul", "x scale", "small"), node("Add", "small bias", "y"), node("Mul", "y y", "z")],
        {"scale": np.float32([scale]), "bias": np.linspace(50, 100, 8, dtype=np.float32)},
        {"x": (1, 8)},
        ["z"],
    )
    network = network_of(model)
    plan = plan_of(place_all(network, "fp16", lambda i: i // 2))
    artefacts = build_reference(cut_segments(model, network, plan), None)
    rng = np.random.default_rng(5)
    feeds = [{"x": rng.standard_normal((1, 8), np.float32)} for _ in range(inputs)]
    return accuracy(model, artefacts, feeds)


@pytest.mark.parametrize(("scale", "constant"), [(0.0, True), (0.1, True), (30.0, False)])
def test_an_output_that_does_not_vary_is_named(scale, constant):
    found = measured(scale, 6)
    assert found.cosine > 0.9999
    assert [one.output for one in found.constant] == (["z"] if constant else [])
    assert [one.constant for one in found.per_segment] == [constant, constant]
    for one in found.constant:
        assert one.variation == pytest.approx(2 * scale / 75, rel=0.5, abs=1e-6)
        assert "these figures do not show the network's accuracy" in one.message


def test_one_input_leaves_it_open():
    assert measured(0.0, 1).constant == ()


def maps(gains: tuple[float, float], biases: tuple[float, float], *, outputs: list[str]) -> dict:
    """Accuracy in FP16 of two channels of different range; ``plain`` is the input, scaled."""
    model = model_of(
        [
            node("Mul", "x gains", "part"),
            node("Add", "part biases", "y"),
            node("Mul", "x third", "plain"),
        ],
        {
            "gains": np.reshape(np.float32(gains), (1, 2, 1, 1)),
            "third": np.float32([1 / 3]),
            "biases": np.reshape(np.float32(biases), (1, 2, 1, 1)),
        },
        {"x": (1, 2, 4, 4)},
        outputs,
    )
    network = network_of(model)
    artefacts = build_reference(
        cut_segments(model, network, plan_of(place_all(network, "fp16"))), None
    )
    rng = np.random.default_rng(5)
    feeds = [{"x": rng.standard_normal((1, 2, 4, 4), np.float32)} for _ in range(4)]
    return accuracy(model, artefacts, feeds)


@pytest.mark.parametrize("gains", [(0.0, 0.0), (0.001, 0.001), (1.0, 0.0), (1.0, 1e-4)])
def test_channels_that_hardly_vary_do_not_collapse(gains):
    # the biases are no FP16 numbers: where nothing varies the error is larger than the variance
    found = maps(gains, (100.013, 10.003), outputs=["y"])
    assert not found.exact
    assert found.groups
    assert found.failures == ()
    assert not found.judged
    for metric, minimum in (("snr_db", 60.0), ("cosine", 1.0)):
        assert reaches(found, metric, minimum)
    assert parts(found) == []


def test_a_dead_group_next_to_one_that_varies_has_no_snr():
    found = maps((100.0, 0.0), (0.0, 10.003), outputs=["y"])
    assert found.judged
    wide, dead = found.groups
    assert wide.snr_db > 50
    assert (dead.snr_db, dead.exact, dead.collapsed) == (None, False, False)
    assert (dead.worst.snr_db, dead.worst.exact) == (None, False)
    assert found.failures == ()
    (text,) = parts(found)
    assert "999" not in text
    assert f"SNR {wide.snr_db:.1f} dB" in text


def test_an_output_that_varies_is_judged_next_to_one_that_does_not():
    alone = maps((0.0, 0.0), (100.013, 10.003), outputs=["plain"])
    found = maps((0.0, 0.0), (100.013, 10.003), outputs=["y", "plain"])
    assert [one.output for one in found.constant] == ["y"]
    assert found.judged
    assert found.snr_db == alone.snr_db
    assert not reaches(found, "snr_db", 90.0)
