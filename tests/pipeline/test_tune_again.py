"""A tuning that was cut off is carried on, within what it may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.config import open_config
from edgekit.config._schema_bench import BenchSection
from edgekit.errors import UsageError
from edgekit.network import Network
from edgekit.pipeline import tune
from edgekit.pipeline._tune import Tuning
from edgekit.pipeline._tune_begin import too_short
from edgekit.pipeline._tune_journal import Journal
from edgekit.pipeline._tune_turns import decide
from edgekit.pipeline._tune_wish import Wish
from edgekit.placement._trial_pieces import signature
from tests.pipeline.nets import small_config
from tests.pipeline.test_tune import DLA, GPU, asked, least, net, tuned
from tests.pipeline.tune_world import World, every_plan, world_of

__all__ = ["net"]


class Interrupted(World):
    """Somebody presses Ctrl-C at the third measurement."""

    def measure(self, plan: Any) -> dict[str, Any]:
        if len(self.measured) == 2:
            raise KeyboardInterrupt
        return super().measure(plan)


def test_what_was_measured_is_not_measured_again(net: Network, tmp_path: Path) -> None:
    ask = asked(net)
    kinds = {layer.name: layer.kind for layer in net.layers}
    file = tmp_path / "journal.jsonl"
    first = Interrupted({"GPU": GPU, "DLA": DLA}, kinds)
    cut = tuned(ask, first, journal=Journal(file, "same"))
    assert cut.status == "interrupted"
    assert len(cut.trials) == 2
    assert cut.winner is cut.best
    with file.open("a") as half:
        half.write('{"event":"run","num')  # a power cut
    world = world_of(ask, GPU, DLA)
    whole = tuned(ask, world, journal=Journal(file, "same"))
    assert [t.key for t in whole.trials[:2]] == [t.key for t in cut.trials]
    assert world.measured[0] not in {t.key for t in cut.trials}
    assert world.cost(whole.winner.plan, "latency") <= 1.02 * least(ask, world)
    assert not Journal(file, "another").entries
    assert file.with_name("journal.jsonl.old").exists()


def test_turns_that_proved_nothing_are_told_again(net: Network, tmp_path: Path) -> None:
    """They make the start the best one: a budget of 0 then told of no turns at all."""
    ask = asked(net)
    file = tmp_path / "journal.jsonl"
    # equal on both devices, and very noisy: whatever looks better is luck
    world = world_of(ask, {"*": 20.0}, {"*": 20.0}, switch_us=0.0, noise=0.2)
    whole = tuned(ask, world, wish={"rounds": 4}, journal=Journal(file, "same"))
    assert whole.duel is not None
    assert (whole.duel["turns"], whole.winner) == (5, whole.first)
    written = file.read_bytes()
    for wish in ({"budget_s": 0.0}, {"rounds": 2}):
        again = tuned(ask, world, wish=wish, journal=Journal(file, "same"))
        assert (again.duel, again.status, again.why) == (whole.duel, whole.status, whole.why)
        assert again.notes[1:] == whole.notes
        assert "was not so in turns" in again.notes[-1]
    # without how it ended, which older journals lack, the turns count all the same
    journal = Journal(file, "same")
    journal.entries = [one for one in journal.entries if one["event"] != "end"]
    assert tuned(ask, world, wish={"budget_s": 0.0}, journal=journal).duel == whole.duel
    assert file.read_bytes().startswith(written)


def test_a_budget_of_0_needs_something_known(net: Network, tmp_path: Path) -> None:
    ask = asked(net)
    world = world_of(ask, GPU, DLA)
    with pytest.raises(UsageError) as refused:
        tuned(ask, world, wish={"budget_s": 0.0})
    assert refused.value.code == "tune.nothing-known"
    assert not world.measured
    config = open_config(small_config(tmp_path, precision="fp16", objective="latency"))
    with pytest.raises(UsageError, match="nothing is known yet"):  # before a board is asked
        tune(config, Wish("", budget_s=0.0), out=tmp_path / "tune")
    assert not (tmp_path / "tune").exists()


class Killed(World):
    """The process is killed at the third measurement: no word of it gets out."""

    def measure(self, plan: Any) -> dict[str, Any]:
        if len(self.measured) == 2:
            raise SystemExit
        return super().measure(plan)


def test_what_was_begun_and_killed_has_no_other_plans_times(net: Network, tmp_path: Path) -> None:
    ask = asked(net)
    kinds = {layer.name: layer.kind for layer in net.layers}
    file = tmp_path / "journal.jsonl"
    with pytest.raises(SystemExit):
        tuned(ask, Killed({"GPU": GPU, "DLA": DLA}, kinds), journal=Journal(file, "same"))
    begun = Journal(file, "same").entries[-1]
    assert (begun["event"], begun["number"]) == ("trial", 3)
    # the next process tries another plan as its third
    other = next(plan for plan in every_plan(ask) if signature(plan) != begun["key"])
    journal = Journal(file, "same")
    journal.add({**begun, "plan": other.to_json(), "key": signature(other)})
    journal.add(
        {"event": "run", "number": 3, "at": 1.0, "run": world_of(ask, GPU, DLA).measure(other)}
    )
    tuning = Tuning(ask, ask.plan(), world_of(ask, GPU, DLA), Wish(rounds=3, turns=0),
                    Journal(file, "same"))  # fmt: skip
    tuning.run()
    assert [trial.number for trial in tuning.trials] == [1, 2, 3]
    assert tuning.trials[2].key == signature(other) == signature(tuning.trials[2].plan)


def test_building_the_starting_plan_counts_in_the_budget(net: Network) -> None:
    ask = asked(net)
    spent = tuned(ask, world_of(ask, GPU, DLA), wish={"budget_s": 100.0}, before_s=60.0,
                  clock=lambda: 0.0)  # fmt: skip
    assert spent.status == "budget"
    assert spent.seconds == 60.0
    # a turn takes 5 s a plan: ten of them and another plan's 1 s leave room for no more
    slow = world_of(ask, GPU, DLA, again_s=5.0)
    kept = tuned(ask, slow, wish={"budget_s": 52.0}, before_s=1.5, clock=lambda: 0.0)
    assert (kept.status, len(kept.trials)) == ("budget", 1)
    assert any("can prove nothing: 2 s are spent" in note for note in kept.notes)
    roomy = tuned(ask, slow, wish={"budget_s": 90.0}, before_s=1.5, clock=lambda: 0.0)
    assert not any("can prove nothing" in note for note in roomy.notes)
    bench = BenchSection(duration_s=3, warmup_ms=200)
    assert "measure for 32 s" in too_short(Wish("latency", 31.0), bench)
    assert not too_short(Wish("latency", 33.0), bench)


def test_what_was_proven_is_not_lost(net: Network, tmp_path: Path) -> None:
    """A budget of 0 measured one turn more, which proved nothing, and the start stayed."""
    ask = asked(net)
    file = tmp_path / "journal.jsonl"
    whole = tuned(ask, world_of(ask, GPU, DLA), journal=Journal(file, "same"))
    assert whole.duel is not None
    assert whole.duel["better"]
    world = world_of(ask, DLA, GPU)
    again = tuned(ask, world, journal=Journal(file, "same"), wish={"budget_s": 0.0})
    assert not world.measured
    assert (again.duel, again.winner.key) == (whole.duel, whole.winner.key)
    # it is told as it ended before
    assert (again.status, again.why, again.bound) == (whole.status, whole.why, whole.bound)
    # and a plan that only looks better since does not take its place
    lucky = next(
        one for one in again.trials if one.number != again.winner.number and one.number > 1
    )
    lucky.runs = [{"samples_ms": [0.001]}]
    assert again.best is lucky
    decide(again)
    assert again.winner.key == whole.winner.key
    # turns that a Ctrl-C ended count, too
    cut = Journal(tmp_path / "cut.jsonl", "same")
    half = tuned(ask, world_of(ask, GPU, DLA), journal=cut, wish={"turns": 2})
    assert half.winner is half.first
    rest = world_of(ask, GPU, DLA)
    more = tuned(ask, rest, journal=Journal(cut.path, "same"))
    assert more.winner is not more.first
    assert len(rest.measured) == 6
