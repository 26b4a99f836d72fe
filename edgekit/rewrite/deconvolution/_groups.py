"""deconv-groups: a grouped ConvTranspose with block-diagonal weights, in as few parts as pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._geometry import geometry

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["DeconvGroups"]

# A DLA multiplies 32 (INT8) or 16 (FP16) channels at once, so that zeros between fewer channels
# cost next to nothing; from twice as many on, parts save more than their slices cost ...
_FULL = 64
# ... unless they are too many: each is a slice and a deconvolution
_MOST_PARTS = 8


class DeconvGroups:
    """Weights between channels of different groups are zero in a deconvolution of one group.

    So many groups become one deconvolution that its channels fill the hardware; what is left are
    parts, cut by Slice along C and put together by Concat.
    """

    name = "deconv-groups"
    reason = (
        "The DLA runs deconvolutions of one group only; zeros between the groups' weights make "
        "one group of many"
    )
    operators: tuple[str, ...] = ("ConvTranspose",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a grouped ConvTranspose over H and W."""
        found = geometry(graph, node)
        if found is None or len(found.kernel) != 2 or found.groups == 1:
            return None
        return Match((node,), found)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes one deconvolution, or parts of it between Slices and a Concat."""
        node, found = match.nodes[0], match.facts
        weight, bias = node.inputs[1], found.bias
        merged = _merged(found.groups, found.channels // found.groups)
        parts = found.groups // merged
        before, behind = found.channels // parts, found.maps // parts
        attrs = {key: value for key, value in node.attrs.items() if key != "group"}
        mask = _mask(new, merged, before, behind, weight)
        if parts == 1:
            dense = _dense(new, weight, merged, mask)
            read = [node.inputs[0], dense, *([bias] if bias else [])]
            new.node("ConvTranspose", read, output=node.outputs[0], **attrs)
            return
        made = []
        for part in range(parts):
            source = _cut(new, node.inputs[0], 1, part * before, before)
            own = _dense(new, _cut(new, weight, 0, part * before, before), merged, mask)
            read = [source, own]
            if bias:
                read.append(_cut(new, bias, 0, part * behind, behind))
            name = node.name if part == 0 else f"{node.name}:{part}"
            made.append(new.node("ConvTranspose", read, name=name, **attrs))
        name = f"{node.name}:concat"
        new.node("Concat", made, output=node.outputs[0], name=name, axis=1)


def _merged(groups: int, channels: int) -> int:
    """How many groups, of so many input channels each, become one."""
    for merged in range(1, groups):
        fits = groups % merged == 0 and groups // merged <= _MOST_PARTS
        if fits and merged * channels >= _FULL:
            return merged
    return groups


def _mask(new: Writer, merged: int, before: int, behind: int, like: str) -> str:
    """Ones where an input channel and an output map are of the same group."""
    import numpy as np

    if merged == 1:
        return ""
    new.room(before, behind)
    ones = np.ones((before // merged, behind // merged))
    blocks = np.kron(np.eye(merged), ones)
    return new.constant(blocks.reshape(before, behind, 1, 1), like=like, role="blocks")


def _dense(new: Writer, weight: str, merged: int, mask: str) -> str:
    if not mask:
        return weight
    tiled = new.node("Tile", [weight, new.constant([1, merged, 1, 1], role="repeats")])
    return new.node("Mul", [tiled, mask])


def _cut(new: Writer, source: str, axis: int, start: int, count: int) -> str:
    numbers = [new.constant([value], role="slice") for value in (start, start + count, axis)]
    return new.node("Slice", [source, *numbers])
