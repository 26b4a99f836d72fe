"""The placement as a graph: which layer, and which segment, reads what another one writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["graph_of"]


def graph_of(
    network: Network, rows: Sequence[Mapping[str, Any]], slots: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the edges between layers and between segments.

    Args:
        network: Says which layer writes and which reads a tensor.
        rows: The report's layers.
        slots: What the devices do for a frame of the first plan, by the timeline.

    Returns:
        ``edges``: [from, to] as layer numbers of the report, each pair once; ``segments``: one
        object a segment, in running order; ``reformats``: what a device reformats for a segment
        outside of its own ones, so that all of a device's times are in one of the two;
        ``segment_edges``: [from, to, tensors] as segment
        numbers.
    """
    number = {row["name"]: row["number"] for row in rows}
    segment = {row["number"]: row["segment"] for row in rows}
    makers = {name: layer.name for name, layer in network.producers().items()}
    edges: dict[tuple[int, int], None] = {}
    between: Counter[tuple[int, int]] = Counter()
    for layer in network.layers:
        here = number.get(layer.name)
        for tensor in layer.inputs:
            there = number.get(makers.get(tensor, ""))
            if here is None or there is None or here == there:
                continue
            edges[there, here] = None
            if segment[there] != segment[here]:
                between[segment[there], segment[here]] += 1
    return {
        "edges": [list(edge) for edge in edges],
        "segments": _segments(rows, slots),
        "reformats": [
            {"segment": slot["segment"], "device": slot["device"],
             "predicted_us": slot["duration_us"]}
            for slot in slots
            if not slot["layers"]
        ],
        "segment_edges": [[*edge, count] for edge, count in sorted(between.items())],
    }  # fmt: skip


def _segments(
    rows: Sequence[Mapping[str, Any]], slots: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    times = {slot["segment"]: slot for slot in slots if slot["layers"]}
    members: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        members.setdefault(row["segment"], []).append(row)
    return [
        {
            "segment": segment, "device": found[0]["device"], "layers": len(found),
            "first": found[0]["name"], "last": found[-1]["name"],
            "macs": sum(row["macs"] for row in found),
            "predicted_us": slot.get("duration_us", 0.0),
            "reformats_us": slot.get("reformats_us", 0.0),
            "launch_us": slot.get("launch_us", 0.0),
        }
        for segment, found in sorted(members.items())
        for slot in [times.get(segment, {})]
    ]  # fmt: skip
