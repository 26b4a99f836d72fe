"""Steps are timed, counted and told; a failing one is recorded."""

import io
import itertools

import pytest
from rich.console import Console

from edgekit.pipeline._progress import Quiet, Terminal
from edgekit.pipeline._steps import STEPS, Steps


def clock():
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_statuses_and_seconds():
    steps = Steps(STEPS, Quiet(), clock())
    with steps.step("check"):
        pass
    with steps.step("plan") as step:
        step.reuse("same as before")
    with pytest.raises(KeyboardInterrupt), steps.step("build"):
        raise KeyboardInterrupt
    assert steps.done == [
        {"name": "check", "status": "done", "seconds": 1.0, "detail": ""},
        {"name": "plan", "status": "reused", "seconds": 1.0, "detail": "same as before"},
        {"name": "build", "status": "failed", "seconds": 1.0, "detail": "interrupted"},
    ]


def test_lines_without_a_terminal():
    out = io.StringIO()
    steps = Steps(["check", "plan"], Terminal(Console(file=out, width=80)), clock())
    with steps.step("check") as step:
        steps.progress.update(1, 2, "half")
        step.detail = "174 layers [all]"
    with steps.step("plan") as step:
        step.reuse()
    first, second = out.getvalue().splitlines()
    assert first.startswith("[ 1/2] check")
    assert "1.0 s" in first
    assert "174 layers [all]" in first
    assert second.startswith("[ 2/2] plan")
    assert "reused" in second
    assert "\x1b" not in out.getvalue()
