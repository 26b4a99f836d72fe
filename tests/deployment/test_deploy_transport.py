"""Both transports: words arrive as they are, streams do not block, failures are named."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import resource
import select
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit import timeouts
from edgekit.bundles.files import build_zipapp
from edgekit.deployment.agent import Agent
from edgekit.deployment.answers import failure
from edgekit.deployment.ssh import connect
from edgekit.deployment.transport import Completed, LocalTransport, Transport
from edgekit.errors import BoardError
from tests.boards.fixtures import StartBoard, hard_kill

pytestmark = pytest.mark.boards

WORDS = [
    "plain",
    "two words",
    "it's",
    '"double"',
    "$(touch /tmp/never)",
    "`id`",
    "$HOME",
    "a\nb",
    "-n",
    "--",
    "",
    "*",
    "~",
    "back\\slash",
    "!history",
    "ümläut 板",
    "semi;colon|pipe&",
]
SHOW = "import json,sys; print(json.dumps(sys.argv[1:]))"


class OverAgent:
    """A transport whose programs a board's agent runs."""

    def __init__(self, root: Path) -> None:
        digest = build_zipapp(root / "loader")
        data = (root / "loader").read_bytes()
        self.agent = Agent(
            LocalTransport(),
            sys.executable,
            str(root / "board"),
            "edgekit_device-0.pyz",
            digest,
            lambda: zlib.compress(data, 1),
            "lab",
        )

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        return self.agent.run(argv, program=True, **more)

    def close(self) -> None:
        self.agent.close()


@pytest.fixture(params=["ssh", "local", "agent"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    if request.param == "local":
        yield LocalTransport()
        return
    if request.param == "agent":
        over = OverAgent(request.getfixturevalue("tmp_path"))
        yield over
        over.close()
        return
    server = request.getfixturevalue("boards")()
    connection = connect(server.board)
    yield connection
    connection.close()


def test_words_are_not_interpreted(transport: Transport) -> None:
    done = transport.run([sys.executable, "-c", SHOW, *WORDS])
    assert (done.status, json.loads(done.out)) == (0, WORDS)


def test_output_is_read_while_input_is_written(transport: Transport) -> None:
    # far more than any pipe or channel window holds, in both directions at once
    block = os.urandom(1 << 20)
    done = transport.run(["cat"], stdin=(block for _ in range(12)))
    assert done.status == 0
    assert done.out == block * 12


def test_memory_of_every_kind_arrives(transport: Transport, tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, 3_000_000, np.uint8)
    (tmp_path / "file").write_bytes(data[::-1].tobytes())
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = data.tobytes()
    views = [
        b"head\n",
        memoryview(whole),
        b"head\n",
        memoryview(whole)[12_345:1_000_001],
        memoryview(bytearray(whole)),
        memoryview(mapped)[1:],
        data[7:].data,
        memoryview(b"short"),
        memoryview(b""),
        b"\n",
    ]
    done = transport.run(["sha256sum"], stdin=views)
    assert done.out.split()[0].decode() == hashlib.sha256(b"".join(views)).hexdigest()


def test_a_program_that_takes_nothing_is_given_up(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "STALL_S", 0.05)
    monkeypatch.setattr(timeouts, "GRACE_S", 0.0)
    with pytest.raises(BoardError, match="stalled") as caught:
        transport.run(["sleep", "600"], stdin=_endless())
    assert caught.value.code == "board.connection-lost"


def test_a_program_that_prints_without_end_is_ended_while_it_is_fed(transport: Transport) -> None:
    program = "import os\nwhile True: os.read(0, 99); os.write(1, bytes(65536))"
    with pytest.raises(BoardError) as caught:
        transport.run([sys.executable, "-c", program], stdin=_endless(), most_out=1 << 20)
    assert caught.value.code == "board.protocol"


def test_descriptors_beyond_what_select_takes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("no such descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        block = os.urandom(1 << 20)
        assert LocalTransport().run(["cat"], stdin=[block] * 3).out == block * 3
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_second_interrupt_does_not_leave_the_program_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[Any]] = []
    wait = subprocess.Popen.wait

    def interrupt(child: subprocess.Popen[Any], timeout: float | None = None) -> int:
        if timeout is not None:
            started.append(child)
            raise KeyboardInterrupt
        return wait(child)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        LocalTransport().run(["sleep", "600"])
    assert started[-1].returncode == -9


def test_status_and_stderr_come_back(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "echo out; echo err >&2; exit 9"])
    assert (done.status, done.out, done.err.strip()) == (9, b"out\n", b"err")


def test_missing_program_is_127(transport: Transport) -> None:
    assert transport.run(["/no/such/program"]).status == 127


def test_command_that_ends_before_its_input_still_answers(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "echo enough; exit 4"], stdin=_endless())
    assert (done.status, done.out) == (4, b"enough\n")


@pytest.mark.few(1)
def test_silence_becomes_a_timeout(transport: Transport) -> None:
    with pytest.raises(BoardError) as caught:
        transport.run(["sleep", "60"], timeout=0.3)
    assert caught.value.code == "board.timeout"


def test_interrupt_ends_the_commands_input_in_the_middle(
    transport: Transport, tmp_path: Path
) -> None:
    marker = tmp_path / "seen"
    os.mkfifo(marker)
    script = "import sys; n = len(sys.stdin.buffer.read()); open(sys.argv[1], 'w').write(str(n))"

    def stdin() -> Iterator[bytes]:
        yield b"x" * 1000
        raise KeyboardInterrupt

    # the far end writes after our end has given up, so the read end must be there before
    reader = os.open(marker, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(KeyboardInterrupt):
            transport.run([sys.executable, "-c", script, str(marker)], stdin=stdin())
        assert _read_fifo(reader) in (b"1000", b"0")
    finally:
        os.close(reader)


def test_held_input_ends_with_the_call(transport: Transport) -> None:
    # the command sees its input, and then for as long as it runs no end of it
    script = (
        "import select, sys; sys.stdin.buffer.read(3);"
        "print(bool(select.select([0], [], [], float(sys.argv[1]))[0]))"
    )
    for hold, seconds, ended in ((True, "0.2", b"False"), (False, "300", b"True")):
        argv = [sys.executable, "-c", script, seconds]
        done = transport.run(argv, stdin=[b"abc"], hold_input=hold)
        assert done.out.strip() == ended
    with pytest.raises(BoardError):
        transport.run(["cat"], hold_input=True, timeout=0.2)


def test_transport_survives_an_interrupted_command(transport: Transport) -> None:
    def stdin() -> Iterator[bytes]:
        yield b"x"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transport.run(["cat"], stdin=stdin())
    assert transport.run(["echo", "still here"]).out == b"still here\n"


def test_cut_connection_is_named(boards: StartBoard) -> None:
    server = boards()
    connection = connect(server.board)

    def stdin() -> Iterator[bytes]:
        yield b"x" * 100_000
        hard_kill(server)
        yield from _endless()

    with pytest.raises(BoardError) as caught:
        connection.run(["cat"], stdin=stdin())
    assert caught.value.code == "board.connection-lost"
    assert "again" in caught.value.hint
    with pytest.raises(BoardError) as caught:
        connection.run(["true"])
    assert caught.value.code == "board.connection-lost"
    connection.close()


def test_killed_command_is_distinguished_from_a_cut_connection(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "kill -9 $$"])
    assert failure(done, "lab", "python3").code == "board.killed"
    assert transport.run(["true"]).status == 0


def _endless() -> Iterator[bytes]:
    while True:
        yield b"\0" * 65536


def _read_fifo(reader: int) -> bytes:
    ready, _, _ = select.select([reader], [], [], 300.0)
    assert ready, "the command never saw its input end"
    return os.read(reader, 100)


def test_an_answer_counts_though_the_connection_is_cut_while_its_channel_closes(
    boards: StartBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    import paramiko

    connection = connect(boards().board)

    def gone(channel: paramiko.Channel) -> None:
        raise EOFError

    with monkeypatch.context() as patched:
        patched.setattr(paramiko.Channel, "close", gone)
        assert connection.run(["echo", "done"]).out == b"done\n"
    connection.close()
