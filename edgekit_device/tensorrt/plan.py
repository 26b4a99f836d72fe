"""A plan's header, read without TensorRT: checks that it is a plan and reads its TensorRT version.

The first 28 bytes are a tag, the version of the serialization and, at 24 to 27, major, minor, patch
and build of the TensorRT that wrote it (NVIDIA/TensorRT, samples/common/sampleEngines.cpp,
printPlanVersion, 10.7 and 11.1). Only serialization 0 is known; TensorRT writes it since 8.6. A
runtime also checks the plan's size at 16 to 23 and its platform's tag (0 on Linux x86-64) at 28 to
31, as forged headers showed on tensorrt_lean 11.4.0.106; these checks are left to the runtime.
"""

from __future__ import annotations

import struct
from typing import Optional, Union

from edgekit_device.errors import DeviceError
from edgekit_device.versions import Version

HEADER_BYTES = 28
_TAG = b"ftrt"
_SERIALIZATION = 0

# other kinds of files that users pass by mistake, by bytes at an offset
_OTHERS = (
    (4, b"NVDA", "a DLA loadable (run it with cuDLA)"),
    (0, b"PK\x03\x04", "a zip file (an .ekb bundle? load that as a whole)"),
    (0, b"\x7fELF", "a program or library"),
    (0, b"{", "a JSON file"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file itself"),
)
_ONNX_IR_VERSION = 0x08  # the first field of an ONNX file, as a varint
# far above today's IR versions; a byte below 128 is a whole varint
_MOST_IR_VERSION = 64
# ``functions`` of ModelProto; only ``configuration`` (26) is larger, and it is written last
_MOST_FIELD = 25


def read_header(data: Union[bytes, memoryview], where: str = "") -> Version:
    """Returns the version (four parts) of the TensorRT that wrote a plan, from its first 28 bytes.

    Args:
        data: The plan, or its available beginning.
        where: The place in messages.

    Raises:
        DeviceError: "engine.truncated", "engine.not-a-plan" (with the kind of file, if known), or
            "engine.serialization" for a header that this loader does not know.
    """
    head = bytes(data[:HEADER_BYTES])
    # a short file that begins like a plan was cut off; other short files are of another kind
    if not head or (len(head) < HEADER_BYTES and _TAG.startswith(head[: len(_TAG)])):
        raise DeviceError(
            "the plan is cut off: it has {} bytes".format(len(head)),
            code="engine.truncated",
            where=where,
            hint="copy it again, or build it again",
        )
    if not head.startswith(_TAG):
        found = _file_kind(head)
        raise DeviceError(
            "not a TensorRT plan{}".format(", but apparently " + found if found else ""),
            code="engine.not-a-plan",
            where=where,
            hint="a plan begins with the bytes 'ftrt', but this file with {!r}".format(head[:8]),
        )
    (serialization,) = struct.unpack_from("<I", head, 4)
    if serialization != _SERIALIZATION:
        raise DeviceError(
            "the plan has serialization version {}, but edgekit_device supports {}".format(
                serialization, _SERIALIZATION
            ),
            code="engine.serialization",
            where=where,
            hint="it is from a TensorRT before 8.6 or from a newer kind: build it again, or "
            "use a newer edgekit",
        )
    return tuple(head[24:28])


def _file_kind(head: bytes) -> Optional[str]:
    for offset, mark, name in _OTHERS:
        if head[offset : offset + len(mark)] == mark:
            return name
    if head[0] != _ONNX_IR_VERSION or len(head) < 3 or not 0 < head[1] < _MOST_IR_VERSION:
        return None
    # the next field is ModelProto's producer_name, domain, graph, ...: a small number, a varint or
    # bytes
    if head[2] & 7 in (0, 2) and 0 < head[2] >> 3 <= _MOST_FIELD:
        return "an ONNX model (build it first)"
    return None
