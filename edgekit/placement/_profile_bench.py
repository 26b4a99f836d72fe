"""The times of layers, fusions and loadables in a document of ``edgekit bench``.

A segment's own time is the sum that counts; its profiled layers share it out, for a profiler slows
what it times. A hybrid engine is one segment of two devices: only its layers tell them apart, and
the wait for the DLA is booked to the loadable (``_profile_rows``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgekit.placement._profile_rows import attributed
from edgekit.placement._profile_types import Row

__all__ = ["MEASURED", "bench_rows", "device_of"]

MEASURED = "board-measured"
_KNOWN = 0.5  # of a segment's layers, that its profile must name to be taken for one of them
_TRUSTED = (0.2, 5.0)  # what a profiler may change a sum by


def bench_rows(document: Mapping[str, Any]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Returns the rows of a bench and what to know of them.

    Frames of a mix take several lanes; a layer's first time on a device counts.

    Args:
        document: An ``edgekit.bench/1`` or ``edgekit.device.bench/1``; anything in it may be amiss.
    """
    rows: list[Row] = []
    notes: list[str] = []
    timed: set[tuple[str, str]] = set()
    nodes = _nodes(document)
    places = _places(document)
    for segment in _objects(document.get("segments")):
        latency, layers = _object(segment.get("latency_ms")), segment.get("layers")
        us = _us(latency.get("median") or latency.get("mean"))
        names = [str(layer) for layer in layers] if isinstance(layers, list) else []
        lane, index = segment.get("lane") or 0, segment.get("index", len(rows))
        device = device_of(segment.get("device"))
        place = places.get(str(lane), {})
        used = {device_of(place.get(name, device)) for name in names}
        keys = {(device_of(place.get(name, device)), name) for name in names}
        if not us or not keys or keys & timed:
            continue
        timed |= keys
        own = nodes.get((str(lane), str(index)), [])
        # cuDLA has no profiler: profiled layers on a DLA are a hybrid engine's
        hybrid = len(used) > 1 or bool(own and device == "DLA" and "DLA" in used)
        found = _shared(own, us) if own and (hybrid or _names(own, names)) else []
        if found:
            rows += found
        elif hybrid:
            notes.append(
                f"segment {index} is a hybrid engine, and nothing tells its devices apart: bench "
                "it with a profile of its layers"
            )
        else:
            rows.append(Row(f"segment {index}", us, used.pop(), tuple(names)))
    return tuple(replace(row, place=number) for number, row in enumerate(rows)), tuple(notes)


def device_of(name: object) -> str:
    """Returns "GPU" or "DLA"."""
    return "GPU" if name == "GPU" else "DLA"


def _shared(nodes: Sequence[Row], us: float) -> list[Row]:
    """Returns a segment's layers, with its time shared out over them and what is no layer."""
    layers, others = attributed(nodes, {})
    total = sum(row.us for row in (*layers, *others))
    if not total or not sum(row.us for row in layers):
        return []
    factor = us / total
    if not _TRUSTED[0] <= factor <= _TRUSTED[1]:
        factor = 1.0
    return [replace(row, us=row.us * factor) for row in layers]


def _names(nodes: Sequence[Row], layers: Sequence[str]) -> bool:
    """Whether a segment's profile is of its layers, and not of kernels named otherwise."""
    text = "\n".join(row.name for row in nodes)
    return sum(name in text for name in layers) >= _KNOWN * len(layers)


def _nodes(document: Mapping[str, Any]) -> dict[tuple[str, str], list[Row]]:
    if document.get("clock") != MEASURED:
        return {}
    found: dict[tuple[str, str], list[Row]] = {}
    for node in _objects(document.get("nodes")):
        key = str(node.get("lane") or 0), str(node.get("index"))
        if isinstance(node.get("node"), str):
            # an older loader tells the mean alone
            us = node.get("median_us", node.get("mean_us"))
            found.setdefault(key, []).append(Row(node["node"], _us(us, 1.0)))
    return found


def _places(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Returns by lane where the plan has each layer."""
    lanes = document.get("placement")
    found: dict[str, dict[str, str]] = {}
    for number, lane in enumerate(lanes if isinstance(lanes, list) else ()):
        pairs = lane if isinstance(lane, list) else ()
        found[str(number)] = {
            str(pair[0]): str(pair[1])
            for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2
        }  # fmt: skip
    return found


def _us(value: Any, scale: float = 1e3) -> float:
    try:
        us = float(value) * scale
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return 0.0 if math.isnan(us) else round(us, 6) if math.isfinite(us) else us


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    listed = value if isinstance(value, list) else []
    return [entry for entry in listed if isinstance(entry, dict)]
