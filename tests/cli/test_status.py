"""``edgekit status``, ``releases``, ``rollback`` and ``remove``: tables, documents, boards away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli.main import app
from edgekit.errors import BoardError, EnvironmentLack, UsageError
from tests.boards.fixtures import StartBoard, boards, home
from tests.cli.board_fakes import FakeBoard, config_of, lend

__all__ = ["boards", "home"]

NEW, OLD, RETAINED = "000002-bbbbbbbbbbbb", "000001-aaaaaaaaaaaa", "000000-cccccccccccc"
WHEN = "2026-01-02T03:04:05Z"


class Serving(FakeBoard):
    """A board with one app; ``state`` is its deployment's, ``alive`` whether somebody works."""

    def __init__(self, name: str, state: str = "committed", *, down: bool = False) -> None:
        super().__init__(name, down=down)
        self.state, self.alive = state, False
        self.error: dict[str, str] | None = None
        self.history: list[dict[str, Any]] = []
        self.serving: dict[str, Any] | None = None
        self.revoked: list[str] = []
        self.back: dict[str, str] | None = None

    def status(self, app: str | None = None) -> dict[str, Any]:
        deployment = {
            "state": self.state,
            "state_at": "2026-01-02T03:04:05Z",
            "alive": self.alive,
            "operator": "ann@desk",
            "job": "0123456789abcdef",
            "error": self.error,
        }
        facts = {"current": NEW, "previous": OLD, "deployment": deployment, "releases": [],
                 "history": self.history, "serving": self.serving, "changed": None,
                 "error": None}  # fmt: skip
        return {"schema": "edgekit.board-status/1", "board": {"python": "3.8.10"},
                "apps": {"net": facts}, "store": {"blobs": 1, "bytes": 2, "partial_bytes": 0},
                "free_bytes": 1000}  # fmt: skip

    def resume(self, app: str | None = None) -> list[dict[str, Any]]:
        self.requested.append(("resume", app))
        self.alive = True
        return [{"app": "net", "job": "0123456789abcdef", "state": self.state}]

    def releases(self, app: str | None = None) -> dict[str, Any]:
        rows = [{"id": id, "digest": id[-12:] * 5, "signer": "me", "staged_at": "then",
                 "ready": True} for id in (OLD, NEW)]  # fmt: skip
        rows.append(dict(rows[0], id=RETAINED, taken_back=self.back))
        return {"apps": {"net": {"current": NEW, "previous": OLD, "releases": rows}}}

    def trust(self) -> dict[str, Any]:
        why = {"code": "bundle.revoked-signer", "message": "it is revoked"}
        return {
            "refused": [
                {"app": app, "release": RETAINED, "role": "kept", **why} for app in self.revoked
            ]
        }

    def rollback(self, app: str, reason: str | None = None) -> dict[str, Any]:
        self.requested.append(("rollback", app, reason))
        return {"app": app, "current": OLD, "previous": NEW, "from": NEW, "taken_back": None}

    def remove(self, app: str, release: str | None = None) -> dict[str, Any]:
        if release == NEW:
            raise BoardError("the release is in use", code="release.in-use", where=self.name)
        return {"removed": [OLD]}


def test_status_as_a_table_and_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("lab"))
    assert app(["status", "lab"]) == 0
    text = capsys.readouterr().out
    for word in ("lab", "net", NEW, OLD, "committed"):
        assert word in text
    assert app(["status", "lab", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.status/1"
    (board,) = document["boards"]
    assert (board["board"], board["reachable"], board["error"]) == ("lab", True, None)
    assert board["apps"]["net"]["current"] == NEW
    assert board["free_bytes"] == 1000


def test_a_board_that_is_away_is_a_row_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("one"), Serving("two", down=True))
    config = config_of(tmp_path, "one", "two")
    for command in ("status", "releases"):
        with pytest.raises(EnvironmentLack) as caught:
            app([command, config])
        assert caught.value.exit_code == 3
        text = capsys.readouterr().out
        assert NEW in text
        assert "not reached" in text
        with pytest.raises(EnvironmentLack) as caught:
            app([command, config, "--json"])
        assert caught.value.printed
        one, two = json.loads(capsys.readouterr().out)["boards"]
        assert (one["reachable"], two["reachable"]) == (True, False)
        assert two["error"]["code"] == "board.unreachable"


def test_status_carries_on_what_was_cut_off_and_reports_how_to_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab", "soaking")
    lend(monkeypatch, board)
    assert app(["status", "lab", "--app", "net"]) == 0
    assert board.requested == [("resume", "net")]
    text = " ".join(capsys.readouterr().out.split())
    assert "soaking" in text
    assert "edgekit jobs attach 0123456789abcdef" in text
    board.requested.clear()
    assert app(["status", "lab"]) == 0  # somebody is at work on it now
    assert board.requested == []


def test_status_says_why_it_went_back_and_shows_nothing_but_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab", "rolled-back")
    board.error = {"code": "health.latency", "message": "too slow [red]\x1b[31m here"}
    lend(monkeypatch, board)
    assert app(["status", "lab"]) == 0
    text = capsys.readouterr().out
    assert "too slow [red]\\x1b[31m here (health.latency)" in " ".join(text.split())
    assert "\x1b" not in text


def test_releases_say_which_one_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("lab"))
    assert app(["releases", "lab"]) == 0
    rows = {line.split()[2]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert "serves" in rows[NEW]
    assert "previous" in rows[OLD]


def test_releases_mark_what_was_taken_back_and_say_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab")
    board.back = {"release": RETAINED, "at": WHEN, "reason": "too many false alarms"}
    lend(monkeypatch, board)
    assert app(["releases", "lab"]) == 0
    text = capsys.readouterr().out
    (row,) = [line for line in text.splitlines() if "taken back" in line and "was" not in line]
    assert RETAINED in row
    note = f"lab: net: {RETAINED} was rolled back at {WHEN}: too many false alarms"
    assert note in " ".join(text.split())
    assert app(["releases", "lab", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["boards"]
    backs = {one["id"]: one.get("taken_back") for one in shown["apps"]["net"]["releases"]}
    assert backs == {OLD: None, NEW: None, RETAINED: board.back}


def test_rollback_of_a_host_needs_the_app_and_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab")
    lend(monkeypatch, board)
    with pytest.raises(UsageError) as caught:
        app(["rollback", "lab"])
    assert "--app" in caught.value.hint
    assert app(["rollback", "lab", "--app", "net", "--reason", "it $(blinks)"]) == 0
    assert board.requested == [("rollback", "net", "it $(blinks)")]
    assert f"lab: {NEW} -> {OLD}" in capsys.readouterr().out
    assert app(["rollback", config_of(tmp_path, "lab"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["app"]) == ("edgekit.rollback/1", "net")
    assert (document["boards"][0]["from"], document["boards"][0]["to"]) == (NEW, OLD)


def test_remove_reports_what_went_and_what_the_board_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("lab"))
    assert app(["remove", "lab", "--app", "net", "--release", OLD]) == 0
    assert f"removed {OLD}" in capsys.readouterr().out
    with pytest.raises(BoardError) as caught:
        app(["remove", "lab", "--app", "net", "--release", NEW, "--json"])
    assert (caught.value.code, caught.value.exit_code) == ("release.in-use", 4)
    (board,) = json.loads(capsys.readouterr().out)["boards"]
    assert (board["reachable"], board["removed"]) == (True, [])


@pytest.mark.parametrize("command", ["status", "releases", "rollback", "remove"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app([command, "--help"]) == 0
    assert f"edgekit {command} nvidia@10.0.0.7" in " ".join(capsys.readouterr().out.split())


@pytest.mark.boards
def test_a_real_board_that_has_nothing_yet(
    boards: StartBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    one = boards(tmp_path / "board").board
    host = tmp_path / "home/.ssh/config"
    host.write_text(
        f"Host lab\nHostName {one.host}\nPort {one.port}\nUser {one.user}\n"
        f"IdentityFile {one.key}\nIdentitiesOnly yes\n"
    )
    words = ["lab", "--accept-host-key", f"--root={tmp_path}/board", f"--python={sys.executable}"]
    assert app(["status", *words, "--json"]) == 0
    (board,) = json.loads(capsys.readouterr().out)["boards"]
    assert (board["apps"], board["store"]["blobs"]) == ({}, 0)
    assert board["device"]["backends"]
    with pytest.raises(BoardError) as caught:
        app(["rollback", *words, "--app", "net"])
    assert caught.value.code == "app.unknown"
