"""Results of recognisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgekit.network.model import Model
from edgekit_device.detection.head import Head


@dataclass(frozen=True)
class Recognised:
    """A recognised head.

    Attributes:
        head: Its document; ``head.outputs`` are the tensors at which the network is cut.
        own: The network's tensors that equal edgekit's decoded tensors, by the names of
            ``decode``: a single tensor, or a tensor per level.
        picked: Number of rows by the tensor with the indices of a level's decoded rows, which a
            suppression inside the network chooses: the proof picks all.
    """

    head: Head
    own: Mapping[str, str | tuple[str, ...]]
    picked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Unlike:
    """A head that was looked for and not found.

    Attributes:
        family: The head that was looked for.
        matched: Number of its parts found; the user sees the family with the most.
        differs: The difference, with the node's name.
    """

    family: str
    matched: int
    differs: str


class Differs(Exception):
    """A difference, with the number of parts that were found."""

    def __init__(self, matched: int, differs: str) -> None:
        super().__init__(differs)
        self.matched = matched
        self.differs = differs


#: Takes the model and the file's metadata (Ultralytics': names, stride, task, kpt_shape).
Recogniser = Callable[[Model, Mapping[str, str]], Recognised | Unlike]
