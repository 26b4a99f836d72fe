"""Loadables for the stub of libcudla (tests/edgekit_device/cuda/cudla_stub): descriptors alone.

They are made where EDGEKIT_CUDLA names the stub, so that a board of tests builds and runs them.
"""

import struct
from typing import Any

from . import _formats

# numbers of cudlaDataFormat and cudlaDataType (cudla.h)
_FORMAT = {"DLA_LINEAR": 1, "DLA_HWC4": 2, "CHW16": 3, "CHW32": 3}
_TYPE = {"INT8": 4, "HALF": 2}
_VECTOR = {"CHW16": 16, "CHW32": 32}
_NAME = 88  # char[80 + 1], padded to the alignment of what follows


def stub_loadable(io: list[dict[str, Any]]) -> bytes:
    """The stub's loadable for a network's inputs and outputs, as the plan's facts have them."""
    parts = {mode: [_descriptor(one) for one in io if one["mode"] == mode] for mode in _ORDER}
    counts = (len(parts[mode]) for mode in _ORDER)
    return (
        b"STUBDLA1"
        + struct.pack("<II", *counts)
        + b"".join(x for mode in _ORDER for x in parts[mode])
    )


_ORDER = ("INPUT", "OUTPUT")


def _descriptor(one: dict[str, Any]) -> bytes:
    n, c, h, w = one["shape"] if len(one["shape"]) == 4 else (1, 1, 1, one["shape"][-1])
    form, kind = one["format"], one["dtype"]
    stored, _ = _formats.physical([n, c, h, w], kind, form)
    item = 1 if kind == "INT8" else 2
    if form == "DLA_HWC4":
        strides = (item, stored[2] * stored[3] * item, 0, 0)
    else:
        line = stored[3] * item * _VECTOR.get(form, 1)
        strides = (item, line, line * h, 0)
    size = _formats.nbytes([n, c, h, w], kind, form)
    head = struct.pack(f"<{_NAME}s5Q", (one["name"] + "'").encode(), size, n, c, h, w)
    return head + struct.pack("<5B3x8I", _FORMAT[form], _TYPE[kind], 0, 0, 0, *strides, 0, 0, 0, 0)
