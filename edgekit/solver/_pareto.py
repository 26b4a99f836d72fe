"""The exact Pareto front of two metrics, point by point, each one proved.

Between two neighbours of the front lies a box in which further points can be. The largest box is
cut in halves: the best point of its lower half and the best one above that leave two smaller boxes
(the box method of Hamacher, Pedersen and Ruzika, 2007). So the front is complete when no box is
left, and evenly thinned, to a known resolution, when the limit comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.errors import UsageError
from edgekit.solver._effort import Effort
from edgekit.solver._minimise import minimise
from edgekit.solver._problem import Goal, Placing, Problem, metrics

__all__ = ["METRICS", "Front", "Point", "pareto"]

METRICS = ("latency_us", "energy_uj", "gpu_us", "period_us")
OBJECTIVE = {
    "latency_us": "latency", "energy_uj": "energy", "gpu_us": "gpu_time", "period_us": "period",
}  # fmt: skip
APART = 1e-5
"""Relative: points whose metrics differ by less are one; the solver keeps bounds to 2e-6."""
EACH = 60.0  # units of Effort for one search
PROVEN = 1e-4


@dataclass(frozen=True, slots=True)
class Point:
    """A placement of the front.

    Attributes:
        placing: The placement.
        first: Its value of the first metric.
        second: Its value of the second metric.
        bound: What the first metric cannot be below when the second is at most ``second``.
        optimal: Whether both metrics are proved, each for the other one's value, to a gap of at
            most 1e-4.
    """

    placing: Placing
    first: float
    second: float
    bound: float
    optimal: bool


@dataclass(frozen=True, slots=True)
class Front:
    """Points by ascending first and descending second metric.

    Attributes:
        metrics: Names of the two.
        points: At least one.
        complete: Whether every point of the front is there (but for those within 1e-5), all of
            them proved.
        resolution: What may be between two neighbours, as shares of the whole front's extent in
            the first and the second metric; zeros when complete.
    """

    metrics: tuple[str, str]
    points: tuple[Point, ...]
    complete: bool
    resolution: tuple[float, float]


def pareto(
    problem: Problem,
    metrics: Sequence[str] = ("latency_us", "energy_uj"),
    *,
    bounds: Mapping[str, float] | None = None,
    limit: int = 25,
    seconds: float = 300.0,
    starts: Sequence[Placing] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Front | None:
    """Returns the front of two metrics, or None when no placement keeps the bounds.

    Args:
        problem: What to place.
        metrics: Two of latency_us, energy_uj, gpu_us, period_us.
        bounds: Limits that every point keeps.
        limit: Most points; beyond, the front is thinned evenly.
        seconds: Of search, as ``minimise`` counts them; what is not looked at by then counts as
            thinned.
        starts: Placements to begin from.
        progress: Called with the points found and the boxes still open.

    Raises:
        UsageError: Unknown metrics, or not two different ones.
    """
    names = tuple(metrics)
    if len(names) != 2 or names[0] == names[1] or not set(names) <= set(METRICS):
        raise UsageError(
            f"a front needs two different metrics, not {', '.join(names) or 'none'}",
            code="usage.pareto",
            hint=f"choose two of {', '.join(METRICS)}",
        )
    if limit < 2:
        raise UsageError("a front has at least two points", code="usage.pareto")
    search = _Search(problem, (names[0], names[1]), dict(bounds or {}), starts, seconds)
    return search.run(limit, progress)


_Box = tuple[Point, Point]


class _Search:
    def __init__(
        self,
        problem: Problem,
        names: tuple[str, str],
        bounds: dict[str, float],
        starts: Sequence[Placing],
        seconds: float,
    ) -> None:
        self.problem, self.names, self.bounds = problem, names, bounds
        self.starts = list(starts)
        self.proved = True
        self.effort = Effort(seconds)

    def run(self, limit: int, progress: Callable[[int, int], None] | None) -> Front | None:
        """Finds both ends and fills in what is between."""
        upper = self.least(0, {})
        lower = self.least(1, {}) if upper else None
        if upper is None or lower is None:
            return None
        points = [upper]
        boxes: list[_Box] = []
        width, height = lower.first - upper.first, upper.second - lower.second
        if self.apart(upper, lower):
            points.append(lower)
            boxes.append((upper, lower))

        def extent(box: _Box) -> tuple[float, float]:
            one, other = box
            return (other.first - one.first) / width, (one.second - other.second) / height

        while boxes and len(points) < limit and not self.effort.over:
            box = max(boxes, key=lambda box: (math.prod(extent(box)), -box[0].first))
            boxes.remove(box)
            for point, left in self.split(*box):
                if point:
                    points.append(point)
                boxes += left
            if progress:
                progress(len(points), len(boxes))
        points.sort(key=lambda point: (point.first, point.second))
        open_ = [extent(box) for box in boxes]
        resolution = (
            max((e[0] for e in open_), default=0.0),
            max((e[1] for e in open_), default=0.0),
        )
        return Front(self.names, tuple(points), self.proved and not boxes, resolution)

    def split(self, upper: Point, lower: Point) -> list[tuple[Point | None, list[_Box]]]:
        """Returns the two points around the middle of a box, with the boxes left open."""
        middle = (upper.second + lower.second) / 2
        found = self.least(0, {self.names[1]: middle})
        if found is None or not self.apart(found, lower) or found.first > lower.first:
            found = lower
        below: tuple[Point | None, list[_Box]] = (None, [])
        if found is not lower:
            below = (found, [(found, lower)])
        limit = found.first - APART * abs(found.first)
        above = self.least(1, {self.names[0]: limit})
        if above is None or not self.apart(upper, above) or above.second > upper.second:
            return [below]
        return [below, (above, [(upper, above)])]

    def apart(self, one: Point, other: Point) -> bool:
        """Returns whether two points differ by more than the solver's tolerance."""
        return abs(one.first - other.first) > APART * abs(other.first) and abs(
            one.second - other.second
        ) > APART * abs(one.second)

    def least(self, which: int, limits: Mapping[str, float]) -> Point | None:
        """Returns the point with the least of one metric, and then of the other one."""
        one, other = self.names[which], self.names[1 - which]
        bounds = self.joined(limits)
        best, bound = self.solve(one, bounds)
        if best is None:
            return None
        proved = self.value(best, one) - bound <= PROVEN * abs(bound)
        value = self.value(best, one)
        then, floor = self.solve(other, self.joined({**limits, one: value}), best)
        placing = then or best
        if which == 1:
            bound = floor
        first, second = (self.value(placing, name) for name in self.names)
        last = second if which == 0 else first
        optimal = proved and last - floor <= PROVEN * abs(last)
        self.proved = self.proved and optimal
        return Point(placing, first, second, min(bound, first), optimal)

    def joined(self, limits: Mapping[str, float]) -> dict[str, float]:
        found = dict(self.bounds)
        for name, limit in limits.items():
            found[name] = min(limit, found.get(name, math.inf))
        return found

    def solve(
        self, name: str, bounds: Mapping[str, float], start: Placing | None = None
    ) -> tuple[Placing | None, float]:
        goal = Goal.of(self.problem, OBJECTIVE[name], bounds)
        starts = [*self.starts, *([start] if start else [])]
        found = minimise(self.problem, goal, starts=starts, effort=self.effort.part(EACH))
        self.proved = self.proved and (found.placing is not None or found.bound == math.inf)
        return found.placing, found.bound

    def value(self, placing: Placing, name: str) -> float:
        return metrics(self.problem, placing.load_us, placing.energy_uj)[name]
