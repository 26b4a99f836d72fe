"""The makespan of a problem document: devices work side by side."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.solver._document_answer import Times, named
from edgekit.solver._document_problem import Places
from edgekit.solver._document_read import Document
from edgekit.solver._problem import Placing, Problem

__all__ = ["side_by_side"]


def side_by_side(
    read: Document,
    problem: Problem,
    places: Places,
    seconds: float,
    progress: Callable[[float, float], None] | None = None,
) -> tuple[Placing | None, float, float, Times, bool]:
    """Returns the placement, the proven bound, the makespan, and when everything runs.

    Also whether the wall clock ended the search.
    """
    from edgekit.solver._schedule import schedule_once

    found = schedule_once(problem, bounds=read.bounds, seconds=seconds, progress=progress)
    items = [
        named(read, places, item.node)
        | {
            "device": read.devices[item.device],
            "start_us": item.start_us,
            "end_us": item.end_us,
        }
        for item in found.items
    ]
    transfers = []
    for sent in found.transfers:
        source, goal = places.directions[sent.border][sent.transfer]
        transfers.append(
            named(read, places, problem.borders[sent.border].producer)
            | {"from": source, "to": goal, "start_us": sent.start_us, "end_us": sent.end_us}
        )
    return found.placing, found.bound, found.value, (items, transfers), found.clocked
