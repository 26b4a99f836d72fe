"""What a real board's monitor saw, from the bench document to the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.benchmark.document import bench_document
from edgekit.benchmark.trace.tegrastats import read_tegrastats
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.markdown import markdown
from edgekit.reports.terminal.measurement import bench_text
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import write
from tests.benchmark import handmade_plan
from tests.reports import handmade_run
from tests.reports.shown import shown

LOG = Path(__file__).parent.parent / "data" / "orin_jp62_trt103" / "teg_pm_MAXN_dla_int8.log"


@pytest.fixture(scope="module")
def measured():
    monitor = read_tegrastats(LOG, interval_ms=500)
    measurement = handmade_plan.measured(
        backend="tensorrt",
        clock="board-measured",
        monitor=write(replace(monitor, idle=monitor.samples[:4])),
        runtime={"library": "libnvinfer.so.10", "flags": {"dla_core": 0, "spin": False}},
    )
    return bench_document(
        measurement,
        handmade_plan.plan(),
        name="resnet50",
        target=get("jetson-agx-orin-64gb"),
    )


def test_every_sample_of_the_log_reaches_the_lines(measured):
    power = report_document(handmade_run.facts(bench=measured)).power
    samples = measured.monitor.samples
    assert power.clock == "board-measured"
    for line in power.series["rails_mw"]:
        values = [one.rails_mw[line.name].now for one in samples]
        assert (line.min, line.max) == (min(values), max(values))
        assert line.mean == pytest.approx(sum(values) / len(values))
    assert {line.name for line in power.series["rails_mw"]} == set(samples[0].rails_mw)
    assert power.energy == measured.energy
    assert power.energy.clock == "board-measured"


def test_the_page_says_it_and_calls_nothing_a_cpu_time(measured):
    document = report_document(handmade_run.facts(bench=measured, backend="tensorrt"))
    page = render_html(document)
    section = page.split('<section id="power"')[1].split("</section>")[0]
    assert "Power and temperature" in section
    assert "board-measured" in section
    for name in measured.monitor.samples[0].rails_mw:
        assert f">{name}</span>" in section
    assert "not a board time" not in page
    assert "measured on the board" in page
    assert "cpu-measured" not in markdown(document) + shown(bench_text(measured))
