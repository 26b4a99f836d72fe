"""Boards are looked at before long work: whether they are those, and believe who signs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.sign import allowed_signers_line, public_key
from edgekit.config.loader import open_config
from edgekit.deployment.board import Board
from edgekit.errors import BoardError, EdgekitError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context
from edgekit.pipeline.pipeline import Pipeline
from edgekit_device.board.probe import Probe
from edgekit_device.trust.keys import Revocations, TrustAnswer, TrustedKey
from tests.cli.board_fakes import answer as sample
from tests.pipeline.nets import small_net
from tests.pipeline.test_doctor import probe, probe_json

_NO_KEYS: dict[str, Any] = {"keys": (), "revocations": Revocations("none", ())}
_NO_TENSORRT = {**probe_json()["tensorrt"], "python": dict.fromkeys(("full", "lean", "dispatch"))}


def _key(fingerprint: str, *, authority: bool = False) -> TrustedKey:
    return TrustedKey("x", "ssh-ed25519", fingerprint, authority, None, None)


class _Board:
    """A board that is asked one thing."""

    kind, note = "remote", "a fake"

    def __init__(self, board: Board, **keys: Any) -> None:
        self.name, self.board = board.name, board
        self.closed = threading.Event()
        self.known = sample("trust", **{**_NO_KEYS, **keys})

    def trust(self) -> TrustAnswer:
        found: TrustAnswer = self.known
        return found

    def probe(self) -> Probe:
        return probe(onnxruntime="1.20", trtexec=None, tensorrt=_NO_TENSORRT)


def _deploy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    *,
    model: str = "net.onnx",
    boards: str = "{name: lab, host: 192.0.2.7}",
) -> tuple[EdgekitError, list[str]]:
    """Deploys; returns what it failed with and the steps that were begun."""

    @contextmanager
    def open_board(board: Board, *, signer_public_key: Path, **options: Any) -> Iterator[_Board]:
        opened = answer(board, signer_public_key)
        yield opened
        opened.closed.set()

    monkeypatch.setattr("edgekit.deployment.connection.open_board", open_board)
    small_net(tmp_path / "net.onnx")
    path = tmp_path / "net.yaml"
    path.write_text(
        f"version: 1\nname: net\nmodel: {{onnx: {tmp_path}/{model}}}\n"
        f"target: jetson-agx-orin-64gb\ndeploy: {{boards: [{boards}]}}\n"
    )
    pipeline = Pipeline(open_config(path), out=tmp_path / "out", cache=Cache(tmp_path / "cache"))
    with pytest.raises(EdgekitError) as caught, pipeline as one:
        one.deploy()
    return caught.value, [step["name"] for step in caught.value.extra["steps"]]


def test_an_unknown_host_key_is_reported_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(board: Board, key: Path) -> Any:
        raise BoardError("unknown host key", code="board.unknown-host-key", where=board.name)

    error, steps = _deploy(tmp_path, monkeypatch, unknown)
    assert (error.code, steps) == ("board.unknown-host-key", [])


def test_a_key_that_is_not_trusted_is_reported_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing: list[Path] = []

    def stranger(board: Board, key: Path) -> Any:
        signing.append(key)
        return _Board(board, keys=(_key("SHA256:x"),))

    error, steps = _deploy(tmp_path, monkeypatch, stranger)
    assert (error.code, error.where) == ("bundle.unknown-signer", "lab")
    assert steps == []
    assert public_key(signing[0]).fingerprint in error.message
    assert "--trust-key" in error.hint
    assert f"edgekit trust {tmp_path}/net.yaml --add {signing[0]}" in error.hint


def test_a_revoked_key_is_reported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def revoking(board: Board, key: Path) -> Any:
        mark = public_key(key).fingerprint
        return _Board(board, keys=(_key(mark),), revocations=Revocations("list", (mark,)))

    error, steps = _deploy(tmp_path, monkeypatch, revoking)
    assert (error.code, steps) == ("bundle.revoked-signer", [])


def test_boards_are_connected_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=300)
    opened: list[_Board] = []

    def open_with_the_other(board: Board, key: Path) -> Any:
        both.wait()
        opened.append(_Board(board))
        return opened[-1]

    two = "{name: lab, host: 192.0.2.7}, {name: shelf, host: 192.0.2.8}"
    error, _ = _deploy(tmp_path, monkeypatch, open_with_the_other, boards=two)
    assert (error.code, error.where) == ("bundle.unknown-signer", "lab")
    assert all(board.closed.is_set() for board in opened)


def test_what_is_wrong_here_does_not_wait_for_a_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, opened = threading.Event(), threading.Event()
    late: list[_Board] = []

    def open_late(board: Board, key: Path) -> Any:
        assert failed.wait(300)
        late.append(_Board(board))
        opened.set()
        return late[0]

    error, steps = _deploy(tmp_path, monkeypatch, open_late, model="none.onnx")
    assert (error.code, steps) == ("model.missing", [])
    failed.set()
    assert opened.wait(300)
    assert late[0].closed.wait(300)


@pytest.mark.parametrize("way", ["its key", "an authority"])
def test_what_the_board_may_believe_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    class Stop(BoardError):
        """The work has begun."""

    def trusting(board: Board, key: Path) -> Any:
        assert allowed_signers_line(key)
        own = way == "its key"
        mark = public_key(key).fingerprint if own else "SHA256:x"
        return _Board(board, keys=(_key(mark, authority=not own),))

    def begun(context: Context) -> Context:
        raise Stop("calibrates")

    monkeypatch.setattr("edgekit.pipeline.run.with_measured_ranges", begun)
    error, _ = _deploy(tmp_path, monkeypatch, trusting)
    assert isinstance(error, Stop)
