"""The manifest's "engines": what a loader must know of TensorRT's engines, read strictly."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import parse
from tests.edgekit_device.tensorrt.test_commands import trt_bundle

GOOD: dict[str, Any] = json.loads(
    trt_bundle("10.3.0", ["STRIP_PLAN"], fingerprint={}).manifest_bytes
)
DIGEST = next(iter(GOOD["engines"]))


def changed(path: str, value: Any) -> bytes:
    """The manifest with one field of the engine's entry changed; "a.0.b" leads into lists."""
    document = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    place = document["engines"][DIGEST]
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return json.dumps(document).encode()


def on(devices: list[str], core: int | None) -> bytes:
    """The manifest with a lane for each device; all run the one engine."""
    document = copy.deepcopy(GOOD)
    (lane,) = document["lanes"]
    document["lanes"] = [
        {"share": 1.0 / len(devices), "segments": [{**lane["segments"][0], "device": device}]}
        for device in devices
    ]
    document["engines"][DIGEST]["dla_core"] = core
    return json.dumps(document).encode()


def test_the_segment_says_which_core_runs_an_engine() -> None:
    lanes = parse(on(["DLA0", "DLA1"], 0)).lanes
    assert [segment.core for lane in lanes for segment in lane.segments] == [0, 1]
    assert parse(on(["DLA1"], 1)).engines[DIGEST].dla_core == 1


@pytest.mark.parametrize(
    ("devices", "core"),
    [(["GPU"], 0), (["DLA0"], None), (["DLA0"], 1), (["DLA0", "DLA1"], 2)],
)
def test_a_core_that_no_segment_has_is_refused(devices: list[str], core: int | None) -> None:
    with pytest.raises(DeviceError, match="runs on") as caught:
        parse(on(devices, core))
    assert caught.value.code == "manifest.invalid"


def test_a_loadable_is_never_the_gpus() -> None:
    document = json.loads(on(["DLA0", "GPU"], 0))
    document["engines"][DIGEST].update(kind="loadable", stripped=False)
    with pytest.raises(DeviceError, match="runs on GPU"):
        parse(json.dumps(document).encode())


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_is_positive(scale: float) -> None:
    document = json.loads(changed("inputs.0.dtype", "int8"))
    document["engines"][DIGEST]["inputs"][0]["scale"] = scale
    with pytest.raises(DeviceError, match="not within"):
        parse(json.dumps(document).encode())


def test_every_engine_has_an_entry_and_every_entry_an_engine() -> None:
    without = {key: value for key, value in GOOD.items() if key != "engines"}
    stray = {**GOOD, "engines": {**GOOD["engines"], "ab" * 32: GOOD["engines"][DIGEST]}}
    for document in (without, {**GOOD, "engines": {}}, {**GOOD, "engines": []}, stray):
        with pytest.raises(DeviceError) as caught:
            parse(json.dumps(document).encode())
        assert caught.value.code == "manifest.invalid"
