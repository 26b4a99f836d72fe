"""A running tuning. It measures the starting plan, then the other network's plan (if the model can
be rewritten), then the GPU alone and the DLA with all layers that it can run, which times every
layer on both devices, then the most promising plans. At the end the best and the first plan are
measured in turns; the first plan stays unless the other is proven better.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import EdgekitError, EnvironmentLack, UsageError
from edgekit.placement.plan import Plan
from edgekit.text import counted
from edgekit.tuning.candidates import (
    Candidate,
    PlacementSpace,
    SampledTimes,
    candidates,
    neighbour_plans,
    optimal_plans,
    plan_signature,
)
from edgekit.tuning.journal import (
    JournalEntry,
    PlanDropped,
    PlanMeasured,
    TrialBegun,
    TuningEnded,
    TuningJournal,
)
from edgekit.tuning.trials import (
    LEAST_TURNS,
    UNITS,
    Duel,
    Trial,
    TunedNetwork,
    TuningRequest,
    broken_bounds,
    compact_measurement,
    estimate_from_table,
    frame_cost,
    in_objective_unit,
    learn,
    profile_table,
    readable_value,
    relative_gain,
)

if TYPE_CHECKING:
    from edgekit.placement.profiles.profile import ProfileTable


# errors that every other plan would have too: they end the tuning instead of dropping a plan
_FATAL = ("tune.no-power",)


class Tuning:
    """A running tuning and its outcome.

    Args:
        networks: The starting plan's network, and the other network if it is also tried.
        request: Objective and limits.
        journal: The record of actions, earlier processes included; None: no journal.
        tables: Earlier measurements (``edgekit.profile/1``).
        announce: Called with each action and a detail (or "").
        clock: Time source of the budget, in seconds.
        before_s: Seconds already spent on building the starting plan.

    Attributes:
        trials: The trials, the starting plan first.
        status: "running", "converged", "rounds", "budget" or "interrupted".
        why: A sentence that explains the status.
        bound: The least cost that an untried plan may have, by the learnt times.
        duel: How the best plan did against the first, in turns.
        notes: Notes for the user.
        networks: The networks whose plans are tried, by name; the starting plan's first.
    """

    def __init__(
        self,
        networks: Sequence[TunedNetwork],
        request: TuningRequest,
        journal: TuningJournal | None = None,
        tables: Sequence[ProfileTable] = (),
        announce: Callable[[str, str], None] = lambda what, more: None,
        clock: Callable[[], float] = time.monotonic,
        before_s: float = 0.0,
    ) -> None:
        self.request, self.tables = request, tables
        self.trials: list[Trial] = []
        self.status, self.why = "running", ""
        self.bound: float | None = None
        self.duel: Duel | None = None
        self.notes: list[str] = []
        self.networks = {networks[0].name: networks[0]}
        self._others = {network.name: network for network in networks[1:]}
        self._journal, self._announce, self._clock = journal, announce, clock
        self._began = clock() - before_s
        self._spent_s = 0.0  # by earlier processes
        self._longest_s = before_s  # the longest build and measurement of a plan
        self._spaces: dict[str, PlacementSpace] = {}

    @property
    def start_network(self) -> TunedNetwork:
        """The starting plan's network."""
        return next(iter(self.networks.values()))

    @property
    def first(self) -> Trial:
        """The starting plan's trial."""
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The best measured plan so far; the first plan if no plan counts."""
        good = [trial for trial in self.trials if trial.counts]
        return min(good, key=lambda t: t.cost(self.request.objective), default=self.first)

    @property
    def winner(self) -> Trial:
        """The recommended plan: the best plan if it is proven better, else the first."""
        if self.duel is not None:
            number = self.duel.winner
            return next(trial for trial in self.trials if trial.number == number)
        # interrupted before the turns: the best so far, marked as unproven in the document
        return self.best if self.status == "interrupted" else self.first

    @property
    def seconds(self) -> float:
        """Seconds spent, those of the continued tuning included."""
        return self._spent_s + self._clock() - self._began

    @property
    def again_s(self) -> float:
        """Seconds of a plan's turn; at most the time of a build and measurement."""
        return max(network.again_s for network in self.networks.values()) or self._longest_s

    def space(self, network: str) -> PlacementSpace:
        """Returns a network's placements."""
        if network not in self._spaces:
            self._spaces[network] = PlacementSpace(self.networks[network].query.prepared())
        return self._spaces[network]

    def measurement_conditions(self, network: str) -> dict[str, str]:
        """Returns the conditions of a network's measurements."""
        plan, tuned = self.start_network.start, self.networks[network]
        return {
            "clock": tuned.clock,
            "power_mode": plan.power_mode,
            "model": tuned.model,
            "precision": plan.precision,
            "tensorrt": plan.tensorrt,
            "board": plan.target,
            "backend": tuned.backend,
        }

    def table(self, network: str) -> ProfileTable:
        """Returns a network's measurements as one table."""
        tuned = self.networks[network]
        verdicts = tuned.query.judgement.verdicts
        able = {name: verdict.placeable for name, verdict in verdicts.items()}
        tables = [table for table in self.tables if table.model == tuned.model]
        return profile_table(
            self._network_trials(network),
            self.space(network),
            able,
            self.measurement_conditions(network),
            tables,
        )

    def sampled_times(self, network: str) -> SampledTimes:
        """Returns the samples of a network's learnt times."""
        own, like = self.start_network.name, dict[str, float]()
        if network != own:
            # same devices: how far their predictions are off is known already
            table = self.table(own)
            scale = estimate_from_table(self.space(own), table).scale
            like = {row.device: scale[row.device] for row in table.rows}
        table, request = self.table(network), self.request
        space = self.space(network)
        return learn(
            self._network_trials(network), space, table, request.objective, like, request.seed
        )

    def _network_trials(self, network: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.network == network]

    def run(self) -> None:
        """Tunes; a Ctrl-C ends it with the results so far (status "interrupted").

        Raises:
            EdgekitError: The starting plan cannot be built or measured, or the objective was not
                measured.
        """
        try:
            self.replay()
            # notes up to here are of this command; later ones belong to the tuning and its journal
            earlier = len(self.notes)
            self._measure_first_plans()
            while not self._is_over() and (found := self._choose()) is not None:
                self._attempt_candidate(*found)
            self._decide()
            self._record_end(earlier)
        except KeyboardInterrupt:
            self.status, self.why = "interrupted", "it was interrupted"
            self._announce("interrupted", "removing the trials from the board")
            # nothing is measured, so there is no result to write
            if not self.trials or not self.first.runs:
                raise
            # finished turns may already prove a plan
            self._adopt_proven_plan()

    # the journal

    def replay(self) -> None:
        """Takes over the journal's entries."""
        journal = self._journal
        for entry in journal.entries if journal else ():
            if isinstance(entry, TrialBegun):
                expected = entry.expected
                self.trials.append(
                    Trial(
                        entry.number,
                        entry.plan,
                        entry.key,
                        entry.origin,
                        entry.why,
                        (expected[0], expected[1]) if expected else None,
                        # older journals know a single network
                        self.start_network.name if entry.form is None else entry.form,
                    )
                )
                continue
            # only `_record_end` reads it
            if isinstance(entry, TuningEnded):
                continue
            # if a number was begun twice, the last begin was measured
            trial = next((t for t in reversed(self.trials) if t.number == entry.number), None)
            if trial is None:
                continue  # its first line is damaged
            if isinstance(entry, PlanDropped):
                trial.dropped = entry.why
            # a killed process may have begun this number with another plan; older journals have no
            # key
            elif entry.key in (None, trial.key):
                trial.runs.append(entry)
            else:
                continue
            # entries have the running total of all processes
            self._spent_s = max(self._spent_s, entry.spent_s)
        for name in {trial.network for trial in self.trials} & set(self._others):
            self._add_other_network(name, "plans of the network {} are ignored: {}")
        # a trial that was begun, but neither measured nor dropped, is repeated
        self.trials = [
            t for t in self.trials if t.network in self.networks and (t.runs or t.dropped)
        ]
        if self.trials and not (self.first.origin == "start" and self.first.runs):
            self.trials.clear()  # all others are compared with the starting plan
        for trial in self.trials:
            self._check_bounds(trial)
        if self.trials and journal:
            tried = counted(len(self.trials), "plan")
            self.notes.append(f"{tried} from earlier runs: {journal.path}")
            if journal.damaged:
                lines = counted(journal.damaged, "line")
                self.notes.append(f"{lines} ignored because of damage")

    def _record(self, entry: JournalEntry) -> None:
        if self._journal is not None:
            spent = {"spent_s": round(self.seconds, 3)}
            self._journal.add(entry.model_copy(update=spent))

    def _record_end(self, earlier: int) -> None:
        """Records how the tuning ended, or takes over the earlier end if no measurement was due.

        Args:
            earlier: Number of notes from before the search and the turns.
        """
        entries = self._journal.entries if self._journal is not None else []
        before = entries[-1] if entries else None
        if not isinstance(before, TuningEnded):
            self._record(
                TuningEnded(
                    event="end",
                    status=self.status,
                    why=self.why,
                    bound=self.bound,
                    notes=self.notes[earlier:],
                )
            )
        elif self.status != "converged":
            # rounds and budget end only this command; the tuning's end was recorded before
            self.status, self.why, self.bound = before.status, before.why, before.bound
            self.notes[earlier:] = before.notes

    # the search

    def _measure_first_plans(self) -> None:
        own = self.start_network
        if not self.trials:
            if self.request.budget_s == 0:
                raise nothing_known()
            # must: without the starting plan there is nothing to compare with
            self._attempt(own.start, own.name, "start", "the configuration's plan", must=True)
            self._warn_of_budget()
        for name in list(self._others):
            if self._is_over():
                self.notes.append(f"the network {name} was not tried")
                break
            whose, what = f"the network {name}", "its best predicted plan"
            self._announce(whose, what)
            before = self._clock()
            if self._add_other_network(name, "the network {} was not tried: {}"):
                self._longest_s = max(self._longest_s, self._clock() - before)
                self._attempt(self.networks[name].start, name, "other", f"{whose}: {what}")
        space = self.space(own.name)
        for name, what in (("GPU", "the GPU alone"), ("DLA", "as much as possible on the DLA")):
            dla = any(device != "GPU" for device in space.devices)
            if self._is_over() or not (space.options.gpu if name == "GPU" else dla):
                continue
            plan = space.alone(name)
            known = {trial.key for trial in self._network_trials(own.name)}
            if plan is not None and plan_signature(plan) not in known:
                why = f"{what}: times every layer there"
                self._attempt(plan, own.name, name.lower(), why)

    def _add_other_network(self, name: str, note: str) -> bool:
        """Adds the other network to the tuning if it can be built; else adds a note."""
        other = self._others.pop(name)
        try:
            # both are computed on first use, and raise here
            _ = other.start, other.query
        except EdgekitError as error:
            self.notes.append(note.format(name, error.message))
            return False
        self.networks[name] = other
        return True

    def _is_over(self) -> bool:
        """Returns True if no further plan may be measured, and sets the status accordingly."""
        tried, budget = len(self.trials), self.request.budget_s
        if self.request.rounds <= tried:
            self.status = "rounds"
            self.why = f"stopped by --rounds {self.request.rounds}"
        elif budget is not None:
            # time for another plan, and for the turns at the end, each of two plans
            spent, turns = self.seconds, 2 * self.request.turns * self.again_s
            if budget - spent < self._longest_s + turns:
                at_end = f" and the comparison at the end (about {turns:.0f} s)" if turns else ""
                self.status = "budget"
                # the spent time is not stated: the turns follow, then the total is printed
                left = (
                    "nothing is left"
                    if spent >= budget
                    else (
                        f"the {budget - spent:.0f} s left are not enough for another plan (about "
                        f"{self._longest_s:.0f} s){at_end}"
                    )
                )
                self.why = f"stopped by --budget {budget:.0f} s: {left}"
        return self.status != "running"

    def _warn_of_budget(self) -> None:
        """Warns if the budget is too short for a proof, as soon as a plan's time is known."""
        budget, at_end = self.request.budget_s, 2 * self.request.turns * self.again_s
        needed = self.seconds + self._longest_s + at_end
        if budget is not None and self.request.turns and budget < needed:
            text = (
                f"the budget of {budget:.0f} s is too short to prove anything: "
                f"{self.seconds:.0f} s are used, another plan takes about "
                f"{self._longest_s:.0f} s and the comparison at the end about {at_end:.0f} s; "
                f"use about {needed:.0f} s"
            )
            self._announce(text, "")
            self.notes.append(text)

    def _choose(self) -> tuple[Candidate, str] | None:
        """Returns the best candidate and its network; None (status set) if there is none."""
        best = self.best
        limit = best.cost(self.request.objective) if best.counts else float("inf")
        self._announce("searching for plans that could be better", "")
        enough = limit * (1 - self.request.tolerance)
        found: list[tuple[Candidate, str]] = []
        promising: list[tuple[Candidate, str]] = []
        # a network whose best predicted plan could not be measured is left out
        worlds = {
            name: self.sampled_times(name)
            for name in self.networks
            if name == self.start_network.name
            or any(trial.runs for trial in self._network_trials(name))
        }
        # if no optimum can be better, another plan may still be
        for step in (
            optimal_plans,
            lambda samples: neighbour_plans(samples, best.plan, len(self.trials)),
        ):
            for name, samples in worlds.items():
                if step is optimal_plans or name == best.network:
                    known = {trial.key for trial in self._network_trials(name)}
                    found += [(c, name) for c in candidates(samples, known, step(samples))]
            # the lowest cost in any world, not the expected one: a much faster layer can hide in a
            # measured sum, and the search then ended too early
            promising = [pair for pair in found if pair[0].low < enough]
            if promising:
                break
        self.bound = min((candidate.low for candidate, _ in found), default=limit)
        if not promising:
            self.status = "converged"
            self.why = (
                "every possible plan was tried"
                if not found
                else (
                    "by the measurements, no untried plan can be "
                    f"{100 * self.request.tolerance:.1f} % better"
                )
            )
            return None
        failed = [_loadables(trial.plan) for trial in self.trials if trial.dropped]
        fine = [_loadables(trial.plan) for trial in self.trials if trial.runs]
        suspects = set().union(*failed) - set().union(*fine)

        def promise(pair: tuple[Candidate, str]) -> tuple[bool, tuple[float, float], float]:
            # a plan that shares a loadable with a failed plan likely fails, too
            candidate = pair[0]
            builds = not suspects & _loadables(candidate.plan)
            return builds, candidate.gain(limit), -candidate.expected

        return max(promising, key=promise)

    def _attempt_candidate(self, candidate: Candidate, network: str) -> None:
        unit = UNITS[self.request.objective]
        mean, low = (
            readable_value(in_objective_unit(cost, self.request.objective), unit)
            for cost in (candidate.expected, candidate.low)
        )
        why = f"expected {mean}" + (f", at best {low}" if candidate.low > 0 else "")
        expected = candidate.expected, candidate.deviation
        self._attempt(candidate.plan, network, "search", why, expected)

    def _attempt(
        self,
        plan: Plan,
        network: str,
        origin: str,
        why: str,
        expected: tuple[float, float] | None = None,
        *,
        must: bool = False,
    ) -> None:
        number = 1 + max((trial.number for trial in self.trials), default=0)
        trial = Trial(number, plan, plan_signature(plan), origin, why, expected, network)
        self._record(
            TrialBegun(
                event="trial",
                number=number,
                plan=plan,
                key=trial.key,
                origin=origin,
                why=why,
                expected=list(expected) if expected else None,
                form=network,
            )
        )
        self._announce(trial.name, why)
        before = self._clock()
        try:
            self._measure(trial)
        except EdgekitError as error:
            if must or error.code in _FATAL:
                raise
            trial.dropped = f"{error.message} ({error.code})"
            self._record(PlanDropped(event="dropped", number=number, why=trial.dropped))
            self._announce(f"{trial.name} is dropped: {trial.dropped}", "")
        self._longest_s = max(self._longest_s, self._clock() - before)
        self.trials.append(trial)

    def _measure(self, trial: Trial, turn: int | None = None) -> None:
        """Measures a plan again, as its part of a turn if ``turn`` is given."""
        document = self.networks[trial.network].measure(trial.plan)
        # raises if the objective was not measured: the journal has only runs with a cost
        frame_cost(document, self.request.objective, trial.plan)
        measured = PlanMeasured(
            event="run",
            number=trial.number,
            key=trial.key,
            run=compact_measurement(document),
            at=time.time(),
            turn=turn,
        )
        trial.runs.append(measured)
        self._check_bounds(trial)
        self._record(measured)

    def _check_bounds(self, trial: Trial) -> None:
        # bounds are for the board, not for times of a CPU
        if trial.runs and self.start_network.clock == "board-measured":
            bounds = self.start_network.query.options.bounds
            trial.breaks = broken_bounds(trial.runs[-1].run, bounds, trial.plan)

    # The turns of the first and the best plan. A measured turn is permanent, also in a command that
    # continues the tuning, so a proof is never lost.

    def _decide(self) -> None:
        """Measures the missing turns and sets ``duel``."""
        first, best = self.first, self.best
        if best is not first:
            if first.breaks and not best.breaks:
                self.notes.append(f"the starting plan exceeds a bound: {first.breaks[0]}")
            self._measure_turns(best)
        if self._adopt_proven_plan():
            return
        # a plan within the bounds needs no proof against a starting plan that exceeds them
        wins = bool(first.breaks and not best.breaks)
        # the newest turn's plan: its turns may have made the first plan the best
        tried = [trial for trial in self.trials if self._paired_costs(trial)]
        newest = max(
            tried, key=lambda trial: max(trial.turns(self.request.objective)), default=best
        )
        other = best if wins or self._paired_costs(best) else newest
        found = self._compare_in_turns(other)
        self.duel = found.model_copy(update={"winner": (best if wins else first).number})
        if not wins and other is not first:
            turns = found.turns
            self.notes.append(
                f"{other.name} looked better than the starting plan, but "
                + (
                    f"{turns} turns are too few for a proof"
                    if turns < LEAST_TURNS
                    else "was not better when measured in turns"
                )
                + "; the starting plan stays"
            )

    def _measure_turns(self, best: Trial) -> None:
        """Measures the missing turns as far as the budget allows."""
        first, request = self.first, self.request
        took = 2 * self.again_s
        for turn in range(len(self._paired_costs(best)), request.turns):
            before = self.seconds
            if request.budget_s is not None and request.budget_s - before < took:
                self.notes.append(f"the budget ended after {turn} of {request.turns} turns")
                return
            self._announce(f"turn {turn + 1} of {request.turns}: {first.name} and {best.name}", "")
            # one numbering for all challengers: the first plan's cost of a turn is found by the
            # number
            number = 1 + max(run.turn or 0 for t in self.trials for run in t.runs)
            try:
                # the order alternates, so that a board that heats up favours neither plan
                for trial in (first, best) if turn % 2 == 0 else (best, first):
                    self._measure(trial, number)
            except EnvironmentLack:
                raise
            except EdgekitError as error:
                self.notes.append(f"the turns ended early: {error.message}")
                return
            took = max(took, self.seconds - before)

    def _paired_costs(self, trial: Trial) -> list[tuple[float, float]]:
        """Returns the costs of a plan and of the first plan in all their turns."""
        if trial is self.first:
            return []
        theirs = self.first.turns(self.request.objective)
        ours = trial.turns(self.request.objective)
        return [(cost, theirs[turn]) for turn, cost in ours.items() if turn in theirs]

    def _compare_in_turns(self, trial: Trial) -> Duel:
        """Returns a plan's comparison with the first plan over all their turns."""
        pairs = self._paired_costs(trial)
        ours, theirs = [own for own, _ in pairs], [other for _, other in pairs]
        found = relative_gain(ours, theirs, seed=self.request.seed)
        return found.model_copy(update={"challenger": trial.number})

    def _adopt_proven_plan(self) -> bool:
        """Sets ``duel`` to the plan proven best in turns; returns False if there is none."""
        found = [self._compare_in_turns(t) for t in self.trials if t is not self.first and t.counts]
        proven = [duel for duel in found if duel.better]
        if proven:
            best = max(proven, key=lambda duel: duel.fraction)
            self.duel = best.model_copy(update={"winner": best.challenger})
        return bool(proven)


def _loadables(plan: Plan) -> set[tuple[str, ...]]:
    return {loadable.layers for loadable in plan.loadables}


def nothing_known(where: str = "") -> UsageError:
    """Returns the error of a budget of 0 without an earlier tuning."""
    return UsageError(
        "a budget of 0 allows no measurements, and there are no earlier measurements",
        code="tune.nothing-known",
        where=where,
        hint="tune with a budget first, or give the folder of an earlier tuning with --out",
    )
