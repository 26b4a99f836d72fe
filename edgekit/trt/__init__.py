"""The trt floor: what TensorRT's releases have, what goes together, and trtexec's command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.trt._decide import decide
    from edgekit.trt._features import STATUSES, Feature, Row, features, rows
    from edgekit.trt._outcomes import known, outcomes_file, remember, settled
    from edgekit.trt._releases import Release, python_of, release
    from edgekit.trt._types import Attempt, Choice, Decision, Wish

__all__ = [
    "STATUSES",
    "Attempt",
    "Choice",
    "Decision",
    "Feature",
    "Release",
    "Row",
    "Wish",
    "decide",
    "features",
    "known",
    "outcomes_file",
    "python_of",
    "release",
    "remember",
    "rows",
    "settled",
]

__getattr__ = lazy(
    __name__,
    {
        "_decide": "decide",
        "_features": "STATUSES Feature Row features rows",
        "_outcomes": "known outcomes_file remember settled",
        "_releases": "Release python_of release",
        "_types": "Attempt Choice Decision Wish",
    },
)
