"""Whether a segment's profiled layers fit the time that it took without a profiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.bench._measured import node_times

__all__ = ["profile_notes"]

# the profiler itself slows layers: a sum is told only where it is clearly no time of the segment
_TIMES = 2.0
_LEAST_US = 50.0
_TOLD = 3


def profile_notes(measurement: Mapping[str, Any]) -> list[str]:
    """Returns a note where layers add up to clearly more than their segment's median.

    Args:
        measurement: With "nodes" and "segments", as the loader's or the bench document's.

    Raises:
        DataError: "trace.time".
    """
    sums = {key: sum(node.us for node in nodes) for key, nodes in node_times(measurement).items()}
    found = []
    for segment in measurement.get("segments") or ():
        median = (segment.get("latency_ms") or {}).get("median")
        if not isinstance(median, int | float) or "index" not in segment:
            continue
        total = sums.get((int(segment.get("lane") or 0), int(segment["index"])), 0.0)
        if total > _TIMES * 1000 * median and total - 1000 * median > _LEAST_US:
            words = (
                f"segment {segment['index']} on {segment.get('device')}: {total / 1000:.3g} ms "
                f"of layers, {median:.3g} ms measured"
            )
            found.append((total / 1000 - median, words))
    if not found:
        return []
    worst = [words for _, words in sorted(found, reverse=True)]
    more = f"; and {len(worst) - _TOLD} more" if len(worst) > _TOLD else ""
    told = "; ".join(worst[:_TOLD])
    return [
        "single layers were timed in a few runs of their own, under the profiler, which were "
        f"slower than what was measured: {told}{more}. Their times say which layer takes "
        "most, not how long"
    ]
