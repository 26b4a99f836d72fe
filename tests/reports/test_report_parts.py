"""Verdict, power, measured frame and baseline of the report document."""

import html
import re

from edgekit.benchmark.document import Bench
from edgekit.reports.comparison import with_baseline
from edgekit.reports.document import report_document
from edgekit.reports.facts import POINTS, thin_points
from edgekit.reports.html.page import render_html
from edgekit.reports.markdown import markdown
from edgekit.results.store import Result
from tests.reports import handmade_run


def document(**changes):
    return report_document(handmade_run.facts(**changes))


def gates(found):
    return {gate.gate: gate.passed for gate in found.verdict.gates}


def test_points_are_thinned_to_their_extremes():
    points = [(float(i), float(i % 97)) for i in range(5000)]
    points[3333] = (3333.0, 1e6)
    found = thin_points(points)
    assert len(found) <= POINTS
    assert (3333.0, 1e6) in found
    assert found == sorted(found)
    assert thin_points(points[:50]) == points[:50]


def result(label, low, changes=None):
    bench = {**handmade_run.facts().bench.to_json(), **(changes or {})}
    samples = tuple(low + 0.01 * ((7 * i) % 23) for i in range(300))
    measured = Bench.model_validate(bench)
    return Result(measured, samples, label=label, board="sshd:embedded")


def test_another_clock_is_not_compared_and_the_page_says_why():
    other = result("#1", 20.0, {"clock": "board-measured", "power_mode": "15W"})
    own = result("bench.json", 20.0, {"power_mode": "MAXN"})
    found = with_baseline(document(), [other], [own])
    assert gates(found)["baseline"] is None
    for shown in (render_html(found), markdown(found)):
        words = " ".join(re.sub("<[^>]*>", "", html.unescape(shown)).split())
        assert "ot compared: the clock differs: board-measured, cpu" in words
        assert "the power mode differs" in words
