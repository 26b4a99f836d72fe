"""``tune``: plans, builds and measures until nothing that is left can be better.

The starting plan is measured first, then the other network's where the model can be rewritten, the
GPU alone and the DLA as far as it goes, which time every layer on both devices, then whichever plan
promises most. Every measurement corrects the times of the others. In the end the best plan and the
first are measured in turns, and the first one stays unless the other is better beyond doubt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError
from edgekit.pipeline._tune_begin import begin
from edgekit.pipeline._tune_choice import choose
from edgekit.pipeline._tune_end import end
from edgekit.pipeline._tune_replay import replay
from edgekit.pipeline._tune_state import State
from edgekit.pipeline._tune_trials import Trial
from edgekit.pipeline._tune_turns import decide, settle
from edgekit.pipeline._tune_values import broken_bounds, compact, cost_of, expectation, no_room

if TYPE_CHECKING:
    from edgekit.placement import Plan

__all__ = ["Tuning"]

_FATAL = ("tune.no-power",)


class Tuning(State):
    """One tuning while it runs, and its outcome."""

    def run(self) -> None:
        """Tunes; a Ctrl-C ends it with what is known (status "interrupted").

        Raises:
            EdgekitError: The starting plan cannot be built or measured, or has no such objective.
        """
        try:
            self.spent_s = replay(self)
            told = len(self.notes)
            begin(self)
            self._search()
            decide(self)
            end(self, told)
        except KeyboardInterrupt:
            self.status, self.why = "interrupted", "it was interrupted"
            self.tell("interrupted: what was tried leaves the board")
            if not self.trials or not self.first.runs:
                raise
            settle(self)

    def _search(self) -> None:
        while self.status == "running":
            if self.over():
                return
            chosen = choose(self)
            if chosen is None:
                return
            one, origin, form = chosen
            why = expectation(one.mean, one.low, self.wish.objective)
            self.attempt(one.plan, one.key, origin, why, (one.mean, one.sd), form=form)

    def over(self) -> bool:
        """Whether no other plan may be measured; the status then says why."""
        tried = len(self.trials)
        if self.wish.rounds <= tried:
            self.status, self.why = "rounds", f"no more than {self.wish.rounds} are tried (rounds)"
        elif self.wish.budget_s is not None:
            # room for one more, and for the turns at the end
            left, turns = self.wish.budget_s - self.seconds, 2 * self.wish.turns * self.again_s
            if left < self.longest_s + turns:
                self.status = "budget"
                self.why = no_room(self.seconds, self.wish.budget_s, self.longest_s, turns)
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
        self.tell(f"{trial.name}: {why}")
        before = self.clock()
        try:
            self.measure(trial)
        except EdgekitError as error:
            if must or error.code in _FATAL:
                raise
            trial.dropped = f"{error.message} ({error.code})"
            self.note({"event": "dropped", "number": trial.number, "why": trial.dropped})
            self.tell(f"{trial.name} is dropped: {trial.dropped}")
        self.longest_s = max(self.longest_s, self.clock() - before)
        self.trials.append(trial)

    def measure(self, trial: Trial, turn: int | None = None) -> float:
        """Measures a plan once more, as its part of a turn where that is numbered.

        Returns:
            Its cost.
        """
        document = self.form_of(trial).measurer.measure(trial.plan)
        cost = cost_of(document, self.wish.objective, trial.plan)
        now, run = time.time(), compact(document)
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
            cost = cost_of(run, self.wish.objective, trial.plan)
            self.turns.setdefault(turn, {})[trial.number] = cost
        trial.measured_at = at
        if self.measurer.clock == "board-measured":
            trial.breaks = broken_bounds(run, self.ask.options.bounds, trial.plan)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Keeps an entry in the journal."""
        self.ended = None
        if self.journal is not None:
            self.journal.add({**entry, "spent_s": round(self.seconds, 3)})
