"""What a broken fusion costs is booked to the layer that then runs alone."""

import pytest

from edgekit.benchmark.schedule import predicted_schedule
from edgekit.placement.plan import Pin, booked_layers
from tests.placement.test_adds_up import KINDS
from tests.placement.test_place import chain, plan_of


def test_a_layer_that_runs_alone_has_the_time_that_why_reports() -> None:
    net = chain(KINDS)
    plan = plan_of(net, objective="gpu_time", pins=(Pin("activation*", "GPU"),))
    share = plan.plans[0]
    booked = booked_layers(share, net)
    paid = sum(one.us for one in share.unfused)
    assert paid > 0
    assert sum(one.predicted_us for one in booked) == pytest.approx(
        sum(one.predicted_us for one in share.layers) + paid
    )
    changed = [one for one, own in zip(booked, share.layers, strict=True) if one != own]
    assert changed
    assert {one.device for one in changed} == {"GPU"}
    assert all(one.name.startswith("activation") for one in changed)
    # the timeline has the same segments' times beside the reformats, and still ends as predicted
    slots = {slot.segment: slot for slot in predicted_schedule(plan, net) if slot.layers}
    for segment, slot in slots.items():
        inside = [one for one in booked if one.segment == segment]
        names = {one.name for one in inside}
        launches = sum(
            one.launch_us + one.border_us for one in plan.loadables if names.issuperset(one.layers)
        )
        own = sum(one.predicted_us for one in inside)
        reformats = sum(step.us for step in slot.steps if step.kind == "reformat")
        assert slot.duration_us - reformats == pytest.approx(own + launches)
    assert booked_layers(share, None) == share.layers
