"""The linear programme of a mix: rates of known plans, and what a microsecond of a device is worth.

Resources are the devices that are no cores, then one for each lane of cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.solver._highs import Expression, Program
from edgekit.solver._problem import Goal, Placing, Problem

__all__ = ["Column", "Lane", "capacity", "loads_of", "prices_of", "rates_of", "speeds_of"]

LEAST_US = 1e-6  # a plan without any load would have no limit


@dataclass(frozen=True, slots=True)
class Lane:
    """Cores that are alike: the problem with the first of them alone, and all of them.

    ``shared`` are the devices that the plans of every lane use.
    """

    problem: Problem
    cores: tuple[int, ...]
    shared: tuple[int, ...]

    def weights(self, prices: Sequence[float], number: int) -> tuple[float, ...]:
        """Returns the prices by resource of the problem; without prices all are alike."""
        weights = [1.0] * len(self.problem.devices)
        if prices:
            weights = [0.0] * len(self.problem.devices)
            for device, price in zip(self.shared, prices, strict=False):
                weights[device] = price
            for core in self.cores[:1]:
                weights[core] = prices[len(self.shared) + number]
        return (*weights, 0.0)


@dataclass(frozen=True, slots=True)
class Column:
    """A plan in a lane, on the lane's first core, and the goal that it was found for."""

    lane: int
    placing: Placing
    goal: Goal

    def same(self, other: Column) -> bool:
        """Returns whether two columns are one plan."""
        return self.lane == other.lane and (
            self.placing.load_us == other.placing.load_us
            and self.placing.modes == other.placing.modes
        )

    def slots(self, lanes: Sequence[Lane]) -> int:
        """Returns the loadables of the plan."""
        core = lanes[self.lane].cores[:1]
        return sum(step.device in core for step in self.placing.steps)


def loads_of(lanes: Sequence[Lane], column: Column) -> list[float]:
    """Returns what a plan needs of every resource."""
    load = [max(LEAST_US, column.placing.load_us[d]) for d in lanes[0].shared]
    for number, lane in enumerate(lanes):
        mine = number == column.lane and lane.cores
        load.append(column.placing.load_us[lane.cores[0]] if mine else 0.0)
    return load


def speeds_of(lanes: Sequence[Lane]) -> tuple[tuple[float, ...], ...]:
    """Returns the speeds of the devices in each set of them that can work at once."""
    problem = lanes[0].problem
    return problem.together or ((1.0,) * len(problem.devices),)


def _limits(lanes: Sequence[Lane]) -> list[list[float]]:
    """Returns what each resource gets done in the time of each set of devices.

    Cores of a lane are alike, so a set's time is divided evenly among its images under exchanges
    of cores, and all cores of a lane get the same done.
    """
    return [
        [speeds[d] for d in lanes[0].shared]
        + [sum(speeds[c] for c in lane.cores) for lane in lanes]
        for speeds in speeds_of(lanes)
    ]


def capacity(lanes: Sequence[Lane], prices: Sequence[float]) -> float:
    """Returns what all devices together are worth."""
    return max(
        sum(limit * price for limit, price in zip(limits, prices, strict=True))
        for limits in _limits(lanes)
    )


def rates_of(lanes: Sequence[Lane], columns: Sequence[Column]) -> list[float]:
    """Returns the best rates of plans in frames a microsecond."""
    unit = sum(loads_of(lanes, columns[0]))  # rates near 1: the solver's tolerances are absolute
    program = Program()
    rates = [program.variable(cost=-1.0) for _ in columns]
    loads = [loads_of(lanes, column) for column in columns]
    sets = _limits(lanes)
    times = [program.variable() for _ in sets]
    program.row(Expression(dict.fromkeys(times, 1.0)), high=1.0)
    for resource in range(len(sets[0])):
        used = Expression({f: load[resource] / unit for f, load in zip(rates, loads, strict=True)})
        for time, limits in zip(times, sets, strict=True):
            used.add(time, -limits[resource])
        program.row(used, high=0.0)
    values = program.solve().values
    assert values is not None
    return [max(0.0, values[rate]) / unit for rate in rates]


def prices_of(lanes: Sequence[Lane], columns: Sequence[Column]) -> list[float]:
    """Returns the dual prices by resource: every plan is worth at least 1 at them."""
    unit = sum(loads_of(lanes, columns[0]))
    program = Program()
    sets = _limits(lanes)
    prices = [program.variable() for _ in sets[0]]
    most = program.variable(cost=1.0)
    for limits in sets:
        worth = Expression(zip(prices, limits, strict=True))
        worth.add(most, -1.0)
        program.row(worth, high=0.0)
    for column in columns:
        load = loads_of(lanes, column)
        terms = {p: us / unit for p, us in zip(prices, load, strict=True)}
        program.row(Expression(terms), low=1.0)
    values = program.solve().values
    assert values is not None
    return [max(0.0, values[price]) / unit for price in prices]
