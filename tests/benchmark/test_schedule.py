import dataclasses
from itertools import pairwise

import pytest

from edgekit.benchmark.schedule import predicted_schedule
from edgekit.network.model import Layer, Network
from edgekit.placement.plan import PlacedLayer, Share
from tests.benchmark import handmade_plan


def placed(name, device, segment, time):
    return PlacedLayer(name, (), device, "int8", segment, time, 0.0)


def branches():
    """Returns two branches, one a device, that meet in the last layer."""

    def layer(name, *inputs):
        return Layer(name, "CONVOLUTION", "Conv", (), (), inputs, (f"{name}_out",))

    layers = (layer("left", "x"), layer("right", "x"), layer("sum", "left_out", "right_out"))
    network = Network("branches", layers, {}, ("x",), ("sum_out",))
    places = (
        placed("left", "GPU", 0, 10.0),
        placed("right", "DLA0", 1, 30.0),
        placed("sum", "GPU", 2, 5.0),
    )
    plan = handmade_plan.plan()
    predicted = dataclasses.replace(plan.predicted, latency_us=39.0)
    plan = dataclasses.replace(
        plan, layers=places, plans=(Share(1.0, places),), predicted=predicted
    )
    return plan, network


def test_independent_segments_overlap_when_the_network_is_known():
    plan, network = branches()
    starts = {slot.segment: slot.start_us for slot in predicted_schedule(plan, network)}
    # right hands over to sum: 39 predicted, 35 by the layers, one change on the longest chain
    assert starts == {0: 0.0, 1: 0.0, 2: pytest.approx(34.0)}


def test_a_device_runs_one_segment_at_a_time():
    slots = predicted_schedule(handmade_plan.plan(variants=2), handmade_plan.network())
    for device in ("GPU", "DLA0", "DLA1"):
        own = sorted((s for s in slots if s.device == device), key=lambda s: s.start_us)
        for before, after in pairwise(own):
            assert after.start_us >= before.start_us + before.duration_us - 1e-9
