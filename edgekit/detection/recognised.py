"""What a recogniser returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgekit.network.model import Model
from edgekit_device.detection.head import Head


@dataclass(frozen=True)
class Recognised:
    """A head.

    Attributes:
        head: Its document; ``head.outputs`` are the tensors at which the network is cut.
        own: The network's tensors that hold what edgekit's decoding computes, by the names that
            ``decode`` gives to it: one, or one a level.
        picked: Number of rows by the tensor that tells which rows of a level are decoded, as a
            suppression inside the network decides: the proof picks all.
    """

    head: Head
    own: Mapping[str, str | tuple[str, ...]]
    picked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Unlike:
    """A head that was looked for and not found.

    Attributes:
        family: The head that was looked for.
        matched: How many of its parts were found; the family with most is told to the user.
        differs: What differs, with the node's name.
    """

    family: str
    matched: int
    differs: str


#: Takes the model and the file's metadata (of Ultralytics: names, stride, task, kpt_shape).
Recogniser = Callable[[Model, Mapping[str, str]], Recognised | Unlike]
