"""What the GPU takes to bring a tensor from one layout into another.

``time = launch + bytes read * read + bytes written * written``, with rates by the classes of the
two layouts, their types and whether lines are whole vectors. ``scripts/fit_reformat.py`` fits them
on 2,046 kernels that TensorRT timed on an AGX Orin; ``targets/costs/reformat.yaml`` keeps them.
What a pair of layouts was measured too little for takes what it does in any pair.
"""

from __future__ import annotations

from functools import cache

from edgekit.placement._costs_data import cost_data
from edgekit.placement._costs_formats import BYTES, Layout, padded_bytes

__all__ = ["fixed_us", "is_aligned", "moving_us", "sectors"]

CLASSES = {
    "LINEAR": "LINEAR", "DLA_LINEAR": "DLA", "CHW4": "CHW", "CHW16": "CHW", "CHW32": "CHW",
    "HWC8": "HWC", "DLA_HWC4": "HWC",
}  # fmt: skip
SECTOR = 32  # bytes that a GPU reads at least
ALIGNED = 16  # elements of a line that kernels take at a time


def is_aligned(width: int) -> bool:
    """Whether lines of this many elements are whole vectors; single pixels are."""
    return width % ALIGNED == 0 or width == 1


def sectors(channels: int, vector: int, size: int) -> int:
    """Returns the bytes of a pixel that a kernel has to read from a padded layout."""
    full, rest = divmod(channels, vector)
    return full * vector * size + min(vector * size, -(-rest * size // SECTOR) * SECTOR)


def fixed_us() -> float:
    """Returns the time of a reformat that moves nothing, at MAXN of an AGX Orin."""
    return float(cost_data("reformat")["launch_us"])


def moving_us(shape: tuple[int, ...], source: Layout, goal: Layout, generation: str) -> float:
    """Returns the time for a tensor's bytes, at MAXN of an AGX Orin."""
    width = shape[-1] if len(shape) > 2 else 1
    read, written = _rates(source, goal, is_aligned(width))
    return float(_read(shape, source, generation) * read) + float(
        padded_bytes(shape, goal, generation) * written
    )


def _read(shape: tuple[int, ...], source: Layout, generation: str) -> int:
    dtype, form = source
    padded = padded_bytes(shape, source, generation)
    if CLASSES[form] not in ("CHW", "HWC") or len(shape) < 2:
        return padded
    vector = 4 if form == "DLA_HWC4" else int(form[3:])
    pixels = padded // (-(-shape[1] // vector) * vector * BYTES[dtype])
    return min(padded, sectors(shape[1], vector, BYTES[dtype]) * pixels)


@cache
def _rates(source: Layout, goal: Layout, aligned: bool) -> tuple[float, float]:
    """Returns microseconds per byte read and written."""
    data = cost_data("reformat")
    pair = f"{CLASSES[source[1]]}>{CLASSES[goal[1]]}"
    own = data["us_per_megabyte"].get(pair, {}).get("aligned" if aligned else "unaligned", {})
    any_pair = data["us_per_megabyte_of_any_pair"]
    read = {**any_pair["read"], **own.get("read", {})}[source[0]]
    written = {**any_pair["written"], **own.get("written", {})}[goal[0]]
    return read / 1e6, written / 1e6
