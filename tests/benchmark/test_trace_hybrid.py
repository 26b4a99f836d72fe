"""A frame of a hybrid engine: who was at work when, the host, the GPU or the DLA."""

from dataclasses import replace

import pytest

from edgekit.benchmark.trace.chrome import validate_trace
from tests.benchmark import handmade_plan

NODES = [
    ("Reformatting CopyNode for Input Tensor 0 to conv0", 5.0),
    ("conv0 + act0", 40.0),
    ("t to nvm", 10.0),
    ("{ForeignNode[conv1...act1]}", 5.0),
    ("u from nvm", 100.0),
    ("gap", 40.0),
]


def plan():
    """conv0, act0 and gap on the GPU, conv1 and act1 on DLA0."""
    whole = handmade_plan.plan()
    places = {
        "conv0": ("GPU", 0),
        "act0": ("GPU", 0),
        "conv1": ("DLA0", 1),
        "act1": ("DLA0", 1),
        "gap": ("GPU", 2),
    }
    layers = tuple(
        replace(whole.layers[0], name=name, nodes=(f"n/{name}",), device=device, segment=segment)
        for name, (device, segment) in places.items()
    )
    return replace(whole, layers=layers, plans=(replace(whole.plans[0], layers=layers),))


def hybrid(**event):
    """One frame: the host calls for 5.4 ms, the device is at work for 0.9 ms of them."""
    run = {
        "frame": 0,
        "lane": 0,
        "index": 0,
        "device": "DLA0",
        "start_us": 0.0,
        "duration_us": 5400.0,
    }
    document = handmade_plan.trace(
        plan(),
        {
            "clock": "board-measured",
            "latency_ms": {"mean": 5.5},
            "events": [{**run, **event}],
            "copies": [
                {"frame": 0, "phase": "h2d", "start_us": 4444.0, "duration_us": 6.0},
                {"frame": 0, "phase": "d2h", "start_us": 5600.0, "duration_us": 6.0},
            ],
            "nodes": [
                {"lane": 0, "index": 0, "node": node, "op": "", "median_us": us}
                for node, us in NODES
            ],
        },
        dla_cores=2,
    )
    assert validate_trace(document) == []
    return document


def shown(document, category):
    """(track, name, start, end) of the measured process's slices, in order."""
    names = {
        e["tid"]: e["args"]["name"]
        for e in document["traceEvents"]
        if e["name"] == "thread_name" and e["pid"] == 1
    }
    return [
        (names[e["tid"]], e["name"], e["ts"], round(e["ts"] + e["dur"], 3))
        for e in document["traceEvents"]
        if (e.get("cat"), e["pid"]) == (category, 1)
    ]


def test_layers_of_a_hybrid_engine_are_on_their_own_devices():
    document = hybrid(compute_start_us=4452.0, compute_us=200.0)
    assert shown(document, "layer") == [
        ("GPU", NODES[0][0], 4452.0, 4457.0),
        ("GPU", "conv0 + act0", 4457.0, 4497.0),
        ("GPU", "t to nvm", 4497.0, 4507.0),
        ("DLA0", NODES[3][0], 4507.0, 4612.0),
        ("GPU", "gap", 4612.0, 4652.0),
    ]
    assert [track for track, *_ in shown(document, "segment")] == ["GPU", "DLA0", "GPU"]
    layers = [
        e["args"] for e in document["traceEvents"] if (e.get("cat"), e["pid"]) == ("layer", 1)
    ]
    assert [one["device"] for one in layers] == ["GPU", "GPU", "GPU", "DLA0", "GPU"]
    assert layers[3]["layers"] == ["conv1", "act1"]
    assert layers[1]["layers"] == ["conv0", "act0"]


@pytest.mark.parametrize(
    ("event", "begin", "end"),
    # an older loader tells the copies alone: the device begins when its input is there
    [({"compute_start_us": 4452.0, "compute_us": 900.0}, 4452.0, 5352.0), ({}, 4450.0, 5400.0)],
)
def test_no_device_is_busy_while_the_host_prepares(event, begin, end):
    document = hybrid(**event)
    assert shown(document, "frame") == [("host", "inference 0", 0.0, 5400.0)]
    assert min(start for _, _, start, _ in shown(document, "segment")) == begin
    assert max(stop for *_, stop in shown(document, "segment")) == pytest.approx(end, abs=0.002)
