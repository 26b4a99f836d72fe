"""Measured times as values, wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.buildlog import BuildLog, Combination, Timings

__all__ = ["MeasuredReformat", "Profile", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """The time of one layer, fusion or loadable, in microseconds of one inference.

    Attributes:
        name: As the file has it.
        us: Its time, in its fastest formats where there are several.
        device: "GPU" or "DLA"; empty where the file does not say (a ForeignNode without layer
            information can be a loadable or a subgraph on the GPU).
        layers: Our names of its layers, where the file lists them.
        variants: Its times by the formats of its tensors.
        place: Its place in the running order, where the file has one.
    """

    name: str
    us: float
    device: str = ""
    layers: tuple[str, ...] = ()
    variants: tuple[Combination, ...] = ()
    place: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MeasuredReformat:
    """A conversion of ``tensor`` between two formats, as printed ("Int8(3136,49:32,7,1)")."""

    tensor: str
    source: str
    goal: str
    us: float


@dataclass(frozen=True)
class Profile:
    """Measured times of an engine on a board.

    Attributes:
        kind: "log" (a verbose build), "trtexec" (its profile), "iprofiler", "bench" (edgekit's) or
            "table" (``edgekit.profile/1``: sums that may overlap).
        path: The file, as it was given.
        rows: Layers and loadables, in running order.
        reformats: Conversions by tensor.
        overhead: Rows that are no layer (copies, reformats of a finished engine).
        board: What the file says of the board, empty where it does not.
        tensorrt: Release, empty where unknown.
        precisions: As the build allowed them; empty where unknown.
        model: The model's file, empty where unknown.
        notes: What to know before believing it.
        log: The build log it comes from, or None.
        timings: The log's timings, or None.
        table: The ``edgekit.profile/1`` document it comes from, or None.
    """

    kind: str
    path: str
    rows: tuple[Row, ...]
    reformats: tuple[MeasuredReformat, ...] = ()
    overhead: tuple[Row, ...] = ()
    board: str = ""
    tensorrt: str = ""
    precisions: tuple[str, ...] = ()
    model: str = ""
    notes: tuple[str, ...] = ()
    log: BuildLog | None = field(default=None, repr=False)
    timings: Timings | None = field(default=None, repr=False)
    table: Mapping[str, Any] | None = field(default=None, repr=False)

    def to_json(self) -> Mapping[str, Any]:
        """Returns what identifies it, and its rows."""
        return {
            "kind": self.kind,
            "file": self.path,
            "board": self.board,
            "tensorrt": self.tensorrt,
            "precisions": list(self.precisions),
            "model": self.model,
            "rows": [{"name": r.name, "us": r.us, "device": r.device} for r in self.rows],
            "reformats": len(self.reformats),
            "notes": list(self.notes),
        }
