"""``edgekit serve``: what is asked of the board, and what is told of its server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgekit.cli.main import app
from edgekit.errors import BoardError, UsageError
from edgekit_device.protocol.serving import LastError, Latency
from edgekit_device.release.releases import ServeAnswer, ServerStopped
from tests.cli.board_fakes import FakeBoard, answer, lend


class _Server(FakeBoard):
    def serve(self, name: str, action: str, options: list[str]) -> ServeAnswer | ServerStopped:
        self.requested.append((name, action, *options))
        if action == "stop":
            return ServerStopped(name, True)
        if action == "reload":
            hint = "edgekit serve BOARD status --app net says how it is"
            raise BoardError("it does not load", code="x", where=self.name, hint=hint)
        serving = replace(
            answer("serve").serving,
            release="000001-aaaaaaaaaaaa",
            pid=77,
            requests=5,
            errors=1,
            latency_ms=Latency(0.25, 1.5, 1000),
            last_error=LastError("x", "odd", "", "", "then"),
        )
        return ServeAnswer(name, serving)


def test_serve_queries_the_board_and_reports_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = _Server("lab")
    monkeypatch.setenv("COLUMNS", "200")
    lend(monkeypatch, board)
    assert app(["serve", "lab", "start", "--app", "net", "--workers", "2", "--timeout-s", "5"]) == 0
    _, row, note = capsys.readouterr().out.splitlines()
    assert row.split() == ["lab", "000001-aaaaaaaaaaaa", "77", "5", "1", "0.25", "1.5000*"]
    assert note == "lab: last error: then odd (x)"
    assert app(["serve", "lab", "--app", "net", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["action"]) == ("edgekit.serve/1", "status")
    assert document["boards"][0]["serving"]["pid"] == 77
    assert app(["serve", "lab", "stop", "--app", "net"]) == 0
    assert "nothing" in capsys.readouterr().out
    with pytest.raises(BoardError) as caught:
        app(["serve", "lab", "reload", "--app", "net"])
    assert caught.value.exit_code == 4
    assert caught.value.hint == "edgekit serve lab status --app net says how it is"
    assert board.requested == [
        ("net", "start", "--workers=2", "--timeout-s=5.0"),
        ("net", "status"),
        ("net", "stop"),
        ("net", "reload"),
    ]
    with pytest.raises(UsageError):
        app(["serve", "lab", "start"])
