"""``fetch``: blobs of the board's store on their way to the host, in the frames of ``receive``."""

from __future__ import annotations

import argparse
import json
from typing import BinaryIO, Dict, Iterator

from ._checks import is_digest, parse_json
from ._errors import DeviceError
from ._root import Root
from ._store import Buffer

__all__ = ["do_fetch"]

_MAX_LIST = 16 << 20
_PIECE = 1 << 20


def do_fetch(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Iterator[Buffer]:
    """Answers the blobs whose digests are on stdin; all are there before the first is sent.

    Raises:
        DeviceError: "blob.missing", "protocol.invalid".
    """
    digests = parse_json(stdin.read(_MAX_LIST), "stdin", "protocol.invalid")
    if not isinstance(digests, list) or not all(is_digest(digest) for digest in digests):
        raise DeviceError(
            "expected a JSON list of SHA-256 digests", code="protocol.invalid", where="stdin"
        )
    with root.lock(shared=True):
        # mapped files outlive a collection
        blobs = {digest: root.store.read(digest) for digest in dict.fromkeys(digests)}
    return _frames(blobs)


def _frames(blobs: Dict[str, memoryview]) -> Iterator[Buffer]:
    for digest, data in blobs.items():
        yield json.dumps({"digest": digest, "bytes": len(data)}).encode("ascii") + b"\n"
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
    yield b"\n"
