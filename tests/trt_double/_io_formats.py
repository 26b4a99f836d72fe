"""NVIDIA's table of I/O formats by type ("I/O Formats" of the guide's Advanced Topics)."""

from collections.abc import Iterator
from typing import Any

_ALL = "FLOAT HALF INT8 INT32 INT64 BOOL UINT8 BF16 FP8 INT4 FP4"
_GPU = {
    "LINEAR": _ALL,
    "CHW2": "HALF BF16",
    "CHW4": "INT8",
    "HWC8": "HALF BF16",
    "CHW32": "FLOAT HALF INT8",
    "DHWC8": "HALF BF16",
    "CDHW32": "HALF INT8",
    "HWC": "FLOAT UINT8",
    "HWC16": "HALF INT8 FP8",
    "DHWC": "FLOAT",
}
_DLA = {
    "LINEAR": "HALF INT8 FLOAT",
    "CHW4": "INT8",
    "CHW16": "HALF",
    "CHW32": "INT8",
    "DLA_LINEAR": "HALF INT8",
    "DLA_HWC4": "HALF INT8",
}


def misplaced(network: Any, dla: bool) -> Iterator[str]:
    """Inputs and outputs whose type no engine takes in any of their formats."""
    members = network._s.double.factory.classes["TensorFormat"].__members__
    for tensor in (*network._s.inputs, *network._s.outputs):
        if not tensor._s.formats_set:
            continue
        kind = tensor._s.dtype.name
        names = [n for n, one in members.items() if tensor._s.allowed_formats & (1 << int(one))]
        tables = (_GPU, _DLA) if dla else (_GPU,)
        if not any(kind in table.get(name, "").split() for table in tables for name in names):
            yield f"{tensor._s.name}: no implementation takes {kind} in {' or '.join(names)}"
