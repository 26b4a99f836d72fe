"""The tables of memory pools and tensor formats in ``docs/dla-support.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.dla._formats import FORMATS, nbytes, strides
from edgekit.dla._memory_report import disputes_of
from edgekit.dla._rule import GENERATIONS
from edgekit.dla._rules import format_facts, memory_facts

__all__ = ["fact_rows"]

_POOLS = {
    "managed_sram": ("Managed SRAM", "a cache; shared by the loadables of a core"),
    "local_dram": ("Local DRAM", "tensors between a loadable's layers; adds up over loadables"),
    "global_dram": ("Global DRAM", "weights; adds up over loadables"),
}
_EXAMPLE = (1, 3, 480, 645)


def fact_rows(family: str) -> list[tuple[str, ...]]:
    """Returns the head and the rows of a family's table; empty where it has none."""
    if family == "memory":
        return [("Pool", "Holds", "Default", "Least seen", "Disputed"), *_memory()]
    if family == "formats":
        size = "x".join(str(side) for side in _EXAMPLE)
        boards = " and ".join(GENERATIONS.values())
        heads = ("Format", "Types", "As", "Padding", f"{size} INT8: bytes, line on {boards}")
        return [heads, *_formats()]
    return []


def _memory() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pool, (title, holds) in _POOLS.items():
        fact = memory_facts()[pool]
        seen = _size(fact["floor"]) if "floor" in fact else "the default"
        disputes = "; ".join(disputes_of(pool).values())
        rows.append((title, holds, _size(fact["default"]), seen, disputes or "no"))
    return rows


def _formats() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in FORMATS:
        fact: Mapping[str, Any] = format_facts()["formats"][name]
        if not fact["roles"]:
            continue
        dtype = fact["types"][0]
        example = " and ".join(
            f"{nbytes(_EXAMPLE, dtype, name, generation)}, "
            f"{strides(_EXAMPLE, dtype, name, generation)[2]}"
            for generation in GENERATIONS
        )
        note = "" if dtype == "int8" else f" ({dtype})"
        roles, types = ", ".join(fact["roles"]), ", ".join(fact["types"])
        rows.append((name, types, roles, _padding(fact), example + note))
    return rows


def _padding(fact: Mapping[str, Any]) -> str:
    if "vector" in fact:
        return f"channels to a multiple of {fact['vector']}"
    lines = fact["line_bytes"]
    told = (f"{size} ({GENERATIONS[generation]})" for generation, size in lines.items())
    same = len(set(lines.values())) == 1
    line = f"lines to {next(iter(lines.values())) if same else ' or '.join(told)} bytes"
    if "held" not in fact:
        return line
    held = ", ".join(f"{count} as {stored}" for count, stored in fact["held"].items())
    return f"{line}; channels {held}"


def _size(count: int) -> str:
    return f"{count >> 20} MiB"
