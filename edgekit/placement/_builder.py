"""What TensorRT's builder would make of a plan: device types in, loadables out.

The builder joins the layers that are set to the DLA in graph order, parallel branches included, and
the core keeps the groups with the most layers (edgekit/dla/_candidates.py). So a plan reaches the
board by device types alone where these groups are its loadables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.dla import candidates
from edgekit.network import Network
from edgekit.placement._types import Loadable, PlacedLayer, Plan

__all__ = ["builder_of", "device_types", "groups_of", "told"]

SHOWN = 5  # names in a difference


def device_types(network: Network, plan: Plan) -> dict[str, str]:
    """Returns "GPU" or "DLA" by layer: what ``IBuilderConfig.setDeviceType`` is called with."""
    place = {layer.name: layer.device for layer in plan.layers}
    return {x.name: "GPU" if place[x.name] == "GPU" else "DLA" for x in network.layers}


def groups_of(
    network: Network, layers: Sequence[PlacedLayer], device: str, slots: int
) -> tuple[tuple[tuple[str, ...], ...], int]:
    """Returns the loadables that the builder makes of a core's layers, and its candidates."""
    on_core = {layer.name: layer.device == device for layer in layers}
    precisions = {layer.name: layer.precision for layer in layers}
    found = candidates(network, on_core, slots, precisions)
    return tuple(group.layers for group in found if group.kept), len(found)


def builder_of(
    network: Network,
    plans: Sequence[tuple[Sequence[PlacedLayer], Sequence[Loadable]]],
    slots: int,
    number: int = 0,
) -> dict[str, Any]:
    """Returns the plan document's ``builder``.

    Args:
        network: The layer graph.
        plans: Layers and loadables of every plan; each core of each is an engine of its own.
        slots: Loadables that a core keeps.
        number: The first plan's index among all.
    """
    count = kept = 0
    differences: list[dict[str, Any]] = []
    for at, (layers, loadables) in enumerate(plans, number):
        for core in sorted({loadable.core for loadable in loadables}):
            ours = [one.layers for one in loadables if one.core == core]
            groups, made = groups_of(network, layers, f"DLA{core}", slots)
            count += made
            kept += len(groups)
            differences += [{"plan": at, "core": core, **one} for one in _differences(ours, groups)]
    first = {x.name: "GPU" if x.device == "GPU" else "DLA" for x in plans[0][0]}
    return {
        "device_types": first,
        "candidates": count,
        "loadables": kept,
        "matches": not differences,
        "differences": differences,
    }


def _differences(
    ours: Sequence[tuple[str, ...]], groups: Sequence[tuple[str, ...]]
) -> list[dict[str, Any]]:
    wanted, made = {frozenset(x) for x in ours}, {frozenset(x) for x in groups}
    at: dict[str, int] = {name: i for i, names in enumerate(ours) for name in names}
    found = []
    for group in groups:
        if frozenset(group) in wanted:
            continue
        parts = sorted({at[name] for name in group if name in at})
        whole = sum(len(ours[i]) for i in parts) == len(group)
        kind = "merged" if whole and len(parts) > 1 else "regrouped"
        found.append({"kind": kind, "loadables": parts, "layers": _some(group)})
    missing = set(at) - {name for group in groups for name in group}
    for i, names in enumerate(ours):
        if frozenset(names) not in made and missing & set(names):
            found.append({"kind": "sent to the GPU", "loadables": [i], "layers": _some(names)})
    return found


def _some(names: Sequence[str]) -> list[str]:
    return [*names[:SHOWN], f"... {len(names)} in all"] if len(names) > SHOWN else list(names)


def told(builder: Mapping[str, Any]) -> list[str]:
    """Returns the notes on where the builder would not end at the plan."""
    kinds = [one["kind"] for one in builder["differences"]]
    notes = []
    if "merged" in kinds:
        notes.append(
            f"TensorRT would merge loadables that the plan keeps apart ({kinds.count('merged')}): "
            "build the segments as engines of their own (build.mode: split)"
        )
    if len(kinds) > kinds.count("merged"):
        notes.append(
            "TensorRT would group the DLA's layers into other loadables than the plan's: build the "
            "segments as engines of their own (build.mode: split)"
        )
    return notes
