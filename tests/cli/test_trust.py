"""``edgekit trust``: what is told, and what never leaves this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.sign import ensure_key
from edgekit.cli.main import app
from edgekit.errors import BoardError, UsageError
from edgekit_device.trust.keys import Revocations, TrustAnswer, TrustedKey, TrustRequest
from tests.cli.board_fakes import FakeBoard, lend


class _Trusting(FakeBoard):
    def trust(self, changes: TrustRequest) -> TrustAnswer:
        self.requested.append(changes)
        if "nobody" in changes.remove:
            raise BoardError(
                "no such key",
                code="trust.no-such-key",
                where=self.name,
                hint="list them with edgekit trust BOARD --list",
            )
        key = TrustedKey("ann@desk", "ssh-ed25519", "SHA256:x", False, None, None)
        return TrustAnswer(0, 0, 0, ("ann@desk",), (key,), Revocations("none", ()), ())


def test_a_list_says_nothing_of_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, _Trusting("lab"))
    for words in ([], ["--list"]):
        assert app(["trust", "lab", *words]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first == "lab: 1 key"
        assert "ann@desk" in second
    assert app(["trust", "lab", "--remove", "ann@desk"]) == 0
    assert capsys.readouterr().out.startswith("lab: nothing changed")


@pytest.mark.parametrize("option", ["add", "remove", "revoke", "signers", "revocations"])
def test_a_private_key_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    board = _Trusting("lab")
    lend(monkeypatch, board)
    key = ensure_key(tmp_path / "id")
    with pytest.raises(UsageError) as caught:
        app(["trust", "lab", f"--{option}", str(key)])
    assert (caught.value.code, caught.value.where) == ("sign.private-key", str(key))
    assert board.requested == []


def test_force_is_for_what_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    board = _Trusting("lab")
    lend(monkeypatch, board)
    with pytest.raises(UsageError):
        app(["trust", "lab", "--force"])
    assert app(["trust", "lab", "--remove", "ann@desk", "--force"]) == 0
    assert board.requested[-1].force


def test_hints_name_the_board_as_the_user_does(monkeypatch: pytest.MonkeyPatch) -> None:
    lend(monkeypatch, _Trusting("lab"))
    with pytest.raises(BoardError) as caught:
        app(["trust", "lab", "--remove", "nobody", "--root", "/srv/e k"])
    assert caught.value.hint == "list them with edgekit trust lab --root '/srv/e k' --list"


@pytest.mark.parametrize("command", ["trust", "jobs"])
def test_a_configuration_without_boards_means_edgekits_own(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[object] = []

    @contextmanager
    def open_board(board: object, **options: Any) -> Iterator[FakeBoard]:
        opened.append(board)
        yield _Trusting("embedded")

    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("edgekit.deployment.connection.open_board", open_board)
    config = tmp_path / "net.yaml"
    config.write_text(
        "version: 1\nname: net\nmodel: {builtin: light_resnet18}\ntarget: jetson-agx-orin-64gb\n"
    )
    assert app([command, str(config)]) == 0
    assert opened == [None]
    assert capsys.readouterr().out.startswith("embedded: ")
