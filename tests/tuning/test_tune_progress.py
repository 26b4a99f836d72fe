"""A tuning is never silent for long, and names what it is at."""

from __future__ import annotations

from edgekit import timeouts
from edgekit.tuning.run import TuningProgress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_long_steps_are_reported() -> None:
    said: list[str] = []
    clock = Clock()
    pulse = TuningProgress(said.append, clock=clock)
    pulse.announce("plan 3", "expected 9, at best 7")
    pulse.begin(5, 12, "build")
    pulse.note("of no interest")
    clock.now += timeouts.TUNE_SILENT_S - 1
    pulse.beat()
    assert said == ["plan 3: expected 9, at best 7"]
    pulse.update(1, 4, "segment 1")
    clock.now += 2
    pulse.beat()
    pulse.beat()
    assert said[1:] == ["plan 3: build segment 1 25 %, 5 s"]
    pulse.end("build", "done", 5, "")
    clock.now += timeouts.TUNE_SILENT_S
    pulse.beat()
    assert said[2:] == ["plan 3, 9 s"]


def test_its_thread_ends_with_it() -> None:
    said: list[str] = []
    pulse = TuningProgress(said.append)
    with pulse:
        pulse.announce("begun")
        assert pulse._thread.is_alive()
    assert not pulse._thread.is_alive()
    assert said == ["begun"]
