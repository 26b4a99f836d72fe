"""The power goes, or the process does, before each durable operation of a deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle import sign
from tests.boards.bundles import hand_made
from tests.faults.board_walk import EXHAUSTIVE, Walk
from tests.faults.conftest import Pair
from tests.faults.crash_states import DISKS
from tests.faults.fault_report import Faults
from tests.faults.forked_board import Zygote

_SEEDS = 40 if EXHAUSTIVE else 3
_STRIDE = 1 if EXHAUSTIVE else 45
# of the different disks, spread over the deployment
_MOST = 1 << 30 if EXHAUSTIVE else 4
# a large blob's bytes take their time, and what is special about it are its parts
_MOST_LARGE = 1 << 30 if EXHAUSTIVE else 1


def _walk(pair: Pair, zygote: Zygote, scratch: Path, begin: str) -> Walk:
    start, new = pair.board, pair.new
    if begin == "first":
        start = scratch / "empty"
        start.mkdir(mode=0o700)
        (start / "allowed_signers").write_text(pair.line + "\n")
    elif begin == "large":
        new = hand_made(seed=3, columns=20_000)
        new = new.signed(sign(new.manifest_bytes, pair.key))  # type: ignore[assignment]
    old = None if begin == "first" else pair.old.digest
    return Walk(zygote, start, old, new, scratch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("begin", ["first", "update", "large"])
def test_every_disk_that_a_cut_leaves(
    begin: str, kind: str, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    walk = _walk(pair, zygote, tmp_path, begin)
    history = walk.record()
    disks = walk.disks(history, kind, _SEEDS if kind == "torn" else 1)
    step = max(1.0, len(disks) / (_MOST_LARGE if begin == "large" else _MOST))
    chosen = [disks[int(index * step)] for index in range(int(len(disks) / step))] + disks[-1:]
    name = "SIGKILL" if kind == "killed" else f"power cut, {kind} disk"
    failed = []
    for index, state in enumerate(chosen):
        faults.injected(name, state.moments)
        try:
            walk.survive(state, history.pool, boots=index % 2 == 0)
            faults.survived(name, state.moments)
        except AssertionError as error:
            failed.append(str(error))
    assert not failed, f"{len(failed)} of {len(chosen)}:\n" + "\n".join(failed)


@pytest.mark.parametrize("begin", ["first", "update"])
def test_a_process_really_killed(
    begin: str, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    walk = _walk(pair, zygote, tmp_path, begin)
    number = 0
    while walk.killed(number):
        faults.injected("SIGKILL")
        faults.survived("SIGKILL")
        number += _STRIDE
    assert number > 2 * _STRIDE


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["first", "update"])
def test_power_cut_after_a_kill_and_another_try(
    begin: str, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    """What a killed process has not synced, the next one must, or its word is worth nothing."""
    walk = _walk(pair, zygote, tmp_path, begin)
    number, failed = 3, []
    while (disk := walk.killed_then_cut(number)) is not None:
        faults.injected("SIGKILL, then a power cut")
        try:
            walk.survive(disk, walk.scratch / "kill" / "pool", boots=False)
            faults.survived("SIGKILL, then a power cut")
        except AssertionError as error:
            failed.append(f"killed before {number}: {error}")
        number += 1 if EXHAUSTIVE else 67
    assert number > 30
    assert not failed, f"{len(failed)}:\n" + "\n".join(failed)
