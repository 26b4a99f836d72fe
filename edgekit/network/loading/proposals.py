"""Proposes sizes for a file's dynamic axes, from its metadata or its kind of network."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgekit.network.loading.axes import Dims, is_batch, is_fixed, picture_axis
from edgekit.network.ranges import Axis

_USUAL_PICTURE = 224  # of ImageNet's networks
_DETECTIONS = re.compile(r"(?i)box|bbox|det|label|num_|anchor|scores?$")
# classes of a text recogniser: at least with a fixed height, and more if the output could also be
# a detector's
_LEAST_CLASSES = 20
_MANY_CLASSES = 500


@dataclass(frozen=True)
class Proposal:
    """Sizes for dynamic inputs, as a static shape and as a range.

    Attributes:
        shapes: Sizes by input.
        ranges: Sizes or ranges by axis, by input.
        rule: The reason for these sizes.
    """

    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, tuple[Axis, ...]]
    rule: str

    def options(self, *, ranged: bool = False) -> str:
        """Returns the options of the command line."""
        found: Mapping[str, Sequence[Axis]] = self.ranges if ranged else self.shapes
        return " ".join(f"--shape {name}:{'x'.join(map(str, s))}" for name, s in found.items())

    def yaml(self, *, ranged: bool = False) -> str:
        """Returns the configuration's key."""
        found: Mapping[str, Sequence[Axis]] = self.ranges if ranged else self.shapes
        shapes = (f"{name}: [{', '.join(map(str, sizes))}]" for name, sizes in found.items())
        return f"model.shapes: {{{', '.join(shapes)}}}"


@dataclass(frozen=True)
class _Rule:
    """Height and width of pictures, with their smallest and largest sizes, and the reason."""

    height: int
    width: int
    least: tuple[int, int]
    most: tuple[int, int]
    words: str


def propose(
    inputs: Sequence[onnx.ValueInfoProto],
    graph: onnx.GraphProto | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Proposal:
    """Returns sizes for the inputs, with a batch of 1.

    Args:
        inputs: The inputs with dynamic sizes.
        graph: The file's graph, whose outputs show the kind of network.
        metadata: The file's metadata.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    ranges: dict[str, tuple[Axis, ...]] = {}
    rules: dict[str, None] = {}
    rule = _choose_rule(inputs, graph or onnx.GraphProto(), metadata or {})
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        picture = picture_axis(dims) if value.type.tensor_type.HasField("shape") else None
        if not value.type.tensor_type.HasField("shape"):
            shapes[value.name] = ranges[value.name] = (1, 3, rule.height, rule.width)
            rules["the file does not have its rank"] = None
            continue
        axes = [_axis_range(i, dim, picture, rule) for i, dim in enumerate(dims)]
        shapes[value.name] = tuple(axis[1] for axis in axes)
        ranges[value.name] = tuple(
            size if low == high else f"{low}..{size}..{high}" if size < high else f"{low}..{high}"
            for low, size, high in axes
        )
        if picture is not None:
            rules[rule.words] = None
        elif any(low != high for low, _, high in axes):
            rules["128 is a usual length of a sequence"] = None
    return Proposal(shapes, ranges, "; ".join(rules))


def _axis_range(
    position: int, dim: onnx.TensorShapeProto.Dimension, picture: int | None, rule: _Rule
) -> tuple[int, int, int]:
    """Returns the smallest, the proposed and the largest size of an axis."""
    if is_fixed(dim):
        return dim.dim_value, dim.dim_value, dim.dim_value
    if is_batch(position, dim):
        return 1, 1, 1
    if picture is not None and position in (picture, picture + 1):
        side = position - picture
        return rule.least[side], (rule.height, rule.width)[side], rule.most[side]
    if picture is not None:
        return 3, 3, 3
    # 512: the longest sequence of BERT and its relatives
    return 1, 128, 512


def _choose_rule(
    inputs: Sequence[onnx.ValueInfoProto], graph: onnx.GraphProto, metadata: Mapping[str, str]
) -> _Rule:
    """Returns the first rule that applies: the file's metadata, then its kind of network."""
    shapes = [value.type.tensor_type.shape.dim for value in graph.output]
    own = _metadata_rule(metadata)
    if own is not None:
        return own
    height, width = _picture_sides(inputs)
    # few numbers per position may be a detector's boxes, but after a Softmax they are classes
    lines = any(
        len(dims) == 3
        and is_fixed(dims[2])
        and (dims[2].dim_value > _LEAST_CLASSES or _is_softmax(graph, value.name))
        for dims, value in zip(shapes, graph.output, strict=True)
    )
    # a recogniser's lines have one height and any length
    fixed_height = height is not None and width is None
    many = any(len(dims) == 3 and dims[2].dim_value > _MANY_CLASSES for dims in shapes)
    single_output = len(shapes) == 1
    if "character" in metadata or (single_output and (many or (fixed_height and lines))):
        own_height = height or 48
        why = "by its output, classes along a line"
        if "character" in metadata:
            why = "the file's metadata has its characters"
        return _Rule(
            own_height,
            320,
            (own_height, 160),
            (own_height, 1280),
            f"a text recogniser takes lines of height {own_height} ({why})",
        )
    names = [value.name for value in graph.output]
    # maps with one channel and a dynamic height
    maps = [
        dims
        for dims in shapes
        if len(dims) == 4 and is_fixed(dims[1]) and dims[1].dim_value == 1 and not is_fixed(dims[2])
    ]
    if single_output and maps:
        return _Rule(
            640,
            640,
            (320, 320),
            (960, 960),
            "a text detector or another network with one map as its output takes multiples of 32",
        )
    if _is_detector(names, shapes):
        return _Rule(
            640,
            640,
            (320, 320),
            (1280, 1280),
            "640 is a detector's usual size (by its outputs), a multiple of its stride of 32",
        )
    kind = "a usual size of pictures"
    if single_output and len(shapes[0]) == 2:
        kind = "a classifier's usual size (by its output)"
    least, most = _USUAL_PICTURE // 2, _USUAL_PICTURE * 2
    return _Rule(
        _USUAL_PICTURE, _USUAL_PICTURE, (least, least), (most, most), f"{_USUAL_PICTURE} is {kind}"
    )


def _picture_sides(inputs: Sequence[onnx.ValueInfoProto]) -> tuple[int | None, int | None]:
    """Returns height and width of the first picture input, with None for a dynamic size."""
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        position = picture_axis(dims)
        if position is not None:
            height, width = (
                dim.dim_value if is_fixed(dim) else None for dim in dims[position : position + 2]
            )
            return height, width
    return None, None


def _metadata_rule(metadata: Mapping[str, str]) -> _Rule | None:
    """Returns the rule from Ultralytics' metadata ``imgsz`` and ``stride``; None without them."""
    sides = _parse_numbers(metadata.get("imgsz", ""))
    if len(sides) == 1:
        sides *= 2
    if len(sides) != 2:
        return None
    step = max((*_parse_numbers(metadata.get("stride", "")), 1))
    height, width = sides
    least = tuple(max(step, side // 2 // step * step) for side in sides)
    words = f"{height}x{width} is the size in the file's metadata (imgsz"
    return _Rule(
        height,
        width,
        (least[0], least[1]),
        (2 * height, 2 * width),
        f"{words}, stride {step})" if step > 1 else f"{words})",
    )


def _parse_numbers(text: str) -> list[int]:
    try:
        value = ast.literal_eval(text.strip() or "[]")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    values = value if isinstance(value, list | tuple) else [value]
    return [size for size in values if type(size) is int and 0 < size < 1 << 16]


def _is_softmax(graph: onnx.GraphProto, tensor: str) -> bool:
    """Returns True if a tensor of rank 3 is a Softmax along its last axis."""
    node = next((node for node in graph.node if tensor in node.output), None)
    if node is None or node.op_type != "Softmax":
        return False
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
    return axis in (-1, 2)


def _is_detector(names: Sequence[str], shapes: Sequence[Dims]) -> bool:
    if sum(bool(_DETECTIONS.search(name)) for name in names) > 1:
        return True
    # boxes and classes along one axis and positions along the other; or YOLO's separate heads
    joined = len(shapes) == 1 and len(shapes[0]) == 3 and not all(map(is_fixed, shapes[0][1:]))
    heads = len(shapes) > 1 and all(len(dims) in (4, 5) for dims in shapes)
    return joined or heads
