import copy
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.benchmark.trace.chrome import Trace, validate_trace
from edgekit.errors import DataError
from edgekit.reports.layers import unbooked_times
from tests.benchmark import handmade_plan


def make(**options):
    measurement = handmade_plan.measurement(pipelined=True)
    return handmade_plan.trace(
        handmade_plan.plan(), measurement, dla_cores=2, network=handmade_plan.network(), **options
    )


def tracks(document):
    """Returns the thread names of each process name."""
    meta = [e for e in document["traceEvents"] if e["ph"] == "M"]
    names = {e["pid"]: e["args"]["name"] for e in meta if e["name"] == "process_name"}
    found = {name: [] for name in names.values()}
    for event in meta:
        if event["name"] == "thread_name":
            found[names[event["pid"]]].append(event["args"]["name"])
    return found


def slices(document, category, clock="predicted"):
    return [
        e
        for e in document["traceEvents"]
        if e.get("cat") == category and e["args"]["clock"] == clock
    ]


def test_every_event_says_its_clock_and_processes_do_not_mix_them():
    document = make()
    clocks = {(e["pid"], e["args"]["clock"]) for e in document["traceEvents"]}
    assert {clock for _, clock in clocks} == {"cpu-measured", "predicted"}
    assert len(clocks) == len({pid for pid, _ in clocks})


def test_a_process_has_the_devices_that_work_and_no_others():
    found = tracks(make())  # of a target with two DLA cores
    assert found["predicted for jetson-agx-orin-64gb MAXN"] == ["host", "GPU", "DLA0"]
    assert all("DLA1" not in names for names in found.values())
    assert any("not a board time" in name for name in found)
    assert "predicted for jetson-agx-orin-64gb MAXN" in found


def test_a_target_without_dla_has_no_dla_track():
    plan = handmade_plan.plan()
    document = handmade_plan.trace(plan, None, dla_cores=0)
    # the plan's own device still gets one rather than being lost
    assert tracks(document) == {"predicted for jetson-agx-orin-64gb MAXN": ["host", "GPU", "DLA0"]}


def test_every_layer_is_predicted_once_with_its_facts():
    document, plan = make(), handmade_plan.plan()
    layers = slices(document, "layer")
    # those without a time of their own are in the slice of the kernel that computes them
    names = sorted(n for e in layers for n in e["args"].get("layers", [e["args"]["layer"]]))
    timed = {p.segment for p in plan.layers if p.predicted_us}
    assert names == sorted(p.name for p in plan.layers if p.segment in timed)
    assert all(e["dur"] > 0 for e in layers)
    conv = next(e for e in layers if e["name"].split(" + ")[0] == "stage3/block0/conv_a")
    assert conv["args"]["nodes"][0] == "node/stage3/block0/conv_a"
    assert (conv["args"]["device"], conv["args"]["precision"]) == ("DLA0", "int8")
    assert conv["dur"] == pytest.approx(41.3)


def test_predicted_frame_ends_at_the_predicted_latency():
    document = make()
    # the hand-over of each device change is shared evenly, so that the last segment ends there
    end = max(e["ts"] + e["dur"] for e in slices(document, "segment"))
    assert end == pytest.approx(2412.0, abs=0.01)


def test_measured_layers_are_joined_from_the_profile():
    layers = slices(make(), "layer", "cpu-measured")
    relu = next(e for e in layers if e["name"] == "stage2/block0/relu_a")
    # the rounding node that edgekit added belongs to the layer whose tensor it rounds
    assert relu["args"]["measured_nodes"] == [
        "node/stage2/block0/relu_a",
        "stage2/block0/relu_a_out#raw#Round",
    ]
    assert relu["args"]["measured_us"] == 160.0


def test_what_a_segment_converts_at_its_border_is_its_own_and_no_other_layers():
    measurement = handmade_plan.measurement()
    segments = {p.name: (p.segment, p.device) for p in handmade_plan.plan().layers}
    layer, home = next((name, at) for name, at in segments.items() if at[1] == "GPU")
    segment, device = next(at for at in segments.values() if at[1] != "GPU")
    for op in ("QuantizeLinear", "Cast"):
        measurement["nodes"].append(
            {
                "lane": 0,
                "index": segment,
                "node": f"{layer}_out#q#{op}",
                "op": op,
                "mean_us": 900.0,
                "median_us": 6.0,
            }
        )
    document = handmade_plan.trace(
        handmade_plan.plan(), measurement, dla_cores=2, network=handmade_plan.network()
    )
    measured = slices(document, "layer", "cpu-measured")
    border = next(e for e in measured if e["name"] == f"quantise {layer}'s output")["args"]
    assert (border["segment"], border["device"], border["measured_us"]) == (segment, device, 12.0)
    assert "layer" not in border
    own = [e["args"] for e in measured if e["name"] == layer]
    assert {(args["segment"], args["device"]) for args in own} == {home}
    (unbooked,) = unbooked_times(Trace.model_validate(document))
    assert (unbooked.what, unbooked.nodes) == ("between segments", 2)
    assert unbooked.us == pytest.approx(12.0)


def test_profiled_times_never_overrun_their_segment():
    measurement = handmade_plan.measurement()
    for node in measurement["nodes"]:
        node["median_us"] = 1e6
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert validate_trace(document) == []
    assert slices(document, "layer", "cpu-measured")


def test_without_a_profile_only_segments_are_measured():
    measurement = handmade_plan.measurement(profile=False)
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert validate_trace(document) == []
    assert slices(document, "layer", "cpu-measured") == []
    assert len(slices(document, "segment", "cpu-measured")) == 15
    assert len(slices(document, "frame", "cpu-measured")) == 3


def test_without_events_the_segments_means_are_shown():
    measurement = {**handmade_plan.measurement(), "events": []}
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    shown = slices(document, "segment", "cpu-measured")
    assert [e["dur"] for e in shown] == [800.0, 9000.0, 800.0, 9000.0, 800.0]
    assert validate_trace(document) == []


def test_with_nothing_but_a_mean_the_host_shows_it():
    measurement = {"clock": "cpu-measured", "latency_ms": {"mean": 3.5}}
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert [e["dur"] for e in slices(document, "frame", "cpu-measured")] == [3500.0]
    assert validate_trace(document) == []


def test_two_plans_share_the_gpu_and_use_a_core_each():
    plan = handmade_plan.plan(variants=2)
    document = handmade_plan.trace(plan, None, dla_cores=2, network=handmade_plan.network())
    assert validate_trace(document) == []
    devices = {e["args"]["device"] for e in slices(document, "segment")}
    assert devices == {"GPU", "DLA0", "DLA1"}
    # both cores work at the same time
    busy = {
        core: next(e for e in slices(document, "segment") if e["args"]["device"] == core)
        for core in ("DLA0", "DLA1")
    }
    assert busy["DLA1"]["ts"] < busy["DLA0"]["ts"] + busy["DLA0"]["dur"]


def test_overlapping_runs_of_one_device_get_a_further_track():
    measurement = handmade_plan.measurement(profile=False)
    measurement["pipelined_events"] = [
        {
            "frame": f,
            "lane": 0,
            "index": 0,
            "device": "GPU",
            "start_us": 5.0 * f,
            "duration_us": 50.0,
        }
        for f in range(2)
    ]
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert validate_trace(document) == []
    assert any("GPU (2)" in names for names in tracks(document).values())


def first_in_flight(**more):
    measurement = handmade_plan.measurement(pipelined=True) | more
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert validate_trace(document) == []
    labels = {
        e["pid"]: e["args"]["labels"]
        for e in document["traceEvents"]
        if e["name"] == "process_labels"
    }
    return min(
        e["ts"] for e in slices(document, "segment", "cpu-measured") if e["pid"] == 2
    ), labels[2]


def test_frames_in_flight_begin_when_they_did_where_the_loader_reports():
    assert first_in_flight()[0] == 0.0
    assert "restarted" in first_in_flight()[1]
    clock = {"events_start_s": 2.9, "pipelined_start_s": 3.25}
    assert first_in_flight(**clock) == (350_000.0, "edgekit_device's clock, as for single frames")
    # what the first copy is early moves all alike
    copies = [{"frame": 0, "phase": "h2d", "start_us": -40.0, "duration_us": 9.0}]
    assert first_in_flight(**clock, copies=copies)[0] == 350_040.0


@pytest.mark.parametrize("absurd", [1e300, 10**400, math.nan, math.inf, -5.0, "5"])
@pytest.mark.parametrize(
    "name",
    [
        "events[1].start_us",
        "pipelined_events[1].duration_us",
        "copies[0].duration_us",
        "copies[0].start_us",
        "nodes[0].median_us",
        "pipelined_start_s",
    ],
)
def test_a_time_that_is_none_is_one_error_and_no_trace(name, absurd):
    measurement = handmade_plan.measurement(pipelined=True) | {
        "copies": [{"frame": 0, "phase": "h2d", "start_us": -9.0, "duration_us": 4.0}],
        "events_start_s": 0.1,
        "pipelined_start_s": 0.4,
    }
    if name == "pipelined_start_s":
        measurement[name] = absurd
    else:
        group, at, field = re.fullmatch(r"(\w+)\[(\d)\]\.(\w+)", name).groups()
        measurement[group][int(at)][field] = absurd
    if (name, absurd) == ("copies[0].start_us", -5.0):
        return  # a copy may come before the first segment
    with pytest.raises(DataError, match=re.escape(name)) as caught:
        handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert caught.value.code == "trace.time"
    assert "not a valid time" in caught.value.message


@given(
    st.lists(
        st.tuples(st.sampled_from(["GPU", "DLA0", "DLA1"]), st.floats(0, 1e5), st.floats(0, 1e5)),
        max_size=8,
    )
)
def test_any_measurement_makes_a_sound_trace(found):
    measurement = {
        "clock": "cpu-measured",
        "latency_ms": {"mean": 1.0},
        "pipelined_events": [
            {
                "frame": i,
                "lane": 0,
                "index": i,
                "device": device,
                "start_us": start,
                "duration_us": duration,
            }
            for i, (device, start, duration) in enumerate(found)
        ],
        "nodes": [{"lane": 0, "index": 0, "node": "n", "op": "Conv", "median_us": 7.3}],
    }
    document = handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)
    assert validate_trace(document) == []


def _break(document, change):
    broken = copy.deepcopy(document)
    change(broken)
    return validate_trace(broken)


def last(document):
    return [event for event in document["traceEvents"] if event["ph"] == "X"][-1]


BREAKS = {
    "no time": (lambda d: last(d).update(ts=math.nan), "ts is no time"),
    "late": (lambda d: last(d).update(ts=1e300), "ts is no time"),
    "negative": (lambda d: last(d).update(dur=-1.0), "dur is no duration"),
    "text": (lambda d: last(d).update(ts="5"), "ts is no time"),
    "clock": (lambda d: last(d)["args"].pop("clock"), "args.clock"),
    "wrong clock": (lambda d: last(d)["args"].update(clock="measured"), "args.clock"),
    "args": (lambda d: last(d).pop("args"), "args is no object"),
    "phase": (lambda d: last(d).update(ph="Z"), "ph is 'Z'"),
    "pid": (lambda d: last(d).update(pid="1"), "pid is no whole number"),
    "name": (lambda d: last(d).update(name=""), "name is no text"),
    "unit": (lambda d: d.update(displayTimeUnit="us"), "displayTimeUnit"),
    "other": (lambda d: d.pop("otherData"), "otherData"),
    "events": (lambda d: d.update(traceEvents=[]), "no list of events"),
    "order": (lambda d: d["traceEvents"].append({**last(d), "ts": 0.0}), "stands after"),
    "unnamed": (lambda d: last(d).update(tid=77), "no thread_name"),
    "metadata": (lambda d: d["traceEvents"][0]["args"].pop("name"), "lacks name"),
    "mixed": (lambda d: last(d)["args"].update(clock="board-measured"), "mixes clocks"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_checker_finds(kind):
    change, words = BREAKS[kind]
    faults = _break(make(), change)
    assert any(words in fault for fault in faults), faults


def test_checker_finds_slices_that_cross():
    document = make()
    for event in document["traceEvents"]:
        name, clock = event["name"].split(" + ")[0], event["args"].get("clock")
        if name == "stage2/block0/conv_a" and clock == "predicted":
            event["dur"] += 1.0
    assert any("ends after" in fault for fault in validate_trace(document))


def test_what_edgekit_and_the_runtime_added_is_called_after_what_it_does():
    measurement = handmade_plan.measurement()
    first = measurement["nodes"][0]
    added = {
        "x#q#QuantizeLinear": "QuantizeLinear",
        "x_dq": "DequantizeLinear",
        "x#codes#Mul": "Mul",
        "ReorderOutput_token_3": "ReorderOutput",
    }
    measurement["nodes"] += [{**first, "node": node, "op": op} for node, op in added.items()]
    document = handmade_plan.trace(
        handmade_plan.plan(), measurement, dla_cores=1, network=handmade_plan.network()
    )
    names = {e["name"] for e in slices(document, "layer", "cpu-measured")}
    expected = {"quantise x", "dequantise x", "convert x", "reorder for the next kernel"}
    assert expected <= names
    assert not any("#" in name or "token" in name for name in names)
