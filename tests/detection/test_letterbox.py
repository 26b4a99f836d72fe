"""A placing in numbers is where the prepared picture lies, and back again."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edgekit.quantize.data.images import ImageOptions, Preprocess
from edgekit_device import Found, Placing
from edgekit_device.detection.letterbox import cover, letterbox, stretch

SIZES = [(120, 200), (200, 120), (64, 96), (33, 77), (500, 100)]


def prepared(options: ImageOptions, picture: np.ndarray) -> np.ndarray:
    prepare = Preprocess.of(options, (64, 96, 3), True, np.dtype(np.float32))
    return prepare(Image.fromarray(picture))[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "options",
    [
        ImageOptions(preset="yolo"),
        ImageOptions(resize="stretch"),
        ImageOptions(resize="cover"),
        ImageOptions(resize="cover", crop=0.8),
        ImageOptions(resize=100),
        ImageOptions(resize=[70, 100]),
    ],
    ids=["letterbox", "stretch", "cover", "share", "shorter", "sides"],
)
def test_a_place_of_the_picture_is_found_on_the_input(
    options: ImageOptions, size: tuple[int, int]
) -> None:
    height, width = size
    # red grows to the right and green downwards: a pixel's colour tells where it comes from
    picture = np.zeros((height, width, 3), np.float32)
    picture[..., 0] = np.linspace(0, 255, width)[None, :]
    picture[..., 1] = np.linspace(0, 255, height)[:, None]
    shown = prepared(options, picture.round().astype(np.uint8))
    placing = Preprocess.of(options, (64, 96, 3), True, np.dtype(np.float32)).placing(*size)
    seen = 0
    for part_x in (0.3, 0.5, 0.7):
        for part_y in (0.3, 0.5, 0.7):
            x, y = placing.forth(part_x * width, part_y * height)
            if not (1 <= x < 95 and 1 <= y < 63):
                continue
            seen += 1
            red, green, _ = shown[:, int(y), int(x)]
            pixel = max(placing.scale_x**-1 / width, placing.scale_y**-1 / height)
            assert red == pytest.approx(part_x, abs=1.5 * pixel + 0.01)
            assert green == pytest.approx(part_y, abs=1.5 * pixel + 0.01)
            assert placing.point_back(x, y) == pytest.approx((part_x * width, part_y * height))
    assert seen >= 1


def test_a_letterbox_has_the_figures_of_ultralytics() -> None:
    # an odd row of the bars is below: 640 - 427 = 213, of which 106 are above
    placing = letterbox((427, 640), (640, 640))
    assert (placing.resized, placing.left, placing.top) == ((427, 640), 0, 106)
    placing = letterbox((1080, 810), (640, 640))
    assert (placing.resized, placing.left, placing.top) == ((640, 480), 80, 0)


def test_what_lies_in_the_bars_is_left_out_and_what_reaches_into_them_is_cut() -> None:
    placing = letterbox((100, 200), (200, 200))  # bars of 50 rows above and below
    inside = Found((10, 60, 30, 80), 0.9, 1, "a", points=((20, 70, 0.5),))
    partly = Found((10, 40, 30, 80), 0.8)
    beside = Found((10, 0, 30, 49), 0.7)
    assert placing.back([inside, partly, beside]) == [
        Found((10, 10, 30, 30), 0.9, 1, "a", points=((20, 20, 0.5),)),
        Found((10, 0, 30, 30), 0.8),
    ]


@pytest.mark.parametrize("place", [letterbox, stretch, cover])
@pytest.mark.parametrize("size", SIZES)
def test_a_mask_comes_back_where_its_box_does(place: object, size: tuple[int, int]) -> None:
    placing: Placing = place(size, (64, 96))  # type: ignore[operator]
    mask = np.zeros((64, 96), bool)
    mask[24:40, 36:60] = True
    (found,) = placing.back([Found((36, 24, 60, 40), 0.5, mask=mask)])
    assert found.mask.shape == size
    rows, columns = np.nonzero(found.mask)
    edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    steps = 1 + 1 / placing.scale_x, 1 + 1 / placing.scale_y
    for edge, side, step in zip(edges, found.box, steps * 2, strict=True):
        assert abs(edge - side) <= step


def test_a_mask_has_nothing_beside_what_the_input_shows() -> None:
    placing = cover((100, 400), (100, 100))
    whole = placing.mask_back(np.ones((100, 100), bool))
    assert whole[:, 150:250].all()
    assert not whole[:, :149].any()
    assert not whole[:, 251:].any()
