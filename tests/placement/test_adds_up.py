"""What a plan costs is the sum of what it lists."""

import pytest

from edgekit.placement.plan import Pin, device_times, plan_from_json
from tests.placement.test_place import chain, plan_of


def sums(document: dict, number: int) -> tuple[float, float]:
    """Microseconds and microjoules of all that one of a plan document's plans lists."""
    part = document["plans"][number]
    own = [one for one in document["loadables"] if one["plan"] == number]
    us = sum(layer["predicted_us"] for layer in part["layers"])
    us += sum(one["launch_us"] + one["border_us"] for one in own)
    us += sum(one["us"] for one in (*part["reformats"], *part["unfused"]))
    uj = sum(layer["predicted_uj"] for layer in part["layers"])
    uj += sum(one["launch_uj"] + one["border_uj"] for one in own)
    uj += sum(one["uj"] for one in (*part["reformats"], *part["unfused"]))
    return us, uj


KINDS = ["CONVOLUTION", "ACTIVATION", "SOFTMAX", "CONVOLUTION", "ACTIVATION", "POOLING"]


@pytest.mark.parametrize("objective", ["latency", "throughput", "period", "energy", "gpu_time"])
@pytest.mark.parametrize(
    "options",
    [
        {"dla_cores": (0, 1)},
        {"pins": (Pin("convolution*", "DLA"), Pin("activation*", "GPU"))},
        {"pins": (Pin("activation*", "GPU"),)},
        {"gpu": False, "dla_cores": (0, 1)},
    ],
)
def test_layers_launches_borders_and_reformats_are_the_whole(objective, options) -> None:
    kinds = [k for k in KINDS if k != "SOFTMAX"] if "gpu" in options else KINDS
    plan = plan_of(chain(kinds, channels=64), objective=objective, **options)
    document = plan.to_json()
    assert plan_from_json(document) == plan
    for number, part in enumerate(document["plans"]):
        us, uj = sums(document, number)
        assert us == pytest.approx(part["predicted"]["latency_us"], rel=1e-6)
        own = [one for one in plan.loadables if one.plan == number]
        assert sum(device_times(plan.plans[number], own).values()) == pytest.approx(us, rel=1e-6)
        assert uj == pytest.approx(part["predicted"]["energy_uj"], rel=1e-6)
    frame = plan.frame
    assert frame.period_us == pytest.approx(1e6 / plan.predicted.throughput_qps, rel=1e-6)
    lasts = frame.busy_us[frame.device] + frame.sharing_us
    assert lasts == pytest.approx(frame.period_us, rel=1e-5)
    on_dla = {layer["device"] for part in document["plans"] for layer in part["layers"]} - {"GPU"}
    assert bool(on_dla) == bool(document["loadables"])


def test_a_broken_fusion_is_listed_with_its_price() -> None:
    plan = plan_of(chain(KINDS), objective="gpu_time", pins=(Pin("activation*", "GPU"),))
    assert plan.plans[0].unfused
    assert all(one.device == "GPU" and one.us > 0 for one in plan.plans[0].unfused)


@pytest.mark.parametrize("objective", ["latency", "throughput", "period", "energy", "gpu_time"])
def test_a_network_that_costs_nothing_has_a_plan(objective) -> None:
    plan = plan_of(chain(["IDENTITY"]), objective=objective, dla_cores=(0, 1))
    assert plan.predicted.latency_us == 0
    assert plan.bands["latency_us"] == (0, 0)
    assert plan.optimal
