"""The shapes of a range as they are built: each calibrated and judged by its own inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.config.schema import BoundsSection
from edgekit.errors import EdgekitError
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.accuracy import accuracy, gated
from edgekit.pipeline.steps.buckets import (
    Listed,
    at_sizes,
    built_bucket,
    plan_with,
    planned_buckets,
)
from edgekit.pipeline.steps.load import requested
from edgekit.placement.buckets import OWN, BucketAccuracy, shape_text

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan


@computed()
def built_buckets(context: Context) -> tuple[Listed, ...]:
    """Returns the buckets with the accuracy of those that have engines; () without a range.

    Each has scales of its own inputs, and passes the gate by itself: the worst decides.

    Raises:
        GateError: The build of a shape misses the gate; ``where`` is the shape.
    """
    found = []
    for number, one in enumerate(planned_buckets(context)):
        if one.bucket.engine != OWN:
            found.append(one)
            continue
        try:
            own = gated(one.context) if number else context
        except EdgekitError as error:
            text = f"shape {shape_text(one.bucket.shapes)}"
            error.where = f"{text}: {error.where}" if error.where else text
            raise
        of = accuracy(own)
        figures = BucketAccuracy(of.cosine, of.snr_db, of.top1_agreement, of.data)
        bucket = replace(built_bucket(own, one.bucket), accuracy=figures)
        found.append(Listed(bucket, own))
    return tuple(found)


def with_built_buckets(context: Context) -> Plan:
    """Returns the plan, with its range's buckets as they were built where there is a range."""
    return plan_with(context, built_buckets(context))


@computed()
def on_gpu(context: Context) -> Context | None:
    """Returns the context of the engine that takes the whole range, at its best shape.

    None where there is no range, or no GPU.
    """
    profiles = requested(context).profiles
    if not profiles or not context.file.placement.gpu or context.file.build.mode == "standalone":
        return None
    sizes = {name: one.opt for name, one in profiles[0].items()}
    placed = at_sizes(
        context, sizes, dla_cores=[], pin=[], bounds=BoundsSection(), max_transitions=None,
        objective="latency", rate_hz=None,
    )  # fmt: skip
    precision = "fp32" if context.file.precision == "fp32" else "fp16"
    file = placed.file.model_copy(update={"precision": precision})
    return replace(placed, config=replace(placed.config, file=file))
