"""The page and the text of several networks, in a real browser, too."""

import re

import pytest

from edgekit.reports.charts import gantt, ticks
from edgekit.reports.html.plans import render_plans, write_plans_report
from edgekit.reports.terminal.plan import plans_text
from tests.reports.chromium_pipe import CHROMIUM, Browser
from tests.reports.shown import shown


def slot(network, frame, device, start, end, layers=3):
    return {
        "network": network, "frame": frame, "device": device,
        "kind": "layers" if layers else "reformat", "segment": 0, "layers": layers,
        "first": "conv1", "last": "<b>fc</b>", "start_us": start, "end_us": end,
        "alone_us": (end - start) / 1.1,
    }  # fmt: skip


def document():
    layer = {"name": "conv1", "device": "GPU", "segment": 0, "predicted_us": 100.0}
    plan = {"layers": [layer, {**layer, "name": "fc", "device": "DLA0", "segment": 1}],
            "loadables": [{}], "predicted": {"latency_us": 800.0}, "precision": "int8"}  # fmt: skip
    networks = [
        {"name": name, "rate_hz": 1000 * n, "deadline_us": 1000 / n, "frames": n,
         "latency_us": {"lower": 400.0, "upper": 450.0}, "plan": plan}
        for name, n in (("detect", 1), ("<i>net</i>", 2))
    ]  # fmt: skip
    return {
        "target": "jetson-agx-orin-64gb", "power_mode": "MAXN", "tensorrt": "10.3",
        "objective": "latency", "unit": "deadline", "cycle_us": 1000.0, "repeats": True,
        "lower": {"value": 0.4, "bound": 0.4, "gap": 0.0, "optimal": True},
        "upper": {"value": 0.9}, "networks": networks,
        "timeline": [slot("detect", 0, "GPU", 0, 300), slot("<i>net</i>", 0, "DLA0", 0, 250),
                     slot("detect", 0, "DLA0", 300, 450), slot("<i>net</i>", 1, "DLA0", 900, 1050)],
        "utilisation": {"GPU": {"lower": 0.3, "upper": 0.3}, "DLA0": {"lower": 0.5, "upper": 0.6}},
        "loadables": {"cores": {"DLA0": 2}, "max": 16}, "pools": {"managed_sram": 1 << 20},
        "contention": {"source": "an issue"}, "notes": ["nothing is measured"],
    }  # fmt: skip


def test_ticks_are_round_and_few():
    assert ticks(0, 1000) == [100 * i for i in range(11)]
    assert ticks(0, 16_667)[:3] == [0, 2000, 4000]
    assert ticks(5, 5) == [5]


def test_the_picture_has_every_slot_and_names_are_escaped():
    svg = gantt(document())
    assert "<i>" not in svg
    assert "<b>" not in svg
    # the last slot passes the cycle's end and goes on at its beginning
    bars = re.findall(r'<rect class="net\d" x="([\d.]+)" y="\d+" width="([\d.]+)"', svg)
    assert len(bars) == 5
    assert min(float(x) for x, _ in bars) == 120
    assert max(float(x) + float(width) for x, width in bars) == pytest.approx(990, abs=0.1)
    assert svg.count('class="deadline"') == 3


def test_the_text_says_both_bounds_and_draws_every_device():
    said = shown(plans_text(document(), width=72), 72)
    assert "40.0 % without contention (proved optimal), 90.0 %" in " ".join(said.split())
    assert "predicted" in said
    assert max(map(len, said.splitlines())) <= 80
    assert re.search(r"^GPU +\|A+\.+\|$", said, re.MULTILINE)
    assert re.search(r"^DLA0 +\|B+.*B\|$", said, re.MULTILINE)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_page_renders_without_complaint(tmp_path):
    path = tmp_path / "plans.html"
    write_plans_report(document(), path, name="two")
    assert path.read_text(encoding="utf-8") == render_plans(document(), name="two")
    with Browser(tmp_path) as browser:
        browser.open(path.as_uri())
        assert browser.complaints() == []
        # the first frames, and one cycle
        assert browser.js("document.querySelectorAll('svg.gantt').length") == 2
        assert "DLA0 busy" in browser.js("document.body.textContent")
