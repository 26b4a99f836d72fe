"""Which of the user's wishes cannot hold together: the smallest set of them."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from edgekit.dla import loadables_per_core
from edgekit.errors import GateError
from edgekit.placement._ask import Ask, plan_value
from edgekit.placement._types import Options, Pin
from edgekit.solver import smallest_conflict

__all__ = ["Conflict", "Wish", "Wishes", "explain_conflict", "find_conflict"]

_OPEN = "plan.limit"  # neither a placement was found, nor that there is none

_OBJECTIVES = {
    "latency_us": "latency", "energy_uj": "energy", "gpu_us": "gpu_time", "period_us": "period",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """One constraint, as the user wrote it.

    Attributes:
        kind: pin, bound, cores, gpu, max_loadables, pool, max_transitions, min_loadable_layers.
        key: The pin's place in the list, or the name of the bound or the pool.
        text: For people.
        default: Whether the user wrote nothing.
        why: What it runs into: the rule that keeps a pinned layer off the DLA.
    """

    kind: str
    key: int | str
    text: str
    default: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns kind, text and reason."""
        return {"kind": self.kind, "text": self.text, "why": self.why}


class Wishes:
    """The constraints of a request, each of which can be dropped."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.all = (*self._pins, *self._others())

    @cached_property
    def _held(self) -> list[list[str] | None]:
        """By pin the layers that a later one does not take from it; None: all that it names."""
        names = [layer.name for layer in self.ask.network.layers]
        pins = self.ask.options.pins
        held: list[list[str] | None] = []
        taken: set[str] = set()
        for pin in reversed(pins):
            named = [name for name in names if fnmatchcase(name, pin.layers)]
            kept = [name for name in named if name not in taken]
            held.append(None if len(kept) == len(named) else kept)
            taken.update(named)
        return held[::-1]

    @cached_property
    def _pins(self) -> tuple[Wish, ...]:
        verdicts = self.ask.judgement.verdicts
        found = []
        for number, pin in enumerate(self.ask.options.pins):
            held = self._held[number]
            if held == []:
                continue
            refused = [
                f"{name}: {verdict.reasons[0].message}"
                for name, verdict in verdicts.items()
                if pin.device != "GPU" and not verdict.placeable and verdict.reasons
                and (fnmatchcase(name, pin.layers) if held is None else name in held)
            ]  # fmt: skip
            text = f"pin {pin.layers}={pin.device}"
            found.append(Wish("pin", number, text, why=refused[0] if refused else ""))
        return tuple(found)

    def _others(self) -> list[Wish]:
        options = self.ask.options
        found = [
            Wish("bound", name, f"bound {name}={limit:.10g}")
            for name, limit in options.bounds.items()
        ]
        if not options.gpu:
            found.append(Wish("gpu", "", "no GPU (--no-gpu, or build.mode standalone)"))
        for name, limit in (options.pools or {}).items():
            found.append(Wish("pool", name, f"pool {name}={_size(limit)}"))
        if options.max_transitions is not None:
            found.append(Wish("max_transitions", "", f"max_transitions {options.max_transitions}"))
        if options.min_loadable_layers > 1:
            text = f"min_loadable_layers {options.min_loadable_layers}"
            found.append(Wish("min_loadable_layers", "", text))
        if self.ask.precision != "fp32":
            found += self._cores()
        return found

    def _cores(self) -> list[Wish]:
        options, count = self.ask.options, self.ask.target.dla.cores
        found = []
        if count and len(set(options.dla_cores)) < count:
            usual = options.dla_cores == (0,) and not options.cores_why
            text = f"dla_cores {','.join(map(str, options.dla_cores)) or 'none'}"
            if usual:
                text = "one DLA core (the default)"
            elif options.cores_why:
                text = "one DLA core"
            found.append(Wish("cores", "", text, default=usual, why=options.cores_why))
        if count and options.dla_cores:
            slots = options.max_loadables
            usual = slots >= min(loadables_per_core(), self.ask.judgement.slots)
            text = f"{slots} loadables a core" if usual else f"max_loadables {slots}"
            found.append(Wish("max_loadables", "", text, default=usual))
        return found

    def keeping(self, kept: Set[Wish]) -> Options:
        """Returns the options with these wishes alone."""
        return self.without(frozenset(self.all) - kept)

    def without(self, dropped: Set[Wish]) -> Options:
        """Returns the options without some wishes."""
        options = self.ask.options
        gone = {(wish.kind, wish.key) for wish in dropped}
        pins: list[Pin] = []
        for number, pin in enumerate(options.pins):
            if ("pin", number) in gone:
                continue
            held = self._held[number]
            exact = [Pin(glob.escape(name), pin.device) for name in held or ()]
            pins += [pin] if held is None else exact
        change: dict[str, Any] = {"pins": tuple(pins)}
        change["bounds"] = {k: v for k, v in options.bounds.items() if ("bound", k) not in gone}
        if options.pools:
            change["pools"] = {k: v for k, v in options.pools.items() if ("pool", k) not in gone}
        kinds = {wish.kind for wish in dropped}
        if "gpu" in kinds:
            change["gpu"] = True
        if "cores" in kinds:
            change["dla_cores"] = tuple(range(self.ask.target.dla.cores))
            change["cores_why"] = ""
        if "max_loadables" in kinds:
            change["max_loadables"] = max(1, len(self.ask.network.layers))
        if "max_transitions" in kinds:
            change["max_transitions"] = None
        if "min_loadable_layers" in kinds:
            change["min_loadable_layers"] = 1
        return replace(options, **change)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Wishes that cannot hold together.

    Attributes:
        wishes: Without any one of them the others can hold.
        smallest: Whether no smaller set conflicts; False when trying them all took too long.
        best: By bound in the conflict what can be had at best with the others of the conflict.
    """

    wishes: tuple[Wish, ...]
    smallest: bool
    best: dict[str, float]

    @property
    def speed_helps(self) -> bool:
        """Whether a board that is faster at its other work could keep them: no bound on energy."""
        kinds = {wish.kind for wish in self.wishes}
        return "bound" in kinds and not any(wish.key == "energy_uj" for wish in self.wishes)

    def text(self, known: str = "") -> str:
        """Returns one sentence for people, without the reasons that ``known`` has already."""
        told = " and ".join(
            f"{wish.text} ({wish.why})" if wish.why and wish.why.partition(": ")[2] not in known
            else wish.text for wish in self.wishes
        )  # fmt: skip
        if len(self.wishes) == 1:
            sentence = f"{told} cannot be kept"
        else:
            few = "the smallest set of constraints" if self.smallest else "constraints"
            sentence = f"{told} cannot hold together ({few} that conflict)"
        for name, value in self.best.items():
            rest = " with the others" if len(self.wishes) > 1 else ""
            sentence += f"; {name} is {value:.6g} at best{rest} (predicted)"
        return sentence

    def is_about(self, error: GateError) -> bool:
        """Whether an error tells of one of these wishes already, in more detail."""
        if error.code == "plan.impossible":
            return any(wish.kind == "gpu" for wish in self.wishes)
        return any(
            wish.kind == "pin"
            and error.where
            and fnmatchcase(error.where, wish.text[4:].rpartition("=")[0])
            for wish in self.wishes
        )


def find_conflict(ask: Ask, progress: Callable[[int, int], None] | None = None) -> Conflict | None:
    """Returns the smallest set of wishes that cannot hold together; None when all can.

    None also where the board and the network alone leave no placement, whatever is dropped.
    """
    wishes = Wishes(ask)
    tell = progress or (lambda done, total: None)
    count, steps = 0, len(wishes.all) + 2

    def fails(kept: Iterable[Wish]) -> bool:
        nonlocal count
        count += 1
        tell(min(count, steps), steps)
        try:
            ask.plan(wishes.keeping(frozenset(kept)))
        except GateError as error:
            if error.code == _OPEN:
                raise
            return True
        return False

    # what nobody wrote is dropped first, so that the user's own words remain
    ordered = sorted(wishes.all, key=lambda wish: not wish.default)
    try:
        if not fails(ordered) or fails(()):
            return None
        core, smallest = smallest_conflict(ordered, fails)
    except GateError:  # the solver's limits leave open whether some of them conflict
        return None
    found = [wish for wish in wishes.all if wish in core]
    return Conflict(tuple(found), smallest, _best(wishes, found))


def _size(size: int) -> str:
    """Returns bytes as they are written in a configuration."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _best(wishes: Wishes, found: list[Wish]) -> dict[str, float]:
    """Returns by bound what it could be at least if the other conflicting wishes are kept."""
    best = {}
    for wish in found:
        if wish.kind != "bound" or str(wish.key) not in _OBJECTIVES:
            continue
        kept = wishes.keeping(frozenset(found) - {wish})
        options = replace(kept, objective=_OBJECTIVES[str(wish.key)])
        try:
            best[str(wish.key)] = plan_value(wishes.ask.plan(options))
        except GateError:
            continue
    return best


def explain_conflict(
    ask: Ask, error: GateError, progress: Callable[[int, int], None] | None = None
) -> None:
    """Says in an error of ``place`` which wishes conflict: in words and as "conflict".

    Its message becomes theirs, unless it tells of one of them already.
    """
    if error.code == _OPEN:
        return
    conflict = find_conflict(ask, progress)
    if conflict is None:
        return
    error.extra["conflict"] = [wish.to_json() for wish in conflict.wishes]
    ease = "ease it" if len(conflict.wishes) == 1 else "ease one of them"
    if conflict.speed_helps:
        ease += ", or choose a faster power mode"
    if conflict.is_about(error):
        error.hint = f"{conflict.text(error.message)}; {ease}"
        return
    bounds = [wish for wish in conflict.wishes if wish.kind == "bound"]
    error.code = "plan.infeasible"
    error.where = f"bounds.{bounds[0].key}" if len(bounds) == 1 else ""
    error.message = conflict.text()
    error.args = (error.message,)
    error.hint = ease
