"""A range of shapes in documents: the placement for each listed shape (a bucket), the engines that
are loaded together, and the cost of the range against one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.dla.memory import combine_needs
from edgekit.dla.verdicts import MemoryNeed
from edgekit.text import counted
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    integer,
    long_text,
    mapping,
    member,
    nullable,
    number,
    record,
)

if TYPE_CHECKING:
    from edgekit.network.ranges import Profile, Sizes

#: When engines are opened: with the bundle, or at the first frame of their shape.
START, DEMAND = "start", "demand"
#: The engines for the frames of a shape: its own, or the GPU's engine with profiles.
OWN, PROFILES = "own", "profiles"

_size = integer(0, 1 << 62)
_shape = array(_size)
_shapes = mapping(_shape, fields.name)


@document(frozen=True)
class SizeRange:
    """The sizes of an input of the engine with profiles.

    Attributes:
        min: Smallest sizes of the axes.
        opt: Sizes for which it is optimised.
        max: Largest sizes of the axes.
    """

    min: tuple[int, ...] = member(_shape)
    opt: tuple[int, ...] = member(_shape)
    max: tuple[int, ...] = member(_shape)


@document(frozen=True)
class BucketAccuracy:
    """The error of a shape's build against FP32 on its own inputs, emulated on this CPU.

    Attributes:
        cosine: Cosine similarity of its outputs and the FP32 outputs.
        snr_db: Signal to noise in decibels; None without an error.
        top1_agreement: Share of inputs with the same largest value.
        data: The data of the comparison.
    """

    cosine: float = member(number(-1.0, 1.0))
    snr_db: float | None = member(nullable(number(-1e9, 1e9)))
    top1_agreement: float = member(fields.share)
    data: str = member(long_text)


@document(frozen=True, kw_only=True)
class Bucket:
    """A listed shape, and the placement of its frames; times are predicted.

    Attributes:
        shapes: Sizes by input.
        engine: "own" for engines of its own, "profiles" for the GPU's engine of the whole range.
        load: "start" or "demand": when its engines are opened.
        why: Why it has no loadables of its own, or fewer than possible.
        layers: Number of layers.
        dla_layers: Number of layers on a DLA.
        loadables: Its loadables, by DLA core.
        latency_us: Latency of a frame; None if no layer has a known time.
        gpu_us: Microseconds that the GPU works for a frame.
        weight_bytes: Bytes of its weights in its layers' precisions.
        pools: Bytes of its loadables on their cores: DRAM adds up, managed SRAM is shared.
        accuracy: The accuracy of its build; None before the build, and for the engine with
            profiles.
    """

    shapes: Mapping[str, tuple[int, ...]] = member(_shapes)
    engine: str = member(choice(OWN, PROFILES))
    load: str = member(choice(START, DEMAND))
    why: str = member(long_text, absent="")
    layers: int = member(fields.count)
    dla_layers: int = member(fields.count)
    loadables: Mapping[str, int] = member(mapping(fields.count, fields.device))
    latency_us: float | None = member(nullable(fields.figure))
    gpu_us: float | None = member(nullable(fields.figure))
    weight_bytes: int = member(fields.count)
    pools: MemoryNeed = member(record(MemoryNeed))
    accuracy: BucketAccuracy | None = member(nullable(record(BucketAccuracy)), absent=None)

    @property
    def starts(self) -> bool:
        """True if it has engines of its own that are opened with the bundle."""
        return self.engine == OWN and self.load == START


@document(frozen=True)
class Fit:
    """The fit of the user's samples: each sample goes to the smallest bucket that holds it.

    Attributes:
        samples: Number of samples.
        outside: Number of samples that fit no bucket.
        padding: Mean share of padding in the buckets' elements, 0 to 1.
        one_shape: Mean share of padding if every sample goes to the largest bucket.
        latency_us: Mean predicted latency of the samples that fit a bucket.
        one_shape_us: Latency of the largest bucket.
    """

    samples: int = member(fields.count)
    outside: int = member(fields.count)
    padding: float = member(fields.share)
    one_shape: float = member(fields.share)
    latency_us: float | None = member(nullable(fields.figure))
    one_shape_us: float | None = member(nullable(fields.figure))


@document(frozen=True)
class RangeCost:
    """The cost of a range of shapes; the document's main part describes the optimum alone.

    Attributes:
        profiles: The size ranges of the GPU's engine, by input; empty if all shapes are listed.
        resident: Loadables of all buckets that are opened with the bundle, by DLA core.
        most: Loadables that a core holds.
        weight_bytes: Bytes of the weights of all engines that are opened with the bundle: once for
            each bucket, and once more for the engine with profiles.
        one_shape_bytes: Bytes of the weights of the optimum's engines alone.
        pools: Total bytes, on a core, of the loadables that are opened with the bundle.
        fit: The fit of the calibration data; None if their sizes are unknown.
    """

    profiles: tuple[Mapping[str, SizeRange], ...] = member(
        array(mapping(record(SizeRange), fields.name))
    )
    resident: Mapping[str, int] = member(mapping(fields.count, fields.device))
    most: int = member(fields.count)
    weight_bytes: int = member(fields.count)
    one_shape_bytes: int = member(fields.count)
    pools: MemoryNeed = member(record(MemoryNeed))
    fit: Fit | None = member(nullable(record(Fit)), absent=None)


NO_POOLS = MemoryNeed(0, 0, 0)


def shape_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """Returns "1x3x640x640", with the inputs' names if there are several."""
    sizes = {name: "x".join(map(str, shape)) or "scalar" for name, shape in shapes.items()}
    if len(sizes) == 1:
        return next(iter(sizes.values()))
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def accuracy_words(accuracy: BucketAccuracy) -> str:
    """Returns a text with the figures of a shape's build, and their data."""
    snr = "" if accuracy.snr_db is None else f", SNR {accuracy.snr_db:.1f} dB"
    return f"cosine {accuracy.cosine:.5f}{snr} against FP32 ({accuracy.data}, emulated on this CPU)"


def remaining_loadables(buckets: Iterable[Bucket], most: int) -> dict[str, int]:
    """Returns, by used core, the number of loadables that it can hold beside those of buckets."""
    used: dict[str, int] = {}
    for bucket in buckets:
        if bucket.starts:
            for core, count in bucket.loadables.items():
                used[core] = used.get(core, 0) + count
    return {core: most - count for core, count in used.items()}


def move_to_profiles(bucket: Bucket, alone: Bucket, why: str) -> Bucket:
    """Returns a bucket whose frames the GPU's engine with profiles takes.

    Args:
        bucket: The bucket.
        alone: The same shape on the GPU alone.
        why: Why it has no loadables.
    """
    return replace(
        bucket,
        engine=PROFILES,
        load=START,
        why=why,
        dla_layers=0,
        loadables={},
        pools=NO_POOLS,
        latency_us=alone.latency_us,
        gpu_us=alone.gpu_us,
        weight_bytes=alone.weight_bytes,
    )


def range_cost(
    buckets: Sequence[Bucket],
    profiles: Sequence[Profile],
    most: int,
    sizes: Sequence[Sizes] = (),
) -> RangeCost:
    """Returns the cost of a range.

    Args:
        buckets: All buckets, the optimum first.
        profiles: The ranges of the GPU's engine.
        most: Loadables that a core holds.
        sizes: Known shapes of the samples.
    """
    opened = [bucket for bucket in buckets if bucket.starts]
    resident = {
        core: most - room for core, room in sorted(remaining_loadables(opened, most).items())
    }
    # the engine with profiles has the weights of the whole network once more
    whole = max((bucket.weight_bytes for bucket in buckets), default=0) if profiles else 0
    return RangeCost(
        profiles=tuple(
            {name: SizeRange(size.min, size.opt, size.max) for name, size in profile.items()}
            for profile in profiles
        ),
        resident=resident,
        most=most,
        weight_bytes=sum(bucket.weight_bytes for bucket in opened) + whole,
        one_shape_bytes=buckets[0].weight_bytes if buckets else 0,
        pools=combine_needs(bucket.pools for bucket in opened),
        fit=fit_samples(buckets, sizes) if sizes else None,
    )


def fit_samples(buckets: Sequence[Bucket], sizes: Sequence[Sizes]) -> Fit:
    """Returns the fit of samples of these shapes."""
    # imported here so that a check of one shape starts faster
    from edgekit.network.ranges import elements, fits_into

    # the first that holds a sample is the smallest, as at run time
    ranked = sorted(buckets, key=lambda bucket: elements(bucket.shapes))
    largest = ranked[-1]
    waste, whole, times, outside = 0.0, 0.0, [], 0
    for sample in sizes:
        taken = next((bucket for bucket in ranked if fits_into(sample, bucket.shapes)), None)
        if taken is None:
            outside += 1
            continue
        waste += 1 - elements(sample) / elements(taken.shapes)
        whole += 1 - elements(sample) / elements(largest.shapes)
        times.append(taken.latency_us)
    inside = len(sizes) - outside
    known = [us for us in times if us is not None]
    return Fit(
        samples=len(sizes),
        outside=outside,
        padding=waste / inside if inside else 0.0,
        one_shape=max(whole, 0.0) / inside if inside else 0.0,
        latency_us=sum(known) / len(known) if known else None,
        one_shape_us=largest.latency_us,
    )


def range_notes(buckets: Sequence[Bucket], cost: RangeCost) -> list[str]:
    """Returns the notes on a range."""
    own = [bucket for bucket in buckets if bucket.engine == OWN]
    if len(own) < 2:
        return []
    kept = "; ".join(
        f"{counted(count, 'loadable')} on {core} (limit {cost.most})"
        for core, count in cost.resident.items()
    )
    late = sum(bucket.load == DEMAND for bucket in own)
    demand = (
        f"; {counted(late, 'shape')} {'is' if late == 1 else 'are'} loaded at the first frame "
        "of that shape, which then waits: this time is not predicted"
        if late
        else "; switching between them needs no load"
    )
    together = f", loaded together: {kept}" if kept else ""
    return [f"{counted(len(own), 'shape')} have engines of their own{together}{demand}"]
