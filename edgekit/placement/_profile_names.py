"""What a unit's name in a build log says: which ONNX nodes are in it."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

__all__ = ["UnitName", "around", "between", "unit_name"]

_FOREIGN = re.compile(r"^\{ForeignNode\[(.*)\]\}$")
_PARTS = re.compile(r" \+ | \|\| |, ")
# 8.x and 10.x name the reshapes around a matrix product differently
_AROUND = (
    ("after", ("reshape_after_", "squeeze_after_", "unsqueeze_node_after_")),
    ("before", ("reshape_before_", "unsqueeze_before_", "unsqueeze_node_before_")),
)


@dataclass(frozen=True, slots=True)
class UnitName:
    """Nodes that a name holds; of a subgraph only the first and the last are named."""

    subgraph: bool
    nodes: tuple[str, ...]
    last: tuple[str, ...] = ()


def unit_name(name: str, nodes: Container[str]) -> UnitName:
    """Takes a name apart; what is no node is left out."""
    match = _FOREIGN.match(name)
    if match is None:
        return UnitName(False, _nodes(name, nodes))
    first, _, last = match[1].partition("...")
    ends = _nodes(last or first, nodes)
    return UnitName(True, tuple(dict.fromkeys((*_nodes(first, nodes), *ends))), ends)


def around(name: str, nodes: Container[str]) -> tuple[str, str] | None:
    """Returns ("before" or "after", node) of a reshape that the importer put around a node."""
    plain = name.removeprefix("copied_")
    for side, prefixes in _AROUND:
        for prefix in prefixes:
            if plain.startswith(prefix) and plain[len(prefix) :] in nodes:
                return side, plain[len(prefix) :]
    return None


def between(nodes: Sequence[tuple[Sequence[str], Sequence[str]]]) -> set[int]:
    """Returns what lies on a way from the first node to the last, both included; empty without one.

    A subgraph holds all of that: one that left something out would wait for itself.

    Args:
        nodes: (tensors read, tensors written), in running order.
    """
    below, written = {0}, set(nodes[0][1])
    for i, (reads, writes) in enumerate(nodes):
        if i and not written.isdisjoint(reads):
            below.add(i)
            written.update(writes)
    last = len(nodes) - 1
    if last not in below:
        return set()
    above, read = {last}, set(nodes[last][0])
    for i in reversed(range(last)):
        if i in below and not read.isdisjoint(nodes[i][1]):
            above.add(i)
            read.update(nodes[i][0])
    return above


def _nodes(name: str, nodes: Container[str]) -> tuple[str, ...]:
    if name in nodes:
        return (name,)
    found = []
    for part in _PARTS.split(name):
        piece = part.strip()
        while piece and piece not in nodes:
            # PWN(PWN(a, b), c)
            if piece.startswith("PWN("):
                piece = piece[len("PWN(") :]
            elif piece.endswith(")"):
                piece = piece[:-1]
            else:
                break
        if piece in nodes:
            found.append(piece)
    return tuple(found)
