"""``tune``: plans, builds and measures until nothing that is left can be better.

The starting plan is measured first, then the GPU alone and the DLA as far as it goes, which time
every layer on both devices, then whichever plan promises most. Every measurement corrects the times
of the others. In the end the best plan and the first are measured in turns, and the first one stays
unless the other is better beyond doubt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import EdgekitError
from edgekit.pipeline._tune_choice import choose
from edgekit.pipeline._tune_knowledge import knowledge_of
from edgekit.pipeline._tune_replay import replay
from edgekit.pipeline._tune_trials import Trial, table_of
from edgekit.pipeline._tune_turns import decide
from edgekit.pipeline._tune_values import broken_bounds, compact, cost_of, expectation, no_room
from edgekit.pipeline._tune_wish import Measurer, Wish

if TYPE_CHECKING:
    from edgekit.pipeline._tune_journal import Journal
    from edgekit.placement import Ask, Plan
    from edgekit.placement._trial_search import Knowledge
    from edgekit.placement._trial_space import Space

__all__ = ["Tuning"]

_FATAL = ("tune.no-power",)


@dataclass
class Tuning:
    """One tuning while it runs, and its outcome.

    Attributes:
        ask: What to place.
        start: The plan to begin with.
        measurer: Measures plans.
        wish: How far to go.
        journal: What was done, also before this process; None: nowhere.
        tables: Earlier measurements (``edgekit.profile/1``).
        tell: Told of each thing that happens.
        clock: Seconds; of the budget.
        model: Digest of what is placed.
        before_s: Seconds that were spent before, on building the starting plan.
        trials: What was tried, the starting plan first.
        status: "running", "converged", "rounds", "budget" or "interrupted".
        why: A sentence on it.
        bound: The least cost that any plan left may have, by what was learnt.
        duel: How the best plan did beside the first, in turns.
        notes: What a person should know.
    """

    ask: Ask
    start: Plan
    measurer: Measurer
    wish: Wish
    journal: Journal | None = None
    tables: Sequence[Mapping[str, Any]] = ()
    tell: Callable[[str], None] = lambda text: None
    clock: Callable[[], float] = time.monotonic
    model: str = ""
    before_s: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    status: str = "running"
    why: str = ""
    bound: float | None = None
    duel: Mapping[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._spent = 0.0  # by processes before this one
        self._longest = self.before_s

    @cached_property
    def space(self) -> Space:
        """The placements."""
        from edgekit.placement._trial_space import Space

        return Space(self.ask.prepared())

    @property
    def origin(self) -> dict[str, Any]:
        """What the measurements belong to."""
        plan = self.start
        return {
            "clock": self.measurer.clock, "power_mode": plan.power_mode, "model": self.model,
            "precision": plan.precision, "tensorrt": plan.tensorrt, "board": plan.target,
            "backend": "", **self.measurer.origin,
        }  # fmt: skip

    @property
    def able(self) -> dict[str, bool]:
        """By layer, whether a DLA can run it."""
        return {name: verdict.ok for name, verdict in self.ask.judgement.verdicts.items()}

    def table(self) -> dict[str, Any]:
        """Returns all measurements as one ``edgekit.profile/1``."""
        return table_of(self.trials, self.space, self.able, self.origin, self.tables)

    def knowledge(self) -> Knowledge:
        """Returns what was learnt so far."""
        return knowledge_of(self.trials, self.space, self.table(), self.wish.objective)

    @property
    def first(self) -> Trial:
        """The starting plan's trial."""
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The best measured plan so far; the first where none counts."""
        good = [trial for trial in self.trials if trial.counts]
        return min(good, key=lambda t: t.cost(self.wish.objective), default=self.first)

    @property
    def winner(self) -> Trial:
        """What the tuning advises: the best plan if it is proven better, else the first."""
        if self.duel is not None:
            number = self.duel["winner"]
            return next(trial for trial in self.trials if trial.number == number)
        # cut off before the turns: the best so far, which the document says is not proven
        return self.best if self.status == "interrupted" else self.first

    def run(self) -> None:
        """Tunes; a Ctrl-C ends it with what is known (status "interrupted").

        Raises:
            EdgekitError: The starting plan cannot be built or measured, or has no such objective.
        """
        try:
            self._spent = replay(self)
            self._begin()
            self._search()
            decide(self)
        except KeyboardInterrupt:
            self.status, self.why = "interrupted", "it was interrupted"
            if not self.trials or not self.first.runs:
                raise

    def _begin(self) -> None:
        from edgekit.placement._trial_pieces import signature

        key = signature(self.start)
        if not self.trials:
            self._try(self.start, key, "start", "the configuration's plan", must=True)
        for name, why in (("GPU", "the GPU alone"), ("DLA", "the DLA as far as it goes")):
            dla = any(device != "GPU" for device in self.space.devices)
            if self._over() or not (self.space.options.gpu if name == "GPU" else dla):
                continue
            plan = self.space.alone(name)
            if plan is not None and (key := signature(plan)) not in self.known:
                self._try(plan, key, name.lower(), f"{why}: it times every layer there")

    @property
    def known(self) -> set[str]:
        """Plans that were tried."""
        return {trial.key for trial in self.trials}

    def _search(self) -> None:
        while self.status == "running":
            if self._over():
                return
            chosen = choose(self)
            if chosen is None:
                return
            one, origin = chosen
            why = expectation(one.mean, one.low, self.wish.objective)
            self._try(one.plan, one.key, origin, why, (one.mean, one.sd))

    def _over(self) -> bool:
        tried = len(self.trials)
        if self.wish.rounds <= tried:
            self.status, self.why = (
                "rounds",
                f"{counted(tried, 'plan')} of {self.wish.rounds} tried",
            )
        elif self.wish.budget_s is not None:
            # room for one more, and for the turns at the end
            left, turns = self.wish.budget_s - self.seconds, 2 * self.wish.turns * self.again_s
            if left < self._longest + turns:
                self.status = "budget"
                self.why = no_room(self.seconds, self.wish.budget_s, self._longest, turns)
        return self.status != "running"

    @property
    def again_s(self) -> float:
        """Seconds that a turn takes for one plan; no more than building and measuring one took."""
        return self.measurer.again_s or self._longest

    @property
    def seconds(self) -> float:
        """Seconds spent, those of a tuning that this one carries on included."""
        return self._spent + self.before_s + self.clock() - self._began

    def _try(
        self, plan: Plan, key: str, origin: str, why: str,
        expected: tuple[float, float] | None = None, *, must: bool = False,
    ) -> None:  # fmt: skip
        number = 1 + max((one.number for one in self.trials), default=0)
        trial = Trial(number, plan, key, origin, why, expected)
        self._note({
            "event": "trial", "number": trial.number, "plan": plan.to_json(), "key": key,
            "origin": origin, "why": why, "expected": expected,
        })  # fmt: skip
        self.tell(f"{trial.name}: {why}")
        before = self.clock()
        try:
            self.measure(trial)
        except EdgekitError as error:
            if must or error.code in _FATAL:
                raise
            trial.dropped = f"{error.message} ({error.code})"
            self._note({"event": "dropped", "number": trial.number, "why": trial.dropped})
            self.tell(f"{trial.name} is dropped: {trial.dropped}")
        self._longest = max(self._longest, self.clock() - before)
        self.trials.append(trial)

    def measure(self, trial: Trial) -> float:
        """Measures a plan once more and returns its cost."""
        document = self.measurer.measure(trial.plan)
        cost = cost_of(document, self.wish.objective, trial.plan)
        now, run = time.time(), compact(document)
        self.keep(trial, run, now)
        self._note({
            "event": "run", "number": trial.number, "key": trial.key, "run": run, "at": now,
        })  # fmt: skip
        return cost

    def keep(self, trial: Trial, run: Mapping[str, Any], at: float) -> None:
        """Takes a measurement of a plan as one of its runs."""
        trial.runs.append(run)
        trial.measured_at = at
        if self.measurer.clock == "board-measured":
            trial.breaks = broken_bounds(run, self.ask.options.bounds, trial.plan)

    def _note(self, entry: Mapping[str, Any]) -> None:
        if self.journal is not None:
            self.journal.add({**entry, "spent_s": round(self.seconds, 3)})
