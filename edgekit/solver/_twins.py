"""Identical cores: swapping them changes nothing, so one order of the two is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from edgekit.solver._evaluate import settle
from edgekit.solver._problem import Cost, Goal, Mode, Placing, Problem

__all__ = ["as_one_core", "shared_out", "swapped_modes", "twins"]


def swapped_modes(problem: Problem, one: int, other: int) -> tuple[int, ...] | None:
    """Returns each mode's image when two devices change places, or None when one has none."""
    change = {one: other, other: one}
    index = {mode: i for i, mode in enumerate(problem.modes)}
    if len(index) < len(problem.modes):
        return None
    images = [
        index.get(Mode(change.get(m.device, m.device), m.reads, m.writes)) for m in problem.modes
    ]
    return None if None in images else tuple(i for i in images if i is not None)


def twins(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Returns pairs of neighbouring cores that can change places without any difference."""
    pairs = zip(problem.cores, problem.cores[1:], strict=False)
    return tuple(pair for pair in pairs if _alike(problem, *pair))


def _alike(problem: Problem, one: int, other: int) -> bool:
    image = swapped_modes(problem, one, other)
    if image is None or image[problem.outside] != problem.outside:
        return False
    change = {one: other, other: one}

    def moved(cost: Cost | None) -> Cost | None:
        if cost is None:
            return None
        loads = cost.load_us
        return replace(cost, load_us=tuple(loads[change.get(d, d)] for d in range(len(loads))))

    if problem.launch[other] != moved(problem.launch[one]):
        return False
    turned_speeds = [
        tuple(row[change.get(d, d)] for d in range(len(row))) for row in problem.together
    ]
    if Counter(turned_speeds) != Counter(problem.together):
        return False
    for row in problem.costs:
        if any(row[image[m]] != moved(cost) for m, cost in enumerate(row)):
            return False
    for border in problem.borders:
        plain = Counter((t.pairs, frozenset(t.ways)) for t in border.transfers)
        turned = Counter(
            (
                frozenset((image[a], image[b]) for a, b in t.pairs),
                frozenset(way for way in map(moved, t.ways) if way is not None),
            )
            for t in border.transfers
        )
        if plain != turned:
            return False
    return True


def as_one_core(problem: Problem) -> tuple[Problem, Mapping[int, int]] | None:
    """Returns two twin cores as one with the slots of both, and the second core's modes.

    It is a relaxation of the problem, for goals that weigh both cores alike: what would be moved
    from one core to the other is for nothing. None: the cores are not two twins.
    """
    if len(problem.cores) != 2 or not twins(problem):
        return None
    one, other = problem.cores
    image = swapped_modes(problem, one, other) or ()
    second = {m: image[m] for m in range(len(image)) if problem.device(m) == one}
    if any(problem.contiguous) or not _cheaper_together(problem, second):
        return None
    gone = set(second.values())
    if not any(row[m] for row in problem.costs for m in gone):
        return None  # nothing can run on either
    slots = problem.max_loadables
    single = replace(
        problem,
        costs=tuple(
            tuple(None if m in gone else cost for m, cost in enumerate(row))
            for row in problem.costs
        ),
        max_loadables=None if slots is None else slots * 2,
    )
    return single, second


def shared_out(
    problem: Problem, goal: Goal, single: Placing, second: Mapping[int, int]
) -> Iterator[Placing]:
    """Yields placements on both cores that run a placement of the one in its order.

    As many neighbouring loadables as one core cannot hold go to the other.
    """
    one, other = problem.cores
    own = [i for i, step in enumerate(single.steps) if step.device == one]
    slots = problem.max_loadables
    extra = 0 if slots is None else max(0, len(own) - slots)
    for first in range(len(own) - extra + 1 if extra else 1):
        moved = set(own[first : first + extra])
        modes = list(single.modes)
        steps = list(single.steps)
        for i in moved:
            steps[i] = replace(steps[i], device=other)
            for v in steps[i].nodes:
                modes[v] = second[modes[v]]
        placing = settle(problem, modes, steps, goal)
        if placing:
            yield placing


def _cheaper_together(problem: Problem, second: Mapping[int, int]) -> bool:
    """Returns whether what is paid on one core is paid as well on the two, whoever is where."""
    image = {**second, **{b: a for a, b in second.items()}}
    for transfer in (t for border in problem.borders for t in border.transfers):
        pairs = transfer.pairs
        if any(
            a in image and b in image and (a, image[b]) not in pairs
            for a, b in pairs
            if problem.device(a) == problem.device(b)
        ):
            return False
        if {(image.get(a, a), image.get(b, b)) for a, b in pairs} != pairs:
            touched = {problem.device(m) for pair in pairs for m in pair if m in image}
            if len(touched) > 1:
                return False
    return True
