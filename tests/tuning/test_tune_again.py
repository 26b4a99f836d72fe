"""A tuning that was cut off is carried on, within what it may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.benchmark.document import Bench
from edgekit.config.loader import open_config
from edgekit.errors import UsageError
from edgekit.network.model import Network
from edgekit.tuning.candidates import plan_signature
from edgekit.tuning.journal import PlanMeasured, TrialBegun, TuningEnded, TuningJournal
from edgekit.tuning.run import tune
from edgekit.tuning.trials import TuningRequest
from tests.pipeline.nets import small_config
from tests.tuning.test_tune import DLA, GPU, least, net, query_for, tuned
from tests.tuning.tune_world import World, every_plan, world_of

__all__ = ["net"]


class Interrupted(World):
    """Somebody presses Ctrl-C at the third measurement."""

    def measure(self, plan: Any) -> Bench:
        if len(self.measured) == 2:
            raise KeyboardInterrupt
        return super().measure(plan)


@pytest.mark.whole
def test_what_was_measured_is_not_measured_again(net: Network, tmp_path: Path) -> None:
    query = query_for(net)
    file = tmp_path / "journal.jsonl"
    first = Interrupted(query, {"GPU": GPU, "DLA": DLA})
    cut = tuned(query, first, journal=TuningJournal(file, "same"))
    assert cut.status == "interrupted"
    assert len(cut.trials) == 2
    assert cut.winner is cut.best
    with file.open("a") as half:
        half.write('{"event":"run","num')  # a power cut
    world = world_of(query, GPU, DLA)
    whole = tuned(query, world, journal=TuningJournal(file, "same"))
    assert [t.key for t in whole.trials[:2]] == [t.key for t in cut.trials]
    assert world.measured[0] not in {t.key for t in cut.trials}
    assert world.cost(whole.winner.plan, "latency") <= 1.02 * least(query, world)
    assert not TuningJournal(file, "another").entries
    assert file.with_name("journal.jsonl.old").exists()


def test_turns_that_proved_nothing_are_reported_again(net: Network, tmp_path: Path) -> None:
    """They make the start the best one: a budget of 0 then told of no turns at all."""
    query = query_for(net)
    file = tmp_path / "journal.jsonl"
    # equal on both devices, and very noisy: whatever looks better is luck
    world = world_of(query, {"*": 20.0}, {"*": 20.0}, switch_us=0.0, noise=0.2)
    whole = tuned(query, world, request={"rounds": 4}, journal=TuningJournal(file, "same"))
    assert whole.duel is not None
    assert (whole.duel.turns, whole.winner) == (5, whole.first)
    written = file.read_bytes()
    for request in ({"budget_s": 0.0}, {"rounds": 2}):
        again = tuned(query, world, request=request, journal=TuningJournal(file, "same"))
        assert (again.duel, again.status, again.why) == (whole.duel, whole.status, whole.why)
        assert again.notes[1:] == whole.notes
        assert "was not better when measured in turns" in again.notes[-1]
    # without how it ended, which older journals lack, the turns count all the same
    journal = TuningJournal(file, "same")
    journal.entries = [one for one in journal.entries if not isinstance(one, TuningEnded)]
    assert tuned(query, world, request={"budget_s": 0.0}, journal=journal).duel == whole.duel
    assert file.read_bytes().startswith(written)


def test_a_budget_of_0_needs_something_known(net: Network, tmp_path: Path) -> None:
    query = query_for(net)
    world = world_of(query, GPU, DLA)
    with pytest.raises(UsageError) as refused:
        tuned(query, world, request={"budget_s": 0.0})
    assert refused.value.code == "tune.nothing-known"
    assert not world.measured
    config = open_config(small_config(tmp_path, precision="fp16", objective="latency"))
    with pytest.raises(UsageError, match="no earlier measurements"):  # before a board is asked
        tune(config, TuningRequest("", budget_s=0.0), out=tmp_path / "tune")
    assert not (tmp_path / "tune").exists()


class Killed(World):
    """The process is killed at the third measurement: no word of it gets out."""

    def measure(self, plan: Any) -> Bench:
        if len(self.measured) == 2:
            raise SystemExit
        return super().measure(plan)


def test_what_was_begun_and_killed_has_no_other_plans_times(net: Network, tmp_path: Path) -> None:
    query = query_for(net)
    file = tmp_path / "journal.jsonl"
    with pytest.raises(SystemExit):
        tuned(query, Killed(query, {"GPU": GPU, "DLA": DLA}), journal=TuningJournal(file, "same"))
    begun = TuningJournal(file, "same").entries[-1]
    assert isinstance(begun, TrialBegun)
    assert begun.number == 3
    # the next process tries another plan as its third
    other = next(plan for plan in every_plan(query) if plan_signature(plan) != begun.key)
    journal = TuningJournal(file, "same")
    journal.add(begun.model_copy(update={"plan": other, "key": plan_signature(other)}))
    run = world_of(query, GPU, DLA).measure(other)
    journal.add(PlanMeasured(event="run", number=3, at=1.0, run=run))
    tuning = tuned(
        query,
        world_of(query, GPU, DLA),
        request={"rounds": 3, "turns": 0},
        journal=TuningJournal(file, "same"),
    )
    assert [trial.number for trial in tuning.trials] == [1, 2, 3]
    assert tuning.trials[2].key == plan_signature(other) == plan_signature(tuning.trials[2].plan)


@pytest.mark.whole
def test_building_the_starting_plan_counts_in_the_budget(net: Network) -> None:
    query = query_for(net)
    spent = tuned(
        query,
        world_of(query, GPU, DLA),
        request={"budget_s": 100.0},
        before_s=60.0,
        clock=lambda: 0.0,
    )
    assert spent.status == "budget"
    assert spent.seconds == 60.0
    # a turn takes 5 s a plan: ten of them and another plan's 1 s leave room for no more
    slow = world_of(query, GPU, DLA, again_s=5.0)
    retained = tuned(query, slow, request={"budget_s": 52.0}, before_s=1.5, clock=lambda: 0.0)
    assert (retained.status, len(retained.trials)) == ("budget", 1)
    assert any("too short to prove anything: 2 s are used" in note for note in retained.notes)
    roomy = tuned(query, slow, request={"budget_s": 90.0}, before_s=1.5, clock=lambda: 0.0)
    assert not any("can prove nothing" in note for note in roomy.notes)


@pytest.mark.whole
def test_what_was_proven_is_not_lost(net: Network, tmp_path: Path) -> None:
    """A budget of 0 measured one turn more, which proved nothing, and the start stayed."""
    query = query_for(net)
    file = tmp_path / "journal.jsonl"
    whole = tuned(query, world_of(query, GPU, DLA), journal=TuningJournal(file, "same"))
    assert whole.duel is not None
    assert whole.duel.better
    world = world_of(query, DLA, GPU)
    again = tuned(query, world, journal=TuningJournal(file, "same"), request={"budget_s": 0.0})
    assert not world.measured
    assert (again.duel, again.winner.key) == (whole.duel, whole.winner.key)
    # it is told as it ended before
    assert (again.status, again.why, again.bound) == (whole.status, whole.why, whole.bound)
    # and a plan that only looks better since does not take its place
    lucky = next(
        one for one in again.trials if one.number != again.winner.number and one.number > 1
    )
    journal = TuningJournal(file, "same")
    run = Bench(samples_ms=[0.001], clock="board-measured")
    for _ in range(2):
        journal.add(PlanMeasured(event="run", number=lucky.number, key=lucky.key, run=run, at=1.0))
    luck = tuned(query, world, journal=TuningJournal(file, "same"), request={"budget_s": 0.0})
    assert luck.best.key == lucky.key
    assert luck.winner.key == whole.winner.key
    # turns that a Ctrl-C ended count, too
    cut = TuningJournal(tmp_path / "cut.jsonl", "same")
    half = tuned(query, world_of(query, GPU, DLA), journal=cut, request={"turns": 2})
    assert half.winner is half.first
    rest = world_of(query, GPU, DLA)
    more = tuned(query, rest, journal=TuningJournal(cut.path, "same"))
    assert more.winner is not more.first
    assert len(rest.measured) == 6
