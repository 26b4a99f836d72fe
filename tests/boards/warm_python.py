"""A Python for test boards that has its imports behind it.

Where the start of Python is not the point, tests would spend minutes on nothing else. Here
``start`` makes a program that takes a Python's command line, hands it and its open files to one
process that has NumPy, ONNX Runtime and the loader imported, and ends as the fork of that process
ends. What runs is the same code on the same files; a real board starts Python each time.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

__all__ = ["warm", "warm_boards", "warm_python"]

# _socket instead of socket: this is started a thousand times. Every file descriptor that is open
# goes along under its number, for some are locks.
_CLIENT = """#!{python} -SI
import _socket, os, sys
name = {name!r}
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
s.connect(name)
own = s.fileno()
fds = []
for n in os.listdir("/proc/self/fd"):
    n = int(n)
    try:
        os.fstat(n)
    except OSError:
        continue
    if n != own:
        fds.append(n)
leads = os.getsid(0) == os.getpid()
text = repr((fds, sys.argv[1:], dict(os.environ), os.getcwd(), leads)).encode()
rights = b"".join(n.to_bytes(4, sys.byteorder) for n in fds)
s.sendmsg([len(text).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
while text:
    text = text[s.send(text):]
answer = s.recv(4)
os._exit(int.from_bytes(answer, "big", signed=True) & 255 if len(answer) == 4 else 1)
"""


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """The program, with the loader of this tree imported."""
    from edgekit.bundles.files import build_zipapp

    with tempfile.TemporaryDirectory(prefix="edgekit-warm-") as name:  # a socket's path is short
        build_zipapp(loader := Path(name, "loader.pyz"))
        with warm_python(Path(name), loader) as python:
            yield python


@pytest.fixture(scope="module")
def warm_boards(warm: Path) -> Iterator[None]:
    """Has the boards of a module's sshd run the warm Python, unless a test names another one."""
    from edgekit.deployment.embedded_sshd import Sshd

    begin = Sshd.__init__

    def begun(self: Sshd, *arguments: Any) -> None:
        begin(self, *arguments)
        self.board = replace(self.board, python=str(warm))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sshd, "__init__", begun)
        yield


@contextlib.contextmanager
def warm_python(folder: Path, loader: Path) -> Iterator[Path]:
    """Starts the process and yields the program that asks it.

    Args:
        folder: A short path for the socket and the program.
        loader: The zipapp whose modules are imported beforehand.
    """
    name, program = folder / "warm.sock", folder / "python"
    program.write_text(_CLIENT.format(python=sys.executable, name=str(name)))
    program.chmod(0o755)
    command = [sys.executable, __file__, str(name), str(program), str(loader)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            assert process.stdout.readline() == b"ready\n"
            yield program
        finally:
            process.kill()


class _Started:
    """Says which zipapp a process was started with, not which one was imported beforehand."""

    @property
    def archive(self) -> str:
        started = sys.path[0]
        return f"{started}/loader.pyz" if os.path.isdir(started) else started


def _serve(name: str, program: str, loader: str) -> None:
    import ast
    import importlib
    import zipfile

    import numpy  # noqa: F401
    import onnxruntime  # noqa: F401

    sys.path.insert(0, loader)
    for member in zipfile.ZipFile(loader).namelist():
        if member.endswith(".py") and member != "__main__.py":
            with contextlib.suppress(Exception):
                importlib.import_module(member[:-3].replace("/", ".").removesuffix(".__init__"))
    from edgekit_device.board import identity

    identity.__loader__ = _Started()  # type: ignore[assignment]
    gc.collect()
    gc.freeze()
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen(256)
    waiting: dict[int, socket.socket] = {}

    # a byte in this pipe says that a child has ended, also just before `select` waits
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    print("ready", flush=True)
    # its input ends with the process that started it, however that ends
    while 0 not in (ready := select.select([server, 0, woken], [], [])[0]):
        if woken in ready:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    code = os.waitstatus_to_exitcode(found[1])
                    with contextlib.suppress(OSError), waiting.pop(found[0]) as client:
                        client.sendall(code.to_bytes(4, "big", signed=True))
        if server not in ready:
            continue
        connection, _ = server.accept()
        head, rights, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(4 * 64))
        size = int.from_bytes(head, "big")
        data = b""
        while len(data) < size:
            data += connection.recv(size - len(data))
        _, _, packed = rights[0]
        given = struct.unpack(f"{len(packed) // 4}i", packed)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            numbers, argv, environment, folder, leads = ast.literal_eval(data.decode())
            if leads:
                os.setsid()
            _become(dict(zip(numbers, given, strict=False)), argv, environment, folder, program)
        waiting[pid] = connection
        for fd in given:
            os.close(fd)


def _become(
    fds: dict[int, int], argv: list[str], environment: dict[str, str], folder: str, program: str
) -> None:
    """Runs a Python command line in this process, which is a fork."""
    # first out of the way of all numbers that are wanted
    high = {n: os.dup2(fd, 500 + i, inheritable=False) for i, (n, fd) in enumerate(fds.items())}
    os.closerange(3, 500)
    for n, fd in high.items():
        os.dup2(fd, n)
    os.closerange(500, 600)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    sys.executable = program
    status = 1
    try:
        while argv and argv[0].startswith("-") and argv[0] != "-c":
            argv = argv[1:]  # -I and its like
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = argv
            sys.path[0] = argv[0]
            import edgekit_device
            from edgekit_device.__main__ import main

            edgekit_device.__path__[:] = [f"{argv[0]}/edgekit_device"]
            sys.exit(main())
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status & 255)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
