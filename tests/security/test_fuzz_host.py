"""What a hostile board answers: only an EdgekitError comes out, in bounded time and memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.deployment.answers import failure, read_answer
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient, read_log
from edgekit.deployment.host_keys import Trust, read_entries
from edgekit.deployment.transport import Completed, read_frames
from edgekit.errors import EdgekitError
from tests.boards.scripted import ScriptedBoard
from tests.security.security_fuzz import limits, mutated, times

pytestmark = pytest.mark.slow


def survive(read: Callable[[], Any]) -> None:
    with limits():
        try:
            read()
        except EdgekitError as error:
            said = str(error)
        else:
            return
    assert "\x1b" not in said


@times(800)
@given(data=mutated("answer"), status=st.sampled_from([0, 0, 4, 4, 1, 127, 137, -1, 255]))
def test_answers(data: bytes, status: int) -> None:
    done = Completed(status, data, data[:500])
    if status:
        survive(lambda: raised(failure(done, "lab", "python3")))
    else:
        survive(lambda: str(read_answer(done, "lab", "python3", "rollback").before))


def raised(error: EdgekitError) -> None:
    raise error


@times(500)
@given(data=mutated("frames"))
def test_blobs_of_a_board(data: bytes) -> None:
    wanted = [hashlib.sha256(text).hexdigest() for text in (b"", b"one", b"two\n" * 20)]

    def read() -> None:
        found = read_frames(data, "lab", wanted)
        assert all(hashlib.sha256(blob).hexdigest() == digest for digest, blob in found.items())
        assert set(found) == set(wanted)

    survive(read)


@times(400)
@given(data=mutated("answer"))
def test_logs_of_a_board(data: bytes) -> None:
    def read() -> None:
        log = read_log(data, 7, "lab")
        assert log.end == 7 + len(log.data)

    survive(read)


@times(300)
@given(data=mutated("known_hosts"), name=st.sampled_from(["lab", "[x.lab]:2222", "bad", "\ud800"]))
def test_known_hosts(data: bytes, name: str) -> None:
    def read() -> None:
        for entry in read_entries([data.decode("utf-8", "replace")]):
            entry.names(name)
            assert entry.fingerprint.startswith("SHA256:")

    survive(read)
    assert Trust().pin is None


@times(200)
@given(data=mutated("answer"))
def test_a_client_whose_board_lies(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    loader = tmp_path_factory.getbasetemp() / "loader"
    loader.write_bytes(b"loader")
    client = BoardClient(Board("lab", "lab"), ScriptedBoard(lambda argv: data), loader)
    digest = "a" * 64
    requests: tuple[Callable[[], object], ...] = (
        lambda: client.missing([digest]),
        lambda: client.fetch([digest]),
        client.jobs,
        lambda: client.job_log("0123456789abcdef"),
        lambda: client.cancel_job("0123456789abcdef"),
        lambda: list(client.watch_job("0123456789abcdef", patience_s=0)),
        lambda: client.offer(b"{}", None).missing,
    )
    for ask in requests:
        survive(ask)
    client.close()
