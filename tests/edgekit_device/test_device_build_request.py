"""What a request may look like."""

from __future__ import annotations

import pytest

from edgekit_device.build.request import read_request, request_digest
from edgekit_device.errors import DeviceError
from tests.edgekit_device import build_toys as toys


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
    with pytest.raises(DeviceError, match="every attempt needs one command"):
        read_request(document)
