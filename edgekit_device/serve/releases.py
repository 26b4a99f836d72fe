"""Which release a server answers with: it follows ``current``, counts crashes and goes back from a
release that crashes as soon as it serves.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.files import write_durably
from edgekit_device.release.journal import is_claimed
from edgekit_device.release.releases import earlier
from edgekit_device.serve.messages import RECORD, read_record
from edgekit_device.serve.pool import Worker, WorkerPool, environment
from edgekit_device.store.root import App

_LAST = 1000
_MOST_PROVEN = 16
_CLIENTS = ("input.", "serve.protocol", "serve.memory", "serve.room", "serve.busy", "serve.version")
_CRASHES = 3

_LOAD_S = 600.0
_END_S = 10.0
_MOST_RETRY_S = 30.0


def is_clients_fault(code: str) -> bool:
    """Whether an error says that the request was wrong, or one too many."""
    return code.startswith(_CLIENTS)


class ServerCounters:
    """Counters since the server's start, and the latencies of the last requests."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.requests = 0
        self.errors = 0
        self.refused = 0
        self.restarts = 0
        self.last_error: Optional[Dict[str, Any]] = None
        self.rolled_back: Optional[Dict[str, Any]] = None
        self._latencies: Deque[float] = deque(maxlen=_LAST)

    def answered(self, seconds: float, error: Optional[Mapping[str, Any]]) -> None:
        """Counts an answer to a request for outputs."""
        self.requests += 1
        if error is None:
            self._latencies.append(seconds)
        elif is_clients_fault(str(error.get("code", ""))):
            self.refused += 1
        else:
            self.errors += 1
            self.note(error)

    def note(self, error: Mapping[str, Any]) -> Dict[str, Any]:
        """Keeps an error as the last one; returns it with the time."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        fields = {name: str(error.get(name, "")) for name in ("code", "message", "where", "hint")}
        self.last_error = dict(fields, at=at)
        return self.last_error

    def to_json(self) -> Dict[str, Any]:
        """Its part of an ``edgekit.serving/1``."""
        found = sorted(self._latencies)
        latency = None
        if found:
            half = len(found) // 2
            median = (found[half] + found[-half - 1]) / 2
            latency = {
                "p50": round(median * 1e3, 4),
                "p99": round(found[min(len(found) - 1, len(found) * 99 // 100)] * 1e3, 4),
                "of_last": len(found),
            }
        return {
            "uptime_s": round(time.monotonic() - self._began, 3),
            "requests": self.requests,
            "errors": self.errors,
            "refused": self.refused,
            "restarts": self.restarts,
            "latency_ms": latency,
            "last_error": self.last_error,
            "rolled_back": self.rolled_back,
        }


class ServerRecord:
    """serving.json: where the server listens, and which releases have been seen to work.

    Attributes:
        proven: Releases that served for a minute without a crash.
        given_up: Releases that crashed and were taken back.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        before = read_record(app.folder)
        here = set(app.releases())
        self.proven: List[str] = [r for r in before.get("proven") or [] if r in here]
        self.given_up: List[str] = [r for r in before.get("given_up") or [] if r in here]
        self._fields: Dict[str, Any] = {}

    def write(self, **fields: Any) -> None:
        """Writes it with these fields changed; a full disk does not stop a server."""
        self._fields.update(fields)
        document = dict(
            self._fields,
            schema="edgekit.serving-record/1",
            proven=self.proven[-_MOST_PROVEN:],
            given_up=self.given_up[-_MOST_PROVEN:],
        )
        with contextlib.suppress(OSError, DeviceError):
            data = (json.dumps(document, sort_keys=True) + "\n").encode("utf-8")
            write_durably(self._app.folder / RECORD, data)


class CrashRollback:
    """Starts ``rollback`` after the third crash of a new release within a minute.

    Args:
        app: Whose releases.
        health: Records it.
        record: Which releases are proven, and which were given up.
        log: Takes one line.
        loader: The program that commands are given to.
    """

    def __init__(
        self,
        app: App,
        health: ServerCounters,
        record: ServerRecord,
        log: Callable[[str], None],
        loader: List[str],
    ) -> None:
        self.app, self.health, self.record, self.log = app, health, record, log
        self._loader = loader
        self._commands: Dict[str, subprocess.Popen[bytes]] = {}

    def consider(self, pool: WorkerPool, now: float) -> None:
        """Goes back if a pool has crashed too often and the release is to blame."""
        if pool.recent(now) < _CRASHES or "rollback" in self._commands:
            return
        release = self.app.link("current")
        known = self.record.proven + self.record.given_up
        if release != pool.release or release in known or is_claimed(self.app):
            return  # a deployment that is under way judges its release itself
        previous = earlier(self.app)
        if previous is None or previous in self.record.given_up:
            return
        self.record.given_up.append(pool.release)
        self.record.write()
        error = DeviceError(
            "it crashed {} times within a minute, so the server goes back to {}".format(
                _CRASHES, previous
            ),
            code="serve.rolled-back",
            where="{}/{}".format(self.app.name, pool.release),
        )
        self.health.rolled_back = self.health.note(error.to_json()["error"])
        self.log("{}: {}".format(error.where, error.message))
        self.command("rollback", "--reason", error.message)

    def command(self, name: str, *options: str) -> None:
        """Starts a command of the loader in a process of its own."""
        argv = [*self._loader, name, "--root", str(self.app.root.folder), "--app", self.app.name]
        argv += options
        self._commands[name] = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )

    def reap(self) -> bool:
        """Whether a command has ended since; one that failed is logged."""
        ended = False
        for name, process in list(self._commands.items()):
            if process.poll() is None:
                continue
            del self._commands[name]
            assert process.stdout is not None
            with process.stdout:
                said = process.stdout.read(1 << 16).decode("utf-8", "replace").strip()
            if process.returncode:
                self.log("{} failed: {}".format(name, _message(said)))
                if name == "rollback":
                    self.health.rolled_back = None
                    error = DeviceError(_message(said), code="serve.rollback-failed", where=name)
                    self.health.note(error.to_json()["error"])
            ended = True
        return ended


def _message(said: str) -> str:
    try:
        return str(json.loads(said)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return said[-200:]


class ServedReleases:
    """The pool that serves, the one that loads, and the workers that end.

    Args:
        app: Whose releases.
        count: Workers of a pool.
        threads: Of each engine; 0 takes the backend's default.
        health: Records crashes and failures.
        record: What is known of releases.
        listen: Is called with every worker that starts: the server reads its socket from then on.
        unlisten: Is called when its socket is to be read no more.
        log: Takes one line.
        rescue: Goes back to the release before.
    """

    def __init__(
        self,
        app: App,
        count: int,
        threads: int,
        health: ServerCounters,
        record: ServerRecord,
        listen: Callable[[Worker], None],
        unlisten: Callable[[Worker], None],
        log: Callable[[str], None],
        rescue: CrashRollback,
    ) -> None:
        self.app, self.count, self.threads = app, count, threads
        self.health, self.record, self.log = health, record, log
        self.serving: Optional[WorkerPool] = None
        self.loading: Optional[WorkerPool] = None
        #: The release that did not load, and its error's fields.
        self.failed: Optional[Tuple[str, Dict[str, Any]]] = None
        self._listen, self._unlisten, self._rescue = listen, unlisten, rescue
        self._retiring: List[Worker] = []
        self._ending: List[Tuple[Worker, float]] = []
        self._retries, self._retry_at = 0, 0.0

    @property
    def workers(self) -> List[Worker]:
        """Every worker that may still answer."""
        pools = [pool for pool in (self.serving, self.loading) if pool is not None]
        return [worker for pool in pools for worker in pool.workers] + self._retiring

    def settled(self) -> bool:
        """Whether the current release serves, or is known to have failed."""
        wanted = self.app.link("current")
        if self.loading is not None:
            return False
        if self.failed is not None and self.failed[0] == wanted:
            return True
        return wanted == (None if self.serving is None else self.serving.release)

    def look(self, again: bool = False) -> None:
        """Compares what serves with ``current`` and begins to load what that is now.

        Args:
            again: Tries a release anew that did not load.
        """
        wanted = self.app.link("current")
        if self.loading is not None:
            if self.loading.release == wanted:
                return
            self._dismiss(self.loading)
            self.loading = None
        if wanted is None:
            if self.serving is not None:
                self.log("there is no current release any more")
                self._dismiss(self.serving)
                self.serving = None
            return
        if self.serving is not None and self.serving.release == wanted:
            self.failed = None
            return
        if self.failed is not None:
            if self.failed[0] != wanted:
                self._retries = 0
            elif not again and (self.serving is not None or time.monotonic() < self._retry_at):
                return
        self.failed = None
        self.log("loading {}".format(wanted))
        self.loading = WorkerPool(self.app, wanted, self.count, self.threads)
        for _ in range(self.count):
            self._hire(self.loading)

    def loaded(self, worker: Worker, answer: Mapping[str, Any]) -> None:
        """A worker has said that it is ready, or why it cannot be."""
        error = answer.get("error")
        pool = self.loading
        if error is not None:
            if pool is not None and worker in pool.workers:
                self._fail(pool, dict(error))
            else:
                # in place of a crashed one: it ends now, which counts as its crash
                worker.verdict = dict(error)
            return
        worker.facts, worker.request = dict(answer), None
        if pool is None or not pool.ready:
            return
        before, self.serving, self.loading = self.serving, pool, None
        pool.since = time.monotonic()
        self._retries = 0
        self.log("serving {}".format(pool.release))
        self.record.write(release=pool.release)
        if before is not None:
            self._dismiss(before)

    def gone(self, worker: Worker, how: str) -> None:
        """A worker's socket has ended; what it ran is the caller's to answer."""
        now = time.monotonic()
        error = worker.verdict or {
            "code": "serve.crashed",
            "message": "the process that had the release loaded ended ({})".format(how),
            "where": "{}/{}".format(self.app.name, worker.release),
            "hint": "look at the server's log; a runtime that crashes is the release's or the "
            "board's fault",
        }
        if worker in self._retiring:
            self._retiring.remove(worker)
            return
        if self.loading is not None and worker in self.loading.workers:
            self._fail(self.loading, error)
        elif self.serving is not None and worker in self.serving.workers:
            pool = self.serving
            pool.workers.remove(worker)
            self.health.restarts += 1
            self.health.note(error)
            pool.crashed(now)
            self.log("a worker of {} ended: {}".format(pool.release, error["message"]))
            self._rescue.consider(pool, now)
            self._fill(pool, now)

    def retire(self, worker: Worker) -> None:
        """Lets a worker go whose last request is answered."""
        if worker in self._retiring:
            self._retiring.remove(worker)
            self._end(worker)

    def tick(self, now: float) -> None:
        """Looks after everything that only time brings."""
        self.look()
        if self.loading is not None and now - self.loading.since > _LOAD_S:
            error = DeviceError(
                "it was not loaded after {:g} s".format(_LOAD_S), code="serve.load-timeout"
            )
            self._fail(self.loading, error.to_json()["error"])
        if self.serving is not None:
            self._fill(self.serving, now)
            for worker in self.serving.workers:
                if worker.facts is None and now - worker.since > _LOAD_S:
                    worker.kill()
            release = self.serving.release
            if self.serving.steady(now) and release not in self.record.proven:
                self.record.proven.append(release)
                if release in self.record.given_up:
                    self.record.given_up.remove(release)
                self.record.write()
            self._rescue.consider(self.serving, now)
        for worker, until in list(self._ending):
            if worker.process.poll() is not None:
                self._ending.remove((worker, until))
            elif now > until:
                worker.process.kill()
        if self._rescue.reap():
            self.look()

    def end(self) -> None:
        """Ends every worker; waits for each, and kills those that do not go."""
        for worker in self.workers:
            self._end(worker)
        for worker, until in self._ending:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _hire(self, pool: WorkerPool) -> None:
        self._listen(pool.hire())

    def _fill(self, pool: WorkerPool, now: float) -> None:
        while len(pool.workers) < pool.count and now >= pool.start_at:
            self._hire(pool)

    def _fail(self, pool: WorkerPool, error: Dict[str, Any]) -> None:
        """The release that was to serve does not load: what served before serves on."""
        self.loading = None
        self.failed = (pool.release, error)
        self._retries += 1
        self._retry_at = time.monotonic() + min(2.0**self._retries, _MOST_RETRY_S)
        self.health.note(error)
        self.log("{} did not load: {}".format(pool.release, error.get("message")))
        self._dismiss(pool)

    def _dismiss(self, pool: WorkerPool) -> None:
        for worker in pool.workers:
            if worker.request is not None and worker.verdict is None:
                worker.retiring = True
                self._retiring.append(worker)
            else:
                self._end(worker)
        pool.workers = []

    def _end(self, worker: Worker) -> None:
        self._unlisten(worker)
        worker.close()
        if worker.facts is None:
            worker.process.kill()  # it loads, and would not look at its socket for long
        self._ending.append((worker, time.monotonic() + _END_S))
