"""The listed shapes of a range in words and table rows, for terminal and page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgekit.placement.buckets import (
    DEMAND,
    PROFILES,
    Bucket,
    Fit,
    RangeCost,
    accuracy_words,
    shape_text,
)
from edgekit.reports import text
from edgekit.text import ABSENT, counted, percent

HEAD = ("shape", "engine", "on DLA", "loadables", "latency", "GPU time", "weights", "pools")
#: Alignment of the columns; "r" is right.
SIDES = "llrrrrrr"
TITLE = "Shapes of the range (predicted, not measured)"
_ENGINES = {PROFILES: "profiles", DEMAND: "on demand"}


def bucket_rows(buckets: Sequence[Bucket]) -> list[list[str]]:
    """Returns a row for each bucket, with the columns of ``HEAD``."""
    return [
        [
            text.clean(shape_text(bucket.shapes)),
            _ENGINES.get(bucket.engine) or _ENGINES.get(bucket.load, "own"),
            f"{bucket.dla_layers:,}/{bucket.layers:,}",
            "+".join(map(str, bucket.loadables.values())) or ABSENT,
            text.microseconds(bucket.latency_us),
            text.microseconds(bucket.gpu_us),
            text.size(bucket.weight_bytes),
            text.size(bucket.pools.local_dram + bucket.pools.global_dram)
            if bucket.loadables
            else ABSENT,
        ]
        for bucket in buckets
    ]


def range_lines(buckets: Sequence[Bucket], cost: RangeCost) -> Iterator[str]:
    """Yields the cost of the range compared with one shape, a sentence per line."""
    first, name = buckets[0], shape_text(buckets[0].shapes)
    # shapes that are loaded at the start; the others on demand
    opened = [bucket for bucket in buckets if bucket.starts]
    kept = "; ".join(
        f"{count} of {cost.most} loadables of {core} (one shape: {first.loadables.get(core, 0)})"
        for core, count in cost.resident.items()
    )
    if kept:
        yield f"loaded together: {counted(len(opened), 'shape')}, {kept}"
    else:
        yield "loaded together: no loadables"
    extra = " and the GPU's engine with profiles" if cost.profiles else ""
    yield (
        f"weights {text.size(cost.weight_bytes)} in the engines of "
        f"{counted(len(opened), 'shape')}{extra}; {text.size(cost.one_shape_bytes)} for "
        f"{text.clean(name)} alone"
    )
    if cost.profiles:
        rest = "every other shape of the range" if len(buckets) > 1 else "other shapes"
        count = counted(len(cost.profiles), "profile")
        runs = "runs" if len(buckets) > 1 else "run"
        yield f"{rest} {runs} on the GPU, in one engine with {count}"
    if any(bucket.engine == PROFILES for bucket in buckets):
        yield "times on the engine with profiles are those of an engine of that shape alone"
    for bucket in buckets:
        if bucket.accuracy is not None:
            words = accuracy_words(bucket.accuracy)
            yield f"{text.clean(shape_text(bucket.shapes))}: {text.clean(words)}"
    for bucket in buckets:
        if bucket.why:
            yield f"{text.clean(shape_text(bucket.shapes))}: {bucket.why}"
    if cost.fit is not None:
        yield from _fit_lines(cost.fit)


def _fit_lines(fit: Fit) -> Iterator[str]:
    outside = f"; {fit.outside:,} fit no listed shape" if fit.outside else ""
    yield (
        f"padding {percent(fit.padding)} in the mean of {counted(fit.samples, 'sample')} "
        f"({percent(fit.one_shape)} with the largest shape alone){outside}"
    )
    if fit.latency_us is not None and fit.one_shape_us is not None:
        yield (
            f"mean latency of the samples {text.microseconds(fit.latency_us)}; with the largest "
            f"shape alone {text.microseconds(fit.one_shape_us)}"
        )
