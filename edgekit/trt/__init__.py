"""The trt floor: what TensorRT's releases have, what goes together, and trtexec's command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.trt._built import artefacts_of, golden_of
    from edgekit.trt._compare import compare_build
    from edgekit.trt._decide import decide
    from edgekit.trt._docs import tensorrt_page
    from edgekit.trt._engines import Engine, Lane, lanes_of
    from edgekit.trt._features import STATUSES, Feature, Row, features, rows
    from edgekit.trt._outcomes import known, outcomes_file, remember, settled
    from edgekit.trt._releases import Release, python_of, release
    from edgekit.trt._request import BuildOptions, Request, build_request
    from edgekit.trt._trtexec import command
    from edgekit.trt._trtexec_run import run_command
    from edgekit.trt._types import Attempt, Choice, Decision, Wish

__all__ = [
    "STATUSES",
    "Attempt",
    "BuildOptions",
    "Choice",
    "Decision",
    "Engine",
    "Feature",
    "Lane",
    "Release",
    "Request",
    "Row",
    "Wish",
    "artefacts_of",
    "build_request",
    "command",
    "compare_build",
    "decide",
    "features",
    "golden_of",
    "known",
    "lanes_of",
    "outcomes_file",
    "python_of",
    "release",
    "remember",
    "rows",
    "run_command",
    "settled",
    "tensorrt_page",
]

__getattr__ = lazy(
    __name__,
    {
        "_built": "artefacts_of golden_of",
        "_compare": "compare_build",
        "_decide": "decide",
        "_docs": "tensorrt_page",
        "_engines": "Engine Lane lanes_of",
        "_features": "STATUSES Feature Row features rows",
        "_outcomes": "known outcomes_file remember settled",
        "_releases": "Release python_of release",
        "_request": "BuildOptions Request build_request",
        "_trtexec": "command",
        "_trtexec_run": "run_command",
        "_types": "Attempt Choice Decision Wish",
    },
)
