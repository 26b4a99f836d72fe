"""What keeps a network off the DLA, and which baselines break what was asked."""

import pytest

from edgekit.errors import GateError
from edgekit.placement.explanation import explain_gpu_only
from edgekit.placement.placing import explain_conflict
from edgekit.placement.plan import Options
from tests.placement.queries import Pin, query_for, with_options


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return query_for(tmp_path_factory.mktemp("small"), objective="gpu_time")


def explained(one, **options):
    one = with_options(one, objective="gpu_time", **options)
    return explain_gpu_only(one, one.plan())


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"max_transitions": 0}, ["max_transitions 0"]),
        ({"min_loadable_layers": 100}, ["min_loadable_layers 100"]),
        ({"pools": {"global_dram": 1024}}, ["pool global_dram=1KiB"]),
        ({"pins": (Pin("*", "GPU"),), "max_transitions": 90}, ["pin *=GPU"]),
        (
            {"max_transitions": 0, "min_loadable_layers": 100},
            ["max_transitions 0 and min_loadable_layers 100"],
        ),
    ],
)
def test_the_constraint_that_keeps_the_dla_out_is_named(small, options, texts) -> None:
    free = small.plan()
    assert {layer.device for layer in free.layers} == {"GPU", "DLA0"}
    plan = explained(small, **options)
    assert list(plan.kept_off) == texts
    (note,) = [note for note in plan.notes if "off the DLA" in note]
    assert f"{free.predicted.gpu_us:.6g}" in note
    assert not any("GPU alone is best" in note for note in plan.notes)
    assert plan.baselines_keep["gpu_only"]
    assert plan.baselines_keep["tensorrt_auto"] is False


def test_a_plan_with_the_dla_needs_no_explanation(small) -> None:
    plan = explained(small, max_transitions=50)
    assert plan == with_options(small, objective="gpu_time", max_transitions=50).plan()
    assert not plan.kept_off


def test_a_bound_that_a_baseline_breaks_is_marked(small) -> None:
    free = small.plan(Options())
    assert all(keep is not False for keep in free.baselines_keep.values())
    latency = free.predicted.latency_us
    plan = small.plan(Options(bounds={"latency_us": latency * 1.0001}))
    for name, baseline in plan.baselines.items():
        assert plan.baselines_keep[name] == (baseline.latency_us <= latency * 1.0001)


def test_message_and_conflict_name_the_same_constraint(small) -> None:
    one = with_options(small, bounds={"period_us": 0.1, "energy_uj": 0.1})
    with pytest.raises(GateError) as caught:
        one.plan()
    explain_conflict(one, caught.value)
    error = caught.value.to_json()
    (constraint,) = [constraint["text"] for constraint in error["conflict"]]
    name = constraint.removeprefix("bound ").partition("=")[0]
    assert caught.value.where == f"bounds.{name}"
    assert error["error"]["message"].startswith(f"{constraint} cannot be met; {name} is ")
    assert ("power mode" in caught.value.hint) == (name != "energy_uj")


def test_an_error_of_a_pin_makes_way_for_another_conflict(small) -> None:
    pins = (Pin("conv1", "DLA0"), Pin("softmax", "DLA"))
    one = with_options(small, pins=pins, bounds={"latency_us": 0.1})
    with pytest.raises(GateError) as caught:
        one.plan()
    assert caught.value.where == "softmax"
    explain_conflict(one, caught.value)
    (constraint,) = [constraint["text"] for constraint in caught.value.to_json()["conflict"]]
    if constraint.startswith("bound"):
        assert caught.value.where == "bounds.latency_us"
        assert "pinned" not in caught.value.message
    else:
        assert caught.value.where == "softmax"


def test_a_pin_to_a_core_that_the_build_does_not_use_says_so(small) -> None:
    why = "a hybrid engine drives one DLA core"
    one = with_options(small, pins=(Pin("conv1", "DLA1"),), cores_why=why)
    with pytest.raises(GateError) as caught:
        one.plan()
    explain_conflict(one, caught.value)
    assert caught.value.message == f"pinned to DLA1, but {why}"
    assert "pin conv1=DLA1" in caught.value.hint
    assert "dla_cores 0" not in caught.value.hint
