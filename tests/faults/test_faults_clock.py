"""The board's clock jumps by years between steps and between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.board_check import leftovers
from tests.faults.conftest import Pair
from tests.faults.fault_report import Faults
from tests.faults.forked_board import APP, Zygote, collected, copy_of, deployment

_YEARS = 10 * 365 * 86400.0


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "shifts",
    [(0, -_YEARS), (0, _YEARS), (_YEARS, -_YEARS), (-_YEARS, _YEARS)],
    ids=["back", "forth", "forth and back", "back and forth"],
)
def test_between_steps(
    shifts: tuple[float, float], pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    root = copy_of(pair.board, tmp_path / "board")
    send, deploy = deployment(root, pair.new)
    faults.injected("clock jumps")
    requested = {"root": str(root), "app": APP}
    for step, shift in ((send, shifts[0]), (deploy, shifts[1]), (collected(root), 0.0)):
        wanted = {**requested, "allowed": [pair.old.digest, pair.new.digest]}
        done = zygote.run([step], clock_s=shift, check=wanted)
        assert done.error == "", done.answers
        assert done.check is not None
        assert done.check["problems"] == [], done.check
    # and once more, by the time of the other side
    for shift in shifts:
        wanted = {**requested, "allowed": [pair.new.digest]}
        done = zygote.run(
            [*deployment(root, pair.new), collected(root)], clock_s=shift, check=wanted
        )
        assert done.error == "", done.answers
        assert done.check is not None
        assert done.check["problems"] == [], done.check
    assert leftovers(root) == []
    faults.survived("clock jumps")


@pytest.mark.parametrize("shift", [-_YEARS, _YEARS], ids=["back", "forth"])
def test_after_a_kill(
    shift: float, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    """A board without a battery wakes up in another year, in the midst of a deployment."""
    from tests.faults.forked_board import new_log

    root = copy_of(pair.board, tmp_path / "board")
    log = new_log(tmp_path / "log")
    faults.injected("clock jumps")
    watch = {"root": str(root), "log": str(log), "kill_at": 70}
    killed = zygote.run(deployment(root, pair.new), watch=watch)
    assert killed.status != 0
    wanted = {"root": str(root), "app": APP, "allowed": [pair.new.digest]}
    steps = [*deployment(root, pair.new, resume=True), collected(root)]
    done = zygote.run(steps, clock_s=shift, check=wanted)
    assert done.error == "", done.answers
    assert done.check is not None
    assert done.check["problems"] == [], done.check
    assert leftovers(root) == []
    faults.survived("clock jumps")
