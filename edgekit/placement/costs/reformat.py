"""The GPU's time to convert a tensor from one layout into another, in microseconds.

``time = launch + bytes read * read + bytes written * written``, with rates by the classes of
the two layouts, their types and the alignment of lines to vectors. ``scripts/fit_reformat.py``
fits them on 2,046 kernels that TensorRT timed on an AGX Orin; ``targets/costs/reformat.yaml``
holds them. A pair of layouts with too few measurements has the rates of any pair.

``handover`` decides which tensors are reformatted.
"""

# the annotations of the file's classes are evaluated at run time, so they are not strings
from collections.abc import Mapping
from dataclasses import field
from functools import cache

from edgekit.placement.costs.constants import GpuConstants, read_costs
from edgekit.placement.costs.kernel_costs import BYTES, Layout, gpu_slowdown, padded_bytes
from edgekit.targets.board import PowerMode, Target
from edgekit_device.protocol.codec import document

CLASSES = {
    "LINEAR": "LINEAR",
    "DLA_LINEAR": "DLA",
    "CHW4": "CHW",
    "CHW16": "CHW",
    "CHW32": "CHW",
    "HWC8": "HWC",
    "DLA_HWC4": "HWC",
}
SECTOR = 32  # minimum bytes of a GPU's read
ALIGNED = 16  # elements of a line that kernels take at a time


@document(frozen=True)
class Rates:
    """Microseconds for a megabyte read and a megabyte written, by type ("int8")."""

    read: Mapping[str, float] = field(default_factory=dict)
    written: Mapping[str, float] = field(default_factory=dict)


@document(frozen=True)
class MeasuredOn:
    """The DRAM and the GPU of the board on which the constants were measured."""

    dram_bytes_per_second: float
    gpu_mhz: float
    gpu_sms: int


@document(frozen=True)
class ReformatConstants:
    """``targets/costs/reformat.yaml``.

    Attributes:
        kernels: Number of measured kernels.
        median_percent: The error of the fit.
        median_percent_held_out: The error for shapes that were left out.
        measured_on: The board at its power mode.
        launch_us: Microseconds of a reformat of 0 bytes.
        us_per_megabyte_of_any_pair: The rates of a pair of layouts without rates of its own.
        us_per_megabyte: By pair of classes ("CHW>HWC"), and "aligned" or "unaligned".
        errors: By pair, kernels, median percent and median percent held out.
    """

    kernels: int
    median_percent: float
    median_percent_held_out: float
    measured_on: MeasuredOn
    launch_us: float
    us_per_megabyte_of_any_pair: Rates
    us_per_megabyte: Mapping[str, Mapping[str, Rates]]
    errors: Mapping[str, tuple[float, float, float]]


@cache
def reformat_constants() -> ReformatConstants:
    """Returns ``targets/costs/reformat.yaml``."""
    return read_costs(ReformatConstants, "reformat")


def predict_reformat_us(
    shape: tuple[int, ...],
    source: Layout,
    goal: Layout,
    target: Target,
    mode: PowerMode,
    constants: GpuConstants,
) -> float:
    """Returns the predicted time of one reformat.

    Args:
        shape: The tensor's.
        source, goal: Its layouts before and after.
        target, mode: The board and its clocks.
        constants: The constants of the board's GPU.
    """
    board = reformat_constants().measured_on
    memory = target.dram.bytes_per_second * mode.memory_share
    # most pairs of layouts use a fraction of the DRAM's rate: the SMs limit them
    share = min(
        memory / board.dram_bytes_per_second,
        mode.gpu_sms * mode.gpu_mhz / (board.gpu_sms * board.gpu_mhz),
    )
    slower = gpu_slowdown(mode, board.gpu_mhz, constants)
    moving = moving_us(shape, source, goal, target.dla.layouts)
    return float(fixed_us() * slower + moving / share)


def fixed_us() -> float:
    """Returns the time of a reformat of 0 bytes, at MAXN of an AGX Orin."""
    return reformat_constants().launch_us


def moving_us(shape: tuple[int, ...], source: Layout, goal: Layout, generation: str) -> float:
    """Returns the time for a tensor's bytes, at MAXN of an AGX Orin."""
    width = shape[-1] if len(shape) > 2 else 1
    read, written = _rates(source, goal, is_aligned(width))
    return float(_read(shape, source, generation) * read) + float(
        padded_bytes(shape, goal, generation) * written
    )


def is_aligned(width: int) -> bool:
    """Returns True if lines with this number of elements are whole vectors; single pixels are."""
    return width % ALIGNED == 0 or width == 1


def sectors(channels: int, vector: int, size: int) -> int:
    """Returns the bytes of a pixel that a kernel must read from a padded layout."""
    full, rest = divmod(channels, vector)
    return full * vector * size + min(vector * size, -(-rest * size // SECTOR) * SECTOR)


def _read(shape: tuple[int, ...], source: Layout, generation: str) -> int:
    dtype, form = source
    padded = padded_bytes(shape, source, generation)
    if CLASSES[form] not in ("CHW", "HWC") or len(shape) < 2:
        return padded
    vector = 4 if form == "DLA_HWC4" else int(form[3:])
    pixels = padded // (-(-shape[1] // vector) * vector * BYTES[dtype])
    # a kernel skips the padding of the last vector, but not within a sector
    return min(padded, sectors(shape[1], vector, BYTES[dtype]) * pixels)


@cache
def _rates(source: Layout, goal: Layout, aligned: bool) -> tuple[float, float]:
    """Returns microseconds per byte read and written."""
    known = reformat_constants()
    pair = known.us_per_megabyte.get(f"{CLASSES[source[1]]}>{CLASSES[goal[1]]}", {})
    own = pair.get("aligned" if aligned else "unaligned", Rates())
    usual = known.us_per_megabyte_of_any_pair
    read = own.read.get(source[0], usual.read[source[0]])
    written = own.written.get(goal[0], usual.written[goal[0]])
    return read / 1e6, written / 1e6
