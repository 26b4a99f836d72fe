"""What the rules ask about a layer: its parameters, and values derived from them on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.dla._cbuf import banks_of
from edgekit.dla._neighbours import (
    COMPARISONS,
    consumer_kinds,
    consumer_types,
    neighbours,
    producer_kind,
)
from edgekit.dla._wording import WORDING

if TYPE_CHECKING:
    from edgekit.dla._graph import Graph
    from edgekit.network import Layer

__all__ = ["Facts", "batch_of"]

_CHW = 3


class Facts(dict[str, Any]):
    """The facts of one layer by name; a fact that the layer does not have is None.

    Starts as the layer's parameters. A derived fact is computed when a rule first asks for it.
    """

    def __init__(self, layer: Layer, graph: Graph, common: Mapping[str, Any]) -> None:
        super().__init__(layer.params)
        self.update(common)
        self["kind"] = layer.kind
        self["op"] = layer.op
        self.layer = layer
        self.graph = graph

    def __missing__(self, name: str) -> Any:
        derive = _DERIVED.get(name)
        value = None if derive is None else derive(self)
        self[name] = value
        return value

    def shapes(self, names: tuple[str, ...]) -> list[tuple[int, ...]]:
        """Shapes of the layer's tensors ``names``."""
        tensors = self.graph.tensors
        return [tensors[name].shape for name in names]


def batch_of(shape: tuple[int, ...]) -> int:
    """The DLA's batch: the product of all dimensions except the last three (guide 8.5)."""
    return math.prod(shape[:-_CHW])


def _inputs(facts: Facts) -> list[tuple[int, ...]]:
    return facts.shapes(facts.layer.inputs)


def _both(facts: Facts) -> list[tuple[int, ...]]:
    return facts.shapes((*facts.layer.inputs, *facts.layer.outputs))


def _ranks(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(len(shape) for shape in shapes)


def _types(facts: Facts) -> tuple[str, ...]:
    """Types of inputs and outputs; a comparison's truth values go unseen into their cast."""
    layer = facts.layer
    names: tuple[str, ...] = (*layer.inputs, *layer.outputs)
    if layer.kind == "ELEMENTWISE" and facts["function"] in COMPARISONS:
        names = layer.inputs
    elif layer.kind == "CAST" and facts["producer_kind"] == "comparison":
        names = layer.outputs
    return tuple(facts.graph.tensors[name].dtype for name in names)


def _axis_from_end(facts: Facts, axis: int) -> int:
    rank = len(_inputs(facts)[0]) if facts.layer.inputs else len(_both(facts)[0])
    return axis - rank if axis >= 0 else axis


def _one_axis(facts: Facts) -> int | None:
    axis = facts["axis"]
    return None if axis is None else _axis_from_end(facts, axis)


def _axes(facts: Facts) -> tuple[int, ...] | None:
    axes = facts["axes"]
    return None if axes is None else tuple(_axis_from_end(facts, axis) for axis in axes)


def _axis_size(facts: Facts) -> int | None:
    axis = facts["axis_from_end"]
    return None if axis is None else _inputs(facts)[0][axis]


def _other_dims(facts: Facts) -> tuple[int, ...] | None:
    axis = facts["axis_from_end"]
    if axis is None:
        return None
    shape = _inputs(facts)[0]
    index = len(shape) + axis
    return tuple(size for place, size in enumerate(shape) if place != index)


def _other_chw_dims(facts: Facts) -> tuple[int, ...] | None:
    others, shape = facts["other_dims"], _inputs(facts)[0] if facts.layer.inputs else ()
    # the axis is one of C, H and W, so two of them are left
    return None if others is None else others[max(len(shape) - _CHW, 0) :]


def _dilated(facts: Facts) -> tuple[int, ...] | None:
    kernel, dilation = facts["kernel"], facts["dilation"]
    if kernel is None:
        return None
    dilation = dilation or (1,) * len(kernel)
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))


def _chw_dims(facts: Facts) -> tuple[int, ...]:
    # a tensor without all of C, H and W is judged by its rank
    return tuple(size for s in _both(facts) if len(s) > _CHW for size in s[-_CHW:])


def _square(sides: Any) -> int | None:
    return sides[0] if sides and len(set(sides)) == 1 else None


def _banks(facts: Facts, precision: str) -> int | None:
    if not facts.layer.inputs:
        return None
    return banks_of(facts, _inputs(facts)[0], precision)


def _full_window_weights(facts: Facts) -> int | None:
    """Weights of a convolution whose kernel is as large as its input; None for any other."""
    kernel, shape = facts["kernel"], _inputs(facts)[0] if _inputs(facts) else ()
    if kernel is None or tuple(kernel) != shape[2:] or math.prod(kernel) == 1:
        return None
    depth = int(shape[1]) // int(facts["groups"] or 1)
    return int(math.prod(kernel)) * depth * int(facts["out_maps"] or 0)


def _channels(facts: Facts) -> tuple[int, ...]:
    return tuple(shape[-3] for shape in _both(facts) if len(shape) > _CHW)


def _function(facts: Facts) -> str | None:
    # a pooling layer calls its function its mode
    return facts["mode"] if facts.layer.kind == "POOLING" else None


def _broadcast(facts: Facts) -> str | None:
    """The form of the smaller operand: "NCHW" (the same), "NC11", "N111", or the shapes."""
    shapes = _inputs(facts)
    if facts["constant_operand"] is not None:
        shapes.append(facts["constant_operand"])
    if len(shapes) != 2 or len(set(shapes)) == 1:
        return None
    if len(shapes[0]) != len(shapes[1]):
        return _two(shapes)
    small, large = sorted(shapes, key=math.prod)
    forms = {large: "NCHW", (*large[:-2], 1, 1): "NC11", (*large[:-3], 1, 1, 1): "N111"}
    return forms.get(small, _two(shapes))


def _two(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join("x".join(map(str, shape)) or "a scalar" for shape in shapes)


def _keeps_batch(facts: Facts) -> bool:
    shape = _both(facts)[0]
    for part in facts["parts"] or (facts,):
        target = part["shape"] or _both(facts)[-1]
        perm = part.get("perm")
        if shape[:1] != target[:1] if perm is None else perm[0] != 0:
            return False
        shape = target
    return True


def _part_shapes(facts: Facts) -> list[tuple[int, ...]]:
    """Shapes between the parts of a fused shuffle."""
    return [tuple(part["shape"]) for part in (facts["parts"] or ())[:-1]]


def _slices_batch(facts: Facts) -> bool | None:
    starts, sizes = facts["starts"], facts["sizes"]
    if starts is None or sizes is None or not starts:
        return None
    return bool(starts[0] != 0 or sizes[0] != _inputs(facts)[0][0])


def _combination(facts: Facts) -> str | None:
    parts = [facts["mode"], facts["coordinates"], facts["selector"]]
    if facts["mode"] == "NEAREST":
        parts.append(facts["rounding"])
    return None if None in parts else "/".join(parts)


def _reshapes(facts: Facts) -> bool:
    return bool(facts["mode"] == "RESHAPE")


_DERIVED: dict[str, Callable[[Facts], Any]] = {
    "opaque": lambda facts: facts.layer.opaque,
    "per_channel": lambda facts: facts["axis"] is not None,
    "input_ranks": lambda facts: _ranks(_inputs(facts)),
    "output_ranks": lambda facts: _ranks(facts.shapes(facts.layer.outputs)),
    "part_ranks": lambda facts: _ranks(_part_shapes(facts)),
    "tensor_types": _types,
    "batches": lambda facts: tuple(batch_of(shape) for shape in _both(facts)),
    "non_batch_dims": _chw_dims,
    "activation_inputs": lambda facts: len(facts.layer.inputs),
    # constants among them: to the builder they are inputs like others
    "operands": lambda facts: facts["inputs"] or len(facts.layer.inputs),
    "spatial_dims": lambda facts: None if facts["kernel"] is None else len(facts["kernel"]),
    "dilated_kernel": _dilated,
    "square_kernel": lambda facts: _square(facts["kernel"]),
    "square_stride": lambda facts: _square(facts["stride"]),
    "cbuf_banks": lambda facts: _banks(facts, facts["precision"]),
    "cbuf_banks_fp16": lambda facts: _banks(facts, "fp16"),
    "full_window_weights": _full_window_weights,
    "channels": _channels,
    "function": _function,
    "window": lambda facts: facts["kernel"],
    "padded": lambda facts: any(facts["pads"] or ()),
    "broadcast": _broadcast,
    "consumer_kinds": consumer_kinds,
    "consumer_types": consumer_types,
    "producer_kind": producer_kind,
    "neighbour_kinds": neighbours,
    "axis_from_end": _one_axis,
    "axes_from_end": _axes,
    "axis_size": _axis_size,
    "other_dims": _other_dims,
    "other_chw_dims": _other_chw_dims,
    "gives_sizes": lambda facts: facts["sizes"] is not None,
    "scale_count": lambda facts: None if facts["scales"] is None else len(facts["scales"]),
    "outer_scales": lambda facts: None if facts["scales"] is None else tuple(facts["scales"][:2]),
    "inner_scales": lambda facts: None if facts["scales"] is None else tuple(facts["scales"][2:]),
    "resize_combination": _combination,
    "keeps_batch": _keeps_batch,
    "reshapes": _reshapes,
    "slices_batch": _slices_batch,
    **WORDING,
}
