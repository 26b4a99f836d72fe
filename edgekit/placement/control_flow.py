"""Notes on loops and conditionals: the iterations of a body, and the reasons of unknown costs."""

from __future__ import annotations

from edgekit.network.model import Layer, Network
from edgekit.text import counted, listed

_SHOWN = 4
#: Why no figure counts a layer: its iterations depend on the data; its body has uncounted layers;
#: there is no formula for its arithmetic.
TRIP_COUNT, BODY, FORMULA = "trip_count", "body", "formula"


def why_uncounted(layer: Layer) -> str:
    """Returns why a layer's cost is unknown: its ``opaque``, or a reason of this module."""
    if layer.opaque:
        return layer.opaque
    if "trip_count" in layer.params and layer.params["trip_count"] is None:
        return TRIP_COUNT
    return BODY if layer.bodies else FORMULA


def control_flow_notes(network: Network) -> list[str]:
    """Returns notes on the counting of a network's loops and conditionals."""
    said: dict[str, list[str]] = {}
    for layer in network.layers:
        if layer.bodies or "trip_count" in layer.params:
            said.setdefault(_counting_text(layer), []).append(f"{layer.name} ({layer.op})")
    return [f"{listed(names, _SHOWN)}: {words}" for words, names in said.items()]


def _counting_text(layer: Layer) -> str:
    if layer.formula:
        if "trip_count" not in layer.params:
            return "the branch that takes longer counts, whatever the condition is"
        return f"the body runs {counted(layer.params['trip_count'], 'time')}, and all of them count"
    why = why_uncounted(layer)
    if why == TRIP_COUNT:
        limit = layer.params["trip_limit"]
        most = "" if limit is None else f" (at most {counted(limit, 'time')})"
        return f"the data decide how often the body runs{most}: of unknown cost"
    if why == BODY:
        inside = [name for body in layer.bodies for name in body.network.uncounted]
        return (
            f"of unknown cost, because layers inside have no cost model: {listed(inside, _SHOWN)}"
        )
    return "of unknown cost, because its body cannot be read"
