"""Tensors as a request names them, seen in its shared memory."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Dict, Mapping

from . import _checks as check
from ._errors import DeviceError
from ._serve_memory import ALIGN
from ._types import DTYPES, nbytes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NoRoom", "input_of", "outside", "read_entry", "view_of"]


class NoRoom(DeviceError):
    """The outputs do not fit in the room; nothing was run."""

    def __init__(self, need: int) -> None:
        super().__init__(
            "the outputs need {} bytes of room".format(need),
            code="serve.room",
            hint="ask again with memory that has them",
        )
        self.bytes = need


def read_entry(value: object) -> Dict[str, Any]:
    entry = check.record(value, "inputs", ["name", "dtype", "shape", "offset"])
    check.text(entry["name"], "inputs.name")
    entry["shape"] = check.shape(entry["shape"], "inputs.shape")
    check.integer(entry["offset"], "inputs.offset", 0, 1 << 40)
    if entry["dtype"] not in DTYPES:
        check.fail("inputs.dtype", "unknown type")
    return entry


def view_of(memory: mmap.mmap, entry: Mapping[str, Any]) -> np.ndarray:
    """A tensor in shared memory, in place."""
    import numpy as np

    size = nbytes(entry["dtype"], entry["shape"])
    if entry["offset"] % ALIGN or entry["offset"] + size > len(memory):
        raise outside(entry["name"])
    if not size:
        return np.empty(entry["shape"], entry["dtype"])
    raw = np.frombuffer(memory, np.uint8, size, entry["offset"])
    found: np.ndarray = raw.view(entry["dtype"]).reshape(entry["shape"])
    return found


def input_of(memory: mmap.mmap, entry: Mapping[str, Any]) -> np.ndarray:
    view = view_of(memory, entry)
    # a client's bytes may be neither 0 nor 1
    return view.view("uint8") != 0 if entry["dtype"] == "bool" else view


def outside(where: str) -> DeviceError:
    return DeviceError(
        "it does not lie in the memory that came with the request",
        code="serve.memory",
        where=where[:80],
        hint="offsets are multiples of {}".format(ALIGN),
    )
