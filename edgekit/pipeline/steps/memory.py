"""The memory that a step of a large network may need, announced before the step begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from edgekit.network.model import Model, entries
from edgekit.network.streaming import float_bytes, is_large
from edgekit.pipeline.context import Context
from edgekit_device.board.inventory import memory, read_text

_GIGABYTE = 1_000_000_000
_STREAMED_BYTES = 600_000_000
_STATISTIC = re.compile(r"^(\w+) (\d{1,18})$", re.MULTILINE)


def announce_memory(context: Context, model: Model, *, holds: bool) -> None:
    """Reports the memory that a step of a large network may need, and this machine's memory.

    Args:
        context: The configuration.
        model: The network; networks with less than 256 MiB of weights are not reported.
        holds: True if the step holds the whole network: ONNX Runtime keeps its own copy of the
            weights. Otherwise they are streamed, and the largest tensor counts.
    """
    if not is_large(model.weights):
        return
    weights = float_bytes(model.weights)
    if holds:
        need, why = 2 * weights + _GIGABYTE, "twice the weights in FP32 and 1 GB"
    else:
        largest = max(4 * value.size for value in entries(model.weights).values())
        need, why = 4 * largest + _STREAMED_BYTES, "four times the largest weight and 0.6 GB"
    free = free_memory()
    has = "" if free is None else f"; {_gigabytes(free)} are available"
    text = f"this step takes up to {_gigabytes(need)} of memory ({why}){has}"
    if free is not None and free < need:
        text += ", so the system may end it: free memory, or use a larger machine"
    context.announce(text)


def _gigabytes(size: int) -> str:
    return f"{size / _GIGABYTE:.1f} GB"


def free_memory(root: Path = Path("/")) -> int | None:
    """Returns the bytes that this process may still allocate; None if the system does not report
    it.

    It is the minimum of the machine's free memory (MemAvailable of proc(5)) and of the rest of the
    limits of its control groups, file pages not counted.

    Args:
        root: Root folder of the system's files.
    """
    available = memory(root)["available"]
    sizes = [] if available is None else [available]
    sizes += _cgroup_free_bytes(root)
    return min(sizes, default=None)


def _cgroup_free_bytes(root: Path) -> Iterator[int]:
    """Yields the rest of each control group's limit, of version 1 and 2 (cgroups(7))."""
    for line in read_text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, limit, usage = "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            usage = "memory.usage_in_bytes"
        else:
            continue
        own = Path(path.lstrip("/"))
        # a limit of any group above this one holds, too
        for group in (own, *own.parents):
            folder = root / base / group
            most, used = read_text(folder / limit).strip(), read_text(folder / usage).strip()
            if most.isdecimal() and used.isdecimal():
                counted = _STATISTIC.findall(read_text(folder / "memory.stat"))
                sizes = {name: int(size) for name, size in counted}
                # the system reclaims file pages when it needs them; version 1 counts child groups
                # separately
                file_pages = sum(
                    sizes.get(f"total_{name}", sizes.get(name, 0))
                    for name in ("active_file", "inactive_file")
                )
                yield max(0, int(most) - int(used) + file_pages)
