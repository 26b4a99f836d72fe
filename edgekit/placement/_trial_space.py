"""Placements to try on a board: the problem again, with times as they were learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from edgekit.placement._assemble import assemble
from edgekit.placement._kernels import Kernel
from edgekit.placement._measured_table import shares
from edgekit.placement._optimise import Part, Solved, optimise
from edgekit.placement._trial_balance import balanced
from edgekit.placement._trial_learn import CLASSES, EXTRA, Learnt
from edgekit.placement._trial_pieces import STEPS, class_of, signature
from edgekit.solver import Cost, Goal, Placing, Problem, evaluate

if TYPE_CHECKING:
    import numpy as np

    from edgekit.placement._costs import CostModel
    from edgekit.placement._place import Prepared
    from edgekit.placement._types import Plan

__all__ = ["Placed", "Space"]

Forced = Mapping[int, str]
"""The class of device ("GPU", "DLA") that nodes of the problem must have, by node."""


@dataclass(frozen=True)
class Placed:
    """What a search found; its plan is made when it is asked for, as most were found before."""

    space: Space
    parts: tuple[Part, ...]

    @property
    def plan(self) -> Plan | None:
        """The plan, as predicted; None where it cannot be."""
        return self.space.plan(self.parts)

    @property
    def key(self) -> str | None:
        """The plan's signature; None where it cannot be."""
        return self.space.key(self.parts)

    def class_at(self, v: int) -> str:
        """Returns the class of device that the first plan has a node of the problem on."""
        problem = self.space.problem
        return class_of(problem.devices[problem.device(self.parts[0].placing.modes[v])])


class Space:
    """A network's placements, to be searched with times as they were learnt."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self.network = prepared.request.network
        self.options = prepared.request.options
        self._plans: dict[object, Plan | None] = {}
        self._keys: dict[object, str | None] = {}
        self._own: dict[tuple[int, ...], Placing | None] = {}
        self.index = {layer.name: i for i, layer in enumerate(self.network.layers)}

    @property
    def model(self) -> CostModel:
        """What predicts."""
        return self._prepared.request.model

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in use."""
        return self._prepared.request.devices

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """By node of the problem, its layers."""
        return self._prepared.built.kernels

    @property
    def problem(self) -> Problem:
        """The problem with predicted times."""
        return self._prepared.problem

    @cached_property
    def prior_us(self) -> dict[str, np.ndarray]:
        """By class, each layer's predicted microseconds; NaN where it cannot run."""
        import numpy as np

        found = {name: np.full(len(self.network.layers), np.nan) for name in CLASSES}
        for v, kernel in enumerate(self.kernels):
            for name, us in self._least(v).items():
                for i, part in shares(self.network, kernel.layers, us).items():
                    found[name][i] = part
        return found

    def _least(self, v: int) -> dict[str, float]:
        return self._leasts[v]

    @cached_property
    def _leasts(self) -> list[dict[str, float]]:
        problem, found = self.problem, []
        for row in problem.costs:
            best: dict[str, float] = {}
            for m, cost in enumerate(row):
                if cost is not None:
                    name = class_of(problem.devices[problem.device(m)])
                    best[name] = min(sum(cost.load_us), best.get(name, float("inf")))
            found.append(best)
        return found

    def classes(self, v: int) -> set[str]:
        """Returns where a node can run."""
        return set(self._least(v))

    def solve(
        self, learnt: Learnt, logs: np.ndarray | None = None, forced: Forced | None = None,
        watts: Mapping[str, float] | None = None, moving: float = 1.0,
    ) -> Placed | None:  # fmt: skip
        """Returns the best plan with times as they were learnt, None where there is none.

        Args:
            learnt: The times.
            logs: A sample of them.
            forced: What else must hold.
            watts: By class, measured over predicted energy.
            moving: The part of transfers that keeps the GPU busy; for the other objectives all.
        """
        problem = self._scaled(learnt, logs, forced or {}, watts or {}, moving)
        if self.options.objective == "period":
            parts = balanced(problem, self.options)
        else:
            parts = optimise(problem, self.options).parts
        return Placed(self, parts) if parts else None

    def key(self, parts: Sequence[Part]) -> str | None:
        """Returns the signature of a solved problem's plan, None where it cannot be."""
        key = tuple((round(part.share * STEPS), part.placing.modes) for part in parts)
        if key not in self._keys:
            plan = self.plan(parts)
            self._keys[key] = None if plan is None else signature(plan)
        return self._keys[key]

    def plan(self, parts: Sequence[Part]) -> Plan | None:
        """Returns a solved problem's plan, as predicted by the model, not by what was learnt."""
        # most searches end at a placement that another one ended at, too
        key = tuple((part.share, part.placing.modes) for part in parts)
        if key not in self._plans:
            self._plans[key] = self._plan(parts)
        return self._plans[key]

    def _plan(self, parts: Sequence[Part]) -> Plan | None:
        built, options = self._prepared.built, self.options
        one = "period" if options.objective == "throughput" else options.objective
        goal = Goal.of(self.problem, one)
        kept: list[Part] = []
        for part in parts:
            modes = part.placing.modes
            if modes not in self._own:
                self._own[modes] = evaluate(self.problem, modes, goal)
            placing = self._own[modes]
            if placing is None:
                return None
            kept.append(Part(part.share, placing))
        value = self._value(kept)
        solved = Solved(tuple(kept), value, value)
        return assemble(self._prepared.request, built, solved, self._prepared.baselines)

    def _value(self, parts: Sequence[Part]) -> float:
        if self.options.objective == "energy":
            return self.model.energy(self.problem.devices, parts[0].placing.load_us)[0]
        if self.options.objective != "throughput":
            return parts[0].placing.value
        count = len(self.problem.devices)
        load = [sum(p.share * p.placing.load_us[d] for p in parts) for d in range(count)]
        return 1e6 / max(load) if max(load) else 0.0

    def alone(self, name: str) -> Plan | None:
        """Returns the plan with every node on this class of device that can run there."""
        wanted = {v: name for v in range(len(self.kernels)) if name in self.classes(v)}
        problem = replace(self.problem, costs=self._allowed(wanted))
        options = replace(self.options, objective="latency", bounds={})
        solved = optimise(problem, options)
        return self.plan(solved.parts) if solved.parts else None

    def _allowed(self, forced: Forced) -> tuple[tuple[Cost | None, ...], ...]:
        problem = self.problem
        return tuple(
            tuple(
                cost if v not in forced or class_of(problem.devices[problem.device(m)]) == forced[v]
                else None
                for m, cost in enumerate(row)
            )
            for v, row in enumerate(problem.costs)
        )  # fmt: skip

    def _scaled(
        self, learnt: Learnt, logs: np.ndarray | None, forced: Forced, watts: Mapping[str, float],
        moving: float,
    ) -> Problem:  # fmt: skip
        problem, times = self.problem, learnt.times(logs)
        extra = dict(zip(EXTRA, map(float, times["extra"]), strict=True))
        moved = extra["transfer"] * moving
        costs = []
        for v, row in enumerate(self._allowed(forced)):
            least = self._least(v)
            layers = list(self.kernels[v].layers)
            new: list[Cost | None] = []
            for m, cost in enumerate(row):
                if cost is None:
                    new.append(None)
                    continue
                device = problem.device(m)
                name = class_of(problem.devices[device])
                us = float(times[name][layers].sum())
                if least[name] > 0:
                    us *= sum(cost.load_us) / least[name]
                load = [0.0] * len(cost.load_us)
                load[device] = us
                was = sum(cost.load_us)
                energy = cost.energy_uj * (us / was if was else 1.0) * watts.get(name, 1.0)
                new.append(Cost(tuple(load), energy))
            costs.append(tuple(new))
        borders = tuple(
            replace(border, transfers=tuple(
                replace(one, ways=tuple(_times(way, moved) for way in one.ways))
                for one in border.transfers
            ))
            for border in problem.borders
        )  # fmt: skip
        launch = tuple(
            None if cost is None else _later(_times(cost, extra["launch"]), 2 * extra["transition"])
            for cost in problem.launch
        )
        return replace(problem, costs=tuple(costs), borders=borders, launch=launch)


def _times(cost: Cost, factor: float) -> Cost:
    return Cost(tuple(us * factor for us in cost.load_us), cost.energy_uj * factor)


def _later(cost: Cost, us: float) -> Cost:
    """Adds time in which no device works; a loadable is entered and left."""
    return Cost((*cost.load_us[:-1], cost.load_us[-1] + us), cost.energy_uj)
