"""Each quantity of a run is the same on the terminal, the page, in Markdown and in JSON."""

from __future__ import annotations

import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from rich.console import Console

import edgekit
from edgekit.benchmark.schedule import predicted_schedule
from edgekit.benchmark.trace.run import trace_document
from edgekit.cli.main import main
from edgekit.config.loader import open_config
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.rewrite import judgement, network
from edgekit.placement.plan import device_times, plan_from_json
from edgekit.reports import text
from edgekit.reports.document import report_document
from edgekit.reports.facts import RunFacts
from edgekit.reports.html.page import render_html
from edgekit.reports.html.plans import render_plans
from edgekit.reports.html.results import tiles
from edgekit.reports.layers import order_words, sort_by_time
from edgekit.reports.markdown import markdown
from edgekit.reports.schema import MeasuredTime, ReportedLayer, parse_report
from edgekit.reports.terminal.summary import terminal_summary
from edgekit.text import percent
from edgekit_device.protocol.codec import write
from tests.network.onnx_making import make
from tests.reports.handmade_run import facts

BOARD = "jetson-agx-orin-64gb"


def convolutions(path: Path, kinds: str) -> Path:
    """Writes a chain: c a convolution, r a ReLU, e an Erf, which a DLA lacks."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], {}, "x"
    for index, kind in enumerate(kinds):
        name = f"t{index}"
        if kind == "c":
            value = random.standard_normal((64, 64, 3, 3)).astype(np.float32) * np.float32(0.05)
            weights[f"w{index}"] = value
            node = helper.make_node(
                "Conv", [last, f"w{index}"], [name], f"conv{index}", pads=[1, 1, 1, 1]
            )
        else:
            op = {"r": "Relu", "e": "Erf"}[kind]
            node = helper.make_node(op, [last], [name], f"{op.lower()}{index}")
        nodes.append(node)
        last = name
    onnx.save(make(nodes, {"x": [1, 64, 28, 28]}, [last], weights), path)
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["plan", *arguments, "-q"])
    found = capsys.readouterr()
    assert caught.value.code == 0, found.err
    return found.out


def plain(page: str) -> str:
    """Returns the text of a page, its tags as spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def configured(
    folder: Path, kinds: str, objective: str, floats: list[str], cores: str = "0, 1"
) -> str:
    """Writes a chain and a configuration for it, whose ``floats`` stay in FP16."""
    model = convolutions(folder / "net.onnx", kinds)
    path = folder / "net.yaml"
    path.write_text(
        f"version: 1\nname: net\nmodel: {{onnx: {model.name}}}\ntarget: {BOARD}\n"
        f"precision: int8\nbuild: {{mode: split}}\n"
        f"calibration: {{fp16_layers: {json.dumps(floats)}}}\n"
        f"placement: {{objective: {objective}, dla_cores: [{cores}]}}\n"
    )
    return str(path)


@pytest.mark.few(5)
@pytest.mark.parametrize("objective", ["latency", "throughput", "energy", "period", "gpu_time"])
@pytest.mark.parametrize(
    ("kinds", "floats"),
    [("crcrcrcr", []), ("crcecrcrecr", []), ("rccec", ["relu0", "conv2"])],
    ids=["dla", "mixed", "fp16"],
)
def test_terminal_page_markdown_and_json_show_one_number(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kinds: str,
    floats: list[str],
    objective: str,
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    model = configured(tmp_path, kinds, objective, floats)
    document = json.loads(printed(capsys, model, "--json"))
    terminal = printed(capsys, model)
    with Pipeline(open_config(model)) as pipeline:
        context = pipeline.context
        report = report_document(
            RunFacts(
                name="net",
                model=model,
                target=context.target,
                plan=pipeline.plan(),
                network=network(context),
                judgement=judgement(context),
            )
        )
    page = render_html(report)
    paper, shown = markdown(report), plain(page)
    summary = io.StringIO()
    terminal_summary(report, Console(file=summary, width=200))

    # the JSON: what the parts of a plan sum to is what the plan says
    plan = plan_from_json(document)
    for number, part in enumerate(document["plans"]):
        busy = {row["device"]: row["busy_us"] for row in part["devices"]}
        own = [one for one in plan.loadables if one.plan == number]
        assert busy == device_times(plan.plans[number], own)
        assert busy.get("GPU", 0.0) == pytest.approx(part["predicted"]["gpu_us"], abs=1e-3)
        assert sum(busy.values()) == pytest.approx(part["predicted"]["latency_us"], rel=1e-6)
        assert {row["clock"] for row in part["devices"]} == {"predicted"}

    # the busy time of each device in the first plan, and on the tracks that of all plans
    for row in document["plans"][0]["devices"]:
        total = text.microseconds(row["busy_us"])
        (mine,) = (one for one in report.placement.devices if one.device == row["device"])
        assert mine.predicted_us == row["busy_us"]
        assert re.search(rf"{row['device']}\s.*{re.escape(total)}", terminal)
        assert f"busy {total} (predicted)" in summary.getvalue()
        assert total in next(line for line in paper.splitlines() if f"{row['device']} busy" in line)
        every = sum(
            one["busy_us"]
            for part in document["plans"]
            for one in part["devices"]
            if one["device"] == row["device"]
        )
        assert report.timeline.busy_us[row["device"]] == pytest.approx(every)
        turns = [one for one in report.timeline.slots if one.device == row["device"]]
        assert sum(one.duration_us for one in turns) == pytest.approx(every)
        busy = f"busy for {text.microseconds(every)} of"
        assert re.search(rf"{row['device']}: \d+ segments?, {re.escape(busy)}", page)

    # a segment in the graph and on the timeline
    slots = {one.segment: one for one in report.timeline.slots if one.plan == 0 and one.layers}
    for one in report.graph.segments:
        assert one.predicted_us == slots[one.segment].duration_us
        # what of it is no layer's own time stands beside it
        layers = sum(row.predicted_us for row in report.layers if row.segment == one.segment)
        beyond = one.reformats_us + one.launch_us
        assert layers + beyond == pytest.approx(one.predicted_us, abs=1e-3)
        for us, what in ((one.reformats_us, "reformats"), (one.launch_us, "to start the loadable")):
            assert not us or f"{text.microseconds(us)} {what}" in shown
    # a device's segments, and what it reformats outside of them, are all that it is busy with
    graph = report.graph
    for row in report.placement.devices:
        own = [*graph.segments, *graph.reformats]
        total = sum(one.predicted_us for one in own if one.device == row.device)
        assert total == pytest.approx(row.predicted_us)
    for one in graph.reformats:
        total = text.microseconds(one.predicted_us)
        assert f"{one.device} reformats for segment {one.segment} {total}" in shown

    # what the plan is predicted to reach
    first = report.predicted.rows[0]
    for key, show in (
        ("latency_us", text.microseconds),
        ("throughput_qps", text.significant),
        ("energy_uj", text.energy),
        ("gpu_us", text.microseconds),
    ):
        assert first.figure(key) == document["predicted"][key]
        for place in (terminal, summary.getvalue(), paper, shown):
            assert show(document["predicted"][key]) in place

    # the trace: as long in its segments as they are in their slices
    trace = [
        one
        for one in trace_document(plan, dla_cores=2, network=network(context)).events
        if one.ph == "X" and one.tid != 1
    ]
    for device, busy in report.timeline.busy_us.items():
        own = [one for one in trace if one.args.device == device]
        segments = sum(one.dur for one in own if one.cat == "segment")
        parts = [one for one in own if one.cat not in ("segment", "idle")]
        assert segments == pytest.approx(busy, abs=0.01 * len(own))
        assert sum(one.dur for one in parts) == pytest.approx(busy, abs=0.01 * len(own))
        assert all(one.dur > 0 for one in parts)

    # a rate that the busy times alone do not give stands with its reason
    frame = document["frame"]
    assert frame == write(report.placement.frame)
    assert frame["period_us"] == pytest.approx(1e6 / document["predicted"]["throughput_qps"])
    assert max(frame["busy_us"].values()) + frame["sharing_us"] == pytest.approx(
        frame["period_us"], rel=1e-5
    )
    for place in (terminal, " ".join(summary.getvalue().split()), paper, shown):
        assert ("contention" in place.replace("│", "")) == bool(frame["sharing_us"])
        assert (text.microseconds(frame["sharing_us"]) in place) or not frame["sharing_us"]


@pytest.mark.parametrize("floats", [[], ["relu1", "conv4"], ["relu0", "conv3"]])
@pytest.mark.parametrize("kinds", ["rrcccec", "ecerce"])
def test_the_gpu_alone_takes_the_same_wherever_it_is_reported(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kinds: str,
    floats: list[str],
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    names = {f"{ {'c': 'conv', 'r': 'relu', 'e': 'erf'}[kind] }{i}" for i, kind in enumerate(kinds)}
    floats = [name for name in floats if name in names]
    model = configured(tmp_path, kinds, "latency", floats, "0")
    times = [edgekit.check(model).to_json()["predicted"]["gpu_only_us"]]
    for cores, pins in (([], []), ([0], [{"layers": "*", "device": "GPU"}]), ([0], [])):
        plan = edgekit.plan(model, placement={"dla_cores": cores, "pin": pins})
        times.append(plan.baselines["gpu_only"].latency_us)
        if {layer.device for layer in plan.layers} == {"GPU"}:
            times += [plan.predicted.latency_us, device_times(plan.plans[0], [])["GPU"]]
    assert len(times) >= 6
    assert times == pytest.approx([times[0]] * len(times))
    terminal = printed(capsys, model)
    assert "GPU only" not in terminal
    assert f"GPU alone {text.microseconds(times[0])}" in " ".join(terminal.split())


def test_the_share_on_the_dla_is_of_all_that_devices_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    model = configured(tmp_path, "crcrcrcr", "throughput", [])
    (row,) = edgekit.plan_table(model, objective="throughput").rows
    plan = edgekit.plan(model)
    assert len(plan.plans) > 1
    busy = dict.fromkeys(("GPU", "DLA0", "DLA1"), 0.0)
    for number, share in enumerate(plan.plans):
        own = [one for one in plan.loadables if one.plan == number]
        for device, us in device_times(share, own).items():
            busy[device] += share.share * us
    plan_row = row.plans["throughput"]
    assert plan_row.gpu_share == pytest.approx(busy["GPU"] / sum(busy.values()))
    assert plan_row.dla_share == pytest.approx(1 - plan_row.gpu_share)


def test_a_mix_of_plans_is_shown_with_all_its_plans_and_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    model = configured(tmp_path, "crcrcrcr", "throughput", [])
    with Pipeline(open_config(model)) as pipeline:
        context, plan = pipeline.context, pipeline.plan()
        known = RunFacts(
            name="net",
            model=model,
            target=context.target,
            plan=plan,
            network=network(context),
            judgement=judgement(context),
        )
    document = report_document(known)
    assert {"DLA0", "DLA1"} <= {layer.device for share in plan.plans for layer in share.layers}
    page = render_html(document)
    shown, shares = plain(page), [share.share for share in plan.plans]
    first = f"Plan 1 of {len(shares)}, {percent(shares[0])} of the frames"
    assert first in shown.split("Segments as a table")[0]
    (table,) = re.findall(r'aria-label="Devices".*?</table>', page, re.S)
    for number, (share, part) in enumerate(
        zip(plan.plans, document.placement.plans, strict=True), 1
    ):
        section = plain(table).split(f"Plan {number}, {percent(share.share)} of the frames ")[1]
        section = section.split("Plan")[0]
        for row in part.devices:
            layers = [one for one in share.layers if one.device == row.device]
            assert f"{row.device} {len(layers)} {text.macs(row.macs)}" in section
        assert sum(row.macs_fraction for row in part.devices) == pytest.approx(1)
    (legend,) = re.findall(r'<ul class="legend graph-devices">.*?</ul>', page, re.S)
    assert plain(legend).split() == ["GPU", "DLA0", "DLA1"]

    # shares that read the same have no first among them
    tied = percent(shares[0]) == percent(shares[1])
    assert ("one of the most used plans has" in document.headline) == tied
    uneven = replace(plan, plans=[replace(plan.plans[0], share=0.6), *plan.plans[1:]])
    section = report_document(replace(known, plan=uneven)).headline
    assert "the most used plan has" in section

    # a layer of the GPU that others have on either core names both
    on_gpu = replace(
        plan.plans[0], layers=[replace(one, device="GPU") for one in plan.plans[0].layers]
    )
    mixed = replace(plan, layers=on_gpu.layers, plans=[on_gpu, *plan.plans])
    messages = {
        row.message
        for group in report_document(replace(known, plan=mixed)).why_gpu
        for row in group.layers
    }
    assert "in other frames it runs on DLA0 or DLA1: the devices share the load" in messages


def test_the_page_of_several_plans_shows_what_each_segment_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    convolutions(tmp_path / "one.onnx", "crcecrcr")
    convolutions(tmp_path / "two.onnx", "crcr")
    path = tmp_path / "several.yaml"
    path.write_text(
        "version: 1\nname: several\nmodel:\n  networks:\n"
        "    - {name: one, onnx: one.onnx, rate_hz: 120}\n"
        "    - {name: two, onnx: two.onnx, rate_hz: 240}\n"
        f"target: {BOARD}\nprecision: int8\n"
        "placement: {dla_cores: [0, 1], objective: gpu_time}\n"
    )
    plans = edgekit.plan_networks(str(path))
    document, page = plans.to_json(), plain(render_plans(plans))
    on_dla = [layer for one in document["networks"] for layer in one["plan"]["loadables"]]
    assert on_dla  # whose launches are in no layer's time
    for one in document["networks"]:
        plan = one["plan"]
        (part,) = plan["plans"]
        alone = sum(row["busy_us"] for row in part["devices"])
        assert alone == pytest.approx(plan["predicted"]["latency_us"], rel=1e-6)
        assert f"A frame alone {text.microseconds(alone)}" in page
        for row in part["devices"]:
            if row["segments"] == 1:  # the only one of its device has all of the device's time
                shown = text.microseconds(row["busy_us"])
                assert re.search(rf"{row['device']} {row['layers']} \S+ \S+ {shown}", page)


def test_the_energy_tile_is_the_energy_of_the_table() -> None:
    watts = {"mean_mw": 9000.0, "median_mw": 9000.0, "idle_mw": 5000.0}
    energy = {
        "by_rail": {},
        "baseline": "idle",
        "window_s": [0.0, 3.0],
        "samples": 30,
        "idle_samples": 8,
        "clock": "board-measured",
        "total": {**watts, "uj_per_inference": 12_345.6, "over_idle_uj": 4_567.8, "rails": ["VIN"]},
    }
    power = {"clock": "board-measured", "monitor": None, "energy": energy}
    document = parse_report({**report_document(facts()).to_json(), "power": power})
    (tile,) = (one for one in tiles(document) if one["name"] == "Energy")
    assert tile["value"] == text.energy(12_345.6)
    assert tile["clock"] == {"text": "board-measured", "css": "measured"}
    assert text.energy(12_345.6) in markdown(document)


def test_the_timeline_has_the_launches_of_its_loadables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    model = str(convolutions(tmp_path / "net.onnx", "crcecrcrecr"))
    plan = edgekit.plan(model, target=BOARD, placement={"objective": "gpu_time"})
    slots = predicted_schedule(plan)
    busy = device_times(plan.plans[0], plan.loadables)
    assert any(loadable.launch_us for loadable in plan.loadables)
    for device in busy.keys() - {"GPU"}:
        total = sum(slot.duration_us for slot in slots if slot.device == device)
        assert total == pytest.approx(busy[device])


def test_the_slowest_layers_are_the_boards() -> None:
    def layer(number: int, us: float, clock: str, measured: float) -> ReportedLayer:
        return ReportedLayer(
            number=number,
            name=f"l{number}",
            kind="",
            device="GPU",
            precision="int8",
            segment=0,
            dla_ok=True,
            certainty="certain",
            reasons=[],
            macs=0,
            predicted_us=us,
            measured=MeasuredTime(clock=clock, us=measured),
        )

    rows = [
        layer(n, us, "cpu-measured", cpu)
        for n, (us, cpu) in enumerate([(1.0, 90.0), (5.0, 10.0), (3.0, 50.0)], 1)
    ]
    assert [row.number for row in sort_by_time(rows)] == [2, 3, 1]
    assert order_words(rows) == "predicted"
    rows[0] = layer(1, 1.0, "board-measured", 7.0)
    assert [row.number for row in sort_by_time(rows)] == [1, 2, 3]
    assert "measured" in order_words(rows)
