"""Manifests as differences: whatever two texts, the board makes the very bytes, and no more."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.delta import pack, prints, unpack

# brackets often, so that there are parts; letters beyond ASCII, since names may have them
TEXT = st.text(alphabet='ab{}[],":ü\n', max_size=200).map(lambda text: text.encode("utf-8"))


def _manifest(count: int, changed: int = -1) -> bytes:
    weights = {
        f"layer{n}": {"digest": hashlib.sha256(b"%d" % (n + 10**6 * (n == changed))).hexdigest(),
                      "bytes": 4 * n, "shape": [n, 1, 1], "source": f"layer{n}.w"}
        for n in range(count)
    }  # fmt: skip
    return json.dumps({"name": "net", "weights": weights}, sort_keys=True).encode()


@given(TEXT, TEXT)
@example(b"", b"")
@example(b"{}{}{}{}", b"{}{}")
@example(b"[1][2][3]", b"[3][1][2][2]")
def test_the_board_makes_the_very_bytes(base: bytes, manifest: bytes) -> None:
    document = pack(manifest, prints(base))
    assert unpack(document, base if document["base"] else None) == manifest
    assert unpack(pack(manifest), None) == manifest


def test_one_changed_weight_costs_little_of_many() -> None:
    base, manifest = _manifest(1500), _manifest(1500, changed=700)
    document = pack(manifest, prints(base))
    assert document["base"] == hashlib.sha256(base).hexdigest()
    # a digest does not compress: 32 bytes of it are new
    assert 32 < len(document["packed"]) < 600
    assert len(pack(manifest)["packed"]) > 1500 * 32
    assert unpack(document, base) == manifest


def test_a_large_base_is_reported_in_few_parts() -> None:
    base = _manifest(20_000)
    reported = prints(base)
    assert reported["grain"] > 1
    assert len(reported["prints"]) < 64 * 1024
    manifest = _manifest(20_000, changed=7)
    document = pack(manifest, reported)
    assert unpack(document, base) == manifest
    assert len(document["packed"]) < len(pack(manifest)["packed"]) / 20


def _refused(document: dict[str, Any], base: bytes | None) -> str:
    with pytest.raises(DeviceError) as caught:
        unpack(document, base)
    return caught.value.code


def _with(manifest: bytes, steps: Any, size: int | None = None) -> dict[str, Any]:
    text = steps if isinstance(steps, bytes) else json.dumps(steps).encode()
    return {
        "digest": hashlib.sha256(manifest).hexdigest(),
        "bytes": len(manifest) if size is None else size,
        "grain": 1,
        "packed": base64.b64encode(zlib.compress(text)).decode(),
    }


def test_a_stream_that_unpacks_to_more_than_it_reports_is_refused() -> None:
    bomb = _with(b"{}", b"\0" * (64 << 20), size=2)
    assert len(bomb["packed"]) < 200_000
    assert _refused(bomb, None) == "offer.invalid"
    assert _refused({**bomb, "bytes": 1 << 40}, None) == "manifest.invalid"
    # and so is a difference that is one long list of steps
    assert _refused(bomb, b"{}") == "offer.invalid"


def test_steps_that_make_more_than_they_report_are_refused() -> None:
    base = b"{" + b"x" * 1000 + b"}"
    steps = [{"from": 0, "count": 1}] * 1000
    assert _refused(_with(base, steps), base) == "offer.invalid"
    assert unpack(_with(base, steps[:1]), base) == base


@pytest.mark.parametrize(
    "steps",
    [b"no json", {}, [1], [None], [{}], [{"from": 0}], [{"from": 0, "count": 0}],
     [{"from": -1, "count": 1}], [{"from": 9, "count": 1}], [{"from": True, "count": 1}],
     [{"from": 0, "count": 1, "more": 1}], [], ["{}x"], b"[NaN]", b"[" * 100_000],
)  # fmt: skip
def test_steps_that_make_no_sense_are_refused(steps: Any) -> None:
    assert _refused(_with(b"{}", steps), b"{}") in ("offer.invalid", "manifest.invalid")


@pytest.mark.parametrize("packed", [None, 7, "ü", "!!", "eJw=", ""])
def test_what_is_no_stream_is_refused(packed: Any) -> None:
    document = {**pack(b"{}"), "packed": packed}
    assert _refused(document, None) == "offer.invalid"
    whole = pack(b"{}")
    cut = base64.b64encode(base64.b64decode(whole["packed"])[:-1]).decode()
    assert _refused({**whole, "packed": cut}, None) == "offer.invalid"
