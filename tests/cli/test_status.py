"""``edgekit status``, ``releases``, ``rollback`` and ``remove``: tables, documents, boards away."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.cli.main import app
from edgekit.errors import BoardError, UsageError
from edgekit_device.deployment.status import BoardStatus
from edgekit_device.install import Resumed
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.serving import ServingStatus
from edgekit_device.release.journal import HistoryEntry, TakenBack
from edgekit_device.release.releases import AppReleases, DescribedRelease, RolledBack
from edgekit_device.trust.keys import RefusedRelease, TrustAnswer
from tests.boards.fixtures import StartBoard, boards, home
from tests.cli.board_fakes import FakeBoard, answer, config_of, lend

__all__ = ["boards", "home"]

NEW, OLD, RETAINED = "000002-bbbbbbbbbbbb", "000001-aaaaaaaaaaaa", "000000-cccccccccccc"
WHEN = "2026-01-02T03:04:05Z"


class Serving(FakeBoard):
    """A board with one app; ``state`` is its deployment's, ``alive`` whether somebody works."""

    def __init__(self, name: str, state: str = "committed", *, down: bool = False) -> None:
        super().__init__(name, down=down)
        self.state, self.alive = state, False
        self.error: Failure | None = None
        self.history: list[HistoryEntry] = []
        self.serving: ServingStatus | None = None
        self.revoked: list[str] = []
        self.back: TakenBack | None = None

    def status(self, app: str | None = None) -> BoardStatus:
        sample: BoardStatus = answer("status", free_bytes=1000, power=None)
        facts = sample.apps["net"]
        assert facts.deployment is not None
        deployment = replace(
            facts.deployment,
            id="1",
            state=self.state,
            state_at=WHEN,
            alive=self.alive,
            operator="ann@desk",
            job="0123456789abcdef",
            error=self.error,
        )
        facts = replace(
            facts,
            current=NEW,
            previous=OLD,
            deployment=deployment,
            releases=(),
            history=tuple(self.history),
            serving=self.serving,
            changed=None,
            error=None,
            refused=(),
        )
        return replace(sample, apps={"net": facts})

    def resume(self, app: str | None = None) -> tuple[Resumed, ...]:
        self.requested.append(("resume", app))
        self.alive = True
        return (Resumed("net", "0123456789abcdef", self.state),)

    def releases(self, app: str | None = None) -> dict[str, AppReleases]:
        old, new, retained = (
            DescribedRelease(id, id[-12:] * 5, "reference", "me", "then", True, None)
            for id in (OLD, NEW, RETAINED)
        )
        rows = (old, new, replace(retained, taken_back=self.back))
        return {"net": AppReleases(NEW, OLD, rows, None)}

    def trust(self) -> TrustAnswer:
        refused = tuple(
            RefusedRelease(RETAINED, "bundle.revoked-signer", "it is revoked", app, "kept")
            for app in self.revoked
        )
        found: TrustAnswer = answer("trust", refused=refused)
        return found

    def rollback(self, app: str, reason: str | None = None) -> RolledBack:
        self.requested.append(("rollback", app, reason))
        return RolledBack(app, OLD, NEW, NEW, None)

    def remove(self, app: str, release: str | None = None) -> tuple[str, ...]:
        if release == NEW:
            raise BoardError("the release is in use", code="release.in-use", where=self.name)
        return (OLD,)


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
