"""A board's hints are for who works on it; here they name what is at hand here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.deployment.answers import failure
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.transport import Completed, LocalTransport


@pytest.mark.parametrize(
    ("code", "reported", "not_reported"),
    [
        ("serve.running", "edgekit serve BOARD status --app net", "serve-stop"),
        ("bundle.unknown-signer", "--trust-key", "allowed_signers=FILE"),
        ("bundle.unsigned", "deploy.sign_with", "trust_unsigned"),
        ("other.code", "serve-stop, load(", "BOARD"),
    ],
)
def test_hints_are_of_the_host(code: str, reported: str, not_reported: str) -> None:
    hint = "serve-stop, load(..., allowed_signers=FILE), trust_unsigned=True"
    error = {"code": code, "message": "m", "where": "net", "hint": hint}
    done = Completed(4, json.dumps({"error": error}).encode(), b"")
    found = failure(done, "lab", "python3")
    assert reported in found.hint
    assert not_reported not in found.hint


def test_an_empty_name_reaches_the_board_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BoardClient(Board("lab"), LocalTransport(), Path("loader"))
    requested: list[tuple[str, ...]] = []

    def request(*words: str, **more: object) -> SimpleNamespace:
        requested.append(words)
        return SimpleNamespace(removed=(), apps={})

    monkeypatch.setattr(client, "_request", request)
    client.remove("net", "")
    client.remove("net")
    client.releases("")
    client.status("")
    assert requested == [
        ("remove", "--app=net", "--release="),
        ("remove", "--app=net"),
        ("releases", "--app="),
        ("status", "--app="),
    ]
