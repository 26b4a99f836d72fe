"""The power goes, or the process does, before each durable operation of a deployment."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from edgekit.bundles.sign import sign
from tests.boards.bundles import hand_made
from tests.faults.board_walk import Disk, Walk
from tests.faults.conftest import Pair
from tests.faults.crash_states import DISKS, State
from tests.faults.fault_report import Faults
from tests.faults.forked_board import APP, Zygote

_EMPTY = hashlib.sha256(b"").hexdigest()
_SEEDS = 40


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


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("begin", ["update", "first", "large"])
def test_every_disk_that_a_cut_leaves(
    begin: str,
    kind: str,
    pair: Pair,
    zygote: Zygote,
    tmp_path: Path,
    faults: Faults,
    exhaustive: bool,
) -> None:
    walk = _walk(pair, zygote, tmp_path, begin)
    history = walk.record()
    disks = walk.disks(history, kind, _SEEDS if kind == "torn" else 1)
    chosen = disks if exhaustive else _some(disks)
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


def _some(disks: list[Disk]) -> list[Disk]:
    """Four spread over the deployment, and the last."""
    return [*(disks[len(disks) * index // 4] for index in range(4)), disks[-1]]


@pytest.mark.whole
@pytest.mark.parametrize("begin", ["first", "update"])
def test_a_process_really_killed(
    begin: str, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    walk = _walk(pair, zygote, tmp_path, begin)
    number = 0
    while walk.killed(number):
        faults.injected("SIGKILL")
        faults.survived("SIGKILL")
        number += 1
    assert number > 90


@pytest.mark.whole
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
        number += 1
    assert number > 30
    assert not failed, f"{len(failed)}:\n" + "\n".join(failed)


@pytest.mark.parametrize("begin", ["first", "update"])
def test_a_state_begins_when_what_went_before_is_safe(
    begin: str, pair: Pair, zygote: Zygote, tmp_path: Path
) -> None:
    """One undisturbed run shows each fsync that is missing or late, whichever disk would tell."""
    history = _walk(pair, zygote, tmp_path, begin).record()
    renamed, states = "", 0
    synced: dict[int, str | None] = {}
    for moment in history.moments():
        now = moment.disk("killed", history.pool)
        for path, (kind, inode, digest, _, _) in moment.tree.items():
            if renamed and kind == "file" and f"{path}/".startswith(f"{renamed}/"):
                assert synced.get(inode) == digest, f"{path} had its name before its bytes"
        # the journal's next state, or the answer: nothing before it may be lost
        if moment.operation == "end" or (
            moment.operation == "open" and "/.deployment.json." in moment.path
        ):
            states += 1
            safe = moment.disk("strict", history.pool)
            assert _counts(safe) == _counts(now), f"before {moment.operation} {moment.path}"
        links = {name: now.get(f"apps/{APP}/{name}") for name in ("current", "previous")}
        intended = moment.disk("strict", history.pool).get(f"apps/{APP}/links.json")
        if begin == "update":
            assert links["current"] is not None, f"nothing serves before {moment.operation}"
            same = links["previous"] is not None and links["previous"][1] == links["current"][1]
            assert intended is not None or not same, "one link is switched, and no intent is safe"
        final = not moment.path.startswith("tmp")
        renamed = moment.path if moment.operation in ("rename", "replace") and final else ""
        synced = {inode: moment.synced.get(thing) for inode, thing in moment.things.items()}
    assert states >= 6  # verifying, refitting, testing, switching, soaking, committed


def _counts(disk: State) -> dict[str, tuple[str, str | bytes]]:
    """What is in a board's folder, without unfinished work, the reserve and empty files (locks)."""
    return {
        path: what[:2]
        for path, what in disk.items()
        if what[0] != "folder"
        and what[1] not in (b"", _EMPTY)
        and not path.startswith("tmp/")
        and "/reserve." not in path
    }
