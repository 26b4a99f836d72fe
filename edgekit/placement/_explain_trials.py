"""Placements of one request with changes, to see what makes the difference for a layer."""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edgekit.errors import GateError
from edgekit.placement._ask import Ask, plan_value
from edgekit.placement._compare import percent_change
from edgekit.placement._conflicts import Wish, Wishes
from edgekit.placement._options import usable_cores
from edgekit.placement._types import Options, Pin, Plan

__all__ = ["SAME", "Tell", "Trials"]

MOST = 1500  # layers up to which all of them are pinned one by one
SAME = 1e-9  # relative; values that differ by less are equal
Tell = Callable[[int, int], None]


class Trials:
    """Placements of the same request with changes, to see what makes the difference."""

    def __init__(
        self, ask: Ask, plan: Plan, layer: str, members: list[str], progress: Tell | None
    ) -> None:
        self._ask, self._plan, self._layer, self._members = ask, plan, layer, members
        self._value = plan_value(plan)
        self._wishes = Wishes(ask)
        self._done = 0
        self._tell = progress or (lambda done, total: None)

    def _place(self, options: Options, ask: Ask | None = None) -> Plan:
        self._done += 1
        total = len(self._wishes.all) + 4
        self._tell(min(self._done, total), total)
        return (ask or self._ask).plan(options)

    def binding(self) -> list[dict[str, Any]]:
        """Returns the constraints without which the layer would move or the objective gain."""
        found = []
        verdict = self._ask.judgement.verdicts[self._layer]
        cores = usable_cores(self._ask.options, self._ask.target, self._ask.precision)
        pinned = any(wish.kind == "pin" for wish in self._wishes.all)
        if not verdict.placeable and cores and self._ask.options.gpu and not pinned:
            found.append(self._verdict())
        wishes = self._wishes.all
        if not wishes:
            return found
        free = self._effect(wishes[0], self._wishes.keeping(frozenset()))
        if not free["moves"] and not free["gains"]:
            return found  # nothing at all binds
        for wish in wishes:
            effect = self._effect(wish, self._wishes.without({wish}))
            if effect["moves"] or effect["gains"]:
                found.append(effect)
        if not any(effect["moves"] for effect in found) and free["moves"]:
            # only together do they hold the layer
            found.append({**free, "kind": "together", "text": "several constraints together"})
        return found

    def _verdict(self) -> dict[str, Any]:
        """What the rules of the DLA cost: the plan if it could run this kernel."""
        ask = self._ask
        for name in self._members:
            ask = ask.able(name)
        rules = [r.rule for r in ask.judgement.verdicts[self._layer].reasons]
        wish = Wish("verdict", "", f"verdict: {', '.join(rules) or 'cannot run on a DLA'}")
        return self._effect(wish, self._ask.options, ask)

    def _effect(self, wish: Wish, options: Options, ask: Ask | None = None) -> dict[str, Any]:
        document: dict[str, Any] = {"kind": wish.kind, "text": wish.text}
        try:
            plan = self._place(options, ask)
        except GateError:
            return {**document, "value": None, "device": None, "moves": False, "gains": False}
        value = plan_value(plan)
        device = next(x.device for x in plan.layers if x.name == self._layer)
        here = next(x.device for x in self._plan.layers if x.name == self._layer)
        change = (value - self._value) * (1 if self._plan.objective == "throughput" else -1)
        tolerance = max(SAME, 2 * self._plan.gap, 2 * plan.gap) * abs(self._value)
        return {
            **document, "value": value, "device": device,
            "moves": device[:3] != here[:3], "gains": change > tolerance,
        }  # fmt: skip

    def alone(self, other: str, blocked: str) -> dict[str, Any] | None:
        """Returns what it takes to move this kernel and nothing else; None where it cannot be.

        So the transitions, launches and reformats are seen that its place avoids.
        """
        plan = self._plan
        if blocked or not other or len(plan.plans) > 1 or len(plan.layers) > MOST:
            return None
        pins = tuple(
            Pin(glob.escape(x.name), other if x.name in self._members else x.device)
            for x in plan.layers
        )
        options = replace(
            self._ask.options, pins=pins, bounds={}, max_transitions=None, min_loadable_layers=1
        )
        try:
            moved = self._place(options)
        except GateError:
            return None
        value = plan_value(moved)
        return {
            "value": value, "difference": value - self._value,
            "percent": percent_change(self._value, value),
            "transitions": moved.transitions - plan.transitions,
            "loadables": len(moved.loadables) - len(plan.loadables),
            "reformats": len(moved.reformats) - len(plan.reformats),
        }  # fmt: skip

    def otherwise(self, other: str, blocked: str) -> dict[str, Any]:
        """Returns what the objective would be with the layer's kernel on the other device."""
        document: dict[str, Any] = {
            "device": other or None, "pinned": self._members, "possible": False, "reason": blocked,
            "value": None, "difference": None, "percent": None, "predicted": None, "moved": [],
        }  # fmt: skip
        if blocked or not other:
            return document
        device = "GPU" if other == "GPU" else "DLA"
        pins = tuple(Pin(glob.escape(name), device) for name in self._members)
        options = replace(self._ask.options, pins=(*self._ask.options.pins, *pins))
        try:
            plan = self._place(options)
        except GateError as error:
            return {**document, "reason": error.message}
        was = {x.name: x.device for x in self._plan.layers}
        value = plan_value(plan)
        return {
            **document, "possible": True, "value": value, "difference": value - self._value,
            "percent": percent_change(self._value, value), "predicted": plan.predicted.to_json(),
            "transitions": plan.transitions, "loadables": len(plan.loadables),
            "moved": [
                {"layer": x.name, "from": was[x.name], "to": x.device}
                for x in plan.layers if was[x.name] != x.device
            ],
        }  # fmt: skip
