"""Parameters by axis, as they are before a transposition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from edgekit.rewrite.layout._carried import Operand

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["with_axes"]

# batch and channels come before the axes of an image
_LED = 2
# operands behind the first, attributes, axes that are gone
_Found: TypeAlias = tuple[tuple[Operand, ...], dict[str, Any], set[int]]


def with_axes(graph: Graph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    """Returns what an operation reads besides its data, its attributes, and the axes it drops.

    Args:
        graph: Where it stands.
        node: Pad, Slice, Split, Tile, Resize or Gather, which reads a tensor transposed by
            ``perm``.
        perm: Source axis by axis.
    """
    if any(name and not graph.constant(name) for name in node.inputs[1:]):
        return None
    if node.op == "Split":
        axis = perm[node.attrs.get("axis", 0)]
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return rest, {**node.attrs, "axis": axis}, set()
    if node.op == "Gather":
        return _gather(graph, node, perm)
    if node.op == "Slice":
        starts, ends = graph.ints(node.inputs[1]), graph.ints(node.inputs[2])
        if starts is None or ends is None:
            return None
        axes = (graph.ints(node.inputs[3]) if node.input(3) else None) or range(len(starts))
        steps = (graph.ints(node.inputs[4]) if node.input(4) else None) or [1] * len(starts)
        numbers = [starts, ends, [perm[axis] for axis in axes], steps]
        return tuple(Operand(numbers=tuple(item)) for item in numbers), {**node.attrs}, set()
    if node.op == "Pad":
        return _pad(graph, node, perm)
    if node.op == "Tile":
        times = graph.ints(node.inputs[1])
        if times is None:
            return None
        return (Operand(numbers=_back(times, perm)),), {}, set()
    return _resize(graph, node, perm)


def _back(values: list[int], perm: tuple[int, ...]) -> tuple[int, ...]:
    found = [0] * len(perm)
    for axis, value in enumerate(values):
        found[perm[axis]] = value
    return tuple(found)


def _gather(graph: Graph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    axis = perm[node.attrs.get("axis", 0)]
    rank = graph.rank(node.inputs[1])
    if rank > 1:
        return None
    attrs = {**node.attrs, "axis": axis}
    return (Operand(node.inputs[1]),), attrs, {axis} if rank == 0 else set()


def _pad(graph: Graph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    pads = graph.ints(node.inputs[1])
    if pads is None:
        return None
    axes = (graph.ints(node.inputs[3]) if node.input(3) else None) or range(len(perm))
    wide = [0] * (2 * len(perm))
    for index, axis in enumerate(axes):
        wide[perm[axis]] = pads[index]
        wide[perm[axis] + len(perm)] = pads[index + len(pads) // 2]
    value = (Operand(node.inputs[2]),) if node.input(2) else ()
    return (Operand(numbers=tuple(wide)), *value), {**node.attrs}, set()


def _resize(graph: Graph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    if node.input(1) or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    # of images, height and width only: other axes no runtime resizes in every mode, and
    # resize-channels-last would transpose them back, for ever
    if len(perm) > _LED and any(perm[axis] < _LED for axis in _resized(graph, node)):
        return None
    attrs = dict(node.attrs)
    if "axes" in attrs:
        attrs["axes"] = [perm[axis] for axis in attrs["axes"]]
        return tuple(Operand(name) for name in node.inputs[1:]), attrs, set()
    if node.input(3):
        sizes = graph.ints(node.inputs[3])
        if sizes is None:
            return None
        return (Operand(), Operand(), Operand(numbers=_back(sizes, perm))), attrs, set()
    scales = graph.value(node.inputs[2])
    if scales is None:
        return None
    there = [1.0] * len(perm)
    for axis, scale in enumerate(scales):
        there[perm[axis]] = float(scale)
    return (Operand(), Operand(node.inputs[2], numbers=tuple(there))), attrs, set()


def _resized(graph: Graph, node: Node) -> set[int]:
    """The axes that a Resize changes, or may change."""
    source, target = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    found = {axis for axis in range(len(source)) if source[axis] != target[axis]}
    scales = None if node.input(3) else graph.value(node.input(2))
    if scales is not None:
        # a scale near 1 can leave the size as it is and yet move every value
        which = [axis % len(source) for axis in node.attrs.get("axes", range(len(source)))]
        found |= {axis for axis, scale in zip(which, scales, strict=True) if scale != 1}
    return found
