"""One tuning while it runs. The starting plan is measured first, then the other network's where
the model can be rewritten, the GPU alone and the DLA as far as it goes, which time every
layer on both devices, then whichever plan promises most. In the end the best plan and the
first are measured in turns; the first stays unless the other is better beyond doubt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import EdgekitError, EnvironmentLack, UsageError
from edgekit.placement.plan import Plan, plan_from_json
from edgekit.text import counted
from edgekit.tuning.candidates import (
    SIGMAS,
    Candidate,
    Knowledge,
    PlacementSpace,
    candidates,
    device_class,
    plan_signature,
)
from edgekit.tuning.trials import (
    Measurer,
    NetworkVariant,
    Trial,
    TuningRequest,
    VariantSource,
    better_by,
    broken_bounds,
    budget_spent_text,
    compact_measurement,
    cost_of,
    expected_cost_text,
    knowledge_of,
    table_of,
)

if TYPE_CHECKING:
    from edgekit.config.schema import BenchSection
    from edgekit.placement.placing import PlacementQuery
    from edgekit.tuning.records import TuningJournal


_FATAL = ("tune.no-power",)
LARGE_PROBLEM = 60  # nodes of a problem from which on fewer placements are searched for
FEW_CANDIDATES = 6
SWEEP = "sweep"
"""The origin of its trials."""
MOST_SWEPT = 6
"""Plans that it measures in a tuning."""
FAR = 4.0
"""Deviations, where the search has two. Of 100 random boards the search alone missed the optimum of
12 by more than 2 %, with this of one (docs/tuning.md)."""
LOOKED = 64
"""Nodes that it looks at on a large network."""
_OUTCOME_FIELDS = ("status", "why", "bound")


@dataclass
class Tuning:
    """One tuning while it runs, and its outcome.

    Attributes:
        query: What to place.
        start: The plan to begin with.
        measurer: Measures plans.
        request: How far to go.
        journal: What was done, also before this process; None: nowhere.
        tables: Earlier measurements (``edgekit.profile/1``).
        on_note: Called with a line of text on each thing that happens.
        clock: Seconds; of the budget.
        model: Digest of what is placed.
        before_s: Seconds that were spent before, on building the starting plan.
        form: What the starting plan's network is called; empty where there is one only.
        other: The other network, as it came or rewritten; None where it is not tried.
        trials: What was tried, the starting plan first.
        status: "running", "converged", "rounds", "budget" or "interrupted".
        why: A sentence on it.
        bound: The least cost that any plan left may have, by what was learnt.
        duel: How the best plan did against the first, in turns.
        notes: What a person should know.
        turns: By turn, the cost of each plan that was measured in it, by number.
        ended: How a tuning before this one ended, if nothing was measured since; of the journal.
    """

    query: PlacementQuery
    start: Plan
    measurer: Measurer
    request: TuningRequest
    journal: TuningJournal | None = None
    tables: Sequence[Mapping[str, Any]] = ()
    on_note: Callable[[str], None] = lambda text: None
    clock: Callable[[], float] = time.monotonic
    model: str = ""
    before_s: float = 0.0
    form: str = ""
    other: VariantSource | None = None
    trials: list[Trial] = field(default_factory=list)
    status: str = "running"
    why: str = ""
    bound: float | None = None
    duel: Mapping[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    turns: dict[int, dict[int, float]] = field(default_factory=dict)
    ended: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self._began = self.clock()
        self.spent_s = 0.0  # by processes before this one
        self.longest_s = self.before_s  # that a plan took to build and measure

    @cached_property
    def forms(self) -> dict[str, NetworkVariant]:
        """The networks that are tried, by name; the starting plan's first."""
        return {self.form: NetworkVariant(self.form, self.query, self.measurer, self.model)}

    def form_of(self, trial: Trial) -> NetworkVariant:
        """Returns the network that a plan is of."""
        return self.forms[trial.form]

    @property
    def space(self) -> PlacementSpace:
        """The placements of the starting plan's network."""
        return self.forms[self.form].space

    def origin_of(self, form: NetworkVariant) -> dict[str, Any]:
        """Returns what a network's measurements belong to."""
        plan = self.start
        return {
            "clock": self.measurer.clock, "power_mode": plan.power_mode, "model": form.model,
            "precision": plan.precision, "tensorrt": plan.tensorrt, "board": plan.target,
            "backend": "", **self.measurer.origin,
        }  # fmt: skip

    def table(self, form: NetworkVariant | None = None) -> dict[str, Any]:
        """Returns a network's measurements as one ``edgekit.profile/1``; the first one's."""
        form = form or self.forms[self.form]
        tables = [one for one in self.tables if one.get("model") == form.model]
        own = [trial for trial in self.trials if trial.form == form.name]
        return table_of(own, form.space, form.able, self.origin_of(form), tables)

    def knowledge(self, form: NetworkVariant | None = None) -> Knowledge:
        """Returns what was learnt so far of a network; of the first one without it."""
        form = form or self.forms[self.form]
        own = [trial for trial in self.trials if trial.form == form.name]
        like: Mapping[str, float] = {}
        if form.name != self.form:
            # the devices are the same ones: by how much they are off was seen already
            scale = self.knowledge().learnt.scale
            like = {row["device"]: scale[row["device"]] for row in self.table()["rows"]}
        return knowledge_of(own, form.space, self.table(form), self.request.objective, like)

    @property
    def first(self) -> Trial:
        """The starting plan's trial."""
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The best measured plan so far; the first where none counts."""
        good = [trial for trial in self.trials if trial.counts]
        return min(good, key=lambda t: t.cost(self.request.objective), default=self.first)

    @property
    def winner(self) -> Trial:
        """What the tuning advises: the best plan if it is proven better, else the first."""
        if self.duel is not None:
            number = self.duel["winner"]
            return next(trial for trial in self.trials if trial.number == number)
        # cut off before the turns: the best so far, which the document says is not proven
        return self.best if self.status == "interrupted" else self.first

    def take_other(self) -> NetworkVariant:
        """Has the other network tried, too.

        Raises:
            EdgekitError: It cannot be built.
        """
        assert self.other is not None
        other = self.other
        form = NetworkVariant(other.name, other.query, other, other.model)
        return self.forms.setdefault(other.name, form)

    def known(self, form: str) -> set[str]:
        """Returns the plans of a network that were tried."""
        return {trial.key for trial in self.trials if trial.form == form}

    def pairs(self, trial: Trial) -> list[tuple[float, float]]:
        """Returns a plan's costs and the first one's in all turns of the two."""
        return [
            (costs[trial.number], costs[self.first.number])
            for costs in self.turns.values()
            if trial is not self.first and {trial.number, self.first.number} <= set(costs)
        ]

    @property
    def again_s(self) -> float:
        """Seconds that a turn takes for one plan; no more than building and measuring one took."""
        took = max(form.measurer.again_s for form in self.forms.values())
        return took or self.longest_s

    @property
    def seconds(self) -> float:
        """Seconds spent, those of a tuning that this one carries on included."""
        return self.spent_s + self.before_s + self.clock() - self._began

    def run(self) -> None:
        """Tunes; a Ctrl-C ends it with what is known (status "interrupted").

        Raises:
            EdgekitError: The starting plan cannot be built or measured, or has no such objective.
        """
        try:
            self.spent_s = replay_journal(self)
            earlier_notes = len(self.notes)
            measure_first_plans(self)
            self._search()
            decide_in_turns(self)
            record_end(self, earlier_notes)
        except KeyboardInterrupt:
            self.status, self.why = "interrupted", "it was interrupted"
            self.on_note("interrupted: what was tried leaves the board")
            if not self.trials or not self.first.runs:
                raise
            settle_duel(self)

    def _search(self) -> None:
        while self.status == "running":
            if self.over():
                return
            chosen = choose_next(self)
            if chosen is None:
                return
            one, origin, form = chosen
            why = expected_cost_text(one.mean, one.low, self.request.objective)
            self.attempt(one.plan, one.key, origin, why, (one.mean, one.sd), form=form)

    def over(self) -> bool:
        """Whether no other plan may be measured; the status then says why."""
        tried = len(self.trials)
        if self.request.rounds <= tried:
            self.status, self.why = (
                "rounds",
                f"no more than {self.request.rounds} are tried (rounds)",
            )
        elif self.request.budget_s is not None:
            # time for one more, and for the turns at the end
            left, turns = (
                self.request.budget_s - self.seconds,
                2 * self.request.turns * self.again_s,
            )
            if left < self.longest_s + turns:
                self.status = "budget"
                self.why = budget_spent_text(
                    self.seconds, self.request.budget_s, self.longest_s, turns
                )
        return self.status != "running"

    def attempt(
        self, plan: Plan, key: str, origin: str, why: str,
        expected: tuple[float, float] | None = None, *, must: bool = False,
        form: str | None = None,
    ) -> None:  # fmt: skip
        number = 1 + max((one.number for one in self.trials), default=0)
        name = self.form if form is None else form
        trial = Trial(number, plan, key, origin, why, expected, form=name)
        self.note({
            "event": "trial", "number": trial.number, "plan": plan.to_json(), "key": key,
            "origin": origin, "why": why, "expected": expected, "form": name,
        })  # fmt: skip
        self.on_note(f"{trial.name}: {why}")
        before = self.clock()
        try:
            self.measure(trial)
        except EdgekitError as error:
            if must or error.code in _FATAL:
                raise
            trial.dropped = f"{error.message} ({error.code})"
            self.note({"event": "dropped", "number": trial.number, "why": trial.dropped})
            self.on_note(f"{trial.name} is dropped: {trial.dropped}")
        self.longest_s = max(self.longest_s, self.clock() - before)
        self.trials.append(trial)

    def measure(self, trial: Trial, turn: int | None = None) -> float:
        """Measures a plan once more, as its part of a turn where that is numbered.

        Returns:
            Its cost.
        """
        document = self.form_of(trial).measurer.measure(trial.plan)
        cost = cost_of(document, self.request.objective, trial.plan)
        now, run = time.time(), compact_measurement(document)
        self.keep(trial, run, now, turn)
        self.note({
            "event": "run", "number": trial.number, "key": trial.key, "run": run, "at": now,
            "turn": turn,
        })  # fmt: skip
        return cost

    def keep(
        self, trial: Trial, run: Mapping[str, Any], at: float, turn: int | None = None
    ) -> None:
        """Takes a measurement of a plan as one of its runs, and of a turn's."""
        trial.runs.append(run)
        if turn is not None:
            cost = cost_of(run, self.request.objective, trial.plan)
            self.turns.setdefault(turn, {})[trial.number] = cost
        trial.measured_at = at
        if self.measurer.clock == "board-measured":
            trial.breaks = broken_bounds(run, self.query.options.bounds, trial.plan)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Keeps an entry in the journal."""
        self.ended = None
        if self.journal is not None:
            self.journal.add({**entry, "spent_s": round(self.seconds, 3)})


def replay_journal(tuning: Tuning) -> float:
    """Reads the tuning's journal into its trials and returns the seconds spent on them."""
    journal, trials, spent = tuning.journal, tuning.trials, 0.0
    forms = _variants(tuning)
    for entry in journal.entries if journal else ():
        tuning.ended = entry if entry["event"] == "end" else None
        if tuning.ended is not None:
            continue
        if entry["event"] == "trial":
            expected = entry.get("expected")
            trials.append(Trial(
                entry["number"], plan_from_json(entry["plan"]), entry["key"], entry["origin"],
                entry["why"], tuple(expected) if expected else None,
                form=entry.get("form", tuning.form),
            ))  # fmt: skip
            continue
        # a number that was begun twice was measured the last time
        trial = next((t for t in reversed(trials) if t.number == entry.get("number")), None)
        if trial is None or entry.get("key", trial.key) != trial.key:
            continue  # the line that it began with is damaged
        spent = max(spent, float(entry.get("spent_s") or 0))
        if entry["event"] == "run" and trial.form in forms:
            tuning.keep(trial, entry["run"], entry["at"], entry.get("turn"))
        elif entry["event"] == "dropped":
            trial.dropped = entry["why"]
    # one that was begun and neither measured nor dropped is tried again
    trials[:] = [t for t in trials if t.form in forms and (t.runs or t.dropped)]
    if trials and not (trials[0].origin == "start" and trials[0].runs):
        trials.clear()  # all others are compared with the starting plan
    if trials and journal:
        tried = counted(len(trials), "plan")
        tuning.notes.append(f"{tried} of before this command: {journal.path}")
        if journal.damaged:
            lines = counted(journal.damaged, "line")
            tuning.notes.append(f"{lines} of it that a cut or a hand damaged left out")
    return spent


def _variants(tuning: Tuning) -> set[str]:
    """Returns the networks whose plans are taken over: the other one only where it is tried."""
    entries = tuning.journal.entries if tuning.journal else ()
    named = {entry.get("form") for entry in entries}
    if tuning.other is not None and tuning.other.name in named:
        try:
            tuning.take_other()
        except EdgekitError as error:
            tuning.notes.append(f"plans of the network {tuning.other.name} are left out: {error}")
    return set(tuning.forms)


def measure_first_plans(tuning: Tuning) -> None:
    """Measures the starting plan, the other network's, and each device as far as it goes.

    Raises:
        EdgekitError: The starting plan cannot be measured; "tune.nothing-known".
    """
    if not tuning.trials:
        if tuning.request.budget_s == 0:
            raise nothing_known()
        why = "the configuration's plan"
        tuning.attempt(tuning.start, plan_signature(tuning.start), "start", why, must=True)
        _warn_of_budget(tuning)
    _measure_other_network(tuning)
    space = tuning.space
    for name, why in (("GPU", "the GPU alone"), ("DLA", "the DLA as far as it goes")):
        dla = any(device != "GPU" for device in space.devices)
        if tuning.over() or not (space.options.gpu if name == "GPU" else dla):
            continue
        plan = space.alone(name)
        if plan is not None and (key := plan_signature(plan)) not in tuning.known(tuning.form):
            tuning.attempt(plan, key, name.lower(), f"{why}: it times every layer there")


def budget_too_short(request: TuningRequest, bench: BenchSection) -> str:
    """Returns a sentence where the turns' mere measuring is more than the budget; else nothing."""
    least = 2 * request.turns * (bench.duration_s + bench.warmup_ms / 1e3)
    if request.budget_s is None or least <= request.budget_s:
        return ""
    return (
        f"the budget of {request.budget_s:.0f} s can prove nothing: the turns at the end "
        f"measure for {least:.0f} s, beside building and deploying (bench.duration_s and "
        "warmup_ms, --turns)"
    )


def _warn_of_budget(tuning: Tuning) -> None:
    """Says so, now that it is known how long a plan takes, where the budget can prove nothing."""
    budget, turns = tuning.request.budget_s, tuning.request.turns
    if budget is None or not turns:
        return
    at_end = 2 * turns * tuning.again_s
    needed = tuning.seconds + tuning.longest_s + at_end
    if budget < needed:
        text = (
            f"the budget of {budget:.0f} s can prove nothing: {tuning.seconds:.0f} s are spent, "
            f"another plan takes about {tuning.longest_s:.0f} s and the turns at the end about "
            f"{at_end:.0f} s; about {needed:.0f} s would do"
        )
        tuning.on_note(text)
        tuning.notes.append(text)


def nothing_known(where: str = "") -> UsageError:
    """Returns the error of a budget of 0 where no tuning was before."""
    return UsageError(
        "a budget of 0 measures nothing, and nothing is known yet", code="tune.nothing-known",
        where=where, hint="tune with a budget first, or name that tuning's folder with --out",
    )  # fmt: skip


def _measure_other_network(tuning: Tuning) -> None:
    """Measures the best plan of the other network, as predicted."""
    other = tuning.other
    if other is None or other.name in tuning.forms:
        return
    if tuning.over():
        tuning.notes.append(f"the network {other.name} was not tried")
        return
    before = tuning.clock()
    why = f"the network {other.name}: its best plan, as predicted"
    tuning.on_note(why)
    try:
        form = tuning.take_other()
        plan = other.start
    except EdgekitError as error:
        tuning.forms.pop(other.name, None)
        tuning.notes.append(f"the network {other.name} was not tried: {error.message}")
        return
    tuning.longest_s = max(tuning.longest_s, tuning.clock() - before)
    tuning.attempt(plan, plan_signature(plan), "other", why, form=form.name)


def choose_next(tuning: Tuning) -> tuple[Candidate, str, str] | None:
    """Returns what promises most, whose idea it is ("search", "sweep"), and its network's name.

    None, with the tuning's status, where nothing does.
    """
    best, tolerance = tuning.best, tuning.request.tolerance
    limit = best.cost(tuning.request.objective) if best.counts else float("inf")
    tuning.on_note("looking for plans that could be better")
    random: Any = np.random.default_rng([tuning.request.seed, len(tuning.trials)])
    found: list[tuple[Candidate, str]] = []
    for name, form in tuning.forms.items():
        if name != tuning.form and not any(t.runs for t in tuning.trials if t.form == name):
            continue  # not even its best plan could be measured
        enough = FEW_CANDIDATES if len(form.space.kernels) > LARGE_PROBLEM else float("inf")
        known = tuning.known(name)
        some = candidates(tuning.knowledge(form), known, random, enough=enough)
        found += [(one, name) for one in some]
    tuning.bound = min((one.low for one, _ in found), default=limit)
    promising = [pair for pair in found if pair[0].low < limit * (1 - tolerance)]
    if promising:
        one, name = _most_promising(tuning, promising, limit)
        return one, "search", name
    form = tuning.form_of(best)
    neighbours = neighbours_of_best(tuning, tuning.knowledge(form), limit * (1 - tolerance))
    if neighbours:
        one, name = _most_promising(
            tuning, [(one, form.name) for one in neighbours], limit, FAR / SIGMAS
        )
        return one, SWEEP, name
    tuning.status, tuning.why = "converged", _converged(tuning, found)
    return None


def _most_promising(
    tuning: Tuning, plans: Sequence[tuple[Candidate, str]], limit: float, doubt: float = 1.0
) -> tuple[Candidate, str]:
    """Returns the plan that promises most, with so many times its deviation."""
    suspects = _suspects(tuning)

    def promise(pair: tuple[Candidate, str]) -> tuple[bool, float, float]:
        one = pair[0]
        # a plan with the very loadable of one that failed likely fails, too
        fine = not suspects & _loadables(one.plan)
        return fine, replace(one, sd=doubt * one.sd).gain(limit), -one.mean

    return max(plans, key=promise)


def _converged(tuning: Tuning, found: Sequence[object]) -> str:
    if not found:
        return "every plan that can be was tried"
    why = f"nothing that is left can be {tuning.request.tolerance:.1%} better, by what was learnt"
    count = count_swept(tuning)
    return f"{why}, and {counted(count, 'plan')} beside the best were looked at" if count else why


def _suspects(tuning: Tuning) -> set[tuple[str, ...]]:
    """Returns loadables that only plans have that were dropped."""
    failed = [_loadables(trial.plan) for trial in tuning.trials if trial.dropped]
    fine = [_loadables(trial.plan) for trial in tuning.trials if trial.runs]
    return set().union(*failed) - set().union(*fine)


def _loadables(plan: Plan) -> set[tuple[str, ...]]:
    return {loadable.layers for loadable in plan.loadables}


# A last look at the neighbours of the best plan: one node, or one segment, on the other device.
#
# What was measured are sums of layers, so a layer that is far off what its device and kind are
# off by can hide in one, and the search holds a plan for hopeless that is not. Neighbours of the
# best one are therefore held for possible at more deviations than others. A few are measured in a
# tuning at most.


def count_swept(tuning: Tuning) -> int:
    """Returns how many neighbours of the best plan were tried."""
    return sum(trial.origin == SWEEP for trial in tuning.trials)


def neighbours_of_best(tuning: Tuning, knowledge: Knowledge, limit: float) -> list[Candidate]:
    """Returns the neighbours of the best plan that may be measured.

    Args:
        tuning: Its best plan counts; a mix has no neighbours.
        knowledge: What was learnt.
        limit: What a plan must cost less than.
    """
    if (
        count_swept(tuning) >= MOST_SWEPT
        or not tuning.best.counts
        or len(tuning.best.plan.plans) > 1
    ):
        return []
    known = tuning.known(tuning.best.form)
    return [
        one
        for one in _neighbours(tuning, knowledge)
        if one.key not in known and one.mean - FAR * one.sd < limit
    ]


def _neighbours(tuning: Tuning, knowledge: Knowledge) -> Iterator[Candidate]:
    space, plan = knowledge.space, tuning.best.plan
    here = {v: name for v, (name, _) in enumerate(_places(space, plan))}
    for group in _groups(tuning, space, plan):
        there = {
            v: other
            for v in group
            if (other := "DLA" if here[v] == "GPU" else "GPU") in space.classes(v)
        }
        placed = knowledge.solve(forced={**here, **there}) if there else None
        key = placed.key if placed is not None else None
        if placed is not None and key is not None and (found := placed.plan) is not None:
            yield knowledge.candidate(found, key)


def _groups(tuning: Tuning, space: PlacementSpace, plan: Plan) -> list[list[int]]:
    """Returns nodes that change places together: each alone, and each segment."""
    segments: dict[int, list[int]] = {}
    for v, (_, segment) in enumerate(_places(space, plan)):
        segments.setdefault(segment, []).append(v)
    nodes = [v for v in range(len(space.kernels)) if len(space.classes(v)) > 1]
    if len(nodes) > LOOKED:
        random = np.random.default_rng([tuning.request.seed, len(tuning.trials)])
        nodes = sorted(int(v) for v in random.choice(nodes, LOOKED, replace=False))
    return [[v] for v in nodes] + [group for group in segments.values() if len(group) > 1]


def _places(space: PlacementSpace, plan: Plan) -> list[tuple[str, int]]:
    """Returns by node the class of device and the segment that the plan has it in."""
    layers = {layer.name: layer for layer in plan.layers}
    names = [layer.name for layer in space.network.layers]
    own = [layers[names[kernel.layers[0]]] for kernel in space.kernels]
    return [(device_class(layer.device), layer.segment) for layer in own]


# The end of a tuning: the first and the best plan in turns, and which of them stays.
#
# A turn that was measured counts for good, also in a command that carries the tuning on: what was
# proven once is not lost.


def decide_in_turns(tuning: Tuning) -> None:
    """Measures the first and the best plan in turns, and sets the tuning's ``duel``.

    Raises:
        EnvironmentLack: Nothing can be measured any more.
    """
    first, best = tuning.first, tuning.best
    if best is not first:
        if first.breaks and not best.breaks:
            tuning.notes.append(f"the starting plan breaks a bound: {first.breaks[0]}")
        _measure_turns(tuning, best)
    if settle_duel(tuning):
        return
    wins = bool(first.breaks and not best.breaks)
    other = best if wins or tuning.pairs(best) else _last_challenger(tuning) or best
    found = _duel_of(tuning, other)
    tuning.duel = {**found, "winner": (best if wins else first).number}
    if wins or other is first:
        return
    turns = found["turns"]
    tuning.notes.append(
        f"{other.name} looked better than the starting plan, and "
        + (f"{turns} turns prove nothing" if turns < 5 else "was not so in turns")
        + ": the starting plan stays"
    )


def settle_duel(tuning: Tuning) -> bool:
    """Sets the ``duel`` of the plan that was proven best in turns; False where none was."""
    found = [
        _duel_of(tuning, trial)
        for trial in tuning.trials
        if trial is not tuning.first and trial.counts
    ]
    proven = [one for one in found if one["better"]]
    if not proven:
        return False
    best = max(proven, key=lambda one: float(one["fraction"]))
    tuning.duel = {**best, "winner": best["challenger"]}
    return True


def _last_challenger(tuning: Tuning) -> Trial | None:
    """Returns the plan of the newest turn: its turns may be why the first is the best now."""
    for turn in sorted(tuning.turns, reverse=True):
        for trial in tuning.trials:
            if trial.number in tuning.turns[turn] and tuning.pairs(trial):
                return trial
    return None


def _duel_of(tuning: Tuning, trial: Trial) -> dict[str, Any]:
    """Returns how a plan did against the first in all turns of the two."""
    pairs = tuning.pairs(trial)
    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
    return {**better_by(ours, theirs, seed=tuning.request.seed), "challenger": trial.number}


def _measure_turns(tuning: Tuning, best: Trial) -> None:
    """Measures the turns that are not known yet, as far as the budget goes."""
    first, budget = tuning.first, tuning.request.budget_s
    took = 2 * tuning.again_s
    for turn in range(len(tuning.pairs(best)), tuning.request.turns):
        before = tuning.seconds
        if budget is not None and budget - before < took:
            tuning.notes.append(
                f"the budget ended the turns after {turn} of {tuning.request.turns}"
            )
            return
        tuning.on_note(f"turn {turn + 1} of {tuning.request.turns}: {first.name} and {best.name}")
        number = 1 + max(tuning.turns, default=0)
        try:
            for trial in (first, best) if turn % 2 == 0 else (best, first):
                tuning.measure(trial, number)
        except EnvironmentLack:
            raise
        except EdgekitError as error:
            tuning.notes.append(f"the turns ended early: {error.message}")
            return
        took = max(took, tuning.seconds - before)


def record_end(tuning: Tuning, earlier_notes: int) -> None:
    """Keeps how it ended, or takes over how the one before did that left nothing to measure.

    Args:
        tuning: One that is decided.
        earlier_notes: How many of its notes are not of its search and its turns.
    """
    before = tuning.ended
    if before is None:
        facts = {name: getattr(tuning, name) for name in _OUTCOME_FIELDS}
        tuning.note({"event": "end", **facts, "notes": tuning.notes[earlier_notes:]})
    elif tuning.status != "converged":
        # rounds and budget end this command; what ended the tuning was known before
        for name in _OUTCOME_FIELDS:
            setattr(tuning, name, before[name])
        tuning.notes[earlier_notes:] = before["notes"]
