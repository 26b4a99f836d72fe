"""The double's plans: the real 28-byte header, then a payload of its own (facts, the ONNX model).

Header (trtexec's printPlanVersion): "ftrt", a serialization version of 0, and at bytes 24..27 the
TensorRT that wrote it. A loadable of the DLA begins otherwise and is refused by runtimes.
"""

import json
import struct
import zlib
from typing import Any

TAG = b"ftrt"
LOADABLE = b"\x14\x00\x00\x00edgekit test loadable\n"


def write(
    build: tuple[int, int, int, int], facts: dict[str, Any], model: bytes, loadable: bool
) -> bytes:
    """A plan or a loadable."""
    text = json.dumps(facts, sort_keys=True).encode()
    model = zlib.compress(model, 1)  # a stripped plan's zeros take no room
    body = struct.pack("<II", len(text), len(model)) + text + model
    if loadable:
        return LOADABLE + body
    return TAG + struct.pack("<IQQ", 0, 28 + len(body), 0) + bytes(build) + body


class BadPlan(ValueError):
    """What a runtime logs of a plan that it refuses."""


def read(data: bytes) -> tuple[tuple[int, int, int, int], dict[str, Any], bytes]:
    """Version, facts and model of a plan.

    Raises:
        BadPlan: No plan, a loadable, or a cut one, in TensorRT's words where they are known.
    """
    if data.startswith(LOADABLE):
        raise BadPlan(
            "Cannot deserialize serialized engine built with EngineCapability::kDLA_STANDALONE, "
            "use cuDLA APIs instead."
        )
    if data[:4] != TAG:
        raise BadPlan(
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
            "magicTagRead == kMAGIC_TAG failed.Magic tag does not match)"
        )
    version = tuple(data[24:28])
    if len(data) < 28 or len(data) != struct.unpack_from("<Q", data, 8)[0]:
        raise BadPlan(
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
            "sizeRead == header.size failed.Size specified in header does not match archive size)"
        )
    return (*version[:4],), *split(data[28:])  # type: ignore[return-value]


def split(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Facts and model of what follows the header."""
    text, model = struct.unpack_from("<II", body)
    facts: dict[str, Any] = json.loads(body[8 : 8 + text])
    return facts, zlib.decompress(body[8 + text : 8 + text + model])


def loadable(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Facts and model of a test loadable, for a stand-in of cuDLA."""
    if not data.startswith(LOADABLE):
        raise BadPlan("not a loadable")
    return split(data[len(LOADABLE) :])
