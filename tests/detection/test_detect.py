"""From pictures to boxes: by the command, the API and the board's loader, on a board on loopback.

The detector finds squares of 8x8 pixels that are red or blue (tests/detection/networks.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import edgekit
import edgekit_device
from edgekit.cli import main
from edgekit.detection.draw import class_colour, draw
from edgekit.errors import DataError, EdgekitError, UsageError
from edgekit.quantize.data.images import ImageOptions, Preprocess, read_image
from edgekit.saved_documents import read_document
from edgekit_device import Found
from tests.detection.networks import BOARD, colour_detector

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]

RED, BLUE, GREY = (255, 0, 0), (0, 0, 255), (90, 90, 90)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the detector and its configuration, and a cache of its own."""
    folder = tmp_path_factory.mktemp("desk")
    colour_detector(folder)
    configuration(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield folder


def configuration(folder: Path, file: str = "c.yaml", **sections: object) -> Path:
    document = {
        "version": 1,
        "name": "colours",
        "target": BOARD,
        "precision": "fp16",
        "model": {"onnx": "colours.onnx", "head": "head.json"},
        **sections,
    }
    (folder / file).write_text(json.dumps(document))
    return folder / file


def picture(path: Path, size: tuple[int, int] = (192, 128), *, orientation: int = 1) -> Path:
    """Saves a picture with a red square at 32, 16 and a blue one at 96, 64, 16 pixels each."""
    image = Image.new("RGB", size, GREY)
    image.paste(RED, (32, 16, 48, 32))
    image.paste(BLUE, (96, 64, 112, 80))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)
    return path


def boxes(found: Any) -> list[tuple[str, list[float]]]:
    return sorted((one.name, one.box) for one in found.objects)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main.main([*words, "-q"])
    return int(ended.value.code or 0), capsys.readouterr().out


EXPECTED = [("blue", [96.0, 64.0, 112.0, 80.0]), ("red", [32.0, 16.0, 48.0, 32.0])]


def test_objects_have_the_pixels_of_the_original_picture(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = picture(tmp_path / "a.png")
    status, text = command(capsys, "detect", "c.yaml", str(file), "--draw", str(tmp_path / "out"))
    assert status == 0
    assert "red  1.00  32,16 48,32" in text
    assert "as those of Ultralytics: calibration: {preset: yolo}" in " ".join(text.split())
    status, text = command(capsys, "detect", "c.yaml", str(file), "--json")
    document = json.loads(text)
    assert document["schema"] == "edgekit.detections/1"
    assert document["backend"] == "reference"
    assert document["kept"] == {"score": 0.25, "iou": 0.45, "most": 300, "agnostic": False}
    found = read_document(document)
    assert boxes(found.pictures[0]) == EXPECTED
    assert all(one.score > 0.99 for one in found.pictures[0].objects)
    # by default beside the run's other files
    assert found.pictures[0].drawn == "edgekit-out/colours/a-detected.png"
    for drawn in (tmp_path / "out" / "a-detected.png", desk / found.pictures[0].drawn):
        pixels = np.asarray(read_image(drawn))  # three times as large
        assert pixels.shape == (3 * 128, 3 * 192, 3)
        # the outermost pixels of the box, in the colour of the class
        assert tuple(pixels[3 * 64, 312]) == tuple(pixels[3 * 80 - 1, 312]) == class_colour(1)
        assert tuple(pixels[216, 3 * 96]) == tuple(pixels[216, 3 * 112 - 1]) == class_colour(1)
        assert tuple(pixels[3 * 80, 312]) == GREY
        assert tuple(pixels[216, 3 * 112]) == GREY


@pytest.mark.parametrize(
    ("orientation", "size", "red", "blue"),
    [
        (3, (192, 128), [144.0, 96.0, 160.0, 112.0], [80.0, 48.0, 96.0, 64.0]),
        (6, (128, 192), [160.0, 32.0, 176.0, 48.0], [112.0, 96.0, 128.0, 112.0]),
    ],
)
def test_a_turned_picture_is_upright(
    desk: Path,
    tmp_path: Path,
    orientation: int,
    size: tuple[int, int],
    red: list[float],
    blue: list[float],
) -> None:
    file = picture(tmp_path / "a.png", size, orientation=orientation)
    (found,) = edgekit.detect("c.yaml", file, draw=tmp_path).pictures
    assert (found.width, found.height) == (192, 128)
    assert read_image(Path(found.drawn)).size == (3 * 192, 3 * 128)
    assert boxes(found) == [("blue", blue), ("red", red)]


def test_pictures_of_any_mode_and_a_batch_that_is_not_full(desk: Path, tmp_path: Path) -> None:
    whole = read_image(picture(tmp_path / "whole.png"))
    folder = tmp_path / "many"
    folder.mkdir()
    for mode in ("RGB", "RGBA", "P"):
        whole.convert(mode).save(folder / f"{mode}.png")
    whole.convert("L").save(folder / "L.png")
    whole.convert("CMYK").save(folder / "CMYK.tif")
    own = tmp_path / "own"
    own.mkdir()
    colour_detector(own, batch=4)
    found = edgekit.detect(
        configuration(own), [folder, tmp_path / "whole.png"], draw=tmp_path / "out"
    )
    assert [Path(one.file).name for one in found.pictures] == [
        "CMYK.tif",
        "L.png",
        "P.png",
        "RGB.png",
        "RGBA.png",
        "whole.png",
    ]
    for one in found.pictures:
        assert boxes(one) == ([] if "L.png" in one.file else EXPECTED)
        with Image.open(one.drawn) as drawn:
            assert drawn.mode == "RGB"


def test_two_pictures_of_one_name_are_drawn_to_two_files(desk: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        picture(tmp_path / name / "a.png")
    found = edgekit.detect("c.yaml", [tmp_path / "one", tmp_path / "two"], draw=tmp_path / "out")
    assert [Path(one.drawn).name for one in found.pictures] == [
        "a-detected.png",
        "a-2-detected.png",
    ]


def test_options_say_what_is_kept(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(picture(tmp_path / "a.png"))
    words = ("detect", "c.yaml", file, "--draw", str(tmp_path), "--json")
    _, text = command(capsys, *words, "--most", "1", "--agnostic", "--iou", "0.1")
    document = json.loads(text)
    assert document["kept"] == {"score": 0.25, "iou": 0.1, "most": 1, "agnostic": True}
    assert len(document["pictures"][0]["objects"]) == 1
    _, text = command(capsys, *words, "--score", "1")
    assert json.loads(text)["pictures"][0]["objects"] == []
    status, text = command(capsys, *words, "--score", "2")
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (2, "config.invalid")
    assert "at most 1" in error["message"]
    assert "--score" in error["where"] or "score" in error["where"]


def test_what_is_kept_is_no_part_of_the_build(desk: Path, tmp_path: Path) -> None:
    """The gate goes by the configuration's objects, whatever a call keeps."""
    file = picture(tmp_path / "a.png")
    config = configuration(
        desk,
        "gate.yaml",
        name="gate",
        precision="int8",
        calibration={"data": str(tmp_path), "preset": "yolo"},
        accuracy={"metric": "boxes", "min": 0.5},
    )
    found = [
        edgekit.detect(config, file, draw=tmp_path / f"drawn{most}", detection={"most": most})
        for most in (300, 1)
    ]
    assert [len(one.pictures[0].objects) for one in found] == [2, 1]
    assert found[0].release == found[1].release


def test_infer_draws_what_the_network_saw(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = Preprocess.of(ImageOptions(preset="yolo"), (64, 96, 3), True, np.dtype(np.float32))
    row, _ = prepare(read_image(picture(tmp_path / "a.png")))
    np.savez(tmp_path / "x.npz", images=row[None])
    status, text = command(
        capsys,
        "infer",
        "c.yaml",
        "-i",
        str(tmp_path / "x.npz"),
        "--draw",
        str(tmp_path / "out"),
    )
    assert status == 0
    assert "drawn to" in text
    pixels = np.asarray(read_image(tmp_path / "out" / "input-0-detected.png"))
    assert pixels.shape == (5 * 64, 5 * 96, 3)
    assert tuple(pixels[5 * 32, 5 * 52]) == class_colour(1)
    assert tuple(pixels[5 * 60, 5 * 90]) == GREY


def test_the_loader_of_the_board_decodes(desk: Path, tmp_path: Path) -> None:
    packed = edgekit.bundle("c.yaml", out=tmp_path, full=tmp_path / "full.ekb")
    model = edgekit_device.load(packed.full, trust_unsigned=True)
    assert model.head is not None
    assert model.head.classes == ("red", "blue")
    image = read_image(picture(tmp_path / "a.png"))
    prepare = Preprocess.of(ImageOptions(preset="yolo"), (64, 96, 3), True, np.dtype(np.float32))
    row, _ = prepare(image)
    (objects,) = model.detect({"images": row[None]})
    placing = prepare.placing(image.height, image.width)
    found = {one.name: list(one.box) for one in placing.back(objects)}
    assert sorted(found.items()) == EXPECTED
    assert model.detect(row[None], most=1) == [objects[:1]]
    assert model.detect(row[None], score=1.0) == [[]]


def test_a_bundle_without_a_head_is_told(desk: Path, tmp_path: Path) -> None:
    config = configuration(desk, "plain.yaml", name="plain", model={"onnx": "colours.onnx"})
    packed = edgekit.bundle(config, out=tmp_path, full=tmp_path / "full.ekb")
    model = edgekit_device.load(packed.full, trust_unsigned=True)
    assert model.head is None
    with pytest.raises(edgekit_device.DeviceError) as refused:
        model.detect(np.zeros((1, 3, 64, 96), np.float32))
    assert refused.value.code == "model.no-head"
    with pytest.raises(UsageError) as wrong:
        edgekit.detect(config, picture(tmp_path / "a.png"), draw=tmp_path)
    assert wrong.value.code == "detect.no-head"
    assert "--head auto" in wrong.value.hint


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("none.jpg", "data.path"),
        ("empty", "data.empty"),
        ("broken.png", "data.image"),
        ("cut.png", "data.image"),
    ],
)
def test_a_wrong_picture_is_one_error_before_anything_is_built(
    desk: Path, tmp_path: Path, name: str, code: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.png").write_text("no picture")
    whole = picture(tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError) as refused:
        edgekit.detect("c.yaml", tmp_path / name, draw=tmp_path / "out")
    assert refused.value.code == code
    assert name in refused.value.where
    assert not (tmp_path / "out").exists()


def test_no_picture_is_replaced(desk: Path, tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "a-detected.png")
    with pytest.raises(EdgekitError) as refused:
        edgekit.detect("c.yaml", tmp_path, draw=tmp_path)
    assert refused.value.code == "output.same"


def test_masks_keypoints_and_text_are_drawn() -> None:
    image = Image.new("RGB", (500, 500), (0, 0, 0))
    mask = np.zeros((500, 500), bool)
    mask[60:80, 20:40] = True
    person = Found((20, 60, 60, 90), 0.9, 2, points=((50, 75, 0.9), (30, 85, 0.1)), mask=mask)
    pixels = np.asarray(draw(image, [person]))
    colour = np.array(class_colour(2))
    assert np.abs(pixels[70, 30] - 0.45 * colour).max() <= 1
    assert tuple(pixels[75, 50]) == class_colour(2)
    assert tuple(pixels[85, 30]) == (0, 0, 0)
    text = Found((20, 60, 60, 90), 0.9, points=((20, 60), (60, 65), (60, 90), (20, 85)), text="ab")
    pixels = np.asarray(draw(image, [text], polygons=True))
    assert tuple(pixels[75, 60]) == class_colour(0)
    assert tuple(pixels[89, 30]) == (0, 0, 0)
    assert np.asarray(image).max() == 0
