"""Ranges, named axes and buckets in a file: what is impossible is one error with its line."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper
from PIL import Image

import edgekit
from edgekit.errors import EdgekitError
from tests.network.onnx_making import make

ORIN = "jetson-agx-orin-64gb"


def config(folder: Path, *lines: str, dims: tuple[int | str, ...] = ("batch", 3, "h", "w")) -> Path:
    net = make([helper.make_node("Relu", ["in.0"], ["y"])], {"in.0": dims}, ["y"])
    onnx.save(net, folder / "net.onnx")
    path = folder / "net.yaml"
    head = ["version: 1", "name: net", f"target: {ORIN}", "model:", "  onnx: net.onnx"]
    path.write_text("\n".join([*head, *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("lines", "place", "says"),
    [
        (["  shapes: {in.0: [1, 3, 9..8, 8]}"], "6:25", "9, is above the largest, 8"),
        (
            ["  shapes:", "    in.0: {min: [1, 3, 8, 8], opt: [1, 3, 4, 8], max: [1, 3, 9, 9]}"],
            "7:5",
            "opt is not within min and max: 4 (axis 2)",
        ),
        (["  shapes:", "    in.0: {min: [1, 3, 8, 8], mox: [1, 3, 9, 9]}"], "7:", "mox"),
        (["  shapes:", "    in.1: [1, 3, 8..9, 8]"], "7:5", "'in.1', which is not an input"),
        (["  shapes:", "    in.0: [1, 3, 8..9]"], "7:5", "has 3 dimensions"),
        (["  shapes:", "    in.0: [1, 3..4, 8, 8]"], "7:5", "axis 1 of input 'in.0' is 3"),
        (["  dimensions:", "    batch: 1", "    hh: 8", "    w: 8"], "8:5", "'hh'"),
        (["  shapes: {in.0: [1, 3, 8..9, 8]}", "  buckets: [8x8, 10x8]"], "7:18", "no profile"),
        (["  shapes: {in.0: [1, 3, 8..9, 8]}", "  buckets: {count: 2}"], "7:3", "no data"),
        (["  buckets: [8]"], "6:13", "expected a string"),
        (["  buckets: [8x]"], "6:13", "give HEIGHTxWIDTH"),
        (
            ["  networks: [{name: a, onnx: net.onnx, shapes: {in.0: [1..2, 3, 8, 8]}}]"],
            "6:",
            "the range of 'in.0' is for one network",
        ),
    ],
)
def test_an_impossible_size_is_refused_at_its_line(
    tmp_path: Path, lines: list[str], place: str, says: str
) -> None:
    path = config(tmp_path, *lines)
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(path)
    assert f"net.yaml:{place}" in str(caught.value)
    assert says in str(caught.value)


def test_a_range_of_a_file_with_fixed_sizes(tmp_path: Path) -> None:
    path = config(tmp_path, "  shapes: {in.0: [1, 3, 8..9, 8]}", dims=(1, 3, 8, 8))
    with pytest.raises(EdgekitError, match="no open axis") as caught:
        edgekit.check(path)
    assert caught.value.where.endswith("net.yaml:6:12")


def test_buckets_are_chosen_from_the_calibration_images(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number, (width, height) in enumerate([(64, 32), (64, 31), (200, 100), (32, 96)]):
        image, exif = Image.new("RGB", (width, height)), Image.Exif()
        if number == 1:  # lies on its side
            image, exif[0x0112] = image.transpose(Image.Transpose.ROTATE_90), 6
        image.save(tmp_path / "images" / f"{number}.png", exif=exif)
    (tmp_path / "images" / "broken.png").write_text("no image")
    path = config(
        tmp_path,
        "  shapes: {in.0: [1, 3, 32..128, 32..128]}",
        "  buckets: {count: 3}",
        "calibration: {data: images, skip_broken: true}",
    )
    from edgekit.config.loader import open_config
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.pipeline.steps.load import requested_shapes

    with Pipeline(open_config(path)) as pipeline:
        found = requested_shapes(pipeline.context)
        assert found.buckets == (
            {"in.0": (1, 3, 64, 128)},
            {"in.0": (1, 3, 96, 32)},
            {"in.0": (1, 3, 32, 64)},
        )


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = config(tmp_path, "  shapes: {in.0: [1, 3, 8..16, 8]}")
    found = edgekit.check(path, model={"shapes": {"in.0": (1, 3, 8, 8)}})
    assert not found.buckets
    found = edgekit.check(path, model={"shapes": {"in.0": "2x3x8x8..32"}})
    assert found.buckets[0].shapes == {"in.0": (2, 3, 8, 32)}
