"""Each quantity of a run is the same on the terminal, the page, in Markdown and in JSON."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import edgekit
from edgekit.bench import predicted_schedule
from edgekit.cli import main
from edgekit.config import open_config
from edgekit.pipeline import Pipeline
from edgekit.placement import device_times, plan_from_json
from edgekit.report import RunFacts, markdown, render_html, report_document, terminal_summary
from edgekit.report import _text as text
from edgekit.report._layers import by_time, order_words
from tests.report.handmade_run import facts

BOARD = "jetson-agx-orin-64gb"


def convolutions(path: Path, kinds: str) -> Path:
    """Writes a chain: c a convolution, r a ReLU, e an Erf, which a DLA lacks."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for index, kind in enumerate(kinds):
        name = f"t{index}"
        if kind == "c":
            value = random.standard_normal((64, 64, 3, 3)).astype(np.float32) * np.float32(0.05)
            weights.append(numpy_helper.from_array(value, f"w{index}"))
            node = helper.make_node(
                "Conv", [last, f"w{index}"], [name], f"conv{index}", pads=[1, 1, 1, 1]
            )
        else:
            op = {"r": "Relu", "e": "Erf"}[kind]
            node = helper.make_node(op, [last], [name], f"{op.lower()}{index}")
        nodes.append(node)
        last = name
    shape = [1, 64, 28, 28]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        weights,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
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


@pytest.mark.parametrize("objective", ["latency", "throughput", "energy", "period", "gpu_time"])
@pytest.mark.parametrize("kinds", ["crcrcrcr", "crcecrcrecr"])
def test_terminal_page_markdown_and_json_show_one_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    kinds: str, objective: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    model = str(convolutions(tmp_path / "net.onnx", kinds))
    same = [model, "-t", BOARD, "--objective", objective, "--dla-cores", "0,1"]
    document = json.loads(printed(capsys, *same, "--json"))
    terminal = printed(capsys, *same)
    placement = {"objective": objective, "dla_cores": [0, 1]}
    with Pipeline(open_config(model, target=BOARD, placement=placement)) as pipeline:
        work = pipeline.work
        report = report_document(
            RunFacts(
                name="net", model=model, target=work.target, plan=pipeline.plan(),
                network=work.network, judgement=work.judgement,
            )
        )  # fmt: skip
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
        told = text.microseconds(row["busy_us"])
        (mine,) = (one for one in report["placement"]["devices"] if one["device"] == row["device"])
        assert mine["predicted_us"] == row["busy_us"]
        assert re.search(rf"{row['device']}\s.*{re.escape(told)}", terminal)
        assert f"busy {told} (predicted)" in summary.getvalue()
        assert told in next(line for line in paper.splitlines() if f"{row['device']} busy" in line)
        every = sum(
            one["busy_us"]
            for part in document["plans"]
            for one in part["devices"]
            if one["device"] == row["device"]
        )
        assert report["timeline"]["busy_us"][row["device"]] == pytest.approx(every)
        busy = f"busy for {text.microseconds(every)} of"
        assert re.search(rf"{row['device']}: \d+ segments?, {re.escape(busy)}", page)

    # a segment in the graph and on the timeline
    slots = {one["segment"]: one for one in report["timeline"]["slots"] if one["plan"] == 0}
    for one in report["graph"]["segments"]:
        assert one["predicted_us"] == slots[one["segment"]]["duration_us"]

    # what the plan is predicted to reach
    first = report["predicted"]["rows"][0]
    for key, show in (
        ("latency_us", text.microseconds), ("throughput_qps", text.significant),
        ("energy_uj", text.energy), ("gpu_us", text.microseconds),
    ):  # fmt: skip
        assert first[key] == document["predicted"][key]
        for place in (terminal, summary.getvalue(), paper, shown):
            assert show(document["predicted"][key]) in place


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
        told = sum(slot.duration_us for slot in slots if slot.device == device)
        assert told == pytest.approx(busy[device])


def test_the_slowest_layers_are_the_boards() -> None:
    rows = [
        {"number": n, "predicted_us": us, "measured": {"clock": "cpu-measured", "us": cpu}}
        for n, (us, cpu) in enumerate([(1.0, 90.0), (5.0, 10.0), (3.0, 50.0)], 1)
    ]
    assert [row["number"] for row in by_time(rows)] == [2, 3, 1]
    assert order_words(rows) == "predicted"
    rows[0]["measured"] = {"clock": "board-measured", "us": 7.0}
    assert [row["number"] for row in by_time(rows)] == [1, 2, 3]
    assert "measured" in order_words(rows)


def test_markdown_says_by_what_layers_are_sorted() -> None:
    document = report_document(facts())
    assert "Layers, the slowest first (predicted)" in markdown(document)
