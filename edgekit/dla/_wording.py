"""Facts that only words need: what a message calls things, and which fix fits a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.dla._facts import Facts

__all__ = ["WORDING"]

_AXES = {-4: "N", -3: "C", -2: "H", -1: "W"}
_LARGEST_WINDOW = 8
_PRODUCT = "MATRIX_MULTIPLY"
# (N, groups, channels of a group, H, W) with groups and channels swapped
_SWAPPED = (0, 2, 1, 3, 4)
_BLOCKS = 6  # dimensions between the two reshapes that move blocks between space and depth


def _shape(names: tuple[str, ...], facts: Facts) -> str:
    return "x".join(map(str, facts.graph.tensors[names[0]].shape)) if names else "none"


def _input_shape(facts: Facts) -> str:
    return _shape(facts.layer.inputs, facts)


def _output_shape(facts: Facts) -> str:
    return _shape(facts.layer.outputs, facts)


def _reshaped(facts: Facts) -> str:
    """The shapes that a shuffle goes through, those between fused ones among them."""
    between = ("x".join(map(str, part["shape"])) for part in (facts["parts"] or ())[:-1])
    return " to ".join((_input_shape(facts), *between, _output_shape(facts)))


def _rearranged(facts: Facts) -> str:
    perms = [part["perm"] for part in facts["parts"] or (facts,) if part.get("perm") is not None]
    return ", transposed by ".join(
        (_reshaped(facts), *(", ".join(map(str, perm)) for perm in perms))
    )


def _axis_names(facts: Facts) -> str:
    axes = facts["axes_from_end"]
    if axes is None:
        axes = () if facts["axis_from_end"] is None else (facts["axis_from_end"],)
    return " and ".join(_AXES.get(axis, f"dimension {axis}") for axis in sorted(axes))


def _readers(facts: Facts) -> str:
    graph = facts.graph
    readers = [r for name in facts.layer.outputs for r in graph.consumers.get(name, ())]
    if not readers:
        return "no layer reads it"
    told = []
    for reader in readers:
        types = (graph.tensors[name].dtype for name in reader.outputs)
        cast = f"a cast to {', '.join(types)}" if reader.kind == "CAST" else reader.op
        told.append(cast or reader.kind)
    return f"read by {' and '.join(dict.fromkeys(told))}"


def _follows(facts: Facts) -> str:
    kind = facts["producer_kind"]
    if kind == "comparison on the GPU":
        return "a comparison that stays on the GPU"
    return "a graph input" if kind == "graph input" else str(kind)


def _divides_by_constant(facts: Facts) -> bool:
    return facts["constant_operand"] is not None or facts.layer.kind == "SCALE"


def _constants_found(facts: Facts) -> str:
    if len(facts.layer.inputs) > 1:
        return "two computed operands"
    return "a constant of several values"


def _pool_steps(facts: Facts) -> str:
    """Pooling windows that together make the window, "7x7 and then 2x2"; empty if none do."""
    sides = [_windows(side) for side in _averaged(facts)]
    if not sides or not all(sides):
        return ""
    longest = max(map(len, sides))
    padded = [side + [1] * (longest - len(side)) for side in sides]
    return " and then ".join("x".join(map(str, step)) for step in zip(*padded, strict=True))


def _windows(side: int) -> list[int]:
    if side <= _LARGEST_WINDOW:
        return [side]
    factor = next((f for f in range(_LARGEST_WINDOW, 1, -1) if side % f == 0), 0)
    rest = _windows(side // factor) if factor else []
    return [factor, *rest] if rest else []


def _averaged(facts: Facts) -> tuple[int, ...]:
    """The window of a reduction over H and W, or of a pooling whose windows touch."""
    if facts.layer.kind != "POOLING":
        return _reduced_sides(facts)
    window = tuple(facts["kernel"] or ())
    whole = facts.shapes(facts.layer.outputs)[0][2:] == (1, 1)
    touching = whole or window == tuple(facts["stride"] or ())
    return window if touching and not facts["padded"] else ()


def _reduced_sides(facts: Facts) -> tuple[int, ...]:
    if sorted(facts["axes_from_end"] or ()) != [-2, -1] or not facts.layer.inputs:
        return ()
    return tuple(facts.graph.tensors[facts.layer.inputs[0]].shape[-2:])


def _shuffle_of(facts: Facts) -> str:
    """What a reshape or transposition is a part of, where that is known."""
    layer, graph = facts.layer, facts.graph
    before = [graph.producers[name] for name in layer.inputs if name in graph.producers]
    after = [r for name in layer.outputs for r in graph.consumers.get(name, ())]
    chain = [one for one in (layer, *before, *after) if one.kind == "SHUFFLE"]
    if any(tuple(one.params.get("perm") or ()) == _SWAPPED for one in chain):
        return "channel shuffle"
    if any(len(one.params.get("perm") or ()) == _BLOCKS for one in chain):
        return "blocks"
    behind = [r for one in after for name in one.outputs for r in graph.consumers.get(name, ())]
    if any(one.params.get("gemm") or one.kind == _PRODUCT for one in (*before, *after, *behind)):
        return "matrix product"
    if not before:
        return "start"
    return "" if after else "end"


WORDING: dict[str, Callable[[Facts], Any]] = {
    "input_shape": _input_shape,
    "output_shape": _output_shape,
    "reshaped": _reshaped,
    "rearranged": _rearranged,
    "axis_names": _axis_names,
    "readers": _readers,
    "follows": _follows,
    "divides_by_constant": _divides_by_constant,
    "constants_found": _constants_found,
    "precision_name": lambda facts: str(facts["precision"]).upper(),
    "least_stride": lambda facts: min(facts["strides"] or (1,)),
    "reduced_sides": _reduced_sides,
    "reduced_window": lambda facts: "x".join(map(str, _reduced_sides(facts))),
    "pool_steps": _pool_steps,
    "shuffle_of": _shuffle_of,
}
