"""Recognises heads with offsets from prior boxes: SSD, RetinaNet and RetinaFace.

A Concat joins the offsets of all levels, another the classes' values. The network's own decoding of
offsets is evaluated: zeros give the priors, ones the variances, large offsets the bounds. Priors
are kept by level, as those of one place and a step, after comparison with all places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.detection.decoding import Decoding, decoding
from edgekit.detection.published_priors import published
from edgekit.detection.recognised import Differs, Recognised, Unlike
from edgekit.detection.walk import MOVES, class_names, later, unexplained
from edgekit.network.graph import OnnxGraph
from edgekit.network.model import SAME_VALUES, Model
from edgekit_device.detection.head import Head, PriorHead, PriorLevel

_FAMILY = "SSD, RetinaNet or RetinaFace (offsets from priors)"
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "RoiAlign"})
# offsets large enough to reach bounds; float32 can hold the exponential of the second
_FAR, _STEEP = 1e6, 60.0
# relative to the largest value: the error of float32 in a dozen operations
_ROUNDING = 4e-6


@dataclass(frozen=True)
class Joined:
    """The raw maps of all levels, joined.

    Attributes:
        tensor: [batch, priors, values].
        maps: [batch, priors of a place * values, height, width] each.
        values: Values of a prior.
        sizes: Priors of a place, height and width of each map.
    """

    tensor: str
    maps: tuple[str, ...]
    values: int
    sizes: tuple[tuple[int, int, int], ...]


def recognise_prior(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head whose boxes are offsets from priors, or the difference.

    Args:
        model: The whole network.
        metadata: The file's metadata; ``names`` are the classes.
    """
    try:
        return _recognise_head(model, metadata)
    except Differs as error:
        return Unlike(_FAMILY, error.matched, error.differs)


def _recognise_head(model: Model, metadata: Mapping[str, str]) -> Recognised:
    graph = model.graph
    joined = _joined_maps(graph)
    boxes, own = _boxes(graph, joined)
    scores, points = _scores(graph, joined, boxes)
    _refuse_second_stage(graph, [part for part in (boxes, scores, points) if part])
    size = _picture(graph)
    tensors: dict[str, tuple[str, ...]] = {"offsets": (boxes.tensor,), "logits": (scores.tensor,)}
    assumed = ""
    if own is None:
        part, assumed = _published_head(graph, boxes, scores, points, size)
    else:
        part = _measured_head(model, own, boxes, scores, points, size)
        tensors["boxes"] = (own.result,)
    if active := _activation_outputs(graph, scores, part.scores.capitalize()):
        tensors["scores"] = active
    if points:
        tensors["landmark_offsets"] = (points.tensor,)
        if own and (marked := decoding(graph, points.tensor, "Mul")):
            tensors["landmarks"] = (marked.result,)
    # a softmax has the background as one more class
    classes = scores.values - (part.scores == "softmax")
    head = Head(
        "RetinaFace" if points else "SSD" if part.scores == "softmax" else "RetinaNet",
        tuple(name for part in (boxes, scores, points) if part for name in part.maps),
        class_names(metadata, classes),
        assumed,
        prior=part,
    )
    return Recognised(head, tensors, own.picked if own else {})


def _joined_maps(graph: OnnxGraph) -> list[Joined]:
    """Returns the maps that are joined along the rows, in graph order."""
    found = []
    for node in graph.nodes():
        shape = graph.shape(node.outputs[0])
        if node.op != "Concat" or len(shape) != 3 or 0 in shape or node.attrs["axis"] % 3 != 1:
            continue
        maps = [_map(graph, name) for name in node.inputs]
        shapes = [graph.shape(name) for name in maps if name]
        if len(shapes) < len(maps) or any(len(size) != 4 or size[1] % shape[2] for size in shapes):
            continue
        if sum(math.prod(size[1:]) for size in shapes) == shape[1] * shape[2]:
            sizes = tuple((size[1] // shape[2], size[2], size[3]) for size in shapes)
            found.append(Joined(node.outputs[0], tuple(filter(None, maps)), shape[2], sizes))
    return found


def _map(graph: OnnxGraph, tensor: str) -> str | None:
    """Returns the map whose values a tensor has in another order."""
    while (node := graph.producer(tensor)) is not None and node.op in SAME_VALUES:
        tensor = node.inputs[0]
    return tensor if node is not None else None


def _boxes(graph: OnnxGraph, joined: Sequence[Joined]) -> tuple[Joined, Decoding | None]:
    """Returns the joined offsets of boxes, and the network's own decoding."""
    fours = [each for each in joined if each.values == 4]
    if not fours:
        raise Differs(0, "no Concat joins maps by level to offsets [batch, priors, 4]")
    for each in fours:
        if own := decoding(graph, each.tensor, "Exp"):
            return each, own
    if len(fours) > 1:
        raise Differs(1, f"both {fours[0].tensor} and {fours[1].tensor} have four values a prior")
    return fours[0], None


def _scores(
    graph: OnnxGraph, joined: Sequence[Joined], boxes: Joined
) -> tuple[Joined, Joined | None]:
    """Returns the joined values of the classes, and of landmarks."""
    others = [each for each in joined if each is not boxes and each.sizes == boxes.sizes]
    if not others:
        raise Differs(
            1,
            f"offsets are joined in {boxes.tensor} ({_levels(boxes)}), but no Concat joins "
            "classes of the same levels",
        )
    active = [each for each in others if _activation(graph, each)]
    if not active:
        # raw values: those of five landmarks are ten
        active = [each for each in others if len(others) == 1 or each.values != 10]
    points = [each for each in others if each not in active]
    if len(active) != 1 or len(points) > 1 or any(each.values % 2 for each in points):
        names = ", ".join(each.tensor for each in others)
        raise Differs(1, f"which are the classes of the boxes in {boxes.tensor}: {names}")
    return active[0], points[0] if points else None


def _activation(graph: OnnxGraph, scores: Joined) -> str:
    """Returns the operator that turns values into scores: "Softmax", "Sigmoid" or ""."""
    return next(
        (name for name in ("Softmax", "Sigmoid") if _activation_outputs(graph, scores, name)), ""
    )


def _activation_outputs(graph: OnnxGraph, scores: Joined, operator: str) -> tuple[str, ...]:
    """Returns an operator's outputs whose inputs are the values, moved but unchanged."""
    moved, found = {scores.tensor}, []
    for node in graph.nodes():
        if node.input(0) in moved:
            if node.op == operator:
                found.append(node.outputs[0])
            elif node.op in MOVES:
                moved.update(node.outputs)
    return tuple(found)


def _published_head(
    graph: OnnxGraph, boxes: Joined, scores: Joined, points: Joined | None, size: tuple[int, int]
) -> tuple[PriorHead, str]:
    """Returns the head of a published network that ends with the raw maps."""
    readers = graph.readers[boxes.maps[0]]
    split = any(len(graph.shape(graph.node(name).outputs[0])) == 5 for name in readers)
    known = published(boxes.sizes, points.values if points else 0, split, *size)
    if known is None:
        raise Differs(
            2,
            f"no node decodes the offsets of {boxes.tensor}, and no published network has such "
            f"maps ({_levels(boxes)}), so the priors are unknown: export the network with its "
            "decoding",
        )
    activation = _activation(graph, scores)
    if activation.lower() not in ("", known.scores):
        raise Differs(
            2, f"{known.name} has a {known.scores} over {scores.tensor}, not a {activation}"
        )
    levels = tuple(
        PriorLevel(
            boxes.maps[number],
            scores.maps[number],
            tuple(tuple(map(_short, prior)) for prior in priors),
            step,
            points.maps[number] if points else "",
        )
        for number, (priors, step) in enumerate(known.places)
    )
    clip = (float(size[0]), float(size[1])) if known.clip else (0.0, 0.0)
    part = PriorHead(levels, known.variances, known.scores, (1.0, 1.0), known.growth, clip)
    return part, f"the file has no priors: those of {known.name} are used"


def _refuse_second_stage(graph: OnnxGraph, joined: Sequence[Joined]) -> None:
    """Refuses a network whose head is not the last part: Faster R-CNN's proposals."""
    maps = [name for each in joined for name in each.maps]
    if lost := unexplained(graph, maps):
        raise Differs(2, f"the output {lost} is not computed from the levels' maps")
    for node in later(graph, maps):
        if node.op in _WEIGHTED:
            raise Differs(
                2,
                f"{node.op} {node.name!r} follows on the boxes: they are proposals for a second "
                "stage",
            )


def _picture(graph: OnnxGraph) -> tuple[int, int]:
    """Returns width and height of the network's picture."""
    shapes = [graph.shape(name) for name in graph.inputs]
    pictures = [shape for shape in shapes if len(shape) in (3, 4)]
    if len(pictures) != 1:
        raise Differs(2, f"{len(pictures)} inputs are pictures; one was looked for")
    return pictures[0][-1], pictures[0][-2]


def _levels(boxes: Joined) -> str:
    return ", ".join(f"{each} a place of {high}x{wide}" for each, high, wide in boxes.sizes)


def _measured_head(
    model: Model,
    own: Decoding,
    boxes: Joined,
    scores: Joined,
    points: Joined | None,
    size: tuple[int, int],
) -> PriorHead:
    """Returns the head, from the results of the network's decoding for a few offsets."""
    activation = _activation(model.graph, scores)
    if not activation:
        raise Differs(3, f"neither Softmax nor Sigmoid makes scores of {scores.tensor}")
    centre, extent = _run_decoding(model, own, boxes, 0.0)
    moved, grown = _run_decoding(model, own, boxes, 1.0)
    if not (extent > 0).all():
        raise Differs(3, f"{own.result} has no left, top, right, bottom of offsets of zero")
    # boxes are centre + offset * variance * size, and size * exp(offset * variance); medians,
    # because single rows differ by rounding
    variances = [
        *np.median((moved - centre) / extent, axis=0),
        *np.log(np.median(grown / extent, axis=0)),
    ]
    if not np.all(np.isfinite(variances)) or min(variances[2:]) <= 0:
        raise Differs(3, f"{own.result} does not grow with the exponential of its offsets")
    # the largest exponent is _STEEP: float32 holds its exponential
    _, large = _run_decoding(model, own, boxes, _STEEP / max(variances[2:]))
    logarithms = np.log(large / extent)
    growth = float(logarithms.max())
    steep = _STEEP * np.array(variances[2:]) / max(variances[2:])
    if not np.allclose(logarithms, np.minimum(growth, steep), rtol=1e-4):
        raise Differs(3, f"{own.result} bounds the size of some boxes and not of others")
    clip = (0.0, 0.0)
    if own.bounds:
        far = _rows(own.run(model, _offsets(model, boxes, _FAR)), boxes, own)
        clip = (float(far[:, 2].max()), float(far[:, 3].max()))
    return PriorHead(
        _priors(own, boxes, scores, points, centre, extent),
        tuple(map(_short, variances)),
        activation.lower(),
        scale=_scale(size, clip, boxes, centre),
        growth=_short(growth) if growth < 0.99 * _STEEP else 0.0,
        clip=clip,
    )


def _offsets(model: Model, boxes: Joined, value: float) -> np.ndarray:
    return np.full(model.graph.shape(boxes.tensor), value, np.float32)


def _run_decoding(
    model: Model, own: Decoding, boxes: Joined, value: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns centres and sizes [priors, 2] of the first frame's boxes for offsets ``value``."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = _rows(own.run(model, _offsets(model, boxes, value), clip=False), boxes, own)
        found = found.astype(np.float64)
        return (found[:, :2] + found[:, 2:]) / 2, found[:, 2:] - found[:, :2]


def _rows(result: np.ndarray, boxes: Joined, own: Decoding) -> np.ndarray:
    """Returns the first frame's rows."""
    rows = sum(math.prod(size) for size in boxes.sizes)
    if result.size % (rows * 4):
        raise Differs(3, f"{own.result} has not four values for each of {rows} priors")
    first: np.ndarray = result.reshape(-1, rows, 4)[0]
    return first


def _priors(
    own: Decoding,
    boxes: Joined,
    scores: Joined,
    points: Joined | None,
    centre: np.ndarray,
    extent: np.ndarray,
) -> tuple[PriorLevel, ...]:
    """Returns the priors by level, each compared with those of the first place."""
    found, begin = [], 0
    least = _ROUNDING * float(np.abs(np.concatenate((centre, extent))).max())
    for number, (each, height, width) in enumerate(boxes.sizes):
        end = begin + each * height * width
        grid = np.concatenate((centre[begin:end], extent[begin:end]), axis=1)
        grid = grid.reshape(height, width, each, 4)
        begin = end
        rows, columns = np.arange(height)[:, None, None], np.arange(width)[None, :, None]
        step = (
            (grid[0, -1, 0, 0] - grid[0, 0, 0, 0]) / max(1, width - 1),
            (grid[-1, 0, 0, 1] - grid[0, 0, 0, 1]) / max(1, height - 1),
        )
        steps = np.zeros_like(grid)
        steps[..., 0], steps[..., 1] = step[0] * columns, step[1] * rows
        first = np.median(grid - steps, axis=(0, 1))
        regular = first + steps
        error = np.abs(grid - regular)
        if not error.max() <= least:
            at = np.unravel_index(int(error.argmax()), error.shape)
            raise Differs(
                3,
                f"the priors of {own.result} are no regular grid: at row {at[0]}, column {at[1]} "
                f"of the {height}x{width} map {grid[at]:g} is in place of {regular[at]:g}",
            )
        found.append(
            PriorLevel(
                boxes.maps[number],
                scores.maps[number],
                tuple(tuple(map(_short, prior)) for prior in first),
                (_short(step[0]), _short(step[1])),
                points.maps[number] if points else "",
            )
        )
    return tuple(found)


def _scale(
    size: tuple[int, int], clip: tuple[float, float], boxes: Joined, centre: np.ndarray
) -> tuple[float, float]:
    """Returns the pixels of the input for the priors' unit, along x and y."""
    if clip[0]:
        return size[0] / clip[0], size[1] / clip[1]
    # centres of the finest map end near the picture's border: near 1, or near its size
    if np.abs(centre).max() < 2:
        return float(size[0]), float(size[1])
    return 1.0, 1.0


def _short(value: float) -> float:
    """Returns the value with the fewest digits that is equal in float32."""
    return next(
        short
        for digits in range(1, 10)
        if abs((short := float(f"{value:.{digits}g}")) - value) <= 4e-7 * abs(value) or digits == 9
    )
