"""Power mode and clocks are taken back, whatever dies: real processes, fake programs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from edgekit_device.board.power import (
    LOCK,
    held_power,
    hold,
    read_journal,
    restore_interrupted,
    undo,
)
from edgekit_device.board.power_tools import PowerTools, find_mode, power_gates
from edgekit_device.errors import DeviceError
from edgekit_device.files import locked
from tests.edgekit_device.power_tools import FakeBoard


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    made = FakeBoard(tmp_path)
    monkeypatch.setenv("PATH", made.environment["PATH"])
    return made


def guard_of(process) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def end(process) -> dict:
    out, _ = process.communicate(timeout=300)
    return json.loads(out.splitlines()[-1])


def let_guard_end(board: FakeBoard) -> None:
    with locked(board.root / LOCK):
        pass


def test_both_are_set_and_taken_back(board: FakeBoard) -> None:
    process = board.measure("maxn", True)
    assert process.stdout.readline() == "held\n"
    assert board.state() == ("0", "held")
    journal = read_journal(board.root)
    assert (journal.before.id, journal.wanted.id, journal.state) == (2, 0, "set")
    other = end(board.measure(None, True))  # while the first one measures
    assert other["error"]["code"] == "power.busy"
    assert board.state() == ("0", "held")
    reported = end(process)
    assert board.state() == ("2", "free")
    assert board.clean()
    assert (reported["locked"], reported["restored"], reported["notes"]) == (True, True, [])
    names = [reported["mode"][when]["name"] for when in ("before", "during", "after")]
    assert names == ["MODE_30W", "MAXN", "MODE_30W"]
    gpu = [reported["clocks"][when]["gpu"]["min"] for when in ("before", "during", "after")]
    assert gpu == [306000000, 1300500000, 306000000]


@pytest.mark.parametrize(
    ("stop", "whom"),
    [
        ("jetson_clocks --store STORED", "bench"),
        ("jetson_clocks --store STORED", "guard"),
        ("nvpmodel -m 0", "bench"),
        ("nvpmodel -m 0", "guard"),
        ("jetson_clocks ", "guard"),
        ("jetson_clocks --restore STORED", "both"),
        ("", "bench"),
        ("", "both"),
    ],
)
def test_a_kill_at_any_step_changes_nothing_for_good(
    board: FakeBoard, stop: str, whom: str
) -> None:
    if stop:
        board.stop_at(stop.replace("STORED", str(board.stored)))
    process = board.measure("0", True)
    guard = 0
    if not stop or "--restore" in stop:
        assert process.stdout.readline() == "held\n"
        guard = guard_of(process)
        assert board.state() == ("0", "held")
    if "--restore" in stop:
        process.stdin.close()
        process.stdin = None
    if stop:
        board.reached()
        guard = guard_of(process)
    if whom in ("guard", "both"):
        os.kill(guard, signal.SIGKILL)
    if whom in ("bench", "both"):
        process.kill()
    if stop:
        board.go_on()  # what the guard started goes on without it
    if whom == "guard":
        assert end(process)["error"]["code"] == "power.failed"
    process.communicate()
    let_guard_end(board)
    said = restore_interrupted(board.root, system=board.system, clocks_file=str(board.stored))
    assert board.state() == ("2", "free")
    assert board.clean()
    assert (said is None) == (whom == "bench")  # else the guard did it
    assert (
        restore_interrupted(board.root, system=board.system, clocks_file=str(board.stored)) is None
    )


def test_clocks_that_were_held_before_are_held_again(board: FakeBoard) -> None:
    (board.folder / "clocks").write_text("held\n")
    with held_power(board.root, "MODE_30W", True, **places(board)) as power:
        pass
    assert board.state() == ("2", "held")
    assert not any(call.startswith("nvpmodel -m") for call in board.calls())
    (board.folder / "calls").unlink()
    with held_power(board.root, "MAXN", False, **places(board)) as power:
        assert board.state() == ("0", "free")
    assert power.report.mode.during.name == "MAXN"
    assert board.state() == ("2", "held")


def test_a_mode_that_takes_a_restart_is_refused(board: FakeBoard) -> None:
    with (
        pytest.raises(DeviceError, match="needs a restart") as caught,
        held_power(board.root, "15w", False, **places(board)),
    ):
        pytest.fail("measured")
    assert caught.value.code == "power.restart"
    assert board.calls() == []
    (board.folder / "wants-restart").touch()  # what the file does not tell, nvpmodel does
    with (
        pytest.raises(DeviceError) as caught,
        held_power(board.root, "MAXN", False, **places(board)),
    ):
        pytest.fail("measured")
    assert caught.value.code == "power.restart"
    assert "sudo nvpmodel -m 0" in caught.value.hint
    assert board.state() == ("2", "free")
    assert board.clean()


def test_a_mode_that_somebody_chose_meanwhile_stays(board: FakeBoard) -> None:
    process = board.measure("MAXN", False)
    process.stdout.readline()
    (board.folder / "mode").write_text("1\n")
    reported = end(process)
    assert board.state()[0] == "1"
    assert "changed to MODE_15W" in reported["notes"][0]
    assert board.clean()


def test_after_a_start_of_the_board_only_the_mode_is_taken_back(board: FakeBoard) -> None:
    process = board.measure("MAXN", True)
    process.stdout.readline()
    os.kill(guard_of(process), signal.SIGKILL)
    process.kill()
    process.communicate()
    let_guard_end(board)
    board.stored.unlink()  # /run is empty then
    (board.folder / "clocks").write_text("free\n")
    said = restore_interrupted(board.root, system=board.system, clocks_file=str(board.stored))
    assert "restoring power mode" in said
    assert board.state() == ("2", "free")
    assert not any("--restore" in call for call in board.calls())


def test_another_account_goes_through_sudo(
    board: FakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tools = PowerTools(str(board.stored))
    assert hold(board.root, tools, "MAXN", True, board.system).during.mode.id == 0
    assert undo(board.root, tools, board.system) == []
    requested = [call for call in board.calls() if call.startswith("sudo")]
    bin_ = board.folder / "bin"
    assert requested[:3] == [
        f"sudo -n {bin_}/jetson_clocks --store {board.stored}",
        f"sudo -n {bin_}/nvpmodel -m 0",
        f"sudo -n {bin_}/jetson_clocks",
    ]
    assert requested[-1].endswith(f"rm -f {board.stored}")
    assert board.state() == ("2", "free")
    (board.folder / "password").touch()
    with pytest.raises(DeviceError) as caught:
        hold(board.root, tools, "MAXN", True, board.system)
    assert caught.value.code == "power.not-allowed"
    assert "doctor --setup" in caught.value.hint
    assert undo(board.root, tools, board.system) == []  # nothing was changed: no root needed
    assert board.clean()


def test_modes_are_found_by_name_and_id(board: FakeBoard, tmp_path: Path) -> None:
    assert {find_mode(name, board.system).id for name in ("30W", "mode_30w", "2")} == {2}
    assert (
        power_gates(1, board.system)
        != power_gates(0, board.system)
        == power_gates(2, board.system)
        is not None
    )
    assert power_gates(7, board.system) is None
    with pytest.raises(DeviceError, match="power mode 'MAX' does not exist") as caught:
        find_mode("MAX", board.system)
    assert "MAXN (0), MODE_30W (2), MODE_15W (1)" in caught.value.hint
    with pytest.raises(DeviceError, match="has no power modes"):
        find_mode("MAXN", tmp_path / "elsewhere")


def test_without_options_it_only_looks(board: FakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_power(board.root, **places(board)) as power:
        pass
    assert board.calls() == []
    reported = power.report
    assert (reported.changed, reported.locked, reported.mode.after.id) == (
        False,
        False,
        2,
    )
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with held_power(board.root, **places(board)) as power:
        pass
    assert power.report is None  # no Jetson


def places(board: FakeBoard) -> dict:
    return {"system": board.system, "clocks_file": str(board.stored), "wait_s": 0}
