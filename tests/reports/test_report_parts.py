"""Verdict, power, measured frame and baseline of the report document."""

import html
import re
from dataclasses import replace

import pytest

from edgekit.benchmark.document import Bench
from edgekit.reports.comparison import with_baseline
from edgekit.reports.document import report_document
from edgekit.reports.facts import POINTS, thin_points
from edgekit.reports.html.layers import layers_view
from edgekit.reports.html.page import render_html
from edgekit.reports.markdown import markdown
from edgekit.results.store import Result
from tests.benchmark import handmade_plan
from tests.reports import handmade_run


def document(**changes):
    return report_document(handmade_run.facts(**changes))


def gates(found):
    return {gate.gate: gate.passed for gate in found.verdict.gates}


def test_gates_come_from_what_the_run_found():
    assert gates(document()) == {"accuracy": True, "refit": True, "memory": True, "steps": True}
    failed = document(
        accuracy={"cosine": 0.5, "metric": "cosine", "min": 0.99, "passed": False},
        refit={"bit_equal": False},
        steps=({"name": "build", "status": "failed", "seconds": 1.0, "detail": ""},),
    )
    assert gates(failed) == {"accuracy": False, "refit": False, "memory": True, "steps": False}
    assert "limit 0.99" in render_html(failed)
    assert document(bench=None).verdict.status == "NOT MEASURED"


def test_a_measured_frame_and_layer_times_come_from_the_trace():
    facts = handmade_run.facts()
    trace = handmade_plan.trace(
        facts.plan, handmade_plan.measurement(), dla_cores=2, network=facts.network
    )
    found = document(trace=trace)
    frame = found.timeline.measured
    assert frame.clock == "cpu-measured"
    assert [slot.segment for slot in frame.slots] == [0, 1, 2, 3, 4]
    assert frame.slots[0].start_us == 0
    assert frame.slots[1].duration_us == 9000.0
    row = found.layers[0]
    assert (row.measured.clock, row.measured.us) == ("cpu-measured", pytest.approx(160.0))
    assert "Each frame has its own scale" in render_html(found)


def test_the_slowest_layers_are_those_that_were_slowest_on_the_board():
    facts, measurement = handmade_run.facts(), handmade_plan.measurement()
    light = min(facts.plan.layers, key=lambda placed: placed.predicted_us).name
    for node in measurement["nodes"]:
        if node["node"] == f"node/{light}":
            node["median_us"] = 5000.0
    trace = handmade_plan.trace(facts.plan, measurement, dla_cores=2, network=facts.network)
    on_board = {**facts.bench.to_json(), "clock": "board-measured"}
    found = document(trace=trace, bench=on_board)
    table = markdown(found).partition("Layers, slowest first")[2]
    assert re.findall(r"<code>(.*?)</code>|`(.*?)`", table)[0].count(light) == 1
    assert layers_view(found.layers)["slowest"][0]["name"] == light
    # a CPU's times say nothing of the board
    found = document(trace=trace)
    assert light not in [row["name"] for row in layers_view(found.layers)["slowest"]][:1]


def test_measured_time_of_no_layer_has_a_row_of_its_own():
    facts, measurement = handmade_run.facts(), handmade_plan.measurement()
    nodes = measurement["nodes"]
    # one of conv1's nodes comes later: both are of it; the runtime's own are of none
    nodes.insert(
        3, {"lane": 0, "index": 0, "node": "reorder_7", "op": "Reorder", "median_us": 23.0}
    )
    nodes.insert(4, nodes.pop(1))
    nodes.append({"lane": 0, "index": 0, "node": "reorder_8", "op": "Reorder", "median_us": 23.5})
    trace = handmade_plan.trace(facts.plan, measurement, dla_cores=2, network=facts.network)
    found = document(trace=trace)
    assert found.layers[0].measured.us == pytest.approx(160.0)
    (unbooked,) = found.trace.unbooked
    assert (unbooked.what, unbooked.nodes) == ("of no layer", 2)
    assert unbooked.us == pytest.approx(46.5)
    booked = sum(row.measured.us for row in found.layers)
    assert booked + 46.5 == pytest.approx(sum(node["median_us"] for node in nodes))
    assert re.search(
        r"<tfoot>\s*<tr>.*of no layer.*2 nodes.*46\.5 µs.*</tfoot>", render_html(found), re.DOTALL
    )


def test_points_are_thinned_to_their_extremes():
    points = [(float(i), float(i % 97)) for i in range(5000)]
    points[3333] = (3333.0, 1e6)
    found = thin_points(points)
    assert len(found) <= POINTS
    assert (3333.0, 1e6) in found
    assert found == sorted(found)
    assert thin_points(points[:50]) == points[:50]


def test_power_is_of_the_monitor_and_says_whose_clock():
    bench = handmade_run.facts().bench.to_json()
    sample = {
        "cpu": [{"percent": 50, "mhz": 1000}, None],
        "temperatures_c": {"tj": 50},
        "rails_mw": {"VIN": {"now": 5000, "average": None, "peak": None}},
        "engines": {"GR3D": {"on": None, "percent": 10, "mhz": [1300, 1299]}},
        "clocks_hz": {"dla0_core": 115_200_000},
    }
    bench["monitor"] = {
        "schema": "edgekit.monitor/1",
        "interval_ms": 100,
        "sources": ["sysfs"],
        "samples": [{"t_s": t / 10, **sample} for t in range(-2, 30)] + [{"t_s": 4.0}],
        "idle": [{"t_s": -1.0}],
        "unknown": {"x": 1},
        "warnings": ["w"],
    }
    power = document(bench=bench).power
    assert power.clock == "cpu-measured"
    lines = {line.name: line for group in power.series.values() for line in group}
    assert lines["VIN"].mean == 5000
    assert lines["CPU"].max == 50
    assert lines["dla0_core"].mean == pytest.approx(115.2)
    assert lines["GR3D 1"].min == 1299
    assert power.monitor.samples == 33
    assert "dla0_core" in render_html(document(bench=bench))


def result(label, low, changes=None):
    bench = {**handmade_run.facts().bench.to_json(), **(changes or {})}
    samples = tuple(low + 0.01 * ((7 * i) % 23) for i in range(300))
    measured = Bench.model_validate(bench)
    return Result(measured, samples, label=label, board="sshd:embedded")


def test_a_regression_against_the_baseline_fails_its_gate():
    same = with_baseline(document(), [result("#1", 20.0)], [result("bench.json", 20.0)])
    assert gates(same)["baseline"] is True
    own = [result("bench.json", 26.0)]
    past = [replace(result(f"#{i}", 20 + i / 100), bundle="ab" * 32) for i in range(2, 7)]
    unknown = with_baseline(same, [result("#1", 20.0)], own, past[:2])
    assert gates(unknown)["baseline"] is True
    assert "slower, above the threshold" not in render_html(unknown)
    slower = with_baseline(same, [result("#1", 20.0)], own, past)
    assert gates(slower)["baseline"] is False
    assert len(slower.verdict.gates) == len(same.verdict.gates)
    page = render_html(slower)
    assert "slower, above the threshold" in page
    assert re.search("Baseline <span[^>]*>#1</span>", page)


def test_another_clock_is_not_compared_and_the_page_says_why():
    other = result("#1", 20.0, {"clock": "board-measured", "power_mode": "15W"})
    own = result("bench.json", 20.0, {"power_mode": "MAXN"})
    found = with_baseline(document(), [other], [own])
    assert gates(found)["baseline"] is None
    for shown in (render_html(found), markdown(found)):
        words = " ".join(re.sub("<[^>]*>", "", html.unescape(shown)).split())
        assert "ot compared: the clock differs: board-measured, cpu" in words
        assert "the power mode differs" in words
