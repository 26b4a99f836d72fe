"""The listed shapes of a range, each as its own context: the placement for each, the shapes with
their own engines, and the shapes that the GPU's engine with profiles takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from edgekit.dla.memory import combine_needs, core_memory, report_memory
from edgekit.dla.verdicts import MemoryNeed
from edgekit.errors import GateError, within
from edgekit.network.ranges import Range, sizes_at
from edgekit.pipeline.context import Context, computed, with_config
from edgekit.pipeline.steps.calibrate import with_measured_ranges
from edgekit.pipeline.steps.judge import judge_model, lower_original
from edgekit.pipeline.steps.load import cut_outputs, parse, picture_sizes, requested_shapes
from edgekit.pipeline.steps.placement import uses_gpu
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.rewrite import network
from edgekit.placement.buckets import (
    DEMAND,
    OWN,
    START,
    Bucket,
    RangeCost,
    move_to_profiles,
    range_cost,
    range_notes,
    remaining_loadables,
    shape_text,
)
from edgekit.placement.check_document import judged_layers, make_summary
from edgekit.placement.costs.kernel_costs import BYTES
from edgekit.placement.forecast import forecast
from edgekit.quantize.data.images import channels_last
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.network.model import Network
    from edgekit.network.ranges import Profile, Sizes, Values
    from edgekit.placement.check_document import Check
    from edgekit.placement.plan import Plan


_PICTURE = 4  # axes
_ENDS: tuple[Literal["min", "max"], ...] = ("min", "max")


@dataclass(frozen=True, eq=False)
class ListedBucket:
    """A bucket, and the context whose network and plan are those of its shape.

    Attributes:
        bucket: The placement.
        context: The configuration with this shape alone.
    """

    bucket: Bucket
    context: Context


@dataclass(frozen=True)
class RangeSummary:
    """The document of a range: its buckets, the optimum first, and their total cost."""

    buckets: tuple[Bucket, ...]
    cost: RangeCost
    notes: tuple[str, ...]


def at_sizes(
    context: Context, sizes: Sizes, values: Sizes | None = None, **placement: object
) -> Context:
    """Returns the context of a static shape, with its own notes.

    Args:
        context: The configuration.
        sizes: The shape.
        values: Values of inputs that hold sizes, other than the best.
        placement: Other keys of the configuration's ``placement``.
    """
    file = context.file
    # shapes of tensors inside the network are unchanged
    request = requested_shapes(context)
    every = {**request.optimum, **sizes}
    shapes = {name: list(shape) for name, shape in every.items()}
    fixed = {name: list(given) for name, given in {**request.fixed, **(values or {})}.items()}
    static = {"shapes": shapes, "dimensions": {}, "buckets": [], "values": fixed}
    # all shapes are cut at the same tensors
    model = file.model.model_copy(update={**static, "outputs": cut_outputs(context), "cut": None})
    changed = {"model": model, "placement": file.placement.model_copy(update=placement)}
    config = dataclasses.replace(context.config, file=file.model_copy(update=changed))
    return replace(with_config(context, config), explains=False)


def _list_buckets(
    context: Context,
    most: int,
    summary: Callable[[Context, int | None], tuple[Bucket, Bucket]],
) -> tuple[ListedBucket, ...]:
    """Returns the buckets in order, with the loadables that fit on the cores together.

    Args:
        context: The configuration.
        most: Loadables that a core holds.
        summary: Returns a context's bucket, with at most this many loadables, and the same shape on
            the GPU alone.
    """
    request = requested_shapes(context)
    if request.is_static:
        return ()
    late = context.file.model.load == DEMAND
    found: list[ListedBucket] = []
    for number, sizes in enumerate(request.buckets):
        text = shape_text(sizes)
        context.update(number, len(request.buckets), f"shape {text}")
        with within(f"shape {text}"):
            if number:
                listed = _next_bucket(context, sizes, found, most, summary)
                # the engine of the range is opened with the bundle in any case
                if late and listed.bucket.engine == OWN:
                    listed = replace(listed, bucket=replace(listed.bucket, load=DEMAND))
                found.append(listed)
            else:
                # the configuration's own shape is its first bucket (`led_by_bucket`)
                found.append(ListedBucket(summary(context, None)[0], context))
    return tuple(found)


def _next_bucket(
    context: Context,
    sizes: Sizes,
    before: Sequence[ListedBucket],
    most: int,
    summary: Callable[[Context, int | None], tuple[Bucket, Bucket]],
) -> ListedBucket:
    """Returns a bucket with as many loadables as the cores hold beside those before it.

    The rest runs on the GPU: in the engine with profiles, if there is one.

    Raises:
        GateError: "range.loadables": too many loadables, and no GPU.
    """

    def at(**placement: object) -> Context:
        shaped = at_sizes(context, sizes, None, **placement)
        # calibrated only if the configuration itself is: `plan` alone measures nothing
        return shaped if context.measured is None else with_measured_ranges(shaped)

    shaped, gpu = at(), uses_gpu(context.file)
    profiles = bool(gpu_profiles(context))
    own, alone = summary(shaped, None)
    room = remaining_loadables((row.bucket for row in before), most)
    lacks = [core for core, count in own.loadables.items() if count > room.get(core, most)]
    why = ""
    if lacks:
        # max_loadables is one limit for all cores, so the fullest core decides
        least = max(min(room.get(core, most) for core in own.loadables), 0)
        kept = counted(most - least, "loadable")
        why = f"the shapes before it have {kept} on {lacks[0]}, of at most {most}"
        if least:
            shaped = at(max_loadables=least)
            own, alone = summary(shaped, least)
            why = f"at most {counted(least, 'loadable')}: {why}"
        elif not gpu:
            raise GateError(
                f"{why}; this shape has none left, and no GPU takes it (placement.gpu)",
                code="range.loadables",
                where=context.config.document.where(("model", "buckets")),
                hint="load shapes on demand (model.load: demand), list fewer, or allow the GPU",
            )
        elif not profiles:
            # no engine of the range could take the shape: it gets an engine of its own on the GPU
            shaped = at(dla_cores=[], pin=[])
            own = replace(move_to_profiles(own, alone, why), engine=OWN)
    if profiles and (not own.loadables or (why and not room.get(lacks[0], most))):
        return ListedBucket(move_to_profiles(own, alone, why or "no layer runs on a DLA"), shaped)
    return ListedBucket(replace(own, why=why), shaped)


def _summarise_range(context: Context, listed: Iterable[ListedBucket], most: int) -> RangeSummary:
    buckets, profiles = tuple(row.bucket for row in listed), gpu_profiles(context)
    cost = range_cost(buckets, profiles, most, sample_sizes(context))
    notes = range_notes(buckets, cost)
    if requested_shapes(context).profiles and not profiles:
        notes.append(
            "no engine takes the rest of the range: without the GPU (placement.gpu, build.mode) "
            "the listed shapes alone are planned"
        )
    return RangeSummary(buckets, cost, tuple(notes))


def gpu_profiles(context: Context) -> tuple[Profile, ...]:
    """Returns the ranges of the GPU's engine for every input; () without a range, or without the
    GPU.
    """
    profiles = requested_shapes(context).profiles if uses_gpu(context.file) else ()
    if not profiles:
        return ()
    whole = {name: Range(size, size, size) for name, size in network_sizes(context).items()}
    return tuple({**whole, **profile} for profile in profiles)


def sample_sizes(context: Context) -> list[Sizes]:
    """Returns the shapes that the calibration images have before they are resized.

    Empty if the data are not images, or the network has no image input.
    """

    first = requested_shapes(context).buckets[0]
    inputs = [name for name, shape in first.items() if len(shape) == _PICTURE]
    if len(inputs) != 1:
        return []
    own = first[inputs[0]]
    # NHWC or NCHW
    height = 1 if channels_last(own) else 2
    return [
        {inputs[0]: (*own[:height], *size, *own[height + 2 :])} for size in picture_sizes(context)
    ]


# The check: TensorRT's own placement of each.


def with_checked_buckets(context: Context, document: Check) -> Check:
    """Returns a check with its range's buckets; the same check without a range."""
    if requested_shapes(context).is_static:
        return document
    most = original_slots(context)
    ranged = _summarise_range(context, _list_buckets(context, most, _check_bucket), most)
    return replace(
        document,
        buckets=ranged.buckets,
        range=ranged.cost,
        warnings=(*document.warnings, *ranged.notes),
    )


def original_slots(context: Context) -> int:
    """Returns the number of loadables that a core holds."""
    return judge_model(context, lower_original(context)).judgement.slots


def _check_bucket(context: Context, most: int | None) -> tuple[Bucket, Bucket]:
    lowered = lower_original(context)
    net = lowered.network
    judgement = judge_model(context, lowered, most).judgement
    if not parse(context).builds:
        judgement = judgement.unplaced()
    held = [need for need in report_memory(net, judgement, context.target) if need.retained]
    counts = make_summary(net, judgement)
    times = None
    if parse(context).builds:
        times = forecast(net, judgement, context.target, power_mode=context.file.power_mode)
    bucket = Bucket(
        shapes=network_sizes(context),
        engine=OWN,
        load=START,
        layers=counts.layers,
        dla_layers=counts.dla_layers,
        # TensorRT's own placement uses one core (IBuilderConfig.DLA_core)
        loadables={"DLA0": len(held)} if held else {},
        latency_us=None if times is None else times.auto_us,
        gpu_us=None if times is None else times.auto_us - times.dla_us,
        weight_bytes=sum(layer.weight_bytes for layer in judged_layers(net, judgement)),
        pools=core_memory(held),
    )
    us = None if times is None else times.gpu_only_us
    return bucket, replace(bucket, latency_us=us, gpu_us=us)


# The plan of each.


def with_planned_buckets(context: Context) -> Plan:
    """Returns the plan, with its range's buckets if there is a range."""
    return plan_with(context, planned_buckets(context))


def plan_with(context: Context, listed: Sequence[ListedBucket]) -> Plan:
    """Returns the plan with these buckets; the plan itself without any."""
    found = plan(context)
    if not listed:
        return found
    ranged = _summarise_range(context, listed, context.file.placement.max_loadables)
    notes = (*found.notes, *ranged.notes)
    return replace(found, buckets=ranged.buckets, range=ranged.cost, notes=notes)


@computed()
def planned_buckets(context: Context) -> tuple[ListedBucket, ...]:
    """Returns the buckets with their plans, the first of this context; () without a range."""
    return _list_buckets(context, context.file.placement.max_loadables, _plan_bucket)


def built_bucket(context: Context, bucket: Bucket) -> Bucket:
    """Returns a bucket with the plan of its build, which the accuracy gate may have changed."""
    return replace(_plan_bucket(context, None)[0], load=bucket.load, why=bucket.why)


def _plan_bucket(context: Context, most: int | None) -> tuple[Bucket, Bucket]:
    found = plan(context)
    cores: dict[str, list[MemoryNeed]] = {}
    for loadable in found.loadables:
        cores.setdefault(f"DLA{loadable.core}", []).append(loadable.memory)
    needs = [combine_needs(each) for each in cores.values()]
    precision = {layer.name: layer.precision for layer in found.layers}
    bucket = Bucket(
        shapes=network_sizes(context),
        engine=OWN,
        load=START,
        layers=len(found.layers),
        dla_layers=sum(layer.device != "GPU" for layer in found.layers),
        loadables={core: len(each) for core, each in sorted(cores.items())},
        latency_us=found.predicted.latency_us,
        gpu_us=found.predicted.gpu_us,
        weight_bytes=sum(
            layer.weight_elements * BYTES[precision[layer.name]]
            for layer in network(context).layers
            if layer.name in precision
        ),
        pools=MemoryNeed(
            # each core has its own pools, so the fullest counts
            max((need.managed_sram for need in needs), default=0),
            max((need.local_dram for need in needs), default=0),
            max((need.global_dram for need in needs), default=0),
        ),
    )
    baselines = found.baselines_rewritten or found.baselines
    gpu = baselines.get("gpu_only")
    return bucket, replace(
        bucket,
        latency_us=None if gpu is None else gpu.latency_us,
        gpu_us=None if gpu is None else gpu.gpu_us,
    )


def networks_at_ends(
    context: Context, profiles: Sequence[Profile], values: Values | None = None
) -> list[Network]:
    """Returns a network at its own shape and at the smallest and largest sizes of profiles.

    Args:
        context: The configuration.
        profiles: The ranges.
        values: Ranges of values of inputs that hold sizes, at the same ends.

    Raises:
        ModelError: The network cannot take such a shape; ``where`` is the shape.
    """
    own, found = network_sizes(context), [network(context)]
    for profile in profiles:
        for which in _ENDS:
            sizes, given = {**own, **sizes_at(profile, which)}, sizes_at(values or {}, which)
            # the network at its own shape is the first already
            if sizes == own and not given:
                continue
            what = f"{shape_text(sizes)}{f' with {shape_text(given)}' if given else ''}"
            with within(f"the {which} of model.shapes, {what}"):
                found.append(network(at_sizes(context, sizes, given)))
    return found


def calibrate_buckets(context: Context) -> int:
    """Measures the ranges of every bucket on its own inputs, and returns the number of buckets.

    Raises:
        EdgekitError: As raised by ``with_measured_ranges``; ``where`` is the shape.
    """
    request = requested_shapes(context)
    if request.is_static or context.measured is None:
        return 0
    for sizes in request.buckets[1:]:
        text = f"shape {shape_text(sizes)}"
        context.update(0, 0, f"ranges of {text}")
        with within(text):
            with_measured_ranges(at_sizes(context, sizes))
    return len(request.buckets)


def network_sizes(context: Context) -> Sizes:
    """Returns the shape of a context's network, by input."""
    net = lower_original(context).network
    return {name: tuple(net.tensors[name].shape) for name in net.inputs}
