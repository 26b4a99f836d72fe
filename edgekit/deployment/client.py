"""The client of one board: ``BoardClient`` runs the loader's commands, follows jobs, sends bundles
and queries releases, deployments and measurements.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import timeouts
from edgekit.deployment.agent import Agent
from edgekit.deployment.answers import (
    StagedOutput,
    explain_clocks,
    failure,
    protocol_error,
    read_answer,
    take_samples,
)
from edgekit.deployment.board import Board, Kind, Progress
from edgekit.deployment.loader import container_argv
from edgekit.deployment.transport import (
    Buffer,
    Completed,
    Transport,
    frames,
    json_line,
    pieces,
    read_frames,
)
from edgekit.errors import UNREACHABLE_CODES, BoardError, EnvironmentLack
from edgekit.text import printable
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import fail, parse_json, read, write

if TYPE_CHECKING:
    from edgekit_device.benchmark.measurement import Measurement
    from edgekit_device.board.identity import Hello
    from edgekit_device.board.probe import Probe
    from edgekit_device.board.samples import LiveSample
    from edgekit_device.board.setup import SetupAnswer
    from edgekit_device.deployment.status import BoardStatus
    from edgekit_device.install import Resumed
    from edgekit_device.jobs.commands import JobNews
    from edgekit_device.jobs.job import JobRow, StartedJob, WatchedEvent
    from edgekit_device.release.offer import OfferAnswer
    from edgekit_device.release.releases import AppReleases, RolledBack, ServeAnswer, ServerStopped
    from edgekit_device.trust.keys import TrustAnswer, TrustRequest


_MOST_TEXT = 2000

_SILENT = "board.silent"

# engines and outputs
_MOST_BYTES = 4 << 30

# a container sees less of these than the board
_OUTSIDE = ("module", "board_id", "l4t", "power", "docker", "groups", "user", "memory")

# descriptions of the place where a connection went silent
_DOING = {
    "hello": "looking at the board",
    "probe": "looking at the board",
    "trust": "reading the trusted keys",
    "releases": "reading the releases",
    "offer": "announcing the bundle",
    "receive": "sending the bundle",
    "fetch": "reading from the board's store",
    "job-start": "starting a job; edgekit jobs list shows whether it runs",
    "job-watch": "following a job, which continues by itself; edgekit jobs list shows it",
    "infer": "an inference",
    "bench": "a measurement",
}

_SERVE = {
    "start": ("serve", "--background"),
    "status": ("serve-status",),
    "reload": ("serve-status", "--reload"),
    "stop": ("serve-stop",),
}


@dataclass(frozen=True, slots=True)
class JobLog:
    """A part of a job's log: bytes, end offset, size of the whole log, state of the job."""

    data: bytes
    end: int
    size: int
    state: str


def read_log(out: bytes, start: int, where: str) -> JobLog:
    """Reads the answer of ``job-log``: a line of facts with the number of bytes that follow.

    Raises:
        BoardError: "board.protocol".
    """
    out = out[max(out.find(b'{"log":'), 0) :]  # skip output of the board's shell
    head, _, data = out.partition(b"\n")
    from edgekit_device.jobs.commands import LogHead

    try:
        facts = read(LogHead, parse_json(head, ""))
        if facts.bytes > len(data):
            fail("bytes", "more than came")
        return JobLog(data[: facts.bytes], start + facts.bytes, facts.size, facts.state)
    except DeviceError as error:
        raise BoardError(
            "the board's answer is not a log", code="board.protocol", where=where
        ) from error


class BoardClient:
    """A connected board: its facts, bundles, releases, deployments and jobs.

    Uses the loader's protocol (docs/board-protocol.md). A job's ``id`` is the "job" from
    ``start_job`` and ``jobs``; deployments are jobs of the kind "deploy".

    Every method raises BoardError or EnvironmentLack like ``Transport.run`` (unreachable, timed
    out, connection lost) and ``read_answer`` (the loader's own error).

    Args:
        board: The board.
        transport: The connection, closed by ``close``.
        loader: The zipapp of ``edgekit_device``, put on the board if it is missing.
        note: A sentence about the connection, for people.
        reconnect: Connects again after a lost connection; None if that is impossible.

    Attributes:
        on_command: Called after each command with its name and duration in seconds; the first
            command is "agent", the start of Python on the board.
    """

    def __init__(
        self,
        board: Board,
        transport: Transport,
        loader: Path,
        note: str = "",
        reconnect: Callable[[], Transport] | None = None,
    ) -> None:
        self.board = board
        self.note = note
        self._transport = transport
        self._loader = loader
        self._reconnect = reconnect
        self.on_command: Callable[[str, float], object] = lambda name, seconds: None
        self._agent: Agent | None = None
        self._remembered = False
        home = board.python.startswith("~/") and board.kind != "local"
        # sshd starts commands in the account's home; a quoted "~" is not expanded
        self._python = "." + board.python[1:] if home else board.python

    @property
    def name(self) -> str:
        """The board's name."""
        return self.board.name

    @property
    def kind(self) -> Kind:
        """The kind of connection."""
        return self.board.kind

    def close(self) -> None:
        """Ends the agent and closes the connection."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        self._transport.close()

    def hello(self) -> Hello:
        """Returns the board's versions, backends, root and free bytes."""
        found: Hello = self._request("hello")
        return found

    def probe(self) -> Probe:
        """Returns ``edgekit.probe/1``: the facts that a build needs, with JetPack's version.

        If the loader runs in a container, facts that only the board can see come from the board,
        and the software is the container's.
        """
        from edgekit.targets.jetpack import jetpack_of_l4t

        found: Probe = self._request("probe", timeout=timeouts.WORK_S)
        if self.board.container:
            outside: Probe = self._request_outside("probe", "--remember")
            notes = [f"board: {note}" for note in outside.notes]
            notes += [f"container: {note}" for note in found.notes]
            found = replace(
                found,
                **{name: getattr(outside, name) for name in _OUTSIDE},
                dla=replace(found.dla, devices=outside.dla.devices),
                notes=tuple(notes),
            )
        return replace(found, jetpack=jetpack_of_l4t(found.l4t) if found.l4t else None)

    def sample(
        self,
        on_sample: Callable[[LiveSample], bool],
        *,
        interval_ms: int = 1000,
        count: int = 0,
    ) -> None:
        """Samples the board (docs/monitoring.md).

        Args:
            on_sample: Called with each sample; returns False to stop.
            interval_ms: Milliseconds between two samples.
            count: Number of samples; 0 for no limit.

        Raises:
            BoardError: The board failed, or was silent for too long ("board.timeout").
        """
        options = (f"--interval-ms={interval_ms}", f"--count={count}", "--watch-stdin=0")

        def run(**more: Any) -> Completed:
            # a container cannot see all counters of the board
            return self._run("sample", *options, outside=True, **more)

        take_samples(run, on_sample, self.name, self.board.python, interval_ms / 1e3)

    def setup(self, *, undo: bool = False, apply: bool = False) -> SetupAnswer:
        """Returns the changes of `doctor --setup` on the board; with ``apply``, makes them."""
        options = [*(["--undo"] if undo else []), *(["--apply"] if apply else [])]
        found: SetupAnswer = self._request_outside("setup", *options)
        return found

    def trust(self, changes: TrustRequest | None = None) -> TrustAnswer:
        """Makes changes to the trusted keys, and returns the keys that may sign."""
        from edgekit_device.trust.keys import TrustRequest

        stdin = [json_line(write(changes or TrustRequest()))]
        found: TrustAnswer = self._request("trust", stdin=stdin)
        return found

    def missing(self, digests: Iterable[str], *, verify: bool = False) -> tuple[str, ...]:
        """Returns the blobs that the board lacks; with ``verify``, damaged blobs, too."""
        options = ["--verify"] if verify else []
        timeout = timeouts.WORK_S if verify else timeouts.SHORT_S
        answer = self._request(
            "missing", *options, stdin=[json_line(list(digests))], timeout=timeout
        )
        missing: tuple[str, ...] = answer.missing
        return missing

    def offer(self, manifest: bytes, signature: bytes | None) -> OfferAnswer:
        """Announces a bundle by its digest, and if it is new, by its manifest.

        The answer includes ``hello``.
        """
        from edgekit_device.release.offer import OfferAnswer

        signed = {"signature": None if signature is None else signature.decode("utf-8")}

        def send(**what: object) -> object:
            return self._request("offer", "--hello", stdin=[json_line({**what, **signed})])

        answer = send(digest=hashlib.sha256(manifest).hexdigest())
        if not isinstance(answer, OfferAnswer):
            deflated = base64.b64encode(zlib.compress(manifest, 9)).decode("ascii")
            answer = send(manifest={"deflated": deflated})
        if not isinstance(answer, OfferAnswer) or answer.hello is None:
            raise protocol_error("the board did not answer the bundle offer", self.name)
        return answer

    def receive(
        self,
        blobs: Mapping[str, Buffer],
        progress: Progress | None = None,
        *,
        partial: Mapping[str, int] | None = None,
    ) -> int:
        """Sends blobs by digest and returns the bytes sent; the board keeps partial blobs.

        Args:
            blobs: Bytes by digest.
            progress: Called in this thread with phase "send" and bytes.
            partial: Bytes of partial blobs on the board, by digest, from ``offer``.
        """
        if not blobs:
            return 0
        partial = partial or {}
        stdin = frames(blobs, partial, progress)
        self._request("receive", stdin=stdin, timeout=timeouts.LONG_S)
        return sum(len(data) - partial.get(digest, 0) for digest, data in blobs.items())

    def fetch(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Returns blobs of the board's store by digest.

        Raises:
            BoardError: "blob.missing".
        """
        if not digests:
            return {}
        stdin = [json_line(list(digests))]
        done = self._run("fetch", stdin=stdin, timeout=timeouts.LONG_S, most_out=_MOST_BYTES)
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        return read_frames(done.out, self.name, digests)

    def infer(
        self, app: str, npz: bytes, *, release: str | None = None, frames: bool = False
    ) -> bytes:
        """Runs the release on inputs in an ``.npz``, and returns the outputs as an ``.npz``."""
        options = [*_release_options(app, release), *(["--frames"] if frames else [])]
        done = self._watched(
            "infer", *options, data=npz, timeout=timeouts.WORK_S, most_out=_MOST_BYTES
        )
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        start = done.out.find(b"PK")  # skip output of the board's shell
        return done.out[max(start, 0) :]

    def bench(
        self,
        app: str,
        settings: BenchSettings | None = None,
        *,
        release: str | None = None,
        inputs: bytes | None = None,
        progress: Callable[[str, float | None], None] | None = None,
    ) -> Measurement:
        """Measures the release on the board by trtexec's method.

        Args:
            app: The application.
            settings: Settings of the measurement.
            release: The release; None: the serving release.
            inputs: An ``.npz`` with an array for each input; several frames have an additional
                leading axis. By default the bundle's samples, else its golden frames.
            progress: Called at the begin of each stage ("measure", ...) with the least seconds left
                (None: unknown), in a thread of the transport.
        """
        settings = settings or BenchSettings()
        text = json.dumps(write(settings), separators=(",", ":"))
        options = [*_release_options(app, release), f"--settings={text}"]
        options += ["--inputs"] if inputs else []
        staged = None if progress is None else StagedOutput(progress)
        options += ["--progress"] if staged else []
        limit, on_output = timeouts.LONG_S + settings.seconds(), staged.put if staged else None
        with explain_clocks(settings, self.name):
            done = self._watched(
                "bench", *options, data=inputs or b"", timeout=limit, on_output=on_output
            )
            found: Measurement = read_answer(
                staged.completed(done) if staged else done, self.name, self.board.python, "bench"
            )
            return found

    def releases(self, app: str | None = None) -> Mapping[str, AppReleases]:
        """Returns each application's releases, with the current and the previous release."""
        found: Mapping[str, AppReleases] = self._request("releases", *_release_options(app)).apps
        return found

    def app_releases(self, app: str) -> AppReleases:
        """Returns the releases of an application; none if the board does not have it."""
        from edgekit_device.release.releases import NO_RELEASES

        return self.releases(app).get(app, NO_RELEASES)

    def remove(
        self, app: str, release: str | None = None, reason: str | None = None
    ) -> tuple[str, ...]:
        """Removes a release, or the whole application if None; returns the removed releases.

        Args:
            app: The application.
            release: The release; None: all releases.
            reason: With the whole application: records the serving release as taken back, for this
                reason.
        """
        options = [] if reason is None else [f"--reason={reason}"]
        removed: tuple[str, ...] = self._request(
            "remove", *_release_options(app, release), *options
        ).removed
        return removed

    def status(self, app: str | None = None) -> BoardStatus:
        """Returns ``edgekit.board-status/1``: releases, deployments, servers, store and space."""
        found: BoardStatus = self._request(
            "status", *([f"--app={app}"] if app is not None else []), timeout=timeouts.WORK_S
        )
        return found

    def resume(self, app: str | None = None) -> tuple[Resumed, ...]:
        """Continues deployments whose process died, for example in a power cut.

        Returns:
            The continued deployments, usually none.
        """
        options = [f"--app={app}"] if app is not None else []
        if self.board.container is not None:
            # the board itself would run them outside of the container
            options.append("--no-run")
        found: tuple[Resumed, ...] = self._request(
            "resume", *options, timeout=timeouts.WORK_S
        ).resumed
        if self.board.container is not None:
            for resumed in found:
                self._run_contained(resumed.job)
        return found

    def rollback(
        self,
        app: str,
        reason: str | None = None,
        release: str | None = None,
        *,
        others_failed: bool = False,
    ) -> RolledBack:
        """Makes an earlier release serve again, never a release that was taken back.

        Args:
            app: The application.
            reason: The reason for the board's history.
            release: The release; None: the previous release.
            others_failed: True if other boards are the reason; the bundle may then be deployed
                again.
        """
        options = [f"--reason={reason}"] if reason is not None else []
        options += ["--others-failed"] if others_failed else []
        options += [f"--release={release}"] if release is not None else []
        found: RolledBack = self._request(
            "rollback", f"--app={app}", *options, timeout=timeouts.WORK_S
        )
        return found

    def serve(
        self, app: str, action: str, options: Sequence[str] = ()
    ) -> ServeAnswer | ServerStopped:
        """Starts, queries, reloads or stops the board's server of an application (docs/serving.md).

        Args:
            app: The application.
            action: "start", "status", "reload" or "stop".
            options: Options of "start", such as "--workers=2".
        """
        command, *own = _SERVE[action]
        if action == "start":
            own += options
        found: ServeAnswer | ServerStopped = self._request(
            command, f"--app={app}", *own, timeout=timeouts.WORK_S
        )
        return found

    def start_job(self, kind: str, request: object) -> StartedJob:
        """Starts a job that outlives this connection, or joins or reuses the same job.

        Args:
            kind: "build", "deploy", "plugin" or "selftest".
            request: A document of that kind; the same request to the same loader on the same board
                is the same job.
        """
        stdin = [json_line({"kind": kind, "request": write(request)})]
        # without the option the board would run the job outside of the container
        options = () if self.board.container is None else ("--no-run",)
        found: StartedJob = self._request(
            "job-start", *options, stdin=stdin, timeout=timeouts.WORK_S
        )
        if options and not found.reused and not found.joined:
            self._run_contained(found.job)
        return found

    def jobs(self) -> tuple[JobRow, ...]:
        """Returns the board's jobs, the newest first."""
        found: tuple[JobRow, ...] = self._request("job-list").jobs
        return found

    def watch_job(
        self, id: str, *, after: int = 0, patience_s: float = timeouts.RECONNECT_PATIENCE_S
    ) -> Iterator[WatchedEvent]:
        """Yields a job's events as they arrive, until it has ended.

        A lost connection is re-established for up to ``patience_s`` seconds; no event is lost or
        reported twice, and the job is not affected. A link that is silent, and silent again after
        reconnecting, is given up at once: waiting does not help.

        Args:
            id: The job.
            after: The number of the last known event.
            patience_s: Limit on reconnecting, in seconds.
        """
        from edgekit_device.jobs.job import WatchedEvent

        since: float | None = None
        mute = False
        attempt = polls = 0
        while True:
            try:
                if since is not None:
                    self._renew()
                news = self._watch(
                    id, after, timeouts.GATHER_S[min(polls, len(timeouts.GATHER_S) - 1)]
                )
            except (BoardError, EnvironmentLack) as error:
                now = time.monotonic()
                # patience counts from the first failure, not from the last
                since = since or now
                over = now - since > patience_s or (mute and error.code == _SILENT)
                if error.code not in UNREACHABLE_CODES or self._reconnect is None or over:
                    raise
                mute = error.code == _SILENT
                text = f"{error.message}; the job continues, connecting again"
                yield WatchedEvent(time.time(), "connection", 0, 0, text, 0, "running")
                time.sleep(timeouts.RECONNECT_S[min(attempt, len(timeouts.RECONNECT_S) - 1)])
                attempt += 1
                continue
            since, mute, attempt, polls = None, False, 0, polls + 1
            for event in news.events:
                phase, text = (printable(words, _MOST_TEXT) for words in (event.phase, event.text))
                yield WatchedEvent(
                    event.time, phase, event.done, event.total, text, event.n, news.state
                )
            after = news.next
            if news.ended:
                return

    def job_log(self, id: str, *, start: int = 0, most: int = 1 << 20) -> JobLog:
        """Returns at most ``most`` bytes of the log from byte ``start`` on."""
        options = (f"--job={id}", f"--from={start}", f"--most={most}")
        done = self._run("job-log", *options, timeout=timeouts.SHORT_S)
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        return read_log(done.out, start, self.name)

    def cancel_job(self, id: str, *, grace_s: float = timeouts.CANCEL_S) -> str:
        """Cancels a job and returns its state; a job that has already ended is unchanged."""
        answer = self._request(
            "job-cancel",
            f"--job={id}",
            f"--grace-s={grace_s:g}",
            timeout=timeouts.SHORT_S + grace_s,
        )
        state: str = answer.state
        return state

    def job_result(self, id: str) -> object:
        """Returns a job's result, parsed by ``edgekit.deployment.answers.job_result``; raises the
        job's error if it failed.

        A lost or silent connection is re-established once.
        """
        try:
            return self._request("job-result", f"--job={id}")
        except (BoardError, EnvironmentLack) as error:
            if error.code not in UNREACHABLE_CODES or not self._renew():
                raise
        return self._request("job-result", f"--job={id}")

    def remove_job(self, id: str) -> None:
        """Removes an ended job."""
        self._request("job-remove", f"--job={id}")

    def ensure_loader(self, progress: Progress | None = None) -> int:
        """Uploads the loader of this version if the board lacks it; returns the bytes sent."""
        running = self._agent is not None and self._agent.alive
        return 0 if running else self._connected(progress).bytes_sent

    def _connected(self, progress: Progress | None = None) -> Agent:
        """Returns the board's agent; starts it if it is not running."""
        if self._agent is not None and self._agent.alive:
            return self._agent
        data = self._loader.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        # a separate name for each version, so that hosts of different versions can share a board
        name = f"edgekit_device-{digest[:16]}.pyz"
        # in a container, `python` is the container's interpreter
        python = "python3" if self.board.container else self._python
        began = time.monotonic()
        try:
            self._agent = Agent(
                self._transport,
                python,
                self.board.root,
                name,
                digest,
                lambda: _compress(data),
                self.name,
                progress,
            )
        finally:
            self.on_command("agent", time.monotonic() - began)
        return self._agent

    def _run(
        self,
        command: str,
        *options: str,
        outside: bool = False,
        detached: str = "",
        **more: Any,
    ) -> Completed:
        """Runs a loader command.

        Args:
            command: The command's name.
            options: The command's options.
            outside: Run on the board itself even if there is a container.
            detached: Name of a detached container.
            more: See ``Agent.run``.
        """
        agent = self._connected()
        argv = [command, f"--root={agent.place.root}", *options]
        contained = self.board.container is not None and not outside
        if self.board.container is not None and contained:
            if not self._remembered:
                # a container sees neither the device tree nor L4T's release: record them on the
                # board
                self._remembered = True
                self._request_outside("probe", "--remember")
            argv = [self._python, agent.place.loader, *argv]
            argv = container_argv(self.board.container, agent.place, argv, detached=detached)
        began = time.monotonic()
        try:
            return agent.run(argv, program=contained, **more)
        except BoardError as error:
            if error.code == _SILENT:
                error.message += f" ({_DOING.get(command, f'command {command}')})"
            raise
        finally:
            self.on_command(command, time.monotonic() - began)

    def _request(
        self,
        command: str,
        *options: str,
        stdin: Iterable[Buffer] = (),
        timeout: float = timeouts.SHORT_S,
        outside: bool = False,
    ) -> Any:
        """Returns a command's answer, parsed by ``ANSWERS``."""
        done = self._run(command, *options, stdin=stdin, timeout=timeout, outside=outside)
        return read_answer(done, self.name, self.board.python, command)

    def _request_outside(self, command: str, *options: str) -> Any:
        return self._request(command, *options, outside=True)

    def _watched(self, command: str, *options: str, data: bytes = b"", **more: Any) -> Completed:
        """Runs a long command that stops when this call or this machine stops."""
        options = (*options, f"--watch-stdin={len(data)}")
        return self._run(command, *options, stdin=pieces(data), hold_input=True, **more)

    def _renew(self) -> bool:
        """Reconnects; returns False if it is not possible."""
        if self._reconnect is None:
            return False
        self.close()
        self._transport = self._reconnect()
        return True

    def _watch(self, id: str, after: int, gather_s: float) -> JobNews:
        times = (f"--wait-s={timeouts.NEWS_S:g}", f"--gather-s={gather_s:g}")
        found: JobNews = self._request(
            "job-watch",
            f"--job={id}",
            f"--after={after}",
            *times,
            timeout=timeouts.SHORT_S + timeouts.NEWS_S,
        )
        return found

    def _run_contained(self, id: str) -> None:
        """Starts the container of a prepared job; an existing container of that name already
        runs the job.
        """
        done = self._run(
            "job-run",
            f"--job={id}",
            "--foreground",
            detached=f"edgekit-job-{id}",
            timeout=timeouts.WORK_S,
        )
        if done.status != 0 and b"already in use" not in done.err:
            lines = done.err.decode("utf-8", "replace").strip().splitlines()
            last_line = printable(lines[-1], 300) if lines else "it printed nothing"
            raise BoardError(
                f"docker did not start the job: {last_line}",
                code="board.container",
                where=self.name,
                hint="check `container:` of this board; `edgekit doctor` checks docker there",
            )


@functools.lru_cache(maxsize=1)
def _compress(loader: bytes) -> bytes:
    """Returns the compressed loader; compressed once for all boards of a fleet.

    Level 9 takes three times as long as 6, for half a percent.
    """
    return zlib.compress(loader, 6)


def _release_options(app: str | None, release: str | None = None) -> list[str]:
    # an empty text is sent, and the board refuses it: only None means all
    given = {"app": app, "release": release}
    return [f"--{name}={value}" for name, value in given.items() if value is not None]
