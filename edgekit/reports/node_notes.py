"""The notes of an annotated ONNX file on each node: device, precision and time of the node's
layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.benchmark.document import Bench
    from edgekit.network.lowering.places import NodePlace
    from edgekit.placement.plan import PlacedLayer, Plan
    from edgekit.reports.schema import ReportedLayer


def node_notes(
    layers: Iterable[PlacedLayer],
    placed: Mapping[str, NodePlace],
    rows: Iterable[ReportedLayer] = (),
) -> dict[str, dict[str, str]]:
    """Returns the known facts about each ONNX node's layers, by node.

    A layer's time is that of all its nodes together, which "layer" names: it is not divided.

    Args:
        layers: The plan's layers.
        placed: The place of each node.
        rows: The layers of the run's report, for measured times.
    """
    by_name = {layer.name: layer for layer in layers}
    timed = {row.name: row for row in rows}
    notes: dict[str, dict[str, str]] = {}
    for node, place in placed.items():
        own = [by_name[name] for name in place.layers if name in by_name]
        note = (
            _note(own, [timed[layer.name] for layer in own if layer.name in timed]) if own else {}
        )
        if place.reason:
            note = {"gone": place.reason, **({"layer": note["layer"]} if note else {})}
        if note:
            notes[node] = note
    return notes


def frame_time(placed: Plan, bench: Bench | None) -> str:
    """Returns the time of a frame as text, the measured median first."""
    latency_us = placed.predicted.latency_us
    time = "a time that is unknown" if latency_us is None else f"{latency_us:.1f} µs"
    predicted = f"{time}, predicted"
    median = (bench.latency_ms or {}).get("median") if bench else None
    if bench is None or median is None:
        return predicted
    status = bench.verdict.status if bench.verdict else "not judged"
    return f"{1000 * median:.1f} µs, {bench.clock}, {status}; {predicted}"


def _note(layers: Sequence[PlacedLayer], rows: Sequence[ReportedLayer]) -> dict[str, str]:
    def every(values: Iterable[object]) -> str:
        return ", ".join(dict.fromkeys(map(str, values)))

    note = {
        "device": every(layer.device for layer in layers),
        "time": _layer_time(layers, rows),
        "precision": every(layer.precision for layer in layers),
        "segment": every(layer.segment for layer in layers),
        "layer": every(layer.name for layer in layers),
    }
    within = next((row.within for row in rows if row.within), None)
    if within:  # in a loadable or fusion that was timed as a whole the layers' times are unknown
        note["within"] = (
            f"{within.name}: {within.us:.2f} µs, {within.clock}, "
            f"{counted(within.layers, 'layer')} together"
        )
    nodes = max(len(layer.nodes) for layer in layers)
    if nodes > 1:
        note["note"] = f"the time is for {nodes} nodes, which form one layer"
    return note


def _layer_time(layers: Sequence[PlacedLayer], rows: Sequence[ReportedLayer]) -> str:
    predicted = sum(layer.predicted_us for layer in layers)
    estimate = (
        f"{predicted:.2f} µs, predicted"
        if predicted
        else "predicted as part of a neighbouring kernel"
    )
    measured = [row.measured for row in rows if row.measured]
    if not measured:
        return estimate
    return f"{sum(time.us for time in measured):.2f} µs, {measured[0].clock}; {estimate}"
