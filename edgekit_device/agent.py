"""The agent: a host's single process on the board while it is connected. It runs the loader's
commands in forked children, and multiplexes their input and output over its own.

Both directions are lines of JSON; a line with "bytes" is followed by that many bytes. The host
sends::

    {"run": N, "argv": [...]}   start command N, forked; with "program" instead, another program
    {"in": N, "bytes": K}       a part of its input
    {"end": N}                  its input has ended
    {"drop": N}                 its result is no longer needed: its pipes are closed

The agent sends::

    {"agent": 1}                it is ready; earlier output is the login shell's
    {"out": N, "bytes": K}      a part of its output
    {"err": N, "bytes": K}      a part of its standard error
    {"took": N, "bytes": K}     this many bytes of its input have been read; the host has at most
                                4 MiB of a command's input in transit
    {"status": N, "code": S}    it has ended, with the status as a shell reports it; its last line

The agent ends when its own input ends. It then closes the pipes of all commands, after each has
received its input: a transfer that was cut keeps all bytes that arrived. It imports no CUDA, ONNX
Runtime or NumPy and has no threads: its forked children start clean.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import select
import signal
import sys
from typing import Deque, Dict, List, NoReturn, Optional, Tuple

from edgekit_device.__main__ import main as run_command

_READ = 256 * 1024
_MAX_LINE = 1 << 20
_PIPE_SIZE = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of Linux, which Python 3.8 does not name
# seconds without a read after which a command does not get the rest of a disconnected host's input
_REST_MS = 5000


# modules of small commands, in the order in which a host runs them: imported once, while the agent
# is idle; the modules of other commands load NumPy
_PRELOADED = (
    "trust.keys",
    "board.probe",
    "release.offer",
    "deployment.status",
    "store.transfer",
    "jobs.commands",
    "job_runner",
    "release.commands",
)


def main() -> None:
    """Runs the commands from stdin until it ends."""
    gc.freeze()  # else each fork's collections copy the pages of all imported modules
    _CommandServer(sys.stdin.fileno(), sys.stdout.fileno()).serve()


class _RunningCommand:
    """A running command: its process and the agent's ends of its pipes (None once closed)."""

    def __init__(self, pid: int, stdin: int, out: int, err: int) -> None:
        self.pid = pid
        self.stdin: Optional[int] = stdin
        self.outputs: Dict[str, Optional[int]] = {"out": out, "err": err}
        self.waiting: Deque[memoryview] = collections.deque()
        self.ended = False  # the host's part of its input
        for descriptor in (stdin, out, err):
            os.set_blocking(descriptor, False)

    def close(self) -> None:
        self.close_input()
        for name in self.outputs:
            self.close_output(name)

    def close_input(self) -> None:
        if self.stdin is not None:
            os.close(self.stdin)
        self.stdin = None
        self.waiting.clear()

    def close_output(self, name: str) -> None:
        descriptor = self.outputs[name]
        if descriptor is not None:
            os.close(descriptor)
        self.outputs[name] = None


class _CommandServer:
    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._commands: Dict[int, _RunningCommand] = {}
        self._to_import = list(reversed(_PRELOADED))
        self._line = b""
        # the command whose input follows, and the number of bytes
        self._part: Tuple[int, int] = (0, 0)
        self._host_listens = True
        # a byte in this pipe means that a child has ended
        self._ended, self._ending = os.pipe()

    def serve(self) -> None:
        for descriptor in (self._ended, self._ending):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._ending)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        try:
            self._send({"agent": 1})
            while self._handle_events():
                pass
            self._feed_rest()
        finally:
            for command in self._commands.values():
                command.close()

    def _handle_events(self) -> bool:
        """Waits for events and handles them; returns False when the host's input has ended."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        homes: Dict[int, Tuple[int, str]] = {}
        for number, command in self._commands.items():
            if command.stdin is not None and command.waiting:
                homes[command.stdin] = (number, "in")
                poll.register(command.stdin, select.POLLOUT)
            for name, descriptor in command.outputs.items():
                if descriptor is not None:
                    homes[descriptor] = (number, name)
                    poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(0 if self._to_import else None)]
        if self._to_import and not ready:
            importlib.import_module("edgekit_device." + self._to_import.pop())
            gc.freeze()
        for descriptor in ready:
            if descriptor in homes:
                number, name = homes[descriptor]
                if name == "in":
                    self._feed(number)
                else:
                    self._relay(number, name)
        if self._ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ended, 4096)
            self._reap()
        return self._reading not in ready or self._read_lines()

    def _read_lines(self) -> bool:
        data = os.read(self._reading, _READ)
        view = memoryview(data)
        while view:
            number, left = self._part
            if left:
                part = view[:left]
                view = view[len(part) :]
                self._part = (number, left - len(part))
                command = self._commands.get(number)
                if command is not None and command.stdin is not None:
                    command.waiting.append(part)
                    self._feed(number)
                else:
                    # discarded, but counted: else the host's window would stay full
                    self._send({"took": number, "bytes": len(part)})
                continue
            end = data.find(b"\n", len(data) - len(view))
            until = len(data) if end < 0 else end + 1
            self._line += bytes(view[: until - (len(data) - len(view))])
            view = memoryview(data)[until:]
            if len(self._line) > _MAX_LINE:
                raise _protocol_error()
            if end >= 0:
                line, self._line = self._line, b""
                self._handle_line(line)
        return bool(data)

    def _handle_line(self, line: bytes) -> None:
        try:
            request = json.loads(line.decode("utf-8", "surrogateescape"))
            if "run" in request:
                self._run(
                    int(request["run"]),
                    [str(word) for word in request["argv"]],
                    bool(request.get("program")),
                )
                return
            if "in" in request:
                self._part = int(request["in"]), int(request["bytes"])
                return
            number = int(request["end"] if "end" in request else request["drop"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _protocol_error() from error
        command = self._commands.get(number)
        if command is None:
            return
        if "drop" in request:
            command.close()
        else:
            command.ended = True
            self._feed(number)

    def _run(self, number: int, argv: List[str], program: bool) -> None:
        pipes = [os.pipe() for _ in range(3)]
        with contextlib.suppress(OSError):  # above the account's limit
            fcntl.fcntl(pipes[0][1], _SET_PIPE_SIZE, _PIPE_SIZE)
        # a fork, not an exec: the modules are already imported
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            # a copy of another command's pipe would keep that pipe from ending
            self._close_all()
            for descriptor in (pipes[0][1], pipes[1][0], pipes[2][0]):
                os.close(descriptor)
            _exec_command(argv, program, [pipes[0][0], pipes[1][1], pipes[2][1]])
        for descriptor in (pipes[0][0], pipes[1][1], pipes[2][1]):
            os.close(descriptor)
        self._commands[number] = _RunningCommand(pid, pipes[0][1], pipes[1][0], pipes[2][0])

    def _close_all(self) -> None:
        """Closes the agent's own descriptors in a child."""
        for command in self._commands.values():
            command.close()
        for descriptor in (self._reading, self._writing, self._ended, self._ending):
            if descriptor > 2:
                os.close(descriptor)

    def _feed(self, number: int) -> None:
        """Writes as much input as the command's pipe takes."""
        command = self._commands[number]
        taken = 0
        try:
            while command.waiting and command.stdin is not None:
                part = command.waiting[0]
                count = os.write(command.stdin, part)
                taken += count
                if count < len(part):
                    command.waiting[0] = part[count:]
                else:
                    command.waiting.popleft()
        except BlockingIOError:
            pass
        except BrokenPipeError:
            # it reads no more: what waits counts as read
            taken += sum(map(len, command.waiting))
            command.close_input()
        if taken:
            self._send({"took": number, "bytes": taken})
        if command.ended and not command.waiting:
            command.close_input()

    def _feed_rest(self) -> None:
        """Gives the commands the input that the host sent before it disconnected."""
        for command in self._commands.values():
            # nobody reads them: a command that writes must not block on a full pipe
            for name in command.outputs:
                command.close_output(name)
        while True:
            poll = select.poll()
            numbers: Dict[int, int] = {}
            for number, command in self._commands.items():
                if command.stdin is not None and command.waiting:
                    numbers[command.stdin] = number
                    poll.register(command.stdin, select.POLLOUT)
            ready = poll.poll(_REST_MS) if numbers else []
            if not ready:
                return
            for descriptor, _ in ready:
                self._feed(numbers[descriptor])

    def _relay(self, number: int, name: str) -> bool:
        """Sends a part of the command's output; returns False if none is available."""
        command = self._commands.get(number)
        descriptor = None if command is None else command.outputs[name]
        if command is None or descriptor is None:
            return False
        try:
            data = os.read(descriptor, _READ)
        except BlockingIOError:
            return False
        if data:
            self._send({name: number, "bytes": len(data)}, data)
        else:
            command.close_output(name)
        return bool(data)

    def _reap(self) -> None:
        for number, command in list(self._commands.items()):
            pid, status = os.waitpid(command.pid, os.WNOHANG)
            if not pid:
                continue
            # its output is in the pipes by now; processes that it left behind may hold them open
            for name in command.outputs:
                while self._relay(number, name):
                    pass
            command.close()
            del self._commands[number]
            ended = os.WIFEXITED(status)
            code = os.WEXITSTATUS(status) if ended else 128 + os.WTERMSIG(status)
            self._send({"status": number, "code": code})

    def _send(self, message: Dict[str, object], data: bytes = b"") -> None:
        rest = memoryview(json.dumps(message).encode("ascii") + b"\n" + data)
        try:
            while rest and self._host_listens:
                rest = rest[os.write(self._writing, rest) :]
        except BrokenPipeError:
            self._host_listens = False  # input that it sent before is still read


def _exec_command(argv: List[str], program: bool, streams: List[int]) -> NoReturn:
    """Turns this process, a fork of the agent, into the command; never returns."""
    # EX_SOFTWARE (sysexits.h), if not even the command's own error handling runs
    status = 70
    try:
        for name in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if program:
            try:
                os.execvp(argv[0], argv)
            except OSError as error:
                os.write(2, "{}: {}\n".format(argv[0], error.strerror).encode("utf-8", "replace"))
                # as a POSIX shell: 127 not found, 126 found but not executable
                os._exit(127 if isinstance(error, FileNotFoundError) else 126)
        sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(
            io.FileIO(2, "wb", closefd=False), errors="backslashreplace", write_through=True
        )
        sys.argv[1:] = argv
        try:
            status = run_command(argv)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _protocol_error() -> SystemExit:
    return SystemExit("the host sent something that is not a request")
