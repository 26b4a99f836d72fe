"""The page and the text of several networks, in a real browser, too."""

import re

import pytest

from edgekit.reports.charts import gantt, ticks
from edgekit.reports.html.plans import render_plans, write_plans_report
from edgekit.reports.terminal.plan import plans_text
from edgekit.schedule.contention import Contention
from edgekit.schedule.plans import (
    BusyShares,
    CoreLoadables,
    LatencyBounds,
    LeastValue,
    NetworkPlan,
    Plans,
    ReachedValue,
    TimelineEntry,
)
from tests.benchmark import handmade_plan
from tests.reports.chromium_pipe import CHROMIUM, Browser
from tests.reports.shown import shown


def slot(network, frame, device, start, end, layers=3):
    return TimelineEntry(
        network,
        frame,
        device,
        "layers" if layers else "reformat",
        0,
        layers,
        "conv1",
        "<b>fc</b>",
        start,
        end,
        (end - start) / 1.1,
    )


def document():
    plan = handmade_plan.plan()
    networks = tuple(
        NetworkPlan(name, 1000 * n, 1000 / n, n, LatencyBounds(400.0, 450.0), plan)
        for name, n in (("detect", 1), ("<i>net</i>", 2))
    )
    timeline = (
        slot("detect", 0, "GPU", 0, 300),
        slot("<i>net</i>", 0, "DLA0", 0, 250),
        slot("detect", 0, "DLA0", 300, 450),
        slot("<i>net</i>", 1, "DLA0", 900, 1050),
    )
    return Plans(
        target="jetson-agx-orin-64gb",
        power_mode="MAXN",
        tensorrt="10.3",
        objective="latency",
        unit="deadline",
        lower=LeastValue(0.4, 0.4, 0.4, (), (), 0.0, True),
        upper=ReachedValue(0.9),
        cycle_us=1000.0,
        repeats=True,
        networks=networks,
        timeline=timeline,
        utilisation={"GPU": BusyShares(0.3, 0.3), "DLA0": BusyShares(0.5, 0.6)},
        loadables=CoreLoadables({"DLA0": 2}, 16),
        pools={"managed_sram": 1 << 20},
        contention=Contention({}, "an issue"),
        notes=("nothing is measured",),
    )


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
