"""What a request may look like."""

from __future__ import annotations

import pytest

from edgekit_device.build.request import read_request, request_digest
from edgekit_device.errors import DeviceError
from tests.edgekit_device.build import toys


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
