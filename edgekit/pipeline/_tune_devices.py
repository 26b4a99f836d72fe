"""How long each device works for a measured frame, hybrid engines told apart by their layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.placement import Plan

__all__ = ["busy_us"]


def busy_us(document: Mapping[str, Any], plan: Plan | None = None) -> dict[str, float] | None:
    """Returns each device's own microseconds a frame, a mix's frames by their shares.

    A hybrid engine is one segment, named after its DLA: what of it is no loadable's keeps the GPU
    busy, reformats included.

    Args:
        document: An ``edgekit.device.bench/1`` or ``edgekit.bench/1``.
        plan: What was built; without it each segment is of the device that it names.

    Returns:
        None where there are no segments, or nothing tells a hybrid engine's devices apart.
    """
    found: dict[str, float] = {}
    shares = [share.share for share in plan.plans] if plan is not None else []
    segments = document.get("segments") or ()
    for segment in segments:
        lane = int(segment.get("lane") or 0)
        share = shares[lane] if lane < len(shares) else 1.0
        parts = list(_parts(document, segment, plan))
        if not parts:
            return None
        for device, us in parts:
            found[device] = found.get(device, 0.0) + share * us
    return found if segments else None


def _parts(
    document: Mapping[str, Any], segment: Mapping[str, Any], plan: Plan | None
) -> Iterator[tuple[str, float]]:
    """Yields a segment's devices and their microseconds; nothing where they are not known."""
    from edgekit.placement._profile_bench import bench_rows

    device, us = str(segment["device"]), 1e3 * float(segment["latency_ms"]["median"])
    if device == "GPU" or plan is None or not us:
        yield device, us
        return
    places = [[[layer.name, layer.device] for layer in share.layers] for share in plan.plans]
    rows, _ = bench_rows({
        "clock": document.get("clock"), "nodes": document.get("nodes"), "placement": places,
        "segments": [segment],
    })  # fmt: skip
    if rows:
        on_dla = min(us, sum(row.us for row in rows if row.device != "GPU"))
        # one row is the segment itself: nothing was profiled, and all of it is the DLA's
        yield device, on_dla
        if us > on_dla:
            yield "GPU", us - on_dla
