"""The values that the manifest's "requires", "samples" and "issued" are read into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

__all__ = ["Issued", "Requires", "SampleCase", "Samples"]


@dataclass(frozen=True)
class Issued:
    """What the maker of a bundle says of this release of it; times are seconds since 1970.

    Attributes:
        at: When it was signed.
        counter: Higher than that of each release before; None without.
        valid_until: When it is no longer to be installed; None for never.
    """

    at: int
    counter: Optional[int]
    valid_until: Optional[int]


@dataclass(frozen=True)
class Requires:
    """What a bundle needs of a board.

    Attributes:
        backend: Of the loader's backends.
        loader: Schema of the loader's ``hello``.
        runtime: Name, oldest version and version from which on it is too new ("": none) of what
            runs the engines; None where ``boards`` say it.
        boards: Kinds of boards that the engines run on ("module", "l4t", "tensorrt"); none for any.
        portable: Whether only the module counts of these.
        dla_cores: DLA cores that its segments use.
        cudla: Whether it has loadables, which cuDLA runs.
        disk_bytes: Bytes that it takes on disk, with what a refit keeps.
        memory_bytes: Bytes of its weights and engines in memory.
    """

    backend: str
    loader: str
    runtime: Optional[Tuple[str, str, str]]
    boards: Tuple[Mapping[str, str], ...]
    portable: bool
    dla_cores: Tuple[int, ...]
    cudla: bool
    disk_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class SampleCase:
    """Inputs and the FP32 network's outputs by name, as digests of the arrays' bytes.

    ``labels`` are the right classes, one for each of the batch; None where nobody gave them.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    labels: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True)
class Samples:
    """Inputs on which accuracy is measured on the board.

    ``source`` says where they are from; ``synthetic`` that nobody's data was given, so that the
    figure tells of the engines alone. ``least`` is what the value must reach, None for no gate.
    """

    metric: str
    source: str
    synthetic: bool
    least: Optional[float]
    cases: Tuple[SampleCase, ...]
