"""Folders of images: what becomes of a picture, and of files that are none."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from edgekit.errors import DataError
from edgekit.network.model import Model
from edgekit.quantize.data.load import load_data
from tests.quantize.quantize_nets import make, node

F = np.float32


def model(*shape: int, elem: int = 1) -> Model:
    return make([node("Flatten", "x", "y")], {}, {"x": list(shape)}, ["y"], elem)[0]


MODEL = model(1, 3, 8, 8)


def save(path: Path, array: np.ndarray, **options: Any) -> None:
    Image.fromarray(array).save(path, **options)


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def only(folder: Path, net: Model = MODEL, **options: Any) -> np.ndarray:
    (sample,) = load_data({"data": folder, **options}, net)
    return sample["x"][0]


def codes(array: np.ndarray) -> list[int]:
    return [round(float(v) * 255) for v in array]


def test_images_are_cropped_normalised_and_ordered(tmp_path: Path) -> None:
    # twice as wide as high: the outer quarters are cut off
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, 8:24] = (255, 51, 0)
    save(tmp_path / "b.png", pixels)
    save(tmp_path / "a.png", np.full((8, 8, 3), 255, np.uint8))
    (tmp_path / "notes.txt").write_text("no image")
    spec = {"data": tmp_path, "mean": [0.5, 0.2, 0.0], "std": [0.5, 1.0, 2.0]}
    samples = list(load_data(spec, MODEL))
    assert [s["x"].shape for s in samples] == [(1, 3, 8, 8)] * 2
    assert samples[0]["x"].dtype == F
    assert samples[0]["x"][0, :, 0, 0] == pytest.approx([1.0, 0.8, 0.5])
    assert samples[1]["x"][0, :, 4, 4] == pytest.approx([1.0, 0.0, 0.0])


def test_without_options_it_is_pillows_fit(tmp_path: Path) -> None:
    array = photo(23, 31)
    save(tmp_path / "a.png", array)
    fitted = ImageOps.fit(Image.fromarray(array), (8, 8), Image.Resampling.BILINEAR)
    expected = np.asarray(fitted, F).transpose(2, 0, 1) / F(255)
    assert np.array_equal(only(tmp_path), expected)
    assert np.array_equal(only(tmp_path, interpolation="bilinear", color="RGB"), expected)
    assert not np.array_equal(only(tmp_path, interpolation="nearest"), expected)


def test_resize_and_crop_as_torchvision_does(tmp_path: Path) -> None:
    array = photo(32, 48)
    save(tmp_path / "a.png", array)
    image = Image.fromarray(array)
    how = Image.Resampling.BILINEAR
    # Resize(10): the shorter side; CenterCrop(8)
    small = np.asarray(image.resize((15, 10), how), F)[1:9, 4:12].transpose(2, 0, 1) / F(255)
    assert np.array_equal(only(tmp_path, resize=10), small)
    assert np.array_equal(only(tmp_path, resize=10, crop=8), small)
    assert np.array_equal(only(tmp_path, crop=0.8), small)
    both = np.asarray(image.resize((12, 10), how), F)[1:9, 2:10].transpose(2, 0, 1) / F(255)
    assert np.array_equal(only(tmp_path, resize=[10, 12], crop=[8, 8]), both)
    squeezed = np.asarray(image.resize((8, 8), how), F).transpose(2, 0, 1) / F(255)
    assert np.array_equal(only(tmp_path, resize="stretch"), squeezed)


@pytest.mark.parametrize(
    ("height", "width", "inside"),
    [(10, 20, np.s_[:, 2:6, :]), (20, 10, np.s_[:, :, 2:6]), (2, 4, np.s_[:, 2:6, :])],
)
def test_a_letterbox_shows_the_whole_image(
    tmp_path: Path, height: int, width: int, inside: Any
) -> None:
    save(tmp_path / "a.png", np.full((height, width, 3), 255, np.uint8))
    boxed = only(tmp_path, resize="letterbox", pad=51)
    assert (boxed[inside] == 1).all()
    assert (boxed == 1).sum() == 3 * 4 * 8
    assert boxed.min() == pytest.approx(0.2)
    assert only(tmp_path, preset="yolo").min() == F(114) / F(255)


def test_bars_have_the_colours_of_the_inputs_order(tmp_path: Path) -> None:
    save(tmp_path / "a.png", np.full((4, 8, 3), 255, np.uint8))
    for color in ("RGB", "BGR"):
        boxed = only(tmp_path, resize="letterbox", pad=[10, 20, 30], color=color)
        assert codes(boxed[:, 0, 0]) == [10, 20, 30]


def test_channels_scale_and_presets(tmp_path: Path) -> None:
    save(tmp_path / "a.png", np.full((8, 8, 3), (200, 100, 50), np.uint8))
    pixel = np.s_[:, 0, 0]
    assert codes(only(tmp_path, color="BGR")[pixel]) == [50, 100, 200]
    grey = only(tmp_path, color="gray")[pixel]
    assert codes(grey) == [124] * 3  # ITU-R 601-2 luma
    assert codes(only(tmp_path, model(1, 1, 8, 8))[pixel]) == [124]
    assert only(tmp_path, scale=1.0)[pixel].tolist() == [200, 100, 50]
    assert only(tmp_path, preset="tf")[pixel] == pytest.approx(
        np.array([200, 100, 50]) / 127.5 - 1, abs=1e-6
    )
    assert only(tmp_path, preset="caffe")[pixel] == pytest.approx(
        [50 - 103.939, 100 - 116.779, 200 - 123.68], abs=1e-4
    )
    imagenet = (np.array([200, 100, 50]) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert only(tmp_path, preset="imagenet")[pixel] == pytest.approx(imagenet, abs=1e-5)
    # a key beside a preset wins
    assert only(tmp_path, preset="caffe", color="RGB", mean=[0.0])[pixel].tolist() == [200, 100, 50]
    assert only(tmp_path, preset="imagenet", resize="letterbox").shape == (3, 8, 8)
    assert only(tmp_path, model(1, 3, 8, 8, elem=2))[pixel].tolist() == [200, 100, 50]


def test_the_layout_is_seen_where_it_can_be(tmp_path: Path) -> None:
    save(tmp_path / "a.png", np.full((4, 4, 3), (255, 51, 0), np.uint8))
    for options in ({}, {"layout": "NHWC"}):
        assert only(tmp_path, model(1, 4, 4, 3), **options)[0, 0] == pytest.approx([1, 0.2, 0])
    assert only(tmp_path, model(1, 3, 4, 3)).shape == (3, 4, 3)
    with pytest.raises(DataError, match="4 channels"):
        only(tmp_path, model(1, 4, 4, 3), layout="NCHW")


def test_a_last_batch_is_filled_up_and_says_so(tmp_path: Path) -> None:
    for index in range(3):
        save(tmp_path / f"{index}.png", np.full((4, 4), 51 * index, np.uint8))
    samples = load_data(tmp_path, model(2, 4, 4, 1))
    assert (len(samples), samples.valid(0), samples.valid(1)) == (2, 2, 1)
    last = list(samples)[1]["x"]
    assert last.shape == (2, 4, 4, 1)
    assert last[:, 0, 0, 0].tolist() == pytest.approx([0.4, 0.4])
    assert len(samples.warnings) == 1
    assert "constant" in samples.warnings[0]


def test_modes(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    grey16 = np.full((8, 8), 0x8080, np.uint16)
    save(path, grey16)
    assert codes(only(tmp_path)[:, 0, 0]) == [128] * 3
    colour = np.full((8, 8, 4), (200, 100, 50, 0), np.uint8)
    save(path, colour)
    assert codes(only(tmp_path)[:, 0, 0]) == [200, 100, 50]  # under full transparency, too
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 200, 100, 50])
    palette.save(path, transparency=bytes([255, 0]))
    assert codes(only(tmp_path)[:, 0, 0]) == [200, 100, 50]
    Image.new("1", (8, 8), 1).save(path)
    assert only(tmp_path).min() == 1
    path.unlink()
    Image.new("CMYK", (8, 8), (0, 0, 0, 0)).save(tmp_path / "a.tif")
    assert only(tmp_path).min() == 1
    Image.new("F", (8, 8), 0.5).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match="floating-point"):
        only(tmp_path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_images_are_turned_upright(tmp_path: Path, suffix: str) -> None:
    array = np.zeros((8, 16, 3), np.uint8)
    array[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    save(tmp_path / f"a.{suffix}", array, exif=exif)
    found = only(tmp_path, model(1, 3, 16, 8))
    assert found[:, :6].min() > 0.9
    assert found[:, 10:].max() < 0.1


def test_files_that_are_no_images(tmp_path: Path) -> None:
    save(tmp_path / "a.png", photo(8, 8))
    save(tmp_path / "c.png", photo(8, 8, 1))
    whole = (tmp_path / "c.png").read_bytes()
    for name, content in {"b.png": b"\x89PNG nothing", "d.png": whole[:-60], "e.jpg": b""}.items():
        (tmp_path / name).write_bytes(content)
        samples = load_data(tmp_path, MODEL)
        with pytest.raises(DataError, match="cannot read the image") as caught:
            list(samples)
        assert caught.value.where == str(tmp_path / name)
        assert "skip_broken" in caught.value.hint
        spared = load_data({"data": tmp_path, "skip_broken": True}, model(4, 3, 8, 8))
        (sample,) = spared
        assert (spared.valid(0), len(sample["x"])) == (2, 4)
        assert str(tmp_path / name) in spared.warnings[0]
        (tmp_path / name).unlink()
    for name in "ac":
        (tmp_path / f"{name}.png").write_bytes(b"")
    with pytest.raises(DataError, match="no calibration sample is left") as caught:
        list(load_data({"data": tmp_path, "skip_broken": True}, MODEL))
    assert caught.value.code == "data.empty"


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png", photo(12, 12))
    for limit in (100, 10):  # Pillow warns of the first, and refuses the second
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DataError, match="decompression bomb"):
            only(tmp_path)


def test_hostile_names(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    for name in ("x\x1b[31m.png", "-rf.png", "\udcff.png"):
        save(folder / name, photo(8, 8))
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "up").symlink_to(folder)
    (folder / "._x.png").write_bytes(b"what macOS leaves behind")
    samples = load_data({"data": folder, "skip_broken": True}, MODEL)
    assert len(list(samples)) == 3
    assert len(samples.warnings) == 1
    assert samples.warnings[0].isprintable()
    assert "loop.png" in samples.warnings[0]


def test_nothing_runs_on_after_a_reader_left(tmp_path: Path) -> None:
    for index in range(20):
        save(tmp_path / f"{index:02}.png", photo(8, 8, index))
    samples = iter(load_data(tmp_path, MODEL))
    next(samples)
    assert any(thread.name.startswith("edgekit-data") for thread in threading.enumerate())
    samples.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("edgekit-data") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mean": [1, 0]}, "mean"),
        ({"std": [1, 0, 1]}, "std must not be 0"),
        ({"mean": [float("nan")]}, "mean"),
        ({"resize": "big"}, "letterbox"),
        ({"resize": 0}, "shorter side"),
        ({"resize": [8]}, "height, width"),
        ({"resize": 7}, "the input of 8x8 is cut from it"),
        ({"resize": [8, 7]}, "the input of 8x8 is cut from it"),
        ({"crop": 9, "resize": 10}, "the size of the input, 8x8"),
        ({"crop": 8}, "nothing is cut"),
        ({"crop": 0.5, "resize": "stretch"}, "use resize: cover"),
        ({"crop": "most"}, "0.875"),
        ({"pad": 256}, "255"),
        ({"pad": [1, 2]}, "one per channel"),
        ({"scale": -1}, "factor for pixels"),
        ({"color": "YUV"}, "BGR"),
        ({"interpolation": "cubic"}, "bicubic"),
        ({"preset": "torch"}, "imagenet"),
        ({"layout": "CHW"}, "NCHW or NHWC"),
        ({"skip_broken": 1}, "true or false"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    save(tmp_path / "a.png", photo(16, 16))
    with pytest.raises(DataError, match=words):
        only(tmp_path, **options)


def test_options_and_inputs_that_do_not_go_together(tmp_path: Path) -> None:
    save(tmp_path / "a.png", photo(16, 16))
    for shape, options, words in (
        ((1, 7, 4, 4), {}, "7 channels"),
        ((1, 3), {}, "single input of four dimensions"),
        ((1, 1, 8, 8), {"color": "RGB"}, "one channel"),
        ((1, 1, 8, 8), {"preset": "imagenet"}, "three channels"),
    ):
        with pytest.raises(DataError, match=words):
            only(tmp_path, model(*shape), **options)
    # neither is a fault of the file, which skip_broken would leave out
    with pytest.raises(DataError, match="takes int8"):
        only(tmp_path, model(1, 3, 8, 8, elem=3), scale=1.0, skip_broken=True)
    with pytest.raises(DataError, match="gives an image of 8x8") as caught:
        only(tmp_path, model(1, 3, 16, 8), resize=8, skip_broken=True)
    assert caught.value.where == str(tmp_path / "a.png")
