"""Reads and checks a board's output: JSON documents, failures as edgekit's errors, lines of
progress before an answer, and lines of a continuous command.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgekit import timeouts
from edgekit.deployment.transport import MOST_OUT, Completed
from edgekit.errors import LOST_CODES, BoardError, BundleError
from edgekit.text import printable
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.errors import EXIT_FAILED, DeviceError
from edgekit_device.protocol.codec import (
    Rule,
    anything,
    parse_json,
    read,
    record,
    with_schema,
    write,
)
from edgekit_device.protocol.failure import Failed, Failure

if TYPE_CHECKING:
    from edgekit_device.benchmark.measurement import Stage
    from edgekit_device.board.samples import LiveSample


#: By loader command: the class or function that reads its answer, imported on first use. The host
#: puts its own loader on the board, so an answer with other fields comes from something else.
ANSWERS: dict[str, str] = {
    "place": "edgekit.deployment.loader.LoaderLocation",
    "hello": "edgekit_device.board.identity.Hello",
    "trust": "edgekit_device.trust.keys.TrustAnswer",
    "missing": "edgekit_device.release.commands.MissingBlobs",
    "offer": "edgekit_device.release.offer.offer_answer",
    "rollback": "edgekit_device.release.releases.RolledBack",
    "releases": "edgekit_device.release.releases.ReleaseList",
    "remove": "edgekit_device.release.commands.RemovedReleases",
    "status": "edgekit_device.deployment.status.BoardStatus",
    "resume": "edgekit_device.install.ResumeAnswer",
    "serve": "edgekit_device.release.releases.ServeAnswer",
    "serve-status": "edgekit_device.release.releases.ServeAnswer",
    "serve-stop": "edgekit_device.release.releases.ServerStopped",
    "setup": "edgekit_device.board.setup.SetupAnswer",
    "job-start": "edgekit_device.jobs.job.StartedJob",
    "job-list": "edgekit_device.jobs.commands.JobList",
    "job-watch": "edgekit_device.jobs.commands.JobNews",
    "job-cancel": "edgekit_device.jobs.commands.CancelledJob",
    "job-remove": "edgekit_device.jobs.commands.RemovedJobs",
    "job-result": "edgekit.deployment.answers.job_result",
    "probe": "edgekit_device.board.probe.Probe",
    "bench": "edgekit_device.benchmark.measurement.Measurement",
}
# a shell's statuses of a program that cannot be executed, or is not there
_NOT_RUNNABLE = (126, 127)
# a shell adds the number of the signal that ended a program
_SIGNALLED = 128
_LONGEST_EXCERPT = 2000
# board codes about the shipped bundle, not about the board
_BUNDLE = ("bundle.", "manifest.", "engine.", "blob.", "weights.")
# a board's own hints are for its account; these are for the host. BOARD is replaced with the user's
# name of the board
_HINTS = {
    "bundle.unsigned": "sign it with the key in deploy.sign_with of the configuration",
    "bundle.unknown-signer": "deploy with --trust-key, or run edgekit trust BOARD --add "
    "KEY.pub: the board then trusts that key",
    "serve.running": "edgekit serve BOARD status --app {where} shows its state, stop ends it",
}
# bytes of a sample's line; a board that sends no newline must not fill the memory
_LONGEST_LINE = 1 << 20


def job_result(value: Any) -> Any:
    """Reads a job's result by its schema: a BuildResult, CompiledPlugin, DeploymentResult,
    DeploymentFacts or SelftestResult.
    """
    from edgekit_device.build.plugin_source import RESULT_SCHEMA as COMPILED
    from edgekit_device.build.plugin_source import CompiledPlugin
    from edgekit_device.build.request import RESULT_SCHEMA, BuildResult
    from edgekit_device.release.journal import SCHEMA, deployment_result
    from edgekit_device.selftest import SCHEMA as SELFTEST
    from edgekit_device.selftest import SelftestResult

    schema = value.get("schema")
    if schema == SELFTEST:
        return read(SelftestResult, value)
    if schema == RESULT_SCHEMA:
        return read(BuildResult, value)
    if schema == COMPILED:
        return read(CompiledPlugin, value)
    if schema == SCHEMA:
        return deployment_result(value)
    return value


def read_answer(done: Completed, where: str, python: str, command: str = "") -> Any:
    """Returns the answer of a successful command, read by ``ANSWERS`` from its JSON document.

    Args:
        done: The completed command.
        where: The board's name.
        python: The interpreter that was called, for the message if it is missing.
        command: The loader's command; the answer of a command that ``ANSWERS`` lacks is the JSON
            object.

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: The board failed in another way, or its answer cannot be read.
    """
    if done.status != 0:
        raise failure(done, where, python)
    answer = _parse(done.out)
    if answer is None:
        raise BoardError(
            f"the board's answer is not JSON: {_excerpt(done.out) or 'nothing'}",
            code="board.protocol",
            where=where,
            hint="check whether a start-up file of the board's shell prints text",
        )
    try:
        return _answer_rule(command)(answer)
    except DeviceError as error:
        fault = printable(f"{error.where}: {error.message}".removeprefix(": "), 300)
        raise protocol_error(
            f"the board's answer to {command} is not valid: {fault}", where
        ) from error


def _answer_rule(command: str) -> Rule:
    if command not in ANSWERS:
        return anything
    module, _, name = ANSWERS[command].rpartition(".")
    found = getattr(import_module(module), name)
    return record(found) if isinstance(found, type) else found


def failure(done: Completed, where: str, python: str) -> BoardError:
    """Returns the error of a command with a non-zero status."""
    failed = _stated_failure(done.out) if done.status == EXIT_FAILED else None
    if failed is not None:
        field = {name: printable(text, _LONGEST_EXCERPT) for name, text in write(failed).items()}
        kind = BundleError if field["code"].startswith(_BUNDLE) else BoardError
        ours = _HINTS.get(field["code"])
        hint = field["hint"] if ours is None else ours.format(where=field["where"])
        return kind(
            field["message"],
            code=field["code"],
            where=f"{where}: {field['where']}" if field["where"] else where,
            hint=hint,
        )
    if done.status in _NOT_RUNNABLE:
        return BoardError(
            f"cannot run {python} on the board: {_excerpt(done.err)}",
            code="board.no-python",
            where=where,
            hint="install Python 3.8 or newer there, or name it with `python:`",
        )
    # 64 is the highest signal of Linux
    if _SIGNALLED < done.status < _SIGNALLED + 65:
        return BoardError(
            "the command was killed on the board",
            code="board.killed",
            where=where,
            hint="check `dmesg` on the board: usually it ran out of memory",
        )
    return BoardError(
        f"edgekit_device on the board failed with exit status {done.status}: {_excerpt(done.err)}",
        code="board.loader-failed",
        where=where,
        hint="run the command with --debug; report it if the board's Python works",
    )


@contextmanager
def explain_clocks(settings: BenchSettings, board: str) -> Iterator[None]:
    """Explains the state of power mode and clocks if the bench inside the block is interrupted.

    Raises:
        BoardError: The original error; if the command was killed, with the settings that may
            remain.
        KeyboardInterrupt: The original interrupt, with such a sentence.
    """
    if settings.power_mode is None and not settings.lock_clocks:
        yield
        return
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "the board restores power mode and clocks within a few seconds"
        ) from None
    except BoardError as error:
        if error.code in ("board.killed", *LOST_CODES):
            error.hint = (
                f"power mode and clocks may still be changed; `edgekit status {board}` "
                f"restores them; {error.hint}"
            )
        raise


def _stated_failure(out: bytes) -> Failure | None:
    try:
        return read(Failed, _parse(out)).error
    except DeviceError:
        return None


def _parse(out: bytes) -> object:
    """Returns the JSON object of an answer; None if there is none."""
    # the document is the last line: a login shell may print before it
    for text in (out, out.strip().rpartition(b"\n")[2]):
        try:
            found = parse_json(text, "")
        except DeviceError:
            continue
        if isinstance(found, dict):
            return found
    return None


def protocol_error(message: str, where: str) -> BoardError:
    """Returns the error of a board whose answer violates the protocol."""
    return BoardError(
        message,
        code="board.protocol",
        where=where,
        hint="use the same version of edgekit_device and edgekit",
    )


def _excerpt(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1], 300) if lines else ""


class StagedOutput:
    """Receives a command's output: reports stages, and collects the rest.

    Args:
        on_stage: Called in the transport's thread with each stage's name and the least remaining
            seconds (None if unknown).
        most_out: Most bytes to collect; with more, no answer is returned.
    """

    def __init__(
        self, on_stage: Callable[[str, float | None], None], most_out: int = MOST_OUT
    ) -> None:
        self._on_stage = on_stage
        self._most = most_out
        self._line = bytearray()
        self._retained = bytearray()

    def put(self, data: bytes) -> None:
        """Receives a chunk; b"" at the end."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._add(part)
            self._end()
        self._add(rest)
        # the last line may lack a newline
        if not data:
            self._end()

    def _add(self, part: bytes) -> None:
        if len(self._retained) + len(self._line) + len(part) <= self._most:
            self._line += part

    def _end(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        if (said := _stage(line)) is not None:
            self._on_stage(said.stage[:40], said.left_s)
            return
        self._retained += line + b"\n"

    def completed(self, done: Completed) -> Completed:
        """Returns the completed command with the collected answer."""
        return Completed(done.status, bytes(self._retained), done.err)


def _stage(line: bytes) -> Stage | None:
    """Returns the stage in a line; None for any other line."""
    if len(line) > _LONGEST_EXCERPT:
        return None
    from edgekit_device.benchmark.measurement import Stage

    try:
        return read(Stage, parse_json(line, ""))
    except DeviceError:
        return None


def take_samples(
    run: Callable[..., Completed],
    on_sample: Callable[[LiveSample], bool],
    where: str,
    python: str,
    interval_s: float,
) -> None:
    """Runs a command that prints a sample per line, and passes each to ``on_sample``.

    ``run`` takes the arguments of ``Transport.run`` except the command. The command watches its
    input, and ends once ``on_sample`` returns False, or this call or this machine ends.

    Raises:
        BoardError: The command failed, was silent for too long or printed no sample; or the
            connection was lost.
    """
    reader = _Lines(on_sample, where, interval_s + timeouts.SAMPLE_SILENT_S)
    done = run(stdin=reader.until_enough(), timeout=timeouts.SAMPLE_END_S, on_output=reader.put)
    if reader.error is not None:
        raise failure(Completed(done.status, reader.error, done.err), where, python)
    if not reader.enough and done.status != 0:
        raise failure(done, where, python)


class _Lines:
    """Received output, split into lines in the calling thread."""

    def __init__(
        self, on_sample: Callable[[LiveSample], bool], where: str, silent_s: float
    ) -> None:
        self.enough = False
        self.error: bytes | None = None
        self._on_sample = on_sample
        self._where = where
        self._silent_s = silent_s
        self._came: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.put = self._came.put

    def until_enough(self) -> Iterator[bytes]:
        """Yields the command's input, which is empty and ends after enough samples."""
        rest = b""
        while True:
            try:
                chunk = self._came.get(timeout=self._silent_s)
            except queue.Empty:
                raise BoardError(
                    f"the board sent no data for {self._silent_s:g} s",
                    code="board.timeout",
                    where=self._where,
                    hint="find the load that keeps the board busy, then run the same command again",
                ) from None
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise protocol_error("a line of the board's answer is too long", self._where)
            for line in whole:
                if not self._take_line(line):
                    return
                # gives control back to the transport, which then sends or ends the input
                yield b""

    def _take_line(self, line: bytes) -> bool:
        from edgekit.benchmark.monitor import live_sample

        try:
            found = parse_json(line, "")
        except DeviceError:
            return True  # output of a login shell
        if not isinstance(found, dict):
            return True
        if "error" in found:
            self.error = line
            return True
        self.enough = not self._on_sample(live_sample(found, self._where))
        return not self.enough


def row_rule(answered: type, lost: type) -> Rule:
    """Returns the rule of a row: a board's answer, or its failure."""
    good, failed = record(answered), record(lost)
    return with_schema(
        lambda value: (
            failed(value) if isinstance(value, dict) and value.get("error") else good(value)
        ),
        anyOf=(good, failed),
    )
