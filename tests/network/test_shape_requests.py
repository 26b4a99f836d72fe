"""What a configuration's shapes, dimensions and buckets ask of a file's inputs."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from pydantic import ValidationError

from edgekit.config.schema import ModelSection
from edgekit.errors import ModelError
from edgekit.network.ranges import Range, ShapeRequest
from edgekit.network.shape_requests import buckets_for, shape_request

PICTURE = ("batch", 3, "height", "width")


def inputs(**dims: tuple[int | str | None, ...]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list(sizes))
        for name, sizes in dims.items()
    ]


def request(
    section: dict[str, Any],
    data: list[tuple[int, int]] | None = None,
    **dims: tuple[int | str | None, ...],
) -> ShapeRequest:
    model = ModelSection.model_validate({"onnx": "model.onnx", **section})
    return shape_request(model, inputs(**(dims or {"x": PICTURE})), data)


def refused(section: dict[str, Any], **dims: tuple[int | str | None, ...]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        request(section, **dims)
    return caught.value


def test_a_static_shape_is_as_it_was_given():
    found = request({"shapes": {"x": [1, 3, 8, 8]}})
    assert found == ShapeRequest({"x": (1, 3, 8, 8)})
    assert found.is_static


@pytest.mark.parametrize(
    "shape",
    [
        [1, 3, "320..640..1280", 640],
        "1x3x320..640..1280x640",
        {"min": [1, 3, 320, 640], "opt": [1, 3, 640, 640], "max": [1, 3, 1280, 640]},
        [{"min": [1, 3, 320, 640], "opt": [1, 3, 640, 640], "max": [1, 3, 1280, 640]}],
    ],
)
def test_the_spellings_of_a_range_mean_the_same(shape: object):
    found = request({"shapes": {"x": shape}})
    assert found.optimum == {"x": (1, 3, 640, 640)}
    profile = {"x": Range((1, 3, 320, 640), (1, 3, 640, 640), (1, 3, 1280, 640))}
    assert found.profiles == (profile,)
    assert found.buckets == (found.optimum,)
    assert found.find_profile({"x": (1, 3, 1000, 640)}) == 0
    assert found.find_profile({"x": (1, 3, 1000, 641)}) is None
    assert found.find_profile({"x": (1, 3, 640)}) is None


def test_the_best_size_of_a_range_is_the_largest_unless_given():
    assert request({"shapes": {"x": "1x3x32..64x32"}}).optimum == {"x": (1, 3, 64, 32)}
    found = request({"shapes": {"x": {"min": [1, 3, 32, 32], "max": [1, 3, 64, 48]}}})
    assert found.optimum == {"x": (1, 3, 64, 48)}


def test_several_profiles():
    small = {"min": [1, 3, 32, 32], "max": [1, 3, 64, 64]}
    large = {"min": [1, 3, 64, 64], "max": [1, 3, 128, 128]}
    found = request({"shapes": {"x": [small, large]}})
    assert [one["x"].max for one in found.profiles] == [(1, 3, 64, 64), (1, 3, 128, 128)]
    assert found.find_profile({"x": (1, 3, 100, 100)}) == 1
    assert found.buckets == ({"x": (1, 3, 64, 64)}, {"x": (1, 3, 128, 128)})


def test_an_axis_of_the_same_name_follows():
    found = request(
        {"shapes": {"x": [1, 3, "32..64", 32]}}, x=PICTURE, mask=("batch", "height", "width")
    )
    assert found.profiles[0]["mask"] == Range((1, 32, 32), (1, 64, 32), (1, 64, 32))


def test_named_axes_and_the_sizes_that_they_list():
    found = request({"dimensions": {"batch": "1..8", "height": [320, 640], "width": 640}})
    assert found.profiles == ({"x": Range((1, 3, 320, 640), (8, 3, 640, 640), (8, 3, 640, 640))},)
    assert found.buckets == ({"x": (8, 3, 320, 640)}, {"x": (8, 3, 640, 640)})


def test_lists_alone_have_the_only_sizes():
    found = request({"dimensions": {"batch": [2, 4], "height": [32], "width": 64}})
    assert found.profiles == ()
    assert found.buckets == ({"x": (2, 3, 32, 64)}, {"x": (4, 3, 32, 64)})
    assert found.optimum == {"x": (4, 3, 32, 64)}
    one = request({"dimensions": {"batch": [2], "height": 32, "width": 64}})
    assert (one.is_static, one.optimum) == (True, {"x": (2, 3, 32, 64)})


def test_a_batch_beside_the_same_size_is_taken():
    found = request({"dimensions": {"batch": 4, "height": "32..64", "width": 32}, "batch": 4})
    assert found.optimum == {"x": (4, 3, 64, 32)}


def test_buckets_alone_are_the_only_shapes():
    found = request({"buckets": ["640x640", "960x544"]})
    assert found.profiles == ()
    assert found.buckets == ({"x": (1, 3, 640, 640)}, {"x": (1, 3, 960, 544)})
    assert found.optimum == {"x": (1, 3, 960, 544)}


def test_a_bucket_names_inputs_or_a_picture_of_either_layout():
    shapes = {"shapes": {"x": ["1..8", 3, "32..64", "32..64"]}}
    found = request({**shapes, "buckets": [{"x": [4, 3, 32, 32]}, "64x32"]})
    assert found.buckets == ({"x": (4, 3, 32, 32)}, {"x": (8, 3, 64, 32)})
    last = request({"buckets": ["64x32"]}, x=("n", "h", "w", 3))
    assert last.buckets == ({"x": (1, 64, 32, 3)},)


def test_buckets_are_chosen_to_waste_the_least():
    sizes = [(480, 640)] * 10 + [(640, 480)] * 5 + [(1280, 1280)]
    assert buckets_for(sizes, 1, (32, 32), (1280, 1280)) == [(1280, 1280)]
    assert buckets_for(sizes, 3, (32, 32), (1280, 1280)) == [(1280, 1280), (640, 480), (480, 640)]
    assert len(buckets_for(sizes, 9, (32, 32), (1280, 1280))) == 3
    assert buckets_for([(480, 640), (640, 480)], 2, (1, 1), (640, 640)) == [(640, 480), (480, 640)]
    found = request(
        {"shapes": {"x": [1, 3, "320..640", "320..640"]}, "buckets": {"count": 2}},
        [(200, 3000), (630, 630)],
    )
    assert found.buckets == ({"x": (1, 3, 640, 640)}, {"x": (1, 3, 320, 640)})


@pytest.mark.parametrize(
    ("section", "code", "where", "says"),
    [
        ({"shapes": {"y": "1..2"}}, "model.unknown_input", "model.shapes.y", "inputs are: x"),
        ({"shapes": {"x": "1x1..4x8x8"}}, "model.shape_conflict", "model.shapes.x", "0, 2, 3"),
        ({"shapes": {"x": "1x3x8..9"}}, "model.shape_rank", "model.shapes.x", "3 dimensions"),
        ({"dimensions": {"hight": 8}}, "model.dimension", "model.dimensions.hight", "'height'"),
        (
            {"shapes": {"x": "1x3x8..16x8"}, "dimensions": {"height": 8}},
            "model.dimension",
            "model.shapes.x",
            "8..16",
        ),
        (
            {"shapes": {"x": "1x3x8..16x8"}, "buckets": ["8x8", "32x8"]},
            "model.bucket",
            "model.buckets.1",
            "1x3x8..16x8",
        ),
        (
            {"dimensions": {"batch": "1..8", "height": 8, "width": 8}, "batch": 4},
            "model.batch",
            "model.batch",
            "4 (model.batch) and 1..8 (model.dimensions.batch)",
        ),
        (
            {"shapes": {"x": "1..8x3x8x8"}, "batch": 4},
            "model.batch",
            "model.batch",
            "4 (model.batch) and 1..8 (model.shapes.x)",
        ),
        ({"buckets": [{"x": [1, 4, 8, 8]}]}, "model.bucket", "model.buckets.0", "height"),
        ({"buckets": [{"z": [1, 4, 8, 8]}]}, "model.unknown_input", "model.buckets.0", "x"),
        ({"buckets": {"count": 2}}, "model.bucket", "model.buckets", "calibration.data"),
        (
            {"dimensions": {"height": [*range(1, 10)], "width": [*range(1, 10)], "batch": 1}},
            "model.bucket",
            "model.dimensions",
            "81",
        ),
    ],
)
def test_what_a_file_lacks_is_refused_at_its_key(
    section: dict[str, Any], code: str, where: str, says: str
):
    error = refused(section)
    assert (error.code, error.where) == (code, where)
    assert says in str(error)


def test_every_input_has_as_many_profiles():
    two = [{"min": [1, 4], "max": [2, 4]}] * 2
    dims = {"a": ("n", 4), "b": ("m", 4)}
    error = refused({"shapes": {"a": two, "b": ["1..3", 4]}}, **dims)
    assert (error.code, error.where) == ("model.profiles", "model.shapes.b")
    assert len(request({"shapes": {"a": two, "b": [1, 4]}}, **dims).profiles) == 2


def test_a_file_of_fixed_sizes_takes_no_range():
    error = refused({"shapes": {"x": "1..2x3"}}, x=(1, 3))
    assert error.code == "model.shape_conflict"
    assert "no open axis" in error.hint


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"shapes": {"x": [1, "9..8"]}}, "the smallest size, 9, is above the largest, 8"),
        ({"shapes": {"x": [1, "8..9..8"]}}, "the best size, 9, is not within 8..8"),
        ({"shapes": {"x": [1, "0..8"]}}, "the smallest size is 1"),
        ({"shapes": {"x": [1, "a"]}}, "give a size, or a range such as 320..1280"),
        ({"shapes": {"x": "1xb"}}, "'1xb' is not SIZExSIZE"),
        ({"shapes": {"x": {"min": [1], "max": [1, 2]}}}, "different numbers of sizes"),
        ({"shapes": {"x": {"min": [2], "max": [1]}}}, "min is above max: 2 > 1 (axis 0)"),
        ({"shapes": {"x": {"min": [1], "opt": [3], "max": [2]}}}, "opt is not within min and max"),
        ({"buckets": ["640"]}, "give HEIGHTxWIDTH"),
        ({"buckets": {"count": 17}}, "16"),
        ({"buckets": []}, "at least 1 item"),
        ({"dimensions": {"n": []}}, "at least 1 item"),
    ],
)
def test_a_spelling_that_is_none_is_refused(section: dict[str, Any], says: str):
    with pytest.raises(ValidationError) as caught:
        ModelSection.model_validate({"onnx": "model.onnx", **section})
    assert says in str(caught.value)
