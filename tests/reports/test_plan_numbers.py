"""A segment is named as ``edgekit plan`` numbers it, and of several plans its plan is named too."""

from __future__ import annotations

import re

import pytest

from edgekit.benchmark.document import Bench
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.markdown import markdown
from edgekit.reports.terminal.measurement import bench_text
from tests.benchmark import handmade_plan
from tests.reports import handmade_run
from tests.reports.shown import shown


def segments(plans: int) -> list[tuple[int, int, str]]:
    """Two segments of each plan: plan, segment, device."""
    return [(lane, i, device) for lane in range(plans) for i, device in enumerate(("GPU", "DLA0"))]


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


@pytest.mark.parametrize("plans", [1, 2])
def test_a_measurement_names_plan_and_segment(plans: int) -> None:
    times = {"min": 0.1, "mean": 0.2, "median": 0.2, "p99": 0.3, "max": 0.4}
    parts = [
        {"lane": lane, "index": index, "device": device, "layers": [], "latency_ms": times}
        for lane, index, device in segments(plans)
    ]
    document = handmade_run.facts().bench
    document = Bench.model_validate({**document.to_json(), "segments": parts})
    text = shown(bench_text(document), 100)
    assert "segment 1 (DLA0)" in text
    assert ("plan 1, segment 0 (GPU)" in text) == (plans == 2)
    assert ("plan 2, segment 1 (DLA0)" in text) == (plans == 2)
    table = markdown(document).split("Segments")[1]
    if plans == 2:
        assert re.search(r"\| +2 \| +1 \| DLA0 +\|", table)
        assert not re.search(r"\| +0 \| +0 \| GPU", table)
    assert ("| plan" in table) == (plans == 2)


@pytest.mark.parametrize("plans", [1, 2])
def test_a_report_names_plan_and_segment(plans: int) -> None:
    parts = [
        {
            "lane": lane,
            "segment": index,
            "device": device,
            "cosine": 0.9,
            "cosine_min": 0.9,
            "snr_db": 7.0,
            "exact": False,
            "max_abs": 0.1,
            "tensor": "y",
            "constant": False,
        }
        for lane, index, device in segments(plans)
    ]
    facts = handmade_run.facts(plan=handmade_plan.plan(plans), accuracy={"segments": parts})
    page = render_html(report_document(facts))
    table = page.split("accumulated from the start")[1].split("</table>")[0]
    assert ("Plan Segment Device" in words(table)) == (plans == 2)
    assert ("2 1 DLA0" in words(table)) == (plans == 2)
    titles = re.findall(r"<title>((?:plan \d, )?segment \d+ on \w+):", page)
    assert titles
    assert any(title.startswith("plan 2, ") for title in titles) == (plans == 2)
    assert all(title.startswith("plan") for title in titles) == (plans == 2)
