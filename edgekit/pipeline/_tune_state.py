"""A tuning as it stands: what was asked, what was tried, and what that teaches, by network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._tune_forms import Form, Source
from edgekit.pipeline._tune_knowledge import knowledge_of
from edgekit.pipeline._tune_trials import Trial, table_of
from edgekit.pipeline._tune_wish import Measurer, Wish

if TYPE_CHECKING:
    from edgekit.pipeline._tune_journal import Journal
    from edgekit.placement import Ask, Plan
    from edgekit.placement._trial_search import Knowledge
    from edgekit.placement._trial_space import Space

__all__ = ["State"]


@dataclass
class State:
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
        form: What the starting plan's network is called; empty where there is one only.
        other: The other network, as it came or rewritten; None where it is not tried.
        trials: What was tried, the starting plan first.
        status: "running", "converged", "rounds", "budget" or "interrupted".
        why: A sentence on it.
        bound: The least cost that any plan left may have, by what was learnt.
        duel: How the best plan did beside the first, in turns.
        notes: What a person should know.
        turns: By turn, the cost of each plan that was measured in it, by number.
        ended: How a tuning before this one ended, if nothing was measured since; of the journal.
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
    form: str = ""
    other: Source | None = None
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
    def forms(self) -> dict[str, Form]:
        """The networks that are tried, by name; the starting plan's first."""
        return {self.form: Form(self.form, self.ask, self.measurer, self.model)}

    def form_of(self, trial: Trial) -> Form:
        """Returns the network that a plan is of."""
        return self.forms[trial.form]

    @property
    def space(self) -> Space:
        """The placements of the starting plan's network."""
        return self.forms[self.form].space

    def origin_of(self, form: Form) -> dict[str, Any]:
        """Returns what a network's measurements belong to."""
        plan = self.start
        return {
            "clock": self.measurer.clock, "power_mode": plan.power_mode, "model": form.model,
            "precision": plan.precision, "tensorrt": plan.tensorrt, "board": plan.target,
            "backend": "", **self.measurer.origin,
        }  # fmt: skip

    def table(self, form: Form | None = None) -> dict[str, Any]:
        """Returns a network's measurements as one ``edgekit.profile/1``; the first one's."""
        form = form or self.forms[self.form]
        tables = [one for one in self.tables if one.get("model") == form.model]
        own = [trial for trial in self.trials if trial.form == form.name]
        return table_of(own, form.space, form.able, self.origin_of(form), tables)

    def knowledge(self, form: Form | None = None) -> Knowledge:
        """Returns what was learnt so far of a network; of the first one without it."""
        form = form or self.forms[self.form]
        own = [trial for trial in self.trials if trial.form == form.name]
        like: Mapping[str, float] = {}
        if form.name != self.form:
            # the devices are the same ones: by how much they are off was seen already
            scale = self.knowledge().learnt.scale
            like = {row["device"]: scale[row["device"]] for row in self.table()["rows"]}
        return knowledge_of(own, form.space, self.table(form), self.wish.objective, like)

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

    def take_other(self) -> Form:
        """Has the other network tried, too.

        Raises:
            EdgekitError: It cannot be built.
        """
        assert self.other is not None
        other = self.other
        form = Form(other.name, other.ask, other, other.model)
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
