"""Object detection on pictures: they are prepared as for calibration, run on a board, decoded on
this machine, and drawn. Start with ``detect_on``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from edgekit.benchmark.document import BoardName
from edgekit.detection.draw import draw
from edgekit.documents import Coded, Count, Document, Number
from edgekit.errors import DataError, UsageError
from edgekit.files import write_atomically
from edgekit.pipeline.boards.requests import describe_board
from edgekit.pipeline.context import Context
from edgekit.pipeline.outputs import check_output_folder, check_outputs
from edgekit.pipeline.steps.calibrate import picture_preparation, usual_pictures
from edgekit.pipeline.steps.deploy import board_name
from edgekit.pipeline.steps.load import detection_options, head_note, load_head
from edgekit.pipeline.steps.rewrite import model
from edgekit.quantize.data.images import (
    IMAGE_SUFFIXES,
    Preprocess,
    files_in,
    read_image,
)
from edgekit.quantize.data.rows import path_text, row_layout
from edgekit.text import counted
from edgekit_device.arrays.npz import read_npz, write_npz
from edgekit_device.detection.detect import detect
from edgekit_device.detection.head import Head
from edgekit_device.detection.results import Found
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.detection import Options
from edgekit_device.release.journal import TakenBack

if TYPE_CHECKING:
    from PIL import Image

    from edgekit.pipeline.progress import StepRecord
    from edgekit.pipeline.steps.deploy import ConnectedBoards, InstalledRelease

_LOOKED_AT = 16  # pictures that are read before any build
_PIXELS, _SCORE = 3, 6  # digits


class DetectedObject(Document):
    """An object of a picture.

    Attributes:
        box: Left, top, right and bottom, in pixels of the upright picture.
        score: 0 to 1.
        number: The class.
        name: The class's name; "" if it is unknown.
        points: Keypoints as x, y and, if the network has it, visibility; or the corners of a
            text.
        text: The text that a text recogniser read.
    """

    box: list[Number]
    score: Number
    number: Count
    name: str
    points: list[list[Number]]
    text: str

    @classmethod
    def of(cls, found: Found) -> DetectedObject:
        """Returns a found object with rounded values."""
        return cls(
            box=[round(side, _PIXELS) for side in found.box],
            score=round(found.score, _SCORE),
            number=found.number,
            name=found.name,
            points=[[round(float(value), _PIXELS) for value in point] for point in found.points],
            text=found.text,
        )


class DetectedPicture(Document):
    """A picture and its objects, the best first.

    Attributes:
        width: Pixels of the upright picture.
        height: The same.
        drawn: The file with the objects drawn on it.
    """

    file: str
    width: Count
    height: Count
    objects: list[DetectedObject]
    drawn: str


class Kept(Document):
    """The settings that kept the objects: the configuration's ``detection``."""

    score: Number
    iou: Number
    most: Count
    agnostic: bool


class Detections(Document):
    """The objects that a detector finds on pictures.

    Attributes:
        backend: The backend that ran the network: "reference" or "tensorrt".
        head: The head that decoded its outputs, such as "YOLOv8".
    """

    schema_: Literal["edgekit.detections/1"] = Field(alias="schema")
    board: BoardName
    release: str | None
    backend: str
    head: str
    kept: Kept
    pictures: list[DetectedPicture]
    taken_back: Annotated[TakenBack, Coded()] | None
    notes: list[str]


@dataclass(frozen=True)
class Pictures:
    """Input pictures of a detection.

    Attributes:
        files: In order, each once.
        folder: Folder for the drawn pictures.
    """

    files: Sequence[Path]
    folder: Path

    @classmethod
    def of(cls, sources: Sequence[Path], folder: Path) -> Pictures:
        """Finds the pictures.

        Args:
            sources: Files, and folders of files.
            folder: Folder for the drawn pictures.

        Raises:
            DataError: "data.path": the path does not exist; "data.empty": no picture.
            UsageError: "output.same": a drawn picture would replace an input.
        """
        # a picture that is named twice, by itself and in its folder, counts once
        found = dict.fromkeys(chain.from_iterable(map(_pictures_in, sources)))
        if not found:
            raise DataError(
                "no picture is given",
                code="data.empty",
                where="images",
                hint="give files or a folder: edgekit detect CONFIG image.jpg",
            )
        pictures = cls(tuple(found), folder)
        read = {f"the picture {path_text(file)}": file for file in found}
        check_output_folder(folder)
        drawn = {f"the drawn picture {file.name}": file for file in pictures.drawn()}
        check_outputs(read, drawn, makes_folders=True)
        return pictures

    def drawn(self) -> list[Path]:
        """Returns the output file of each picture."""
        names, found = dict[str, int](), list[Path]()
        for file in self.files:
            # pictures of several folders may have the same name
            number = names[file.stem] = names.get(file.stem, 0) + 1
            more = f"-{number}" if number > 1 else ""
            found.append(self.folder / f"{file.stem}{more}-detected.png")
        return found


def _pictures_in(source: Path) -> list[Path]:
    if not source.is_dir():
        if not source.exists():
            raise DataError(
                "the file or folder does not exist",
                code="data.path",
                where=path_text(source),
                hint="give a picture or a folder of pictures",
            )
        return [source]
    found = files_in(source, IMAGE_SUFFIXES)
    if not found:
        raise DataError(
            "the folder contains no pictures",
            code="data.empty",
            where=path_text(source),
            hint=f"known endings: {', '.join(sorted(IMAGE_SUFFIXES))}",
        )
    return found


def need_head(context: Context) -> Head:
    """Returns the configuration's head.

    Raises:
        UsageError: "detect.no-head".
    """
    head = load_head(context)
    if head is None:
        raise UsageError(
            "the configuration names no head to decode the network's outputs",
            code="detect.no-head",
            where=context.config.document.where(("model",)),
            hint="add model.head: auto, or give --head auto",
        )
    return head


def detection_notes(context: Context) -> list[str]:
    """Returns notes on the head, and on the preparation of pictures if it is not configured."""
    notes = [head_note(need_head(context))]
    usual = usual_pictures(context)
    if usual is not None:
        notes.append(
            f"Pictures are prepared as those of {usual.name}: {usual.yaml}; a network that was "
            "trained otherwise needs its own options of images"
        )
    return notes


def check_pictures(context: Context, pictures: Pictures) -> None:
    """Refuses pictures that cannot be read or prepared, before any build.

    Only the first pictures are read.

    Raises:
        DataError: "data.image" or "data.options".
        UsageError: "detect.no-head".
    """
    need_head(context)
    _, prepare = picture_preparation(context, row_layout(model(context)).specs, pictures.files[0])
    # all files are opened to find a wrong one, but one is enough to try the preparation
    for number, file in enumerate(islice(pictures.files, _LOOKED_AT)):
        image = read_image(file, prepare.mode)
        if not number:
            prepare(image)


def detect_on(
    context: Context,
    boards: ConnectedBoards,
    release: InstalledRelease,
    backend: str,
    pictures: Pictures,
    options: Options,
    step: StepRecord,
) -> Detections:
    """Runs the network on pictures on the first board, and draws the objects.

    Args:
        context: The configuration.
        boards: Its boards.
        release: The release that serves there.
        backend: The backend of the build that is to serve there.
        pictures: The pictures.
        options: Which objects are kept.
        step: The step, for its detail.

    Raises:
        DataError: A picture cannot be read.
        BoardError: The board fails.
    """
    client, head = boards.clients()[0], need_head(context)
    rows = row_layout(model(context))
    name, prepare = picture_preparation(context, rows.specs, pictures.files[0])
    # pictures are not in the cache: the step is never "reused"
    context.session.fresh.add("detect")
    found: list[DetectedPicture] = []
    files = iter(zip(pictures.files, pictures.drawn(), strict=True))
    pictures.folder.mkdir(parents=True, exist_ok=True)
    while batch := list(islice(files, rows.batch)):
        context.update(len(found), len(pictures.files), f"picture {path_text(batch[0][0])}")
        # in their own mode, since the objects are drawn on them; the copies for the network are
        # converted
        images = [read_image(file) for file, _ in batch]
        ready = [
            _prepare_row(prepare, file, image)
            for (file, _), image in zip(batch, images, strict=True)
        ]
        feed = write_npz({name: rows.filled(ready)})
        answer = read_npz(client.infer(context.file.name, feed, release=release.release))
        frames = decoded(head, answer, options, client.name)
        # the rest of a batch is filled up
        for (file, goal), image, frame in zip(batch, images, frames[: len(batch)], strict=True):
            objects = prepare.placing(image.height, image.width).back(frame)
            save_drawn(goal, image, objects, head)
            found.append(
                DetectedPicture(
                    file=str(file),
                    width=image.width,
                    height=image.height,
                    objects=[DetectedObject.of(each) for each in objects],
                    drawn=str(goal),
                )
            )
    number = sum(len(picture.objects) for picture in found)
    step.detail = (
        f"{client.kind} board {client.name}, {counted(number, 'object')} on "
        f"{counted(len(found), 'picture')}"
    )
    return Detections(
        schema="edgekit.detections/1",
        board=board_name(describe_board(client)),
        release=release.release,
        backend=release.backend or backend,
        head=head.family,
        kept=Kept(
            score=options.score, iou=options.iou, most=options.most, agnostic=options.agnostic
        ),
        pictures=found,
        taken_back=release.taken_back,
        notes=[*release.notes, *detection_notes(context)],
    )


def _prepare_row(prepare: Preprocess, file: Path, image: Image.Image) -> np.ndarray:
    try:
        return prepare(image.convert(prepare.mode))[0]
    except DataError as error:
        error.where = error.where or path_text(file)
        raise


def decoded(
    head: Head, outputs: Mapping[str, np.ndarray], options: Options, board: str
) -> list[list[Found]]:
    """Returns the objects of each frame from a board's outputs.

    Raises:
        DataError: "head.outputs": the head cannot decode the outputs.
    """
    try:
        return detect(head, outputs, options)
    except DeviceError as error:
        raise DataError(
            error.message, code=error.code, where=error.where or board, hint=error.hint
        ) from error


def save_drawn(path: Path, image: Image.Image, objects: Sequence[Found], head: Head) -> None:
    """Writes a picture with its objects as PNG."""
    drawn = draw(image, objects, polygons=head.text_map is not None)
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        drawn.save(file, format="PNG")


def draw_inference(
    context: Context,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    folder: Path,
) -> list[str]:
    """Draws an inference's objects on the network's input pictures, and returns the files.

    Raises:
        DataError: No input is a picture, or the head cannot decode the outputs.
    """
    head = need_head(context)
    specs = {name: (value.dtype, value.shape) for name, value in inputs.items()}
    name, prepare = picture_preparation(context, specs, folder)
    frames = decoded(head, outputs, detection_options(context), "")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, (row, objects) in enumerate(zip(inputs[name], frames, strict=True)):
        path = folder / f"input-{number}-detected.png"
        save_drawn(path, prepare.row_image(row), objects, head)
        files.append(str(path))
    return files
