"""Rules for fields of many documents: devices, counts, figures, shares, releases."""

from __future__ import annotations

from typing import Literal, Optional, get_args

from edgekit_device.protocol.codec import array, as_written, choice, integer, number, text

#: The largest number of DLA cores of a board.
CORES = 2

_CORES = {"DLA{}".format(number): number for number in range(CORES)}

#: Devices that segments run on.
DEVICES = ("GPU", *_CORES)

#: The kinds of devices; "DLA" means any core.
DEVICE_KINDS = ("GPU", "DLA")

#: One of :data:`DEVICES`.
device = choice(*DEVICES)

#: One of :data:`DEVICE_KINDS`.
device_kind = choice(*DEVICE_KINDS)

#: The number of a DLA core.
core = integer(0, CORES - 1)

#: Seconds in a day: the longest time in a setting.
DAY_S = 86_400

#: A count, a number of bytes or an index.
count = integer(0, 1 << 62)

#: A time, an energy, a rate or a size, 0 or more. Beyond its limit arithmetic overflows.
figure = number(0, 1e100)

#: The same, unchanged: 5 does not become 5.0.
reading = as_written(figure)

#: A value that may be negative: a gain, a difference, a number of decibels.
difference = number(-1e100, 1e100)

#: A share of a whole; rounding may make it slightly more than 1.
share = number(0, 1 + 1e-6)

#: A cosine similarity.
cosine = number(-1 - 1e-6, 1 + 1e-6)

#: The precisions in which layers compute.
PRECISIONS = ("fp32", "fp16", "int8")

#: One of :data:`PRECISIONS`.
precision = choice(*PRECISIONS)

#: The source of a time: the cost model, a CPU, or the board.
Clock = Literal["predicted", "cpu-measured", "board-measured"]

#: One of :data:`Clock`.
clock = choice(*get_args(Clock))

#: A TensorRT release, such as "10.3" or "10.3.0".
release = text(r"[0-9]{1,9}(\.[0-9]{1,9}){0,4}", "a release such as 10.3")

#: A board file's name without its ending: edgekit's own or a user's.
target = text(r"[^/\x00-\x1f\x7f]{1,255}", "the name of a target")

#: A name of a layer, node or tensor; any text of a network.
name = text(most=1 << 20)

#: Names of layers, nodes or tensors.
names = array(name)


def dla_core(device: str) -> Optional[int]:
    """Returns the number of a device's DLA core; None for the GPU and for "DLA" (any core)."""
    return _CORES.get(device)
