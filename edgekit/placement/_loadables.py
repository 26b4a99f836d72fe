"""Loadables of a placement: the fewest runs on the DLA cores, and the order everything runs in.

A set of loadables is allowed when the graph over all loadables and GPU kernels has no cycle, which
is the same as: there is a running order in which every loadable is one unbroken run. A step of that
order takes every kernel of its device that is ready. Taking more never hurts, so a search over the
sequence of cores alone is exact; with one core the sequence is given and nothing is searched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgekit.placement._problem import Problem

__all__ = ["Step", "run_in_order", "sequences"]


@dataclass(frozen=True, slots=True)
class Step:
    """One run on one device: a device index and its kernels, ascending."""

    device: int
    kernels: tuple[int, ...]


def sequences(
    problem: Problem, devices: Sequence[int], wild: Collection[int] = ()
) -> list[tuple[int, ...]]:
    """Returns the shortest sequences of cores that run a placement.

    None of them needs, on every core, at most as many loadables as another one. Kernels in
    ``wild`` may run at any time for nothing: the answer is then a bound over all their places.
    """
    free = frozenset(wild)
    cores = sorted({d for v, d in enumerate(devices) if d != 0 and v not in free})
    start = _advance(problem, devices, frozenset(), 0, free)
    layer: dict[tuple[int, ...], list[tuple[frozenset[int], tuple[int, ...]]]]
    layer = {(0,) * len(problem.devices): [(start, ())]}
    finished: dict[tuple[int, ...], tuple[int, ...]] = {}
    everything = len(devices)
    while layer:
        following: dict[tuple[int, ...], list[tuple[frozenset[int], tuple[int, ...]]]] = {}
        for used, states in layer.items():
            for done, order in states:
                if len(done) == everything:
                    finished.setdefault(used, order)
                    continue
                for core in cores:
                    after = _advance(problem, devices, done, core, free)
                    if after != done:
                        key = tuple(n + (i == core) for i, n in enumerate(used))
                        _keep(following.setdefault(key, []), after, (*order, core))
        layer = {
            used: states
            for used, states in following.items()
            if not any(all(a <= b for a, b in zip(f, used, strict=True)) for f in finished)
        }
    best = [
        used
        for used in finished
        if not any(
            other != used and all(a <= b for a, b in zip(other, used, strict=True))
            for other in finished
        )
    ]
    return [finished[used] for used in sorted(best)]


def _keep(
    states: list[tuple[frozenset[int], tuple[int, ...]]],
    done: frozenset[int],
    order: tuple[int, ...],
) -> None:
    """Adds a state unless another one has done at least as much."""
    if not any(done <= other for other, _ in states):
        states[:] = [(other, o) for other, o in states if not other <= done]
        states.append((done, order))


def _advance(
    problem: Problem,
    devices: Sequence[int],
    done: frozenset[int],
    device: int,
    free: frozenset[int],
) -> frozenset[int]:
    """Runs all that is ready on ``device``, then all that is ready on the GPU."""
    now = set(done)
    for turn in dict.fromkeys((device, 0)):
        for v, before in enumerate(problem.predecessors):
            if v not in now and (v in free or devices[v] == turn) and all(u in now for u in before):
                now.add(v)
    return frozenset(now)


def run_in_order(
    problem: Problem, devices: Sequence[int], sequence: Sequence[int]
) -> tuple[Step, ...]:
    """Returns the runs of a placement along a sequence of cores, with the GPU's between them.

    GPU kernels run as early as they can, or later where that gives fewer runs.
    """
    early = _earliest(problem, devices, sequence)
    late = _latest(problem, devices, early, 2 * len(sequence))
    second = [max(e, min(at, 2)) for e, at in zip(early, late, strict=True)]
    return min(_gather(devices, early), _gather(devices, second), key=len)


def _earliest(problem: Problem, devices: Sequence[int], sequence: Sequence[int]) -> list[int]:
    """Returns the first step of each kernel: step 2i-1 is loadable i, the even ones the GPU's."""
    at = [0] * len(devices)
    done = _advance(problem, devices, frozenset(), 0, frozenset())
    for number, core in enumerate(sequence, 1):
        after = _advance(problem, devices, done, core, frozenset())
        for v in after - done:
            at[v] = 2 * number - (devices[v] != 0)
        done = after
    return at


def _latest(problem: Problem, devices: Sequence[int], early: Sequence[int], last: int) -> list[int]:
    """Returns the last step in which each GPU kernel can run; the loadables stay as they are."""
    late = [last if device == 0 else e for device, e in zip(devices, early, strict=True)]
    for v in range(len(devices) - 1, -1, -1):
        for u in problem.predecessors[v]:
            if devices[u] == 0:
                late[u] = min(late[u], late[v] - late[v] % 2)
    return late


def _gather(devices: Sequence[int], at: Sequence[int]) -> tuple[Step, ...]:
    runs: dict[int, list[int]] = {}
    for v, step in enumerate(at):
        runs.setdefault(step, []).append(v)
    return tuple(Step(devices[runs[s][0]], tuple(runs[s])) for s in sorted(runs))
