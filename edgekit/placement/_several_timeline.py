"""When each network's layers and reformats run, as a document tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.placement._running import DIGITS
from edgekit.placement._types import Plan
from edgekit.solver import Task, Timetable, Workload, tasks_of

if TYPE_CHECKING:
    from edgekit.placement._several import Placed

__all__ = ["Slot", "timeline_of"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Work of one frame on one device, unbroken; microseconds from the first arrival.

    ``kind`` is "layers" or "reformat"; ``alone_us`` is what it takes without contention.
    """

    network: str
    frame: int
    device: str
    kind: str
    segment: int
    layers: int
    first: str
    last: str
    start_us: float
    end_us: float
    alone_us: float


def timeline_of(
    placed: Sequence[Placed], workload: Workload, table: Timetable, plans: Sequence[Plan]
) -> tuple[Slot, ...]:
    """Returns what runs when, in order of the starts; ``plans`` are the networks'."""
    found: list[Slot] = []
    for i, one in enumerate(placed):
        segment = {layer.name: layer.segment for layer in plans[i].layers}
        tasks = tasks_of(workload, i, table.places[i])
        names = _names(one, table.places[i], tasks)
        for frame, (starts, ends) in enumerate(
            zip(table.starts_us[i], table.ends_us[i], strict=True)
        ):
            slots: list[Slot] = []
            for task, own, start, end in zip(tasks, names, starts, ends, strict=True):
                slot = Slot(
                    one.member.name, frame, workload.devices[task.device],
                    "layers" if own else "reformat", segment[own[0]] if own else -1, len(own),
                    own[0] if own else "", own[-1] if own else "", round(start, DIGITS),
                    round(end, DIGITS), round(task.work_us, DIGITS),
                )  # fmt: skip
                if slots and _joins(slots[-1], slot):
                    slot = _joined(slots.pop(), slot)
                slots.append(slot)
            found += slots
    return tuple(sorted(found, key=lambda s: (s.start_us, s.device, s.network, s.frame)))


def _names(one: Placed, places: Sequence[int], tasks: Sequence[Task]) -> list[list[str]]:
    """Returns the layers of each task."""
    if places[0] < 0:
        own = one.plans[-1 - places[0]]
        kernels, nodes = own.built.kernels, [list(row) for row in own.nodes]
    else:
        kernels = one.built.kernels
        nodes = [
            [v for group in one.groups.groups[task.first : task.last + 1] for v in group.nodes]
            for task in tasks
        ]
    layers = one.member.network.layers
    return [[layers[i].name for v in row for i in kernels[v].layers] for row in nodes]


def _joins(a: Slot, b: Slot) -> bool:
    return (
        a.device == b.device == "GPU"
        and a.kind == b.kind == "layers"
        and a.segment == b.segment
        and abs(b.start_us - a.end_us) < 1e-5
    )


def _joined(a: Slot, b: Slot) -> Slot:
    return Slot(
        a.network, a.frame, a.device, a.kind, a.segment, a.layers + b.layers, a.first, b.last,
        a.start_us, b.end_us, round(a.alone_us + b.alone_us, DIGITS),
    )  # fmt: skip
