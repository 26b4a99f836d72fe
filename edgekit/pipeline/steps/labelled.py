"""The number of labelled inputs that the build classifies correctly, beside FP32; and the precision
of a detector's boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from edgekit.detection.precision import Precision, mean_precision
from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit.network.streaming import group_inputs
from edgekit.pipeline.cache import file_stamps, path_identity
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.accuracy import artefacts, build_key
from edgekit.pipeline.steps.calibrate import inputs_identity, picture_preparation
from edgekit.pipeline.steps.load import detection_options, load_head, source
from edgekit.pipeline.steps.rewrite import model
from edgekit.quantize.data.images import read_image
from edgekit.quantize.data.labels import LabelledPicture, read_labels
from edgekit.quantize.data.rows import row_layout
from edgekit.reference.accuracy import Float32Reference
from edgekit.reference.run import Runner
from edgekit.text import counted
from edgekit_device.arrays.npz import read_npz
from edgekit_device.detection.detect import detect
from edgekit_device.detection.matching import Boxes, MatchedBoxes
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, member, record, text, write

if TYPE_CHECKING:
    from pathlib import Path

    from edgekit.network.model import Model
    from edgekit_device.detection.head import Head
    from edgekit_device.detection.letterbox import Placing
    from edgekit_device.detection.results import Found

LABELS = "labels"
# precision is over all scores, as Ultralytics and COCO compute it
_LEAST_SCORE, _MOST_OBJECTS = 0.001, 300
# bytes of a file of labelled inputs, which is read whole
_MOST_BYTES = 1 << 30


@document(frozen=True)
class LabelledResult:
    """The number of labelled inputs that are classified correctly.

    Attributes:
        file: The file's name.
        count: Inputs.
        right: Inputs whose largest value of the first output is at the label, as built.
        right_in_fp32: The same for the FP32 network.
    """

    file: str = member(text())
    count: int = member(fields.count)
    right: int = member(fields.count)
    right_in_fp32: int = member(fields.count)

    @property
    def words(self) -> str:
        """Returns the result in a sentence."""
        return (
            f"{self.right} of {self.count} labels of {self.file} right as built, "
            f"{self.right_in_fp32} in FP32"
        )


@document(frozen=True)
class LabelledBoxes:
    """The precision of a detector's boxes on labelled pictures, 0 to 1.

    Attributes:
        file: The name of the file or folder with the labels.
        pictures: Number of pictures.
        objects: Number of labelled objects.
        map50: Mean average precision at an intersection over union of 0.5, as built.
        map50_95: The mean over 0.5, 0.55, ... 0.95.
        map50_in_fp32: ``map50`` of the FP32 network.
        map50_95_in_fp32: ``map50_95`` of the FP32 network.
        matched: The build's objects and FP32's, among those that the configuration keeps.
    """

    file: str = member(text())
    pictures: int = member(fields.count)
    objects: int = member(fields.count)
    map50: float = member(fields.share)
    map50_95: float = member(fields.share)
    map50_in_fp32: float = member(fields.share)
    map50_95_in_fp32: float = member(fields.share)
    matched: MatchedBoxes = member(record(MatchedBoxes))

    @property
    def words(self) -> str:
        """Returns the result in a sentence."""
        return (
            f"mAP50 {self.map50:.3f} and mAP50-95 {self.map50_95:.3f} as built, "
            f"{self.map50_in_fp32:.3f} and {self.map50_95_in_fp32:.3f} in FP32; boxes "
            f"{self.matched.share:.3f} ({self.matched}), on "
            f"{counted(self.objects, 'object')} of {counted(self.pictures, 'picture')} of "
            f"{self.file}"
        )


def check_labelled(context: Context) -> None:
    """Refuses missing labelled inputs; the model is not needed for it.

    Raises:
        DataError: "data.labels".
    """
    if context.file.accuracy.labelled is not None:
        path = context.config.resolve(context.file.accuracy.labelled)
        if context.file.model.head is None:
            _read_arrays(path)
        else:
            read_labels(path, ())


def check_labelled_fits(context: Context) -> None:
    """Refuses labelled inputs that do not fit the model; the rewrites keep its inputs.

    Raises:
        DataError: "data.labels".
    """
    if context.file.accuracy.labelled is not None:
        path, head = context.config.resolve(context.file.accuracy.labelled), load_head(context)
        if head is None:
            _matching_inputs(path, source(context))
        else:
            _labelled_pictures(path, head)
            picture_preparation(context, row_layout(source(context)).specs, path)


@computed()
def labelled_result(context: Context) -> LabelledResult | LabelledBoxes | None:
    """Returns the number of the configuration's labelled inputs that are right, or the precision of
    a detector's boxes; None without any.

    Raises:
        DataError: "data.labels": they do not fit the network.
    """
    named = context.file.accuracy.labelled
    if named is None:
        return None
    path, head = context.config.resolve(named), load_head(context)
    if head is not None:
        return _labelled_boxes(context, path, head)

    def compute() -> LabelledResult:
        network = model(context)
        arrays, labels = _matching_inputs(path, network)
        runner, reference = Runner(artefacts(context)), Float32Reference(network)
        output = network.graph.outputs[0]
        right = in_fp32 = 0
        feeds = (
            {name: value[number : number + 1] for name, value in arrays.items()}
            for number in range(len(labels))
        )
        number = 0
        # in groups: a large network is loaded piece by piece, and each piece once a group
        for group in group_inputs(feeds, [runner, reference]):
            real = reference.outputs((output,), number, group)
            for made, (value,) in zip(runner.run_group(group), real, strict=True):
                label = int(labels[number])
                right += int(np.argmax(made[output])) == label
                in_fp32 += int(np.argmax(value)) == label
                number += 1
                context.update(number, len(labels), f"labelled input {number}")
        return LabelledResult(path.name, len(labels), right, in_fp32)

    identity = path_identity(path), inputs_identity(context)
    return context.stored(LabelledResult, "labelled", compute, build_key(context), *identity)


def _labelled_pictures(path: Path, head: Head) -> list[LabelledPicture]:
    keypoints = head.distance is not None and head.distance.keypoints > 0
    return read_labels(path, head.classes, keypoints=keypoints)


def _labelled_boxes(context: Context, path: Path, head: Head) -> LabelledBoxes:
    pictures, kept = _labelled_pictures(path, head), detection_options(context)
    all_scores = replace(kept, score=_LEAST_SCORE, most=max(kept.most, _MOST_OBJECTS))

    def compute() -> LabelledBoxes:
        network = model(context)
        runner, reference = Runner(artefacts(context)), Float32Reference(network)
        names = list(head.outputs)
        rows = row_layout(network)
        name, prepare = picture_preparation(context, rows.specs, path)
        placings: list[Placing] = []

        def feeds() -> Iterator[Mapping[str, np.ndarray]]:
            files = iter(pictures)
            while some := list(islice(files, rows.batch)):
                images = [read_image(picture.file, prepare.mode) for picture in some]
                placings.extend(prepare.placing(image.height, image.width) for image in images)
                yield {name: rows.filled([prepare(image)[0] for image in images])}

        matched = Boxes(kept)
        as_built: list[list[Found]] = []
        in_fp32: list[list[Found]] = []
        number = 0
        for group in group_inputs(feeds(), [runner, reference]):
            real = reference.outputs(names, number, group)
            number += len(group)
            for made, values in zip(runner.run_group(group), real, strict=True):
                frames = len(as_built)
                as_built += detect(head, made, all_scores)
                in_fp32 += detect(head, dict(zip(names, values, strict=True)), all_scores)
                # the rest of the last batch has no pictures
                matched.add(in_fp32[frames : len(pictures)], as_built[frames : len(pictures)])
                context.update(
                    min(len(as_built), len(pictures)), len(pictures), "labelled pictures"
                )
        built, fp32 = (_precision(pictures, placings, objects) for objects in (as_built, in_fp32))
        return LabelledBoxes(
            path.name,
            len(pictures),
            built.objects,
            built.map50,
            built.map50_95,
            fp32.map50,
            fp32.map50_95,
            matched.result(),
        )

    objects = [
        [str(picture.file), picture.boxes.tolist(), picture.classes.tolist()]
        for picture in pictures
    ]
    stamps = file_stamps([picture.file for picture in pictures])
    identity = write(head), write(kept), objects, stamps, inputs_identity(context)
    return context.stored(LabelledBoxes, "labelled boxes", compute, build_key(context), *identity)


def _precision(
    pictures: Sequence[LabelledPicture], placings: Sequence[Placing], found: Sequence[list[Found]]
) -> Precision:
    truths = [
        picture.truth(*placing.picture) for picture, placing in zip(pictures, placings, strict=True)
    ]
    # a batch that is not full has frames without a picture
    back = [placing.back(its) for placing, its in zip(placings, found, strict=False)]
    return mean_precision(truths, back)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        arrays = read_npz(read_file(path, _MOST_BYTES))
    except (OSError, ValueError, DeviceError) as error:
        raise _labelled_error(path, f"cannot be read: {error}") from error
    if LABELS not in arrays or arrays[LABELS].dtype.kind not in "iu":
        raise _labelled_error(path, f"has no array {LABELS!r} of whole numbers")
    return arrays


def _matching_inputs(path: Path, network: Model) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Returns the inputs by name and the labels, with the same number of rows."""
    arrays, graph = _read_arrays(path), network.graph
    labels = arrays.pop(LABELS).reshape(-1)
    if set(arrays) != set(graph.inputs):
        raise _labelled_error(path, f"has {', '.join(arrays) or 'no inputs'}")
    for name, value in arrays.items():
        row = (len(labels), *graph.shape(name)[1:])
        if graph.shape(name)[:1] != (1,) or (value.shape, value.dtype.name) != (
            row,
            graph.dtype(name),
        ):
            raise _labelled_error(
                path,
                f"has {name!r} as {value.dtype} {list(value.shape)}, and the input is "
                f"{graph.dtype(name)} {list(graph.shape(name))}",
            )
    return arrays, labels


def _labelled_error(path: Path, text: str) -> DataError:
    return DataError(
        f"the file of labelled inputs {text}",
        code="data.labels",
        where=str(path),
        hint=f"an .npz with {LABELS!r} (whole numbers), and for each input of the network (of a "
        "batch of 1) an array with one row a label",
    )
