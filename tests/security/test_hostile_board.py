"""A board that answers without end, or with what would steer a terminal, harms nobody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.ssh import connect
from edgekit.deployment.transport import LocalTransport
from edgekit.errors import BoardError
from tests.boards.fixtures import StartBoard, remote

FLOOD = "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)"


@pytest.mark.boards
def test_an_answer_without_end_over_ssh(boards: StartBoard) -> None:
    transport = connect(remote(boards()))
    with pytest.raises(BoardError) as caught:
        transport.run([sys.executable, "-c", FLOOD], most_out=1 << 20)
    assert caught.value.code == "board.protocol"
    # the connection serves on
    assert transport.run(["echo", "still"]).out == b"still\n"
    transport.close()


def test_a_complaint_without_end_is_cut() -> None:
    code = "import sys\nfor i in range(300): sys.stderr.write('y' * 65536)"
    done = LocalTransport("lab").run([sys.executable, "-c", code])
    assert len(done.err) <= 64 * 1024


@pytest.mark.parametrize(
    "answer",
    [
        r'{"error": {"code": "x", "message": "\u001b[2J\u001b]0;owned\u0007", "hint": "\u009b1m"}}',
        "\x1b[2J not JSON \x07",
        "[" * 100_000,
        '{"error": {"code": "x", "message": "' + "m" * 100_000 + '"}}',
    ],
)
def test_words_of_a_board_cannot_steer_a_terminal(tmp_path: Path, answer: str) -> None:
    program = tmp_path / "python"
    (tmp_path / "answer").write_text(answer)
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\nexit 4\n")
    program.chmod(0o755)
    (tmp_path / "loader").write_bytes(b"x")
    board = Board("lab", kind="local", python=str(program), root=str(tmp_path / "root"))
    with pytest.raises(BoardError) as caught:
        BoardClient(board, LocalTransport("lab"), tmp_path / "loader").hello()
    said = str(caught.value)
    assert all(c.isprintable() or c == "\n" for c in said)
    assert len(said) < 10_000
