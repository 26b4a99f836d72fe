"""The facts of a layer for the rules: its parameters, its neighbours, and values derived on
demand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.dla.checks import Facts
from edgekit.dla.memory import conv_banks
from edgekit.network.model import SHUFFLES

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Network


# functions of ELEMENTWISE that compare
COMPARISONS = frozenset({"EQUAL", "GREATER", "LESS"})
_AXES = {-4: "N", -3: "C", -2: "H", -1: "W"}
_LARGEST_WINDOW = 8
_PRODUCT = "MATRIX_MULTIPLY"
# (N, groups, channels of a group, H, W) with groups and channels swapped
_SWAPPED = (0, 2, 1, 3, 4)
_BLOCKS = 6  # dimensions between the two reshapes that move blocks between space and depth
_CHW = 3


class LayerGraph:
    """A network with the look-ups that facts need.

    Attributes:
        tensors: The network's tensors by name.
        refused: Names of the layers judged so far that stay on the GPU.
        neighbours_read: True if a neighbour was read since the last reset to False: without such a
            read a verdict holds for every equal layer.
    """

    def __init__(self, network: Network) -> None:
        self.tensors = network.tensors
        self.refused: set[str] = set()
        self.neighbours_read = False
        self._producers = network.producers()
        self._consumers = network.consumers()

    @property
    def producers(self) -> Mapping[str, Layer]:
        """The layer that writes a tensor, by tensor."""
        self.neighbours_read = True
        return self._producers

    @property
    def consumers(self) -> Mapping[str, tuple[Layer, ...]]:
        """The layers that read a tensor, by tensor."""
        self.neighbours_read = True
        return self._consumers


def consumer_kinds(facts: LayerFacts) -> tuple[str, ...]:
    """Returns the kinds of the layers that read a layer's outputs; "nothing" without readers."""
    return tuple(reader.kind for reader in _reading_layers(facts)) or ("nothing",)


def consumer_types(facts: LayerFacts) -> tuple[str, ...]:
    """Returns the output types of the layers that read a layer's outputs."""
    tensors = facts.graph.tensors
    return tuple(tensors[name].dtype for r in _reading_layers(facts) for name in r.outputs)


def producer_kind(facts: LayerFacts) -> str | None:
    """Returns the kind of the first input's producer; for a comparison also if it is on the GPU."""
    producer = facts.graph.producers.get(facts.layer.inputs[0]) if facts.layer.inputs else None
    if producer is None:
        return "graph input"
    if producer.kind == "ELEMENTWISE" and producer.params.get("function") in COMPARISONS:
        return "comparison on the GPU" if producer.name in facts.graph.refused else "comparison"
    return producer.kind


def neighbour_kinds(facts: LayerFacts) -> tuple[str, ...]:
    """Returns the kinds of the layers before and after a layer."""
    graph = facts.graph
    before = [graph.producers[name].kind for name in facts.layer.inputs if name in graph.producers]
    return (*before, *(reader.kind for reader in _reading_layers(facts)))


def _reading_layers(facts: LayerFacts) -> list[Layer]:
    """Returns the layers that read a layer's outputs, output by output."""
    consumers = facts.graph.consumers
    return [reader for name in facts.layer.outputs for reader in consumers.get(name, ())]


def _first_shape_text(names: tuple[str, ...], facts: LayerFacts) -> str:
    return _shape_text(facts.graph.tensors[names[0]].shape) if names else "none"


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _input_of_rank(facts: LayerFacts, choose: Callable[..., str]) -> str:
    """Returns the input of the fewest or most dimensions, with its name if there are several."""
    names = facts.layer.inputs
    if not names:
        return "none"
    tensors = facts.graph.tensors
    name = choose(names, key=lambda name: len(tensors[name].shape))
    sizes = _shape_text(tensors[name].shape)
    return sizes if len(names) == 1 else f"{name!r}: {sizes}"


def _input_shape(facts: LayerFacts) -> str:
    return _first_shape_text(facts.layer.inputs, facts)


def _output_shape(facts: LayerFacts) -> str:
    return _first_shape_text(facts.layer.outputs, facts)


def _reshaped(facts: LayerFacts) -> str:
    """Returns the shapes of a shuffle, with the shapes between fused shuffles."""
    between = (_shape_text(part["shape"]) for part in (facts["parts"] or ())[:-1])
    return " to ".join((_input_shape(facts), *between, _output_shape(facts)))


def _rearranged(facts: LayerFacts) -> str:
    perms = [part["perm"] for part in facts["parts"] or (facts,) if part.get("perm") is not None]
    return ", transposed by ".join(
        (_reshaped(facts), *(", ".join(map(str, perm)) for perm in perms))
    )


def _axis_names(facts: LayerFacts) -> str:
    axes = facts["axes_from_end"]
    if axes is None:
        axes = () if facts["axis_from_end"] is None else (facts["axis_from_end"],)
    return " and ".join(_AXES.get(axis, f"dimension {axis}") for axis in sorted(axes))


def _readers(facts: LayerFacts) -> str:
    graph = facts.graph
    readers = _reading_layers(facts)
    if not readers:
        return "no layer reads it"
    names = []
    for reader in readers:
        types = (graph.tensors[name].dtype for name in reader.outputs)
        cast = f"a cast to {', '.join(types)}" if reader.kind == "CAST" else reader.op
        names.append(cast or reader.kind)
    return f"read by {' and '.join(dict.fromkeys(names))}"


def _producer_text(facts: LayerFacts) -> str:
    kind = facts["producer_kind"]
    if kind == "comparison on the GPU":
        return "a comparison that stays on the GPU"
    return "a graph input" if kind == "graph input" else str(kind)


def _divides_by_constant(facts: LayerFacts) -> bool:
    return facts["constant_operand"] is not None or facts.layer.kind == "SCALE"


def _constants_found(facts: LayerFacts) -> str:
    if len(facts.layer.inputs) > 1:
        return "two computed operands"
    return "a constant of several values"


def _pool_steps(facts: LayerFacts) -> str:
    """Returns pooling windows that together make the window, "7x7 and then 2x2"; empty if none."""
    sides = [_factor_window(side) for side in _averaged_window(facts)]
    if not sides or not all(sides):
        return ""
    longest = max(map(len, sides))
    padded = [side + [1] * (longest - len(side)) for side in sides]
    return " and then ".join("x".join(map(str, step)) for step in zip(*padded, strict=True))


def _factor_window(side: int) -> list[int]:
    if side <= _LARGEST_WINDOW:
        return [side]
    # the largest first, so that few poolings are needed
    factor = next((f for f in range(_LARGEST_WINDOW, 1, -1) if side % f == 0), 0)
    rest = _factor_window(side // factor) if factor else []
    return [factor, *rest] if rest else []


def _averaged_window(facts: LayerFacts) -> tuple[int, ...]:
    """Returns the window of a reduction over H and W, or of a pooling whose windows touch."""
    if facts.layer.kind != "POOLING":
        return _reduced_sides(facts)
    window = tuple(facts["kernel"] or ())
    # one window, or windows side by side: only then do smaller poolings give the same averages
    whole = facts.shapes(facts.layer.outputs)[0][2:] == (1, 1)
    touching = whole or window == tuple(facts["stride"] or ())
    return window if touching and not facts["padded"] else ()


def _reduced_sides(facts: LayerFacts) -> tuple[int, ...]:
    if sorted(facts["axes_from_end"] or ()) != [-2, -1] or not facts.layer.inputs:
        return ()
    return tuple(facts.graph.tensors[facts.layer.inputs[0]].shape[-2:])


def _shuffle_kind(facts: LayerFacts) -> str:
    """Returns the operation that a reshape or transposition is a part of, if known."""
    layer, graph = facts.layer, facts.graph
    before = [graph.producers[name] for name in layer.inputs if name in graph.producers]
    after = _reading_layers(facts)
    perms = [
        tuple(shuffle.params.get("perm") or ())
        for shuffle in (layer, *before, *after)
        if shuffle.kind in SHUFFLES
    ]
    if _SWAPPED in perms:
        return "channel shuffle"
    if _BLOCKS in map(len, perms):
        return "blocks"
    # the product may be behind a reshape, so two steps
    next_readers = [
        r for reader in after for name in reader.outputs for r in graph.consumers.get(name, ())
    ]
    if any(
        near.params.get("gemm") or near.kind == _PRODUCT
        for near in (*before, *after, *next_readers)
    ):
        return "matrix product"
    if not before:
        return "start"
    return "" if after else "end"


WORDING: dict[str, Callable[[LayerFacts], Any]] = {
    "input_shape": _input_shape,
    "shallowest_input": lambda facts: _input_of_rank(facts, min),
    "deepest_input": lambda facts: _input_of_rank(facts, max),
    "output_shape": _output_shape,
    "reshaped": _reshaped,
    "rearranged": _rearranged,
    "axis_names": _axis_names,
    "readers": _readers,
    "follows": _producer_text,
    "divides_by_constant": _divides_by_constant,
    "constants_found": _constants_found,
    "precision_name": lambda facts: str(facts["precision"]).upper(),
    "least_stride": lambda facts: min(facts["strides"] or (1,)),
    "reduced_sides": _reduced_sides,
    "reduced_window": lambda facts: "x".join(map(str, _reduced_sides(facts))),
    "pool_steps": _pool_steps,
    "shuffle_of": _shuffle_kind,
}


class LayerFacts(Facts):
    """The facts of one layer by name; a fact that the layer does not have is None.

    Starts as the layer's parameters. A derived fact is computed when a rule first reads it.
    """

    def __init__(self, layer: Layer, graph: LayerGraph, common: Facts) -> None:
        super().__init__(layer.params)
        self.update(common)
        self["kind"] = layer.kind
        self["op"] = layer.op
        self.layer = layer
        self.graph = graph

    def __missing__(self, name: str) -> Any:
        derive = _DERIVED.get(name)
        # kept below, so each fact is computed once a layer
        value = None if derive is None else derive(self)
        self[name] = value
        return value

    def shapes(self, names: tuple[str, ...]) -> list[tuple[int, ...]]:
        """Returns the shapes of the layer's tensors ``names``."""
        tensors = self.graph.tensors
        return [tensors[name].shape for name in names]


def dla_batch(shape: tuple[int, ...]) -> int:
    """Returns the DLA's batch: the product of all dimensions except the last three (guide 8.5)."""
    return math.prod(shape[:-_CHW])


def _input_shapes(facts: LayerFacts) -> list[tuple[int, ...]]:
    return facts.shapes(facts.layer.inputs)


def _all_shapes(facts: LayerFacts) -> list[tuple[int, ...]]:
    return facts.shapes((*facts.layer.inputs, *facts.layer.outputs))


def _ranks(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(len(shape) for shape in shapes)


def _tensor_types(facts: LayerFacts) -> tuple[str, ...]:
    """Returns the types of inputs and outputs, and of quantised weights that only GPUs support.

    The boolean result of a comparison before its cast is ignored.
    """
    layer = facts.layer
    names: tuple[str, ...] = (*layer.inputs, *layer.outputs)
    if layer.kind == "ELEMENTWISE" and facts["function"] in COMPARISONS:
        names = layer.inputs
    elif layer.kind == "CAST" and facts["producer_kind"] == "comparison":
        names = layer.outputs
    types = tuple(facts.graph.tensors[name].dtype for name in names)
    return (*types, *filter(None, (facts["weight_codes"],)))


def _reads_uint8_input(facts: LayerFacts) -> bool:
    """Returns True if a layer reads an input of the network whose type is uint8."""
    tensors, producers = facts.graph.tensors, facts.graph.producers
    inputs = facts.layer.inputs
    return any(tensors[name].dtype == "uint8" and name not in producers for name in inputs)


def _axis_from_end(facts: LayerFacts, axis: int) -> int:
    # a layer without inputs, such as a constant, has only outputs
    rank = len(_input_shapes(facts)[0]) if facts.layer.inputs else len(_all_shapes(facts)[0])
    return axis - rank if axis >= 0 else axis


def _single_axis_from_end(facts: LayerFacts) -> int | None:
    axis = facts["axis"]
    return None if axis is None else _axis_from_end(facts, axis)


def _axes_from_end(facts: LayerFacts) -> tuple[int, ...] | None:
    axes = facts["axes"]
    return None if axes is None else tuple(_axis_from_end(facts, axis) for axis in axes)


def _axis_size(facts: LayerFacts) -> int | None:
    axis = facts["axis_from_end"]
    return None if axis is None else _input_shapes(facts)[0][axis]


def _other_dims(facts: LayerFacts) -> tuple[int, ...] | None:
    axis = facts["axis_from_end"]
    if axis is None:
        return None
    shape = _input_shapes(facts)[0]
    index = len(shape) + axis
    return tuple(size for place, size in enumerate(shape) if place != index)


def _other_chw_dims(facts: LayerFacts) -> tuple[int, ...] | None:
    others, shape = facts["other_dims"], _input_shapes(facts)[0] if facts.layer.inputs else ()
    # the axis is C, H or W, so two axes are left
    return None if others is None else others[max(len(shape) - _CHW, 0) :]


def _dilated_kernel(facts: LayerFacts) -> tuple[int, ...] | None:
    kernel, dilation = facts["kernel"], facts["dilation"]
    if kernel is None:
        return None
    dilation = dilation or (1,) * len(kernel)
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))


def _chw_dims(facts: LayerFacts) -> tuple[int, ...]:
    # a tensor without all of C, H and W is judged by its rank
    return tuple(size for s in _all_shapes(facts) if len(s) > _CHW for size in s[-_CHW:])


def _common_side(sides: Any) -> int | None:
    return sides[0] if sides and len(set(sides)) == 1 else None


def _cbuf_banks(facts: LayerFacts, precision: str) -> int | None:
    if not facts.layer.inputs:
        return None
    return conv_banks(facts, _input_shapes(facts)[0], precision)


def _full_window_weights(facts: LayerFacts) -> int | None:
    """Returns the weights of a convolution whose kernel is as large as its input; else None."""
    kernel, shape = facts["kernel"], _input_shapes(facts)[0] if _input_shapes(facts) else ()
    if kernel is None or tuple(kernel) != shape[2:] or math.prod(kernel) == 1:
        return None
    depth = int(shape[1]) // int(facts["groups"] or 1)
    return int(math.prod(kernel)) * depth * int(facts["out_maps"] or 0)


def _broadcast(facts: LayerFacts) -> str | None:
    """Returns the smaller operand's form: "NCHW" (same size), "NC11", "N111", or the shapes."""
    shapes = _input_shapes(facts)
    if facts["constant_operand"] is not None:
        shapes.append(facts["constant_operand"])
    if len(shapes) != 2 or len(set(shapes)) == 1:
        return None
    different = " and ".join(map(_shape_text, shapes))
    if len(shapes[0]) != len(shapes[1]):
        return different
    # either operand may be broadcast
    small, large = sorted(shapes, key=math.prod)
    forms = {large: "NCHW", (*large[:-2], 1, 1): "NC11", (*large[:-3], 1, 1, 1): "N111"}
    return forms.get(small, different)


def _keeps_batch(facts: LayerFacts) -> bool:
    shape = _all_shapes(facts)[0]
    for part in facts["parts"] or (facts,):
        target = part["shape"] or _all_shapes(facts)[-1]
        perm = part.get("perm")
        if shape[:1] != target[:1] if perm is None else perm[0] != 0:
            return False
        shape = target
    return True


def _slices_batch(facts: LayerFacts) -> bool | None:
    starts, sizes = facts["starts"], facts["sizes"]
    if starts is None or sizes is None or not starts:
        return None
    return bool(starts[0] != 0 or sizes[0] != _input_shapes(facts)[0][0])


def _resize_combination(facts: LayerFacts) -> str | None:
    parts = [facts["mode"], facts["coordinates"], facts["selector"]]
    if facts["mode"] == "NEAREST":
        parts.append(facts["rounding"])
    return None if None in parts else "/".join(parts)


_DERIVED: dict[str, Callable[[LayerFacts], Any]] = {
    "opaque": lambda facts: facts.layer.opaque,
    "per_channel": lambda facts: facts["axis"] is not None,
    "input_ranks": lambda facts: _ranks(_input_shapes(facts)),
    "output_ranks": lambda facts: _ranks(facts.shapes(facts.layer.outputs)),
    "part_ranks": lambda facts: _ranks(
        [tuple(part["shape"]) for part in (facts["parts"] or ())[:-1]]
    ),
    "tensor_types": _tensor_types,
    "reads_uint8_input": _reads_uint8_input,
    "has_weight_codes": lambda facts: facts["weight_codes"] is not None,
    "batches": lambda facts: tuple(dla_batch(shape) for shape in _all_shapes(facts)),
    "non_batch_dims": _chw_dims,
    "activation_inputs": lambda facts: len(facts.layer.inputs),
    # with constants: for the builder they are inputs like others
    "operands": lambda facts: facts["inputs"] or len(facts.layer.inputs),
    "spatial_dims": lambda facts: None if facts["kernel"] is None else len(facts["kernel"]),
    "dilated_kernel": _dilated_kernel,
    "square_kernel": lambda facts: _common_side(facts["kernel"]),
    "square_stride": lambda facts: _common_side(facts["stride"]),
    "cbuf_banks": lambda facts: _cbuf_banks(facts, facts["precision"]),
    "cbuf_banks_fp16": lambda facts: _cbuf_banks(facts, "fp16"),
    "full_window_weights": _full_window_weights,
    "channels": lambda facts: tuple(shape[-3] for shape in _all_shapes(facts) if len(shape) > _CHW),
    # a pooling layer calls its function its mode
    "function": lambda facts: facts["mode"] if facts.layer.kind == "POOLING" else None,
    "window": lambda facts: facts["kernel"],
    "padded": lambda facts: any(facts["pads"] or ()),
    "broadcast": _broadcast,
    "consumer_kinds": consumer_kinds,
    "consumer_types": consumer_types,
    "producer_kind": producer_kind,
    "neighbour_kinds": neighbour_kinds,
    "axis_from_end": _single_axis_from_end,
    "axes_from_end": _axes_from_end,
    "axis_size": _axis_size,
    "other_dims": _other_dims,
    "other_chw_dims": _other_chw_dims,
    "gives_sizes": lambda facts: facts["sizes"] is not None,
    "scale_count": lambda facts: None if facts["scales"] is None else len(facts["scales"]),
    "outer_scales": lambda facts: None if facts["scales"] is None else tuple(facts["scales"][:2]),
    "inner_scales": lambda facts: None if facts["scales"] is None else tuple(facts["scales"][2:]),
    "resize_combination": _resize_combination,
    "keeps_batch": _keeps_batch,
    "reshapes": lambda facts: bool(facts["mode"] == "RESHAPE"),
    "slices_batch": _slices_batch,
    **WORDING,
}
