"""Memory sizes and version numbers as builders print them."""

from __future__ import annotations

import re

from edgekit.dla import MemoryNeed

__all__ = ["release", "sizes"]

_UNITS = {"B": 0, "K": 10, "M": 20, "G": 30}
_SIZE = r"\s*=\s*(\d{1,12}(?:\.\d{1,6})?)\s*([KMG]?)i?B"
_PARTS = tuple(re.compile(name + _SIZE) for name in ("Managed SRAM", "Local DRAM", "Global DRAM"))


def sizes(text: str) -> MemoryNeed | None:
    """Returns ``Managed SRAM = 1 MiB, Local DRAM = 4 MiB, Global DRAM = 64 MiB`` in bytes."""
    found = []
    for part in _PARTS:
        match = part.search(text)
        if match is None:
            return None
        found.append(int(float(match[1]) * (1 << _UNITS[match[2] or "B"])))
    return MemoryNeed(*found)


def release(number: str) -> str:
    """Returns the release of TensorRT's number: 8502 is 8.5.2, 100300 is 10.3.0."""
    value = int(number[:9])
    # from 10 on, minor and patch take two digits each
    high, low = (10000, 100) if value >= 100000 else (1000, 100)
    return f"{value // high}.{value % high // low}.{value % low}"
