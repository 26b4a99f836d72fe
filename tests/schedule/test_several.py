"""Several networks on one board: every timeline is checked, and every no is clear."""

import json
from functools import cache
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.dla.judge import judge
from edgekit.errors import GateError, UsageError
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.placing import place
from edgekit.placement.plan import Options, Pin
from edgekit.saved_documents import read_document
from edgekit.schedule.placing import place_several
from edgekit.schedule.plans import NetworkRequest
from edgekit.targets.loader import get
from tests.pipeline.nets import small_net

TARGET = get("jetson-agx-orin-64gb")


@cache
def _network(folder):
    path = folder / "small.onnx"
    small_net(path)
    network = layers(load(path))
    return network, judge(network, TARGET, precision="int8")


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")

    def member(name, rate=None, deadline=None, **options):
        network, verdicts = _network(folder)
        own = Options(**{"dla_cores": (0, 1), **options})
        return NetworkRequest(name, network, verdicts, "int8", own, rate, deadline)

    return member


def check(document):
    """Fails unless a document's timeline is one that the board could keep."""
    cycle = document["cycle_us"]
    for device in document["utilisation"]:
        spans = [
            (slot["start_us"] + k * cycle, slot["end_us"] + k * cycle)
            for slot in document["timeline"]
            if slot["device"] == device and slot["end_us"] > slot["start_us"]
            for k in range(4 if document["repeats"] else 1)
        ]
        assert all(a[1] <= b[0] + 1e-5 for a, b in pairwise(sorted(spans)))
    for one in document["networks"]:
        plan, latencies = one["plan"], []
        # what is proved is said of all networks together
        assert plan["objective"] == document["objective"]
        assert not {"optimal", "bound", "gap"} & set(plan)
        for frame in range(one["frames"]):
            own = [
                slot
                for slot in document["timeline"]
                if (slot["network"], slot["frame"]) == (one["name"], frame)
            ]
            arrival = frame * cycle / one["frames"] if one["rate_hz"] else 0.0
            assert sum(slot["layers"] for slot in own) == len(plan["layers"])
            assert own[0]["start_us"] >= arrival - 1e-5
            assert all(a["end_us"] <= b["start_us"] + 1e-5 for a, b in pairwise(own))
            assert all(s["end_us"] - s["start_us"] >= s["alone_us"] - 1e-5 for s in own)
            latencies.append(own[-1]["end_us"] - arrival)
            alone = sum(slot["alone_us"] for slot in own)
            assert alone == pytest.approx(plan["predicted"]["latency_us"], abs=1e-3)
        assert max(latencies) == pytest.approx(one["latency_us"]["upper"], abs=1e-4)
        if one["deadline_us"]:
            assert max(latencies) <= one["deadline_us"] + 1e-4
    assert document["lower"]["bound"] <= document["lower"]["value"] <= document["upper"]["value"]
    used = [f"DLA{x['core']}" for one in document["networks"] for x in one["plan"]["loadables"]]
    for core, count in document["loadables"]["cores"].items():
        assert used.count(core) == count <= document["loadables"]["max"]


def test_rates_give_a_timeline_of_every_frame(small):
    on_dla = (Pin("conv*", "DLA"),)
    members = [small("a", 4000, pins=on_dla), small("b", 2000), small("c", 1000, 0.8)]
    document = place_several(members, TARGET).to_json()
    check(document)
    assert document["cycle_us"] == pytest.approx(1000)
    assert [one["frames"] for one in document["networks"]] == [4, 2, 1]
    assert document["lower"]["optimal"]
    assert document["loadables"]["cores"]["DLA0"] + document["loadables"]["cores"]["DLA1"] >= 1


@pytest.mark.parametrize("objective", ["makespan", "period", "energy"])
def test_without_rates_all_run_once_or_as_often_as_they_can(small, objective):
    members = [small("a", pins=(Pin("conv1", "DLA"),)), small("b")]
    document = place_several(members, TARGET, objective=objective).to_json()
    check(document)
    saved = json.loads(json.dumps(document))
    assert json.loads(json.dumps(read_document(saved).to_json())) == saved
    assert document["repeats"] == (objective == "period")
    if objective == "makespan":
        end = max(slot["end_us"] for slot in document["timeline"])
        assert document["upper"]["value"] == pytest.approx(end, abs=1e-4)


@pytest.mark.parametrize(
    ("rate", "deadline", "cores", "said"),
    [
        (100, 0.001, (0,), "needs at least"),
        (20_000, 5.0, (), "GPU is .* % busy at least"),
    ],
)
def test_what_arithmetic_rules_out_is_refused_before_anything_is_searched(
    small, rate, deadline, cores, said
):
    searched = []
    members = [small(name, rate, deadline, dla_cores=cores) for name in "abcdefgh"]
    with pytest.raises(GateError, match=said) as caught:
        place_several(members, TARGET, progress=lambda done, total: searched.append(done))
    assert not searched
    binding = caught.value.extra["binding"]
    if binding["kind"] == "deadline":
        needs_ms = binding["needs_us"] / 1e3
        # the search proves no less than the arithmetic does
        with pytest.raises(GateError, match=r"needs [\d.]+ ms even") as caught:
            place_several([small("a", rate, needs_ms, dla_cores=cores)], TARGET)
        assert caught.value.extra["binding"]["needs_us"] >= binding["needs_us"]
    else:
        assert min(binding["utilisation"].values()) > 1


def test_deadlines_that_hold_alone_and_not_together_are_named(small):
    alone = place_several([small("a", 1000, dla_cores=())], TARGET).networks[0].latency_us.upper
    both = [small(name, 1000, 1.5e-3 * alone, dla_cores=()) for name in "ab"]
    with pytest.raises(GateError, match=r"not all deadlines can be met; at best [ab] takes") as no:
        place_several(both, TARGET)
    assert no.value.extra["binding"]["networks"][0]["deadline_us"] == pytest.approx(1.5 * alone)


def test_deadlines_that_only_contention_breaks_and_pins_that_leave_no_placement_are_named(small):
    on_dla = (Pin("conv1", "DLA0"), Pin("conv2", "DLA0"))
    members = [small("a", 1000, dla_cores=()), small("b", 1000, pins=on_dla)]
    free = place_several(members, TARGET).to_json()
    between = (free["lower"]["value"] + free["upper"]["value"]) / 2
    members = [small("a", 1000, dla_cores=()), small("b", 1000, between, pins=on_dla)]
    with pytest.raises(GateError, match="are met only without memory contention") as caught:
        place_several(members, TARGET)
    assert caught.value.extra["binding"]["kind"] == "contention"
    late = caught.value.extra["binding"]["networks"]
    assert late
    assert all(one["latency_us"] > one["deadline_us"] for one in late)
    pins = (Pin("conv1", "DLA0"), Pin("conv2", "DLA1"))
    with pytest.raises(GateError, match="hybrid engine uses only one") as caught:
        place_several([small("a", 1000, pins=pins)], TARGET, one_core=True)
    assert caught.value.extra["binding"]["kind"] == "placement"


def branching(folder):
    """A tensor with two readers, each of which could be pinned elsewhere."""
    path = folder / "branching.onnx"
    shape = [1, 16, 32, 32]
    names = [("x", "a"), ("a", "b"), ("a", "c")]
    weights = [
        numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), f"{n}.w") for _, n in names
    ]
    nodes = [
        helper.make_node("Conv", [x, f"{n}.w"], [n], n, pads=[1, 1, 1, 1]) for x, n in names
    ] + [helper.make_node("Add", ["b", "c"], ["s"], "add"), helper.make_node("Relu", ["s"], ["y"])]
    sides = [helper.make_tensor_value_info(n, 1, shape) for n in "xy"]
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "n", sides[:1], sides[1:], weights),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        ),
        path,
    )
    network = layers(load(path))
    return network, judge(network, TARGET, precision="fp16")


@pytest.mark.parametrize("objective", ["makespan", "period"])
def test_pins_that_no_group_can_keep_are_retained_by_a_plan_of_the_network_alone(
    tmp_path, small, objective
):
    network, verdicts = branching(tmp_path)
    pins = (Pin("b*", "DLA"), Pin("c*", "GPU"))
    own = NetworkRequest("n", network, verdicts, "fp16", Options(dla_cores=(0, 1), pins=pins))
    document = place_several([own, small("a")], TARGET, objective=objective).to_json()
    check(document)
    where = {x["name"]: x["device"] for x in document["networks"][0]["plan"]["layers"]}
    assert {where[n][:3] for n in where if n.startswith("b")} == {"DLA"}
    assert {where[n] for n in where if n.startswith("c")} == {"GPU"}


def test_work_that_all_devices_together_cannot_do_is_refused(tmp_path):
    network, judgement = branching(tmp_path)
    options = Options(dla_cores=(0, 1))
    members = [
        NetworkRequest(name, network, judgement, "fp16", options, 30_000, 5.0)
        for name in "abcdefgh"
    ]
    with pytest.raises(GateError, match=r"GPU, DLA0, DLA1 are \d+ % busy at least") as caught:
        place_several(members, TARGET)
    assert len(set(caught.value.extra["binding"]["utilisation"].values())) == 1


def test_networks_together_are_as_good_as_their_own_plans(tmp_path):
    network, verdicts = branching(tmp_path)
    options = Options(dla_cores=(0, 1), pins=(Pin("b*", "DLA"),))
    plan = place(network, verdicts, TARGET, precision="fp16", options=options)
    best = plan.predicted.latency_us
    deadline = best * 1.0001 / 1e3
    member = NetworkRequest("n", network, verdicts, "fp16", options, 1000, deadline)
    document = place_several([member], TARGET).to_json()
    check(document)
    assert document["networks"][0]["latency_us"]["lower"] == pytest.approx(best)
    assert document["lower"]["any_placement"] == pytest.approx(best / deadline / 1e3, rel=1e-4)
    hopeless = NetworkRequest("n", network, verdicts, "fp16", options, 1000, deadline * 0.999)
    with pytest.raises(GateError, match="even when it has the whole board"):
        place_several([hopeless], TARGET)


def test_an_error_in_one_network_names_it(small):
    with pytest.raises(UsageError, match="matches no layer") as caught:
        place_several([small("a"), small("b", pins=(Pin("nothing*", "GPU"),))], TARGET)
    assert caught.value.where.startswith("b")
