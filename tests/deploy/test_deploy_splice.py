"""Memory that goes into a program's input without a copy is the same bytes."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from edgekit.deploy import _local, _splice
from edgekit.deploy._deliver import _unreached
from edgekit.deploy._openssh import OpenSsh
from edgekit.deploy._splice import Spliced
from edgekit.deploy._sshconfig import Endpoint
from edgekit.deploy._transport import Buffer, Completed, converse
from edgekit.errors import BoardError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="vmsplice is Linux's")

_HASH = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"


def start(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program], bufsize=0, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(stdin: Iterable[Buffer], program: str = _HASH, most_out: int = 1 << 20) -> Completed:
    child = Spliced(start(program), "lab")
    return converse(child, stdin, timeout=60.0, where="lab", most_out=most_out)


@pytest.fixture
def views(tmp_path: Path) -> list[Buffer]:
    """Memory of every kind and at odd addresses, between the heads of frames."""
    data = np.random.default_rng(1).integers(0, 256, 3_000_000, np.uint8)
    (tmp_path / "file").write_bytes(data[::-1].tobytes())
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = data.tobytes()
    return [
        b"head\n", memoryview(whole), b"head\n", memoryview(whole)[12_345:1_000_001],
        memoryview(bytearray(whole)), memoryview(mapped)[1:], data[7:].data,
        memoryview(b"short"), memoryview(b""), np.ones(50_000, np.float64).data, b"\n",
    ]  # fmt: skip


def digest(stdin: list[Buffer]) -> str:
    return hashlib.sha256(b"".join(map(bytes, stdin))).hexdigest()


def test_the_bytes_are_the_same(views: list[Buffer], monkeypatch: pytest.MonkeyPatch) -> None:
    spliced: list[int] = []
    splice = Spliced._splice

    def noted(child: Spliced, data: memoryview) -> int:
        spliced.append(splice(child, data))
        return spliced[-1]

    monkeypatch.setattr(Spliced, "_splice", noted)
    assert run(views).out.decode().strip() == digest(views)
    assert spliced == [view.nbytes for view in views
                       if isinstance(view, memoryview) and view.nbytes > 5]  # fmt: skip


@pytest.mark.parametrize("way", ["no function", "refused", "refused later"])
def test_where_linux_does_not_the_bytes_are_copied(
    way: str, views: list[Buffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, calls = _splice._find(), iter(range(1000))

    def refusing(handle: int, vector: object, count: int, flags: int) -> int:
        refuse = way == "refused" or next(calls) > 1
        # no such flag: what a kernel without the call answers
        return int(found(handle, vector, count, 1 << 20 if refuse else flags))

    monkeypatch.setattr(_splice, "_find", lambda: way != "no function" and refusing)
    assert run(views).out.decode().strip() == digest(views)


def test_a_program_that_ends_early_says_why(views: list[Buffer]) -> None:
    done = run(views * 5, "import sys; sys.stdin.buffer.read(9); sys.exit('enough')")
    assert (done.status, done.err) == (1, b"enough\n")


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_program_that_takes_nothing_is_given_up(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_local, "STALL_S", 0.05)
    monkeypatch.setattr(_local, "_GRACE_S", 0.0)
    with pytest.raises(BoardError, match="stalled") as caught:
        run(itertools.repeat(memoryview(bytes(size))), "import time; time.sleep(600)")
    assert (caught.value.code, caught.value.where) == ("board.connection-lost", "lab")


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_program_that_prints_without_end_is_ended_while_it_is_fed(size: int) -> None:
    with pytest.raises(BoardError) as caught:
        run(itertools.repeat(memoryview(bytes(size))),
            "import os\nwhile True: os.read(0, 99); os.write(1, bytes(65536))")  # fmt: skip
    assert caught.value.code == "board.protocol"


def test_a_second_ctrl_c_does_not_leave_the_program_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = start("import time; time.sleep(600)")
    wait = child.wait

    def interrupt(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(child, "wait", interrupt)
    with child, pytest.raises(KeyboardInterrupt):
        Spliced(child, "lab").kill()
    assert child.returncode == -9


def test_descriptors_beyond_what_select_takes(views: list[Buffer]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("no such descriptors here")
    child = start(_HASH)
    assert child.stdin
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    try:
        handle = fcntl.fcntl(child.stdin.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500)
        child.stdin.close()
        child.stdin = os.fdopen(handle, "wb", 0)
        done = converse(Spliced(child), views * 3, timeout=60.0, where="lab")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert done.out.decode().strip() == digest(views * 3)


def test_an_ssh_of_this_machine_that_is_killed_is_not_the_boards_doing(tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o700)
    way = OpenSsh(str(program), Endpoint("far", 22, "me"), ("ssh-ed25519", "key"), "lab")
    with pytest.raises(BoardError, match="this machine's ssh") as caught:
        way.run(["true"])
    assert (caught.value.code, caught.value.where) == ("board.connection-lost", "lab")


def test_what_a_shell_prints_is_no_answer() -> None:
    assert _unreached(Completed(255, b"Welcome!\n", b""))
    assert not _unreached(Completed(255, b'Welcome!\n{"error": {}}\n', b""))
    assert not _unreached(Completed(1, b"Welcome!\n", b""))
