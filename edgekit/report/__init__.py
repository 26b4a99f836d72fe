"""See DESIGN: the report floor. The report document, its HTML page and the terminal's summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.report._baseline import (
        compared_words,
        refused_words,
        regression_words,
        with_baseline,
        with_kept_comparison,
        without_comparison,
    )
    from edgekit.report._bench import bench_text
    from edgekit.report._check import summary_check
    from edgekit.report._check_layers import check_layers, check_one_layer
    from edgekit.report._check_rule import rule_text
    from edgekit.report._check_sparsity import sparsity_text
    from edgekit.report._compare import render_comparison
    from edgekit.report._document import report_document
    from edgekit.report._history import compare_text, history_text, result_text
    from edgekit.report._html import render_html, write_report
    from edgekit.report._markdown import markdown
    from edgekit.report._plan_answers import (
        log_plan_text,
        pareto_text,
        plan_table_text,
        solution_text,
        what_if_text,
    )
    from edgekit.report._plan_why import why_text
    from edgekit.report._plans import plans_text
    from edgekit.report._plans_page import render_plans, write_plans_report
    from edgekit.report._results import compared_on
    from edgekit.report._rewrite import rewrite_list_text, rewrite_text, verified_text
    from edgekit.report._scales import changes_text
    from edgekit.report._schema import checked, read_report, report_schema, shown
    from edgekit.report._sensitivity import sensitivity_text
    from edgekit.report._terminal import terminal_summary
    from edgekit.report._terminal_parts import summary_plan
    from edgekit.report._types import RunFacts

__all__ = [
    "RunFacts",
    "bench_text",
    "changes_text",
    "check_layers",
    "check_one_layer",
    "checked",
    "compare_text",
    "compared_on",
    "compared_words",
    "history_text",
    "log_plan_text",
    "markdown",
    "pareto_text",
    "plan_table_text",
    "plans_text",
    "read_report",
    "refused_words",
    "regression_words",
    "render_comparison",
    "render_html",
    "render_plans",
    "report_document",
    "report_schema",
    "result_text",
    "rewrite_list_text",
    "rewrite_text",
    "rule_text",
    "sensitivity_text",
    "shown",
    "solution_text",
    "sparsity_text",
    "summary_check",
    "summary_plan",
    "terminal_summary",
    "verified_text",
    "what_if_text",
    "why_text",
    "with_baseline",
    "with_kept_comparison",
    "without_comparison",
    "write_plans_report",
    "write_report",
]

__getattr__ = lazy(
    __name__,
    {
        "_baseline": "compared_words refused_words regression_words with_baseline "
        "with_kept_comparison "
        "without_comparison",
        "_bench": "bench_text",
        "_check": "summary_check",
        "_check_layers": "check_layers check_one_layer",
        "_check_rule": "rule_text",
        "_check_sparsity": "sparsity_text",
        "_compare": "render_comparison",
        "_document": "report_document",
        "_history": "compare_text history_text result_text",
        "_html": "render_html write_report",
        "_markdown": "markdown",
        "_plan_answers": "log_plan_text pareto_text plan_table_text solution_text what_if_text",
        "_plans": "plans_text",
        "_plans_page": "render_plans write_plans_report",
        "_plan_why": "why_text",
        "_results": "compared_on",
        "_rewrite": "rewrite_list_text rewrite_text verified_text",
        "_scales": "changes_text",
        "_schema": "checked read_report report_schema shown",
        "_sensitivity": "sensitivity_text",
        "_terminal": "terminal_summary",
        "_terminal_parts": "summary_plan",
        "_types": "RunFacts",
    },
)
