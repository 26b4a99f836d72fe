"""What a request may look like."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from edgekit_device.build.request import read_request, request_digest
from edgekit_device.errors import DeviceError
from tests.edgekit_device import build_toys as toys


def changed(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(toys.request())
    at: Any = document
    *steps, last = path.split("/")
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if value is None and last.startswith("-"):
        del at[last[1:]]
    else:
        at[int(last) if isinstance(at, list) else last] = value
    return document


def test_a_request_is_read_whole() -> None:
    read = read_request(toys.request())
    (engine,) = read.engines
    assert (engine.dla_core, engine.standalone, read.lanes[0].engines) == (0, False, ("lane0",))
    assert [layer.device for layer in engine.layers].count("DLA") == len(toys.ON_DLA)
    assert read.digest == request_digest(toys.request())
    assert read_request(toys.request(toys.loadable(device="DLA1"))).engines[0].dla_core == 1


def test_the_digest_is_the_contents_alone() -> None:
    document = toys.request()
    turned = dict(reversed(list(document.items())))
    assert request_digest(turned) == request_digest(document)
    assert request_digest({**document, "name": "other"}) != request_digest(document)


def test_what_few_requests_need_may_be_left_out() -> None:
    document = toys.request()
    del document["engines"][0]["data"], document["engines"][0]["trtexec"]
    assert read_request(document).engines[0].data == {}


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("schema", "edgekit.build.request/2", "schema"),
        ("-engines", None, "request"),
        ("more", 1, "request"),
        ("backend", "other", "backend"),
        ("timing_cache", 1, "timing_cache"),
        ("lanes", [], "lanes"),
        ("lanes/0/engines/0", "lane9", "lanes[0].engines"),
        ("lanes/0/share", 1.5, "lanes[0].share"),
        ("golden", [{"seed": 0, "inputs": {}, "lane": None}], "golden[0].inputs"),
        (
            "golden",
            [{"seed": 0, "inputs": {"x": {"low": 0, "high": 1}}, "lane": 1}],
            "golden[0].lane",
        ),
        ("engines/0/key", "../up", "engines[0].key"),
        ("engines/0/model", "abc", "engines[0].model"),
        ("engines/0/data", {"../w": "0" * 64}, "engines[0].data"),
        ("engines/0/device", "DLA", "engines[0].device"),
        ("engines/0/precisions", ["fp8"], "engines[0].precisions[0]"),
        ("engines/0/layers/0/device", "CPU", "engines[0].layers[0].device"),
        ("engines/0/inputs/0/formats", ["dla"], "engines[0].inputs[0].formats[0]"),
        ("engines/0/inputs/0/formats", [3], "engines[0].inputs[0].formats[0]"),
        ("engines/0/inputs/0/dtype", "complex64", "engines[0].inputs[0].dtype"),
        ("engines/0/inputs/0/scale", -1.0, "engines[0].inputs[0].scale"),
        ("engines/0/pools", {"DLA_MANAGED_SRAM": -1}, "engines[0].pools.DLA_MANAGED_SRAM"),
        ("engines/0/optimization_level", 6, "engines[0].optimization_level"),
        ("engines/0/attempts", [], "engines[0].attempts"),
        (
            "engines/0/attempts/0/flags",
            ["STRIP_PLAN", "STRIP_PLAN"],
            "engines[0].attempts[0].flags",
        ),
        ("engines/0/trtexec", [["--onnx={file}"]], "engines[0].trtexec[0][0]"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(path: str, value: Any, where: str) -> None:
    with pytest.raises(DeviceError) as failed:
        read_request(changed(path, value))
    assert (failed.value.code, failed.value.where) == ("build.request", where)


def test_engines_have_keys_of_their_own() -> None:
    with pytest.raises(DeviceError, match="names must be different"):
        read_request(toys.request(toys.engine(), toys.engine()))


def test_an_argument_may_be_as_long_as_a_program_takes() -> None:
    longest = "--layerPrecisions=" + "x" * (131071 - len("--layerPrecisions="))
    document = toys.request(toys.engine(trtexec=[[longest]]), backend="trtexec")
    assert read_request(document).engines[0].trtexec == ((longest,),)
    document["engines"][0]["trtexec"] = [[longest + "x"]]
    with pytest.raises(DeviceError) as caught:
        read_request(document)
    assert caught.value.where == "engines[0].trtexec[0][0]"
    document["engines"][0]["trtexec"] = [[3]]
    with pytest.raises(DeviceError):
        read_request(document)


def test_trtexec_needs_a_command_for_each_attempt() -> None:
    document = toys.request(toys.engine(trtexec=[["--onnx={model}"]]), backend="trtexec")
    assert read_request(document).engines[0].trtexec == (("--onnx={model}",),)
    document["engines"][0]["attempts"] *= 2
    with pytest.raises(DeviceError, match="one command is needed for each attempt"):
        read_request(document)
