"""See DESIGN: the report floor. The report document, its HTML page and the terminal's summaries."""

from edgekit.report._document import report_document
from edgekit.report._html import render_html, write_report
from edgekit.report._terminal import terminal_summary
from edgekit.report._terminal_parts import summary_check, summary_plan
from edgekit.report._types import RunFacts

__all__ = [
    "RunFacts",
    "render_html",
    "report_document",
    "summary_check",
    "summary_plan",
    "terminal_summary",
    "write_report",
]
