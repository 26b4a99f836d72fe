"""The manifest of a bundle for several shapes: what fits together, and what is refused where."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import parse
from tests.bundles.bundle_toys import toy_bundle

ONE: dict[str, Any] = json.loads(toy_bundle().manifest_bytes)


def _strides(shape: list[int], size: int = 4) -> list[int]:
    found: list[int] = []
    for length in reversed(shape):
        found.insert(0, size)
        size *= length
    return found


def several() -> dict[str, Any]:
    """The toy's manifest with a second static variant and one with two profiles."""
    document = copy.deepcopy(ONE)
    document["schema"] = "edgekit.bundle/3"
    for height in (6, 12):
        variant = {key: copy.deepcopy(ONE[key]) for key in ("inputs", "outputs", "lanes", "golden")}
        (tensor,) = variant["inputs"]
        tensor["shape"][2] = height
        tensor["strides"] = _strides(tensor["shape"])
        document["variants"] = [*document.get("variants", ()), variant]
    static, ranged = document["variants"]
    static["load"] = "demand"
    name, shape = ranged["inputs"][0]["name"], ranged["inputs"][0]["shape"]

    def at(height: int) -> list[int]:
        return [*shape[:2], height, *shape[3:]]

    ranged["profiles"] = [
        {name: {"min": at(8), "opt": at(12), "max": at(16)}},
        {name: {"min": at(17), "opt": at(20), "max": at(32)}},
    ]
    return document


def refused(document: object) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        parse(json.dumps(document).encode())
    return caught.value


def test_variants_are_read_and_written_again() -> None:
    document = several()
    found = parse(json.dumps(document).encode())
    own, static, ranged = found.every_variant
    assert own.inputs == found.inputs
    assert own.load == "start"
    assert static.load == "demand"
    assert static.sizes == {"x": tuple(document["variants"][0]["inputs"][0]["shape"])}
    assert [ranged.find_profile({"x": (1, 3, h, 8)}) for h in (7, 8, 16, 17, 33)] == [
        None,
        0,
        0,
        1,
        None,
    ]
    assert write(found) == document
    alone = found.select_variant(1)
    assert alone.inputs == static.inputs
    assert alone.golden == static.golden
    assert alone.variants == ()
    assert len(found.segments()) == 3 * len(found.lanes[0].segments)


def test_one_shape_is_written_without_the_new_fields() -> None:
    found = parse(toy_bundle().manifest_bytes)
    assert write(found) == ONE
    assert not {"variants", "profiles", "padding"} & set(ONE)


def _schema(document: dict[str, Any]) -> None:
    document["schema"] = "edgekit.bundle/2"


def _same_shape(document: dict[str, Any]) -> None:
    document["variants"][0]["inputs"] = document["inputs"]


def _other_name(document: dict[str, Any]) -> None:
    document["variants"][0]["inputs"][0]["name"] = "other"


def _open_input(document: dict[str, Any]) -> None:
    document["variants"][0]["inputs"][0]["shape"][2] = -1


def _lacking_engine(document: dict[str, Any]) -> None:
    document["variants"][0]["lanes"][0]["segments"][0]["engine"] = "0" * 64


def _half_share(document: dict[str, Any]) -> None:
    document["variants"][1]["lanes"][0]["share"] = 0.123


def _no_golden(document: dict[str, Any]) -> None:
    del document["variants"][0]["golden"]


def _golden_outside(document: dict[str, Any]) -> None:
    document["variants"][1]["golden"][0]["shapes"] = {"x": [1, 3, 40, 8]}


def _golden_of_static(document: dict[str, Any]) -> None:
    document["golden"][0]["shapes"] = {"x": document["inputs"][0]["shape"]}


def _wrong_order(document: dict[str, Any]) -> None:
    document["variants"][1]["profiles"][1]["x"]["min"][2] = 30


def _other_optimum(document: dict[str, Any]) -> None:
    document["variants"][1]["profiles"][0]["x"]["opt"][2] = 13


def _lacking_input(document: dict[str, Any]) -> None:
    profile = document["variants"][1]["profiles"][0]
    profile["z"] = profile.pop("x")


def _padded_nothing(document: dict[str, Any]) -> None:
    document["padding"] = [{"inputs": {"z": 0}, "outputs": {}}]


def _cropped_nothing(document: dict[str, Any]) -> None:
    document["padding"] = [{"inputs": {"x": 0}, "outputs": {"z": {"axis": 0}}}]


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (_schema, "schema"),
        (_same_shape, "variants[0].inputs"),
        (_other_name, "variants[0].inputs"),
        (_open_input, "variants[0].inputs[0].shape"),
        (_lacking_engine, "variants[0].lanes[0].segments[0].engine"),
        (_half_share, "variants[1].lanes"),
        (_no_golden, "variants[0].golden"),
        (_golden_outside, "variants[1].golden[0].shapes"),
        (_golden_of_static, "golden[0].shapes"),
        (_wrong_order, "variants[1].profiles[1].x"),
        (_other_optimum, "variants[1].profiles[0].x"),
        (_lacking_input, "variants[1].profiles[0]"),
        (_padded_nothing, "padding[0].inputs.z"),
        (_cropped_nothing, "padding[0].outputs.z"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(
    spoil: Callable[[dict[str, Any]], None], where: str
) -> None:
    document = several()
    spoil(document)
    error = refused(document)
    assert (error.code, error.where) == ("manifest.invalid", where)


VALUES = {"dtype": "int64", "shape": [2], "min": [1, 1], "opt": [4, 4], "max": [8, 8]}


def with_values(at: int = 1, **more: Any) -> dict[str, Any]:
    """``several`` whose variant ``at`` has an input that holds sizes."""
    document = several()
    variant = document["variants"][at]
    variant["values"] = {"s": {**VALUES, **more}}
    variant["lanes"][0]["segments"][0]["inputs"].append("s")
    return document


def test_an_input_that_holds_sizes_is_read_and_written_again() -> None:
    document = with_values()
    found = parse(json.dumps(document).encode())
    assert write(found) == document
    values = found.select_variant(2).values["s"]
    assert values == found.variants[1].values["s"]
    assert [values.holds(one) for one in ((1, 8), (0, 8), (4, 9))] == [True, False, False]
    assert "s" not in found.every_variant[2].sizes


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (with_values(0), "variants[0].values"),
        (with_values(opt=[4, 9]), "variants[1].values.s"),
        (with_values(opt=[4]), "variants[1].values.s"),
        (with_values(shape=[1, 2]), "variants[1].values.s"),
        (with_values(dtype="float32"), "variants[1].values.s.dtype"),
    ],
    ids=["static", "out of order", "too few", "two axes", "floats"],
)
def test_values_that_do_not_fit_are_refused(document: dict[str, Any], where: str) -> None:
    assert where in str(refused(document))
