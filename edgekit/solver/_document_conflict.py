"""Why a problem document has no placement: a smallest set of its constraints that conflict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from edgekit.solver._document_problem import kind, to_problem
from edgekit.solver._document_read import Document
from edgekit.solver._effort import Effort
from edgekit.solver._problem import Goal
from edgekit.solver._smallest import smallest_conflict

__all__ = ["conflict"]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A constraint: where it stands, as it is written, and the metric that it bounds."""

    where: str
    text: str
    metric: str = ""


def conflict(read: Document, seconds: float) -> tuple[tuple[str, ...], str, str]:
    """Returns the constraints that conflict (smallest set), a sentence, and a hint.

    Args:
        read: A document without any placement.
        seconds: Of search, as ``minimise`` counts them, for all of them together.
    """
    for i, net in enumerate(read.networks):
        for j, node in enumerate(net.nodes):
            if not any(kind(device) in node.time_us for device in read.devices):
                where = f"networks[{i}].nodes[{j}].time_us"
                known = ", ".join(node.time_us) or "none"
                return (
                    (where,),
                    f'node "{node.name}" can run on no device: it has times for {known}, '
                    f"the devices are {', '.join(read.devices)}",
                    f"give {where} a time on one of the devices",
                )
    wishes = _wishes(read)
    effort = Effort(seconds)
    found, _ = smallest_conflict(wishes, lambda some: _impossible(read, some, effort))
    names = tuple(wish.text for wish in found)
    if not names:
        return (), "no placement keeps all constraints", "ease the constraints"
    best = ""
    if len(found) == 1 and found[0].metric:
        best = _best(read, found[0], effort)
    together = "cannot be kept" if len(names) == 1 else "cannot be kept together"
    return names, f"{' and '.join(names)} {together}{best}", "ease one of them"


def _wishes(read: Document) -> list[_Wish]:
    found = [
        _Wish(f"bounds.{name}", f"bounds.{name} = {limit:g}", name)
        for name, limit in read.bounds.items()
    ]
    if read.max_loadables is not None:
        found.append(_Wish("loadable.max", f"loadable.max = {read.max_loadables}"))
    if read.weight_bytes is not None:
        found.append(_Wish("loadable.weight_bytes", f"loadable.weight_bytes = {read.weight_bytes}"))
    for i, net in enumerate(read.networks):
        where = f"networks[{i}]"
        if net.max_transitions is not None:
            text = f"{where}.max_transitions = {net.max_transitions}"
            found.append(_Wish(f"{where}.max_transitions", text))
        if net.contiguous:
            found.append(_Wish(f"{where}.contiguous", f"{where}.contiguous = true"))
    return found


def _only(read: Document, wishes: Sequence[_Wish]) -> Document:
    """Returns the document with these constraints and no others."""
    kept = {wish.where for wish in wishes}
    networks = tuple(
        replace(
            net,
            max_transitions=net.max_transitions
            if f"networks[{i}].max_transitions" in kept
            else None,
            contiguous=f"networks[{i}].contiguous" in kept,
        )
        for i, net in enumerate(read.networks)
    )
    return replace(
        read,
        networks=networks,
        bounds={name: us for name, us in read.bounds.items() if f"bounds.{name}" in kept},
        max_loadables=read.max_loadables if "loadable.max" in kept else None,
        weight_bytes=read.weight_bytes if "loadable.weight_bytes" in kept else None,
    )


def _impossible(read: Document, wishes: Sequence[_Wish], effort: Effort) -> bool:
    from edgekit.solver._minimise import minimise

    problem, _ = to_problem(_only(read, wishes))
    bounds = {wish.metric: read.bounds[wish.metric] for wish in wishes if wish.metric}
    found = minimise(
        problem, Goal.of(problem, "latency", bounds), effort=effort.part(effort.left / 4)
    )
    return found.placing is None and found.bound == inf


def _best(read: Document, bound: _Wish, effort: Effort) -> str:
    from edgekit.solver._minimise import minimise

    problem, _ = to_problem(_only(read, ()))
    objective = {"latency_us": "latency", "energy_uj": "energy"}[bound.metric]
    placing = minimise(problem, Goal.of(problem, objective), effort=effort).placing
    return f"; the least possible is {placing.value:g}" if placing else ""
