"""The results of a run's steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from edgekit.benchmark.document import Bench
    from edgekit.benchmark.inference import Inference
    from edgekit.bundles.files import PackedBundle
    from edgekit.pipeline.steps.deploy import InstalledRelease
    from edgekit.pipeline.steps.detect import Detections
    from edgekit.placement.check_document import BriefCheck
    from edgekit.placement.plan import Plan
    from edgekit.reports.schema import RefitAnswer, Report

T = TypeVar("T")


@dataclass(frozen=True)
class StepResults:
    """The results by step; None before the step, () for ``deploy``."""

    check: BriefCheck | None = None
    plan: Plan | None = None
    bundle: PackedBundle | None = None
    deploy: tuple[InstalledRelease, ...] = ()
    infer: Inference | None = None
    detections: Detections | None = None
    bench: Bench | None = None
    refit: RefitAnswer | None = None
    report: Report | None = None


def require_result(value: T | None) -> T:
    """Returns the result of an earlier step, which is not None."""
    if value is None:
        raise LookupError("a step that comes before was not run")
    return value
