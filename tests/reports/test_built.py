"""What boards built, in the report."""

from __future__ import annotations

import io

from rich.console import Console

from edgekit.reports.document import report_document
from edgekit.reports.html.page import write_report
from edgekit.reports.terminal.summary import terminal_summary
from tests.reports.handmade_run import facts

BUILT = {
    "board": "lab<b>",
    "job": "0123456789abcdef",
    "fingerprint": {"module": "NVIDIA Jetson AGX Orin", "tensorrt": "10.3.0.30"},
    "tensorrt": "10.3.0.30",
    "engines": [
        {
            "key": "lane0",
            "bytes": 1_000_000,
            "full_bytes": 4_000_000,
            "stripped": True,
            "version_compatible": False,
            "lean_embedded": False,
            "refit": "identical",
            "dla_core": 0,
            "attempt": 1,
            "seconds": 90.0,
            "timing_cache": {},
            "attempts": [
                {
                    "flags": ["VERSION_COMPATIBLE", "STRIP_PLAN"],
                    "ok": False,
                    "seconds": 8.0,
                    "error": "no",
                },
                {"flags": ["STRIP_PLAN"], "ok": True, "seconds": 82.0, "error": None},
            ],
        }
    ],
    "plan": {
        "schema": "edgekit.built/1",
        "engines": [],
        "same": False,
        "differences": ["gap: planned on the DLA, built on the GPU"],
    },
    "notes": [],
}


def test_the_page_shows_what_each_board_built(tmp_path):
    path = tmp_path / "report.html"
    write_report(report_document(facts(built=(BUILT,))), path)
    page = path.read_text()
    section = page[page.index('id="built"') : page.index('id="bundle"')]
    assert "lab&lt;b&gt;" in section
    assert "lab<b>" not in page
    assert "gap: planned on the DLA, built on the GPU" in section
    assert "25.0 %" in section  # of the engine, after stripping
    assert "second" in section
    assert "STRIP_PLAN" in section
    assert "VERSION_COMPATIBLE" not in section  # of an attempt that failed


def test_without_a_board_there_is_no_such_section(tmp_path):
    path = tmp_path / "report.html"
    write_report(report_document(facts()), path)
    assert 'id="built"' not in path.read_text()


def test_the_summary_names_the_board_and_how_far_the_build_is_from_the_plan():
    out = io.StringIO()
    terminal_summary(report_document(facts(built=(BUILT,))), Console(file=out, width=120))
    assert "Built on lab<b>" in out.getvalue()
    assert "1 difference" in out.getvalue()
