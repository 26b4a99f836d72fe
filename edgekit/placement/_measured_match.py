"""Which of our layers each row of a profile timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.network import Network
from edgekit.placement._profile_names import between
from edgekit.placement._profile_types import Profile, Row

if TYPE_CHECKING:
    from edgekit.buildlog import Names

__all__ = ["Group", "Matched", "match_rows"]

_FOREIGN, _BETWEEN = "{ForeignNode[", "..."


@dataclass(frozen=True, slots=True)
class Group:
    """Layers (indices, ascending) that were timed as one on a device ("GPU" or "DLA")."""

    device: str
    layers: tuple[int, ...]
    row: Row


@dataclass(frozen=True)
class Matched:
    """What fits and what does not.

    Attributes:
        groups: Disjoint on each device.
        unmatched: Names of rows that are none of our layers.
        rows: Rows in all.
        parts: Names of rows that are a part of a subgraph with a row of its own: timed alone, and
            in the whole's time already.
    """

    groups: tuple[Group, ...]
    unmatched: tuple[str, ...]
    rows: int
    parts: tuple[str, ...] = ()


def match_rows(
    profile: Profile, network: Network, able: Mapping[str, bool] | None = None, *, join: bool = True
) -> Matched:
    """Matches by the builder's names: layers, fusions, and subgraphs by their first and last.

    Args:
        profile: Measured rows.
        network: Our layer graph.
        able: By layer, whether a DLA can run it; decides where a subgraph ran when the profile
            does not tell, and which layers between its ends can be in it.
    """
    from edgekit.buildlog import Names  # a plan without a profile does not wait for it

    names = Names(network, [row.name for row in profile.rows])
    place = {layer.name: index for index, layer in enumerate(network.layers)}
    log = profile.log
    listed = {found.name: found.layers for found in log.loadables if found.exact} if log else {}
    whole: list[tuple[Row, tuple[int, ...]]] = []
    ranges: list[tuple[Row, int, int]] = []
    unmatched: list[str] = []
    for row in profile.rows:
        members = row.layers or listed.get(row.name, ())
        found = _all(names, members, place) if members else ()
        if not found and row.name.startswith(_FOREIGN):
            inner = row.name[len(_FOREIGN) :].removesuffix("]}")
            first, _, last = inner.partition(_BETWEEN)
            low, high = _all(names, [first], place), _all(names, [last or first], place)
            if low and high and last:
                ranges.append((row, min(low), max(high)))
                continue
            found = low
        elif not found and not members:
            found = _all(names, row.name.split(" || "), place)
        if found:
            whole.append((row, found))
        else:
            unmatched.append(row.name)
    parts = _parts(network, whole, ranges)
    whole = [(row, found) for row, found in whole if row.name not in parts]
    ranges = [one for one in ranges if one[0].name not in parts]
    groups = [Group(_device(row, found, network, able), found, row) for row, found in whole]
    taken = {index for group in groups for index in group.layers}
    for row, start, end in sorted(ranges, key=lambda entry: (entry[2] - entry[1], entry[1])):
        within = [i for i in range(start, end + 1) if i not in taken]
        dla = row.device == "DLA"
        if dla and able is not None:
            within = [i for i in within if able.get(network.layers[i].name, True)]
        if not within:
            unmatched.append(row.name)
            continue
        taken.update(within)
        members_ = tuple(within)
        groups.append(Group(_device(row, members_, network, able), members_, row))
    found_groups = _disjoint(groups) if join else groups
    return Matched(tuple(found_groups), tuple(unmatched), len(profile.rows), tuple(parts))


def _parts(
    network: Network,
    whole: Sequence[tuple[Row, tuple[int, ...]]],
    ranges: Sequence[tuple[Row, int, int]],
) -> dict[str, None]:
    """Returns the rows whose layers the GPU runs inside a subgraph that was timed as a whole."""
    timed = [(row, frozenset(layers)) for row, layers in whole]
    subgraphs = []
    for row, start, end in ranges:
        nodes = [(layer.inputs, layer.outputs) for layer in network.layers[start : end + 1]]
        subgraphs.append((row, frozenset(start + i for i in between(nodes))))
    return {
        row.name: None
        for subgraph, members in subgraphs
        for row, layers in (*timed, *subgraphs)
        if "DLA" not in (subgraph.device, row.device) and layers and layers < members
    }


def _all(names: Names, parts: Sequence[str], place: Mapping[str, int]) -> tuple[int, ...]:
    found: set[int] = set()
    for part in parts:
        layers = names.find(part)
        if not layers:
            into = names.absorbed(part, "")
            layers = (into,) if into else ()
        found.update(place[name] for name in layers if name in place)
    return tuple(sorted(found))


def _device(
    row: Row, layers: Sequence[int], network: Network, able: Mapping[str, bool] | None
) -> str:
    if row.device:
        return row.device
    if able is None:
        return "GPU"
    return "DLA" if all(able.get(network.layers[i].name, False) for i in layers) else "GPU"


def _disjoint(groups: Sequence[Group]) -> list[Group]:
    """Joins rows that share a layer: a reshape that we count to its neighbour was timed apart."""
    held: dict[tuple[str, int], Group] = {}
    for group in groups:
        keys = [(group.device, i) for i in group.layers]
        shared = list({id(held[key]): held[key] for key in keys if key in held}.values())
        joined = _joined((*shared, group)) if shared else group
        held.update(dict.fromkeys([(group.device, i) for i in joined.layers], joined))
    return list({id(group): group for group in held.values()}.values())


def _joined(groups: Sequence[Group]) -> Group:
    rows = [group.row for group in groups]
    main = max(rows, key=lambda row: row.us)
    us = sum(row.us for row in rows)
    variants = tuple(
        replace(v, us=v.us + us - main.us) for v in main.variants if v.us is not None
    )  # fmt: skip
    layers = tuple(sorted({i for group in groups for i in group.layers}))
    return Group(groups[0].device, layers, replace(main, us=us, variants=variants))
