"""Why a layer is where it is; every figure is checked by a placement of its own."""

import json
import re

import pytest
from pydantic import ValidationError

from edgekit.placement.explanation import Why, explain_layer
from edgekit.placement.plan import Change, Options, Pin, compare_plans
from tests.placement.queries import query_for, with_options


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return query_for(tmp_path_factory.mktemp("small"))


def why(one, layer):
    return explain_layer(one, one.plan(), layer)


def test_the_other_way_is_a_plan_of_its_own(small):
    document = why(small, "conv2")
    assert document.schema_ == "edgekit.why/1"
    here, there = document.device, document.otherwise.device
    assert {here, there} == {"GPU", "DLA0"}
    assert document.kernel == ["conv2", "relu2"]
    other = small.plan(Options(pins=(Pin("conv2", there[:3]), Pin("relu2", there[:3]))))
    assert document.otherwise.value == other.predicted.latency_us
    gain = other.predicted.latency_us - small.plan().predicted.latency_us
    assert document.otherwise.difference == pytest.approx(gain)
    assert {row.layer for row in document.otherwise.moved} >= {"conv2", "relu2"}
    assert document.binds == []
    assert any("worse" in reason for reason in document.because)
    assert {row.device for row in document.costs if row.us > 0} == {"GPU", "DLA0"}


def test_its_json_is_read_again_and_no_other_devices(small):
    document = why(small, "conv2")
    written = json.loads(json.dumps(document.to_json()))
    assert Why.model_validate(written).to_json() == document.to_json()
    written["otherwise"]["moved"][0]["to"] = "XPU"
    with pytest.raises(ValidationError, match=r"otherwise\.moved\.0"):
        Why.model_validate(written)


def test_moved_alone_it_takes_transitions(small):
    plan = small.plan()
    document = explain_layer(small, plan, "conv2")
    there = "GPU" if document.device != "GPU" else "DLA0"
    pins = tuple(
        Pin(x.name, there if x.name in ("conv2", "relu2") else x.device) for x in plan.layers
    )
    alone = small.plan(Options(pins=pins))
    assert document.alone.value == pytest.approx(alone.predicted.latency_us)
    assert document.alone.transitions == alone.transitions - plan.transitions > 0
    assert document.alone.value >= document.otherwise.value * (1 - 1e-6)
    (moved,) = [reason for reason in document.because if reason.startswith("moved alone")]
    assert not re.search(r"[+-]1 \w+s\b", moved), moved


def test_borders_pay_what_the_plan_pays(small):
    one = with_options(small, pins=(Pin("conv1", "DLA"),))
    plan = one.plan()
    document = explain_layer(one, plan, "conv1")
    (border,) = [row for row in document.borders if row.tensor == "x"]
    assert border.neighbours == ["caller"]
    paid = sum(reformat.us for reformat in plan.reformats if reformat.tensor == "x")
    assert border.us == pytest.approx(paid)


def test_a_verdict_binds_and_has_no_other_way(small):
    document = why(small, "softmax")
    assert document.device == "GPU"
    assert not document.dla.ok
    assert not document.otherwise.possible
    assert document.otherwise.reason == document.dla.reasons[0].message
    assert document.binds[0].kind == "verdict"
    assert [row.device for row in document.costs] == ["GPU"]


def test_a_pin_binds(small):
    free = small.plan(Options(pins=(Pin("pool", "DLA"),)))
    there = next(x.device for x in free.layers if x.name == "conv2")
    here = "DLA" if there == "GPU" else "GPU"
    document = why(with_options(small, pins=(Pin("conv2", here), Pin("pool", "DLA"))), "conv2")
    assert document.device[:3] == here
    (pin,) = [bind for bind in document.binds if bind.text == f"pin conv2={here}"]
    assert pin.moves
    assert pin.device == there
    assert pin.value == pytest.approx(free.predicted.latency_us)


def test_a_bound_binds_and_others_do_not(small):
    least = small.plan(Options(objective="gpu_time")).predicted.gpu_us
    fast = with_options(
        small, objective="energy", bounds={"gpu_us": least * 1.01, "latency_us": 1e9}
    )
    free = small.plan(Options(objective="energy"))
    bound = fast.plan()
    kinds = [bind.text for bind in why(fast, "conv2").binds]
    binds = bound.predicted.energy_uj > free.predicted.energy_uj * (1 + 1e-6)
    assert (f"bound gpu_us={least * 1.01:.10g}" in kinds) == binds
    assert "bound latency_us=1e+09" not in kinds


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"dla_cores": ()}, "dla_cores none"), ({}, "FP32"), ({}, "has no DLA")],
)
def test_without_a_dla_there_is_no_other_way(tmp_path, options, reason):
    board = "jetson-orin-nano-8gb" if reason == "has no DLA" else "jetson-agx-orin-64gb"
    precision = "fp32" if reason == "FP32" else "fp16"
    document = why(query_for(tmp_path, precision=precision, board=board, **options), "conv1")
    assert document.device == "GPU"
    assert reason in document.otherwise.reason
    assert document.borders == []


def test_a_mix_of_plans_reports_the_share_of_frames(small):
    document = why(with_options(small, objective="throughput"), "conv2")
    assert sum(document.shares.values()) == pytest.approx(1.0)


def test_plans_next_to_each_other(small):
    before, after = small.plan(), small.plan(Options(pins=(Pin("*", "GPU"),)))
    document = compare_plans(before, after, ["pin * GPU"])
    assert document.before.value == before.predicted.latency_us
    assert document.after.layers == {"GPU": len(after.layers)}
    assert document.difference["gpu_us"].by == pytest.approx(
        after.predicted.gpu_us - before.predicted.gpu_us
    )
    moved = {row.layer for row in document.moved}
    assert moved == {x.name for x in before.layers if x.device != "GPU"}
    assert compare_plans(before, before, []).objective == Change(0.0, 0.0)
