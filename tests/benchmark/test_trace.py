import copy
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.benchmark.trace.chrome import validate_trace
from edgekit.errors import DataError
from tests.benchmark import handmade_plan


def make(**options):
    measurement = handmade_plan.measurement(pipelined=True)
    return handmade_plan.trace(
        handmade_plan.plan(), measurement, dla_cores=2, network=handmade_plan.network(), **options
    )


def slices(document, category, clock="predicted"):
    return [
        e
        for e in document["traceEvents"]
        if e.get("cat") == category and e["args"]["clock"] == clock
    ]


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
