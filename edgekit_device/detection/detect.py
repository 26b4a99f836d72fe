"""From a network's raw maps to objects.

A module for each kind of head has two functions. ``decode(part, maps)`` computes from the raw maps
the tensors that the network's own decoding would have written, by name; the host compares the two
element by element before it cuts a network there. ``candidates(part, tensors)`` computes boxes and
scores from these tensors. Both are vectorised, and run on the arrays' device: NumPy's on the CPU,
CuPy's on the GPU.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Dict, List, Mapping, Tuple

from edgekit_device.detection import anchor, distance, point, prior, query, text_line, text_map
from edgekit_device.detection.arrays import namespace, on_host
from edgekit_device.detection.head import Head
from edgekit_device.detection.masks import mask
from edgekit_device.detection.nms import suppress
from edgekit_device.detection.results import Array, Candidates, Found
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.detection import Options

# by member of ``Head``
_KINDS: Dict[str, ModuleType] = {
    "anchor": anchor,
    "distance": distance,
    "point": point,
    "prior": prior,
    "query": query,
    "text_line": text_line,
    "text_map": text_map,
}
_ALL = Options()


def decode(head: Head, outputs: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns the tensors that the network's own decoding would have written, by edgekit's names.

    Raises:
        DeviceError: "head.outputs": a raw map is missing.
    """
    name, part = _part(head)
    missing = [name for name in head.outputs if name not in outputs]
    if missing:
        raise DeviceError(
            "the raw map {!r} is missing".format(missing[0]),
            code="head.outputs",
            hint="the head was recognised in another network: run this network's own bundle",
        )
    found: Dict[str, Array] = _KINDS[name].decode(part, outputs)
    return found


def detect(head: Head, outputs: Mapping[str, Array], options: Options = _ALL) -> List[List[Found]]:
    """Returns the objects of each frame of a batch, the best first.

    Args:
        head: The head that decodes the outputs.
        outputs: The raw maps by name.
        options: Limits for the objects that are kept.

    Raises:
        DeviceError: "head.outputs": a raw map is missing.
    """
    name, part = _part(head)
    frames: List[Candidates] = _KINDS[name].candidates(part, decode(head, outputs))
    return [_objects(head, frame, options) for frame in frames]


def _part(head: Head) -> Tuple[str, object]:
    return next((name, getattr(head, name)) for name in _KINDS if getattr(head, name) is not None)


def _objects(head: Head, frame: Candidates, options: Options) -> List[Found]:
    xp = namespace(frame.scores)
    # a box may have several classes above the limit: each pair is a candidate of its own
    rows, classes = xp.nonzero(frame.scores > options.score)
    scores, boxes = frame.scores[rows, classes], frame.boxes[rows]
    # a network with its own top-k (YOLOv10) never has more objects
    most = min(options.most, frame.most or options.most)
    if frame.suppress:
        groups = xp.zeros_like(classes) if options.agnostic else classes
        chosen = suppress(boxes, scores, groups, options.iou, most)
    else:
        chosen = xp.argsort(-scores, kind="stable")[:most]
    rows = rows[chosen]
    kept = zip(*(on_host(array[chosen]).tolist() for array in (boxes, scores, classes)))  # noqa: B905
    objects = [
        Found(
            (box[0], box[1], box[2], box[3]),
            score,
            number,
            head.classes[number] if number < len(head.classes) else "",
        )
        for box, score, number in kept
    ]
    if frame.texts:
        texts = [frame.texts[row] for row in on_host(rows).tolist()]
        return [replace(detected, text=text) for detected, text in zip(objects, texts)]  # noqa: B905
    if frame.extra is None:
        return objects
    if frame.prototypes is None:
        points = on_host(frame.extra[rows]).tolist()
        return [
            replace(detected, points=tuple(map(tuple, its)))
            for detected, its in zip(objects, points)  # noqa: B905 (Python 3.8)
        ]
    return [
        replace(
            detected,
            mask=on_host(mask(its, frame.prototypes, detected.box, frame.prototype_stride)),
        )
        for detected, its in zip(objects, frame.extra[rows])  # noqa: B905 (Python 3.8)
    ]
