"""Rules of what fields of many documents hold: devices, counts, figures, shares, releases."""

from __future__ import annotations

from typing import Literal, Optional, get_args

from edgekit_device.protocol.codec import array, as_written, choice, integer, number, text

#: How many DLA cores a board has at most.
CORES = 2

_CORES = {"DLA{}".format(number): number for number in range(CORES)}

#: Devices that segments run on.
DEVICES = ("GPU", *_CORES)

#: The kinds of devices: where any core is meant.
DEVICE_KINDS = ("GPU", "DLA")

#: One of :data:`DEVICES`.
device = choice(*DEVICES)

#: One of :data:`DEVICE_KINDS`.
device_kind = choice(*DEVICE_KINDS)

#: The number of a DLA core.
core = integer(0, CORES - 1)

#: Seconds of a day: the longest time that a setting may name.
DAY_S = 86_400

#: How many, how many bytes, or the index of something.
count = integer(0, 1 << 62)

#: A time, an energy, a rate or a size of which none is below zero. Beyond it arithmetic overflows.
figure = number(0, 1e100)

#: The same, as it was written: 5 does not become 5.0.
reading = as_written(figure)

#: What may be below zero: a gain, a difference, a number of decibels.
difference = number(-1e100, 1e100)

#: A part of a whole, which rounding may make a little more than 1.
share = number(0, 1 + 1e-6)

#: A cosine similarity.
cosine = number(-1 - 1e-6, 1 + 1e-6)

#: What a layer computes in.
PRECISIONS = ("fp32", "fp16", "int8")

#: One of :data:`PRECISIONS`.
precision = choice(*PRECISIONS)

#: Whose time it is: the cost model's, a CPU's, or the board's.
Clock = Literal["predicted", "cpu-measured", "board-measured"]

#: One of :data:`Clock`.
clock = choice(*get_args(Clock))

#: A TensorRT release, such as "10.3" or "10.3.0".
release = text(r"[0-9]{1,9}(\.[0-9]{1,9}){0,4}", "a release such as 10.3")

#: A board's file without its ending: those of edgekit, and a user's own.
target = text(r"[^/\x00-\x1f\x7f]{1,255}", "the name of a target")

#: A name of a layer, node or tensor; any text of a network.
name = text(most=1 << 20)

#: Names of layers, nodes or tensors.
names = array(name)


def dla_core(device: str) -> Optional[int]:
    """Returns the number of a device's DLA core; None for the GPU, and for "DLA": any core."""
    return _CORES.get(device)
