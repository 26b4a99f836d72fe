"""The shapes of a range as they are built: each calibrated and judged on its own inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.config.schema import BoundsSection
from edgekit.errors import UsageError, within
from edgekit.network.independent_rows import mixing_node
from edgekit.network.ranges import sizes_at
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.accuracy import accuracy, artefacts, build_key, pass_accuracy_gate
from edgekit.pipeline.steps.buckets import (
    ListedBucket,
    at_sizes,
    built_bucket,
    gpu_profiles,
    network_sizes,
    plan_with,
    planned_buckets,
)
from edgekit.pipeline.steps.calibrate import first_input, with_measured_ranges
from edgekit.pipeline.steps.load import requested_shapes
from edgekit.pipeline.steps.rewrite import model, network
from edgekit.placement.buckets import OWN, BucketAccuracy, shape_text
from edgekit.reference.run import Runner
from edgekit_device.protocol.codec import document, member, records
from edgekit_device.protocol.manifest import CroppedAxis, Padding
from edgekit_device.runtime.variants import distance

if TYPE_CHECKING:
    from edgekit.network.ranges import Sizes
    from edgekit.placement.plan import Plan


@computed()
def built_buckets(context: Context) -> tuple[ListedBucket, ...]:
    """Returns the buckets with the accuracy of those that have engines; () without a range.

    Each has the scales of its own inputs, and must pass the gate by itself: the worst decides.

    Raises:
        GateError: The build of a shape misses the gate; ``where`` is the shape.
    """
    found = []
    for number, planned in enumerate(planned_buckets(context)):
        if planned.bucket.engine != OWN:
            found.append(planned)
            continue
        with within(f"shape {shape_text(planned.bucket.shapes)}"):
            # the first bucket is this context, which passed the gate in the step `build`
            own = pass_accuracy_gate(planned.context) if number else context
        figures = bucket_accuracy(own)
        bucket = replace(built_bucket(own, planned.bucket), accuracy=figures)
        found.append(ListedBucket(bucket, own))
    return tuple(found)


def bucket_accuracy(context: Context) -> BucketAccuracy:
    """Returns the accuracy of a shape's build on its own inputs."""
    found = accuracy(context)
    return BucketAccuracy(found.cosine, found.snr_db, found.top1_agreement, found.data)


@dataclass(frozen=True, eq=False)
class FrameContext:
    """The context whose engines take the frames of a shape.

    Attributes:
        context: The configuration of that shape.
        ranged: True if the GPU's engine of the range takes them.
    """

    context: Context
    ranged: bool = False


def frame_context(context: Context, shapes: Sizes) -> FrameContext | None:
    """Returns the context that takes frames of a shape; None if there is none.

    Args:
        context: The configuration.
        shapes: Sizes of all inputs, or of some: others are the first shape's.
    """
    own = network_sizes(context)
    sizes = {**own, **shapes}
    if sizes == own:
        return FrameContext(context)
    for bucket in built_buckets(context):
        if dict(bucket.bucket.shapes) == sizes and bucket.bucket.engine == OWN:
            return FrameContext(bucket.context)
    if not gpu_profiles(context) or requested_shapes(context).find_profile(sizes) is None:
        return None
    return FrameContext(
        replace(gpu_context_at(context, sizes), measured=context.measured), ranged=True
    )


def planned_sizes(context: Context, shapes: Sizes, where: str, code: str) -> Sizes:
    """Returns the sizes of all inputs for a planned shape.

    Args:
        context: The configuration.
        shapes: Sizes of all inputs, or of some: others are the first shape's.
        where: Place of the shape, for an error.
        code: The error's code.

    Raises:
        UsageError: The shape was not planned; the hint lists the planned shapes, the nearest first.
    """
    request, own = requested_shapes(context), network_sizes(context)
    sizes = {**own, **shapes}
    known = [own, *({**own, **bucket} for bucket in request.buckets)]
    profiles = gpu_profiles(context)
    ranged = bool(profiles) and request.find_profile(sizes) is not None
    if set(sizes) == set(own) and (sizes in known or ranged):
        return sizes
    near = sorted(request.buckets, key=lambda bucket: distance(bucket, sizes))
    buckets = [shape_text(bucket) for bucket in near]
    ranges = [
        ", ".join(f"{name} {sizes}" for name, sizes in profile.items()) for profile in profiles
    ]
    raise UsageError(
        f"the shape {shape_text(shapes)} was not planned",
        code=code,
        where=where,
        hint=f"planned: {'; '.join([*buckets, *ranges]) or shape_text(own)}",
    )


def with_built_buckets(context: Context) -> Plan:
    """Returns the plan, with its range's buckets as they were built if there is a range."""
    return plan_with(context, built_buckets(context))


@computed()
def gpu_range_context(context: Context) -> Context | None:
    """Returns the context of the engine that takes the whole range, at its best shape.

    None if there is no range, or no GPU.
    """
    profiles = gpu_profiles(context)
    if not profiles:
        return None
    return gpu_context_at(context, sizes_at(profiles[0], "opt"))


def gpu_context_at(context: Context, sizes: Sizes) -> Context:
    """Returns the context of a shape that the GPU's engine of the range takes."""
    # constraints on DLA cores, times and rates are those of the listed shapes
    placed = at_sizes(
        context,
        sizes,
        dla_cores=[],
        pin=[],
        bounds=BoundsSection(),
        max_transitions=None,
        objective="latency",
        rate_hz=None,
    )
    # the engine is built from the file with its open axes, which no rewrite has changed
    rewrite = placed.file.rewrite.model_copy(update={"enable": "none"})
    file = placed.file.model_copy(update={"rewrite": rewrite})
    return replace(placed, config=replace(placed.config, file=file))


@computed()
def built_range_context(context: Context) -> Context | None:
    """Returns ``gpu_range_context`` as a board builds it: calibrated, and past the gate.

    Raises:
        GateError: INT8 misses the gate at the best shape; ``where`` is the shape.
    """
    rest = gpu_range_context(context)
    if rest is None or context.file.precision != "int8":
        return rest
    with within(f"the engine of the range at {shape_text(network_sizes(rest))}"):
        return pass_accuracy_gate(with_measured_ranges(rest))


# A frame with fewer entries than a bucket's batch may be padded to the batch.


@document(frozen=True)
class _Paddings:
    """The cache's record of the padding that is allowed."""

    found: tuple[Padding, ...] = member(records(Padding))


def batch_padding(context: Context) -> tuple[Padding, ...]:
    """Returns the batch as a dimension that may be padded, if that is proved; notes why it is not.

    Proved by structure (no operator mixes the entries of the batch) and on random inputs: the
    engines of each bucket give bit-identical outputs for two different paddings.
    """
    own = [bucket.context for bucket in built_buckets(context) if bucket.bucket.engine == OWN]
    batches = {shaped: _batch(shaped) for shaped in own}
    request = requested_shapes(context)
    opened = {sizes.min[:1] != sizes.max[:1] for p in request.profiles for sizes in p.values()}
    # without a batch above 1, or with one batch for all frames, there is nothing to pad
    if max(batches.values(), default=1) < 2 or not (True in opened or len({*batches.values()}) > 1):
        return ()

    def compute() -> _Paddings:
        for shaped, batch in batches.items():
            if batch < 2:
                continue
            if why := mixing_node(model(shaped).graph) or _differing_output(shaped, batch):
                context.note(f"A smaller batch is not padded up to a listed one: {why}")
                return _Paddings(())
        context.note(
            "A smaller batch is padded up to the next listed one, and its outputs are cropped: no "
            "operator mixes the entries of a batch, and random inputs confirm it"
        )
        net = network(context)
        every = {name: CroppedAxis(0) for name in net.outputs}
        return _Paddings((Padding(dict.fromkeys(net.inputs, 0), every),))

    return context.stored(_Paddings, "padding", compute, *map(build_key, own)).found


def _batch(context: Context) -> int:
    """Returns the first size of all inputs; 1 if they differ."""
    firsts = {shape[:1] for shape in network_sizes(context).values()}
    return next(iter(firsts))[0] if len(firsts) == 1 and () not in firsts else 1


def _differing_output(context: Context, batch: int) -> str:
    """Returns the output whose first entries depend on the padding after them; "" for none."""
    from edgekit.bundles.manifest import GOLDEN_SEED, golden_inputs, golden_ranges

    net, kept = network(context), batch - 1
    ranges = golden_ranges(first_input(context))
    runner = Runner(artefacts(context), stripped=False)
    answers = []
    for seed in (GOLDEN_SEED, GOLDEN_SEED + 1):
        feed = golden_inputs(net, GOLDEN_SEED, ranges)
        other = golden_inputs(net, seed, ranges)
        for name, value in feed.items():
            # the last entry is the padding: zeros in one run, random numbers in the other
            value[kept:] = other[name][kept:] if seed != GOLDEN_SEED else 0
        answers.append(runner.run(feed))
    for name in net.outputs:
        # bytes, since NaN differs from itself and -0.0 equals 0.0
        if answers[0][name][:kept].tobytes() != answers[1][name][:kept].tobytes():
            return f"output {name!r} depends on the other entries of the batch"
    return ""
