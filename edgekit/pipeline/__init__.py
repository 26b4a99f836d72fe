"""The steps in order, from a configuration to a benchmarked release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.pipeline._abstract import plan_of_profile, solve_problem
    from edgekit.pipeline._annotating import write_annotated
    from edgekit.pipeline._cache import Cache
    from edgekit.pipeline._caches import diff_document, merge_document, show_document
    from edgekit.pipeline._changes import read_size
    from edgekit.pipeline._check import CheckResult, check_model
    from edgekit.pipeline._check_layer import layer_document, sparsity_document
    from edgekit.pipeline._check_named import check_named
    from edgekit.pipeline._from_qdq import from_qdq_document
    from edgekit.pipeline._outputs import may_write_for
    from edgekit.pipeline._pipeline import Pipeline, RunResult
    from edgekit.pipeline._progress import Progress, Quiet, Terminal
    from edgekit.pipeline._several import plan_networks, write_networks_report
    from edgekit.pipeline._steps import STEPS
    from edgekit.pipeline._tracing import TraceFiles, trace
    from edgekit.pipeline._tune_run import tune
    from edgekit.pipeline._tune_wish import Wish
    from edgekit.pipeline._verifying import verify_rewrites

__all__ = [
    "STEPS",
    "Cache",
    "CheckResult",
    "Pipeline",
    "Progress",
    "Quiet",
    "RunResult",
    "Terminal",
    "TraceFiles",
    "Wish",
    "check_model",
    "check_named",
    "diff_document",
    "from_qdq_document",
    "layer_document",
    "may_write_for",
    "merge_document",
    "plan_networks",
    "plan_of_profile",
    "read_size",
    "show_document",
    "solve_problem",
    "sparsity_document",
    "trace",
    "tune",
    "verify_rewrites",
    "write_annotated",
    "write_networks_report",
]

__getattr__ = lazy(
    __name__,
    {
        "_abstract": "plan_of_profile solve_problem",
        "_annotating": "write_annotated",
        "_cache": "Cache",
        "_caches": "diff_document merge_document show_document",
        "_changes": "read_size",
        "_check": "CheckResult check_model",
        "_check_layer": "layer_document sparsity_document",
        "_check_named": "check_named",
        "_from_qdq": "from_qdq_document",
        "_outputs": "may_write_for",
        "_pipeline": "Pipeline RunResult",
        "_progress": "Progress Quiet Terminal",
        "_several": "plan_networks write_networks_report",
        "_steps": "STEPS",
        "_tracing": "TraceFiles trace",
        "_tune_wish": "Wish",
        "_tune_run": "tune",
        "_verifying": "verify_rewrites",
    },
)
