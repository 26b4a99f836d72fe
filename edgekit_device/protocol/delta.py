"""Manifests in transit: compressed, and as a difference to one that the board already has.

A manifest is cut where its text says so, after closing brackets, so that equal parts of two
manifests are cut alike wherever they stand. The board sends short hashes of its parts, the host
answers which of them to take and what stands between; the digest of the whole decides.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from edgekit_device.protocol.codec import array, fail, integer, member, parse_json, record
from edgekit_device.protocol.manifest import MAX_MANIFEST

_PRINT = 6  # bytes of a part's hash: a clash costs a second sending, the digest finds it out
_MOST_PARTS = 4096
_MAX_STEPS = 4 << 20  # of their JSON: a difference that is longer is none
_PART = re.compile(rb"[^}\]]*(?:[}\]]|\Z)")
_CODE = "offer.invalid"
_BAD_BASE64 = (binascii.Error, ValueError, zlib.error)


def prints(base: bytes) -> Dict[str, Any]:
    """What the host needs to know of ``base``: its digest, how it is cut and the parts' hashes."""
    grain = 1
    while len(parts := _parts(base, grain)) > _MOST_PARTS:
        grain *= 2
    hashes = b"".join(_print(part) for part in parts)
    return {
        "digest": hashlib.sha256(base).hexdigest(),
        "grain": grain,
        "prints": base64.b64encode(hashes).decode("ascii"),
    }


def pack(manifest: bytes, base: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """The manifest as ``unpack`` reads it; smaller against a ``base`` from ``prints``."""
    document: Dict[str, Any] = {
        "digest": hashlib.sha256(manifest).hexdigest(),
        "bytes": len(manifest),
        "base": None,
    }
    text = manifest
    if base is not None:
        steps = json.dumps(_steps(manifest, base), separators=(",", ":")).encode("ascii")
        if len(steps) <= min(len(manifest), _MAX_STEPS):
            document["base"] = base["digest"]
            document["grain"] = base["grain"]
            text = steps
    document["packed"] = base64.b64encode(zlib.compress(text, 9)).decode("ascii")
    return document


def unpack(document: Dict[str, Any], base: Optional[bytes]) -> bytes:
    """The manifest of a packed document; nothing is unpacked beyond the size that it states.

    Raises:
        DeviceError: "offer.invalid".
    """
    size = integer(0, MAX_MANIFEST)(document.get("bytes"))
    text = _inflate(document.get("packed"), size if base is None else _MAX_STEPS)
    if base is not None:
        grain = integer(1, MAX_MANIFEST)(document.get("grain"))
        text = _assemble(text, _parts(base, grain), size)
    if len(text) != size or hashlib.sha256(text).hexdigest() != document.get("digest"):
        fail("manifest.json", "the manifest that came has another digest", code=_CODE)
    return text


def _inflate(packed: object, most: int) -> bytes:
    if not isinstance(packed, str):
        fail("packed", "expected base64", code=_CODE)
    worker = zlib.decompressobj()
    try:
        text = worker.decompress(base64.b64decode(packed, validate=True), most + 1)
    except _BAD_BASE64 as error:
        fail("packed", "not base64 of a zlib stream: {}".format(error), code=_CODE)
    if len(text) > most or not worker.eof or worker.unused_data:
        fail("packed", "it holds more or less than it tells", code=_CODE)
    return text


def _assemble(text: bytes, parts: List[bytes], size: int) -> bytes:
    made = bytearray()
    for step in array(_step)(parse_json(text, "packed", _CODE)):
        if isinstance(step, str):
            made += step.encode("utf-8", "surrogatepass")
        else:
            for part in parts[step.first : step.first + step.count]:
                made += part
                if len(made) > size:
                    break
        if len(made) > size:
            fail("packed", "it makes more than it tells", code=_CODE)
    return bytes(made)


@dataclass(frozen=True)
class PartsOfBase:
    """A run of the base's parts."""

    first: int = member(integer(0, MAX_MANIFEST), key="from")
    count: int = member(integer(1, MAX_MANIFEST))


def _step(value: Any) -> Any:
    """Text, or a run of the base's parts."""
    return value if isinstance(value, str) else record(PartsOfBase)(value)


def _steps(manifest: bytes, base: Dict[str, Any]) -> List[Any]:
    """Runs of the base's parts, and the text between them."""
    hashes = base64.b64decode(base["prints"], validate=True)
    known: Dict[bytes, int] = {}
    for number in range(len(hashes) // _PRINT):
        known.setdefault(hashes[number * _PRINT : (number + 1) * _PRINT], number)
    steps: List[Any] = []
    literal = b""
    for part in _parts(manifest, int(base["grain"])):
        hashed = _print(part)
        last = steps[-1] if steps and not literal else None
        if isinstance(last, dict):
            follows = last["from"] + last["count"]
            if hashes[follows * _PRINT : (follows + 1) * _PRINT] == hashed:
                last["count"] += 1
                continue
        found = known.get(hashed)
        if found is None:
            literal += part
            continue
        if literal:
            steps.append(literal.decode("utf-8"))
            literal = b""
        steps.append({"from": found, "count": 1})
    return [*steps, literal.decode("utf-8")] if literal else steps


def _parts(text: bytes, grain: int) -> List[bytes]:
    """Cuts ``text``; of the places to cut one in ``grain`` is taken, by what stands before it."""
    found: List[bytes] = []
    begin = 0
    for match in _PART.finditer(text):
        if match.end() == len(text) or zlib.crc32(match.group()) % grain == 0:
            if match.end() > begin:
                found.append(text[begin : match.end()])
            begin = match.end()
    return found


def _print(part: bytes) -> bytes:
    return hashlib.sha256(part).digest()[:_PRINT]
