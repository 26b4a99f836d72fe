"""Timelines of hand-made measurements: a golden line for each track and slice.

Of every variant but the first only the lines that differ are stored; of a track the first slices.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

from edgekit.benchmark.trace.chrome import Trace, validate_trace
from edgekit.placement.plan import Plan
from edgekit.reports.layers import unbooked_times
from tests.benchmark import handmade_plan, monitor_samples
from tests.contracts.conftest import Golden
from tests.contracts.test_texts import stored

SHOWN = 5
FACTS = ("value", "layers", "device", "segment")
COPIES = [
    {"frame": 0, "phase": "h2d", "start_us": -100.0, "duration_us": 40.0},
    {"frame": 0, "phase": "d2h", "start_us": 500.0, "duration_us": 20.0},
]
CLOCK = {"events_start_s": 2.9, "pipelined_start_s": 3.25}
HYBRID = {
    "conv0": ("GPU", 0),
    "act0": ("GPU", 0),
    "conv1": ("DLA0", 1),
    "act1": ("DLA0", 1),
    "gap": ("GPU", 2),
}
NODES = [
    ("Reformatting CopyNode for Input Tensor 0 to conv0", 5.0),
    ("conv0 + act0", 40.0),
    ("t to nvm", 10.0),
    ("{ForeignNode[conv1...act1]}", 5.0),
    ("u from nvm", 100.0),
    ("gap", 40.0),
]


def lines(trace: dict[str, Any]) -> list[str]:
    """A line for each process, track, slice and counter, in their order."""
    assert validate_trace(trace) == []
    events = trace["traceEvents"]
    names = {(e["pid"], e.get("tid"), e["name"]): e["args"] for e in events if e["ph"] == "M"}
    shown: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for event in (one for one in events if one["ph"] in "XCstf"):
        args = event["args"]
        facts = {name: args[name] for name in FACTS if name in args}
        place = event["pid"], event.get("tid", 0), event.get("cat", event["name"])
        length = f" for {event['dur']:.3f}" if "dur" in event else ""
        shown[place].append(f"  {event['ph']} {event['name']} at {event['ts']:.3f}{length} {facts}")
    found = []
    for (pid, tid, kind), rows in sorted(shown.items(), key=lambda row: row[0][:2]):
        process = names[pid, 0, "process_name"]["name"]
        track = names.get((pid, tid, "thread_name"), {"name": ""})["name"]
        added = [row for row in rows[SHOWN:] if re.search("quantise |convert |reorder ", row)]
        found += [f"{process}, {track}: {len(rows)} {kind}", *rows[:SHOWN], *added[:3]]
    found += [str(args["labels"]) for (*_, name), args in names.items() if name == "process_labels"]
    unbooked = unbooked_times(Trace.model_validate(trace))
    return found + [f"unbooked: {one.what}, {one.nodes}, {one.us:.3f}" for one in unbooked]


def traced(plan: Plan | None = None, sent: dict[str, Any] | None = None, **changes: Any) -> Any:
    plan = plan or handmade_plan.plan()
    measured = (handmade_plan.measurement() if sent is None else sent) | changes
    network = handmade_plan.network()
    return handmade_plan.trace(plan, measured, dla_cores=2, network=network)


def with_nodes(*nodes: tuple[str, str, int]) -> dict[str, Any]:
    sent = handmade_plan.measurement()
    first = sent["nodes"][0]
    more = [{**first, "node": name, "op": op, "index": index} for name, op, index in nodes]
    return sent | {"nodes": [*sent["nodes"], *more]}


def hybrid(**event: float) -> Any:
    """One frame of a hybrid engine: the host calls for 5.4 ms, the device works for 0.9 ms."""
    whole = handmade_plan.plan()
    layers = tuple(
        replace(whole.layers[0], name=name, nodes=(f"n/{name}",), device=device, segment=segment)
        for name, (device, segment) in HYBRID.items()
    )
    plan = replace(whole, layers=layers, plans=(replace(whole.plans[0], layers=layers),))
    run = {"frame": 0, "lane": 0, "index": 0, "device": "DLA0", "start_us": 0.0}
    nodes = [{"lane": 0, "index": 0, "node": node, "op": "", "median_us": us} for node, us in NODES]
    copies = [
        {"frame": 0, "phase": phase, "start_us": start, "duration_us": 6.0}
        for phase, start in (("h2d", 4444.0), ("d2h", 5600.0))
    ]
    sent = {"clock": "board-measured", "latency_ms": {"mean": 5.5}, "nodes": nodes}
    sent |= {"events": [{**run, "duration_us": 5400.0, **event}], "copies": copies}
    return handmade_plan.trace(plan, sent, dla_cores=2)


def test_measurements_become_timelines(golden: Golden) -> None:
    segments = {p.name: p.segment for p in handmade_plan.plan().layers if p.device == "GPU"}
    layer, other = next(iter(segments)), 1
    flying = handmade_plan.measurement(pipelined=True)
    run = {"lane": 0, "index": 0, "device": "GPU", "duration_us": 50.0}
    overlapping = [{**run, "frame": f, "start_us": 5.0 * f} for f in range(2)]
    slow = handmade_plan.measurement()
    for node in slow["nodes"]:
        node["median_us"] = 1e6
    added = [("x#q#QuantizeLinear", "QuantizeLinear", 0), ("x_dq", "DequantizeLinear", 0)]
    added += [("x#codes#Mul", "Mul", 0), ("ReorderOutput_token_3", "ReorderOutput", 0)]
    two = handmade_plan.plan(variants=2)
    found = {
        "plain": traced(),
        "predicted alone": handmade_plan.trace(handmade_plan.plan(), None, dla_cores=0),
        "two plans": handmade_plan.trace(two, None, dla_cores=2, network=handmade_plan.network()),
        "in flight": traced(sent=flying),
        "in flight on one clock": traced(sent=flying | CLOCK),
        "overlapping": traced(pipelined_events=overlapping),
        "without a profile": traced(sent=handmade_plan.measurement(profile=False)),
        "without events": traced(events=[]),
        "a mean alone": traced(sent={"clock": "cpu-measured", "latency_ms": {"mean": 3.5}}),
        "longer than its segment": traced(sent=slow),
        "converted at a border": traced(
            sent=with_nodes(
                (f"{layer}_out#q#QuantizeLinear", "QuantizeLinear", other),
                (f"{layer}_out#q#Cast", "Cast", other),
            )
        ),
        "added nodes": traced(sent=with_nodes(*added)),
        "copies": traced(copies=COPIES),
        "a monitor": traced(sent=handmade_plan.measurement() | monitor_samples.measured()),
        "a monitor of another clock": traced(monitor=monitor_samples.monitor()),
        "hybrid": hybrid(compute_start_us=4452.0, compute_us=200.0),
        "hybrid, the device for longer": hybrid(compute_start_us=4452.0, compute_us=900.0),
        "hybrid of an older loader": hybrid(),
    }
    golden("texts/traces", stored({name: {"trace": lines(one)} for name, one in found.items()}))
