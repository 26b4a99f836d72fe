"""The release that a server answers with, according to ``current``, and its counters."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from typing import Callable, Deque, List, Optional, Tuple, Union

from edgekit_device.benchmark.statistics import median, percentile
from edgekit_device.errors import family
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.serving import FailedAnswer, LastError, Latency, Ready
from edgekit_device.release.journal import timestamp
from edgekit_device.serve.pool import ServeOptions, Worker, WorkerPool
from edgekit_device.store.root import App

_LAST = 1000
_CLIENTS = ("serve.protocol", "serve.memory", "serve.room", "serve.busy", "serve.version")

_LOAD_S = 600.0
_END_S = 10.0
_MOST_RETRY_S = 30.0


def is_clients_fault(code: str) -> bool:
    """Returns True for the code of a wrong request, or of a request too many."""
    return family(code) == "input" or code in _CLIENTS


class ServerCounters:
    """Counters since the server's start, and the latencies of the last requests."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.requests = 0
        self.errors = 0
        self.refused = 0
        self.restarts = 0
        self.last_error: Optional[LastError] = None
        self._latencies: Deque[float] = deque(maxlen=_LAST)

    def count_answer(self, seconds: float, error: Optional[Failure]) -> None:
        """Counts an answer to a request for outputs."""
        self.requests += 1
        if error is None:
            self._latencies.append(seconds)
        elif is_clients_fault(error.code):
            self.refused += 1
        else:
            self.errors += 1
            self.note_error(error)

    def note_error(self, error: Failure) -> None:
        """Records the last error, with the time."""
        self.last_error = LastError(error.code, error.message, error.where, error.hint, timestamp())

    @property
    def uptime_s(self) -> float:
        """Seconds since the server's start."""
        return round(time.monotonic() - self._began, 3)

    def latency(self) -> Optional[Latency]:
        """Returns the latency of the last requests; None before the first."""
        found = self._latencies
        if not found:
            return None
        middle, high = median(found), percentile(found, 99)
        return Latency(round(middle * 1e3, 4), round(high * 1e3, 4), len(found))


class ServedReleases:
    """The pool that serves, the pool that loads, and the workers that end.

    Args:
        app: The app.
        options: The number of workers of a pool, and the threads of each engine.
        health: The server's counters.
        log: Called with each line of the log.
        listen: Called with every worker that starts: from then on the server reads its socket.
        unlisten: Called with a worker whose socket must not be read any more.
    """

    def __init__(
        self,
        app: App,
        options: ServeOptions,
        health: ServerCounters,
        log: Callable[[str], None],
        listen: Callable[[Worker], None],
        unlisten: Callable[[Worker], None],
    ) -> None:
        self.app, self.options, self.health, self.log = app, options, health, log
        self.serving: Optional[WorkerPool] = None
        self.loading: Optional[WorkerPool] = None
        #: The release that did not load, and its error.
        self.failed: Optional[Tuple[str, Failure]] = None
        self._listen, self._unlisten = listen, unlisten
        self._retiring: List[Worker] = []
        self._ending: List[Tuple[Worker, float]] = []
        self._retries, self._retry_at = 0, 0.0

    @property
    def workers(self) -> List[Worker]:
        """Returns every worker that may still answer."""
        pools = [pool for pool in (self.serving, self.loading) if pool is not None]
        return [worker for pool in pools for worker in pool.workers] + self._retiring

    def is_settled(self) -> bool:
        """Returns True if the current release serves, or is known to have failed."""
        wanted = self.app.link("current")
        if self.loading is not None:
            return False
        if self.failed is not None and self.failed[0] == wanted:
            return True
        return wanted == (None if self.serving is None else self.serving.release)

    def check_current(self, again: bool = False) -> None:
        """Compares the serving release with ``current`` and begins to load a new current release.

        Args:
            again: True to retry a release that did not load.
        """
        wanted = self.app.link("current")
        if self.loading is not None:
            if self.loading.release == wanted:
                return
            # ``current`` changed again during the load
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
            # another release serves: do not load again by itself what failed. If none serves, retry
            # with growing delays, since the cause (memory, device) may pass
            elif not again and (self.serving is not None or time.monotonic() < self._retry_at):
                return
        self.failed = None
        self.log("loading {}".format(wanted))
        self.loading = WorkerPool(self.app, wanted, self.options.workers, self.options.threads)
        # beside the serving workers: both releases are in memory until the switch
        for _ in range(self.options.workers):
            self._hire(self.loading)

    def handle_loaded(self, worker: Worker, answer: Union[Ready, FailedAnswer]) -> None:
        """Handles a worker's message that it is ready, or why it cannot load the release."""
        pool = self.loading
        if isinstance(answer, FailedAnswer):
            if pool is not None and worker in pool.workers:
                self._fail(pool, answer.error)
            else:
                # it replaces a crashed worker: it ends now, which counts as its crash
                worker.verdict = answer.error
            return
        worker.facts = answer
        if pool is None or not pool.ready:
            return
        before, self.serving, self.loading = self.serving, pool, None
        self._retries = 0
        self.log("serving {}".format(pool.release))
        # only now: until all new workers are ready, the previous ones answer
        if before is not None:
            self._dismiss(before)

    def handle_exit(self, worker: Worker, how: str) -> None:
        """Handles the end of a worker's socket; the caller answers the worker's request."""
        now = time.monotonic()
        error = worker.verdict or Failure(
            "serve.crashed",
            "the process that had the release loaded ended ({})".format(how),
            "{}/{}".format(self.app.name, worker.release),
            "check the server's log; if the runtime crashed, the release or the board is the cause",
        )
        if worker in self._retiring:
            # its release was replaced, so it needs no replacement
            self._retiring.remove(worker)
            return
        if self.loading is not None and worker in self.loading.workers:
            self._fail(self.loading, error)
        elif self.serving is not None and worker in self.serving.workers:
            pool = self.serving
            pool.workers.remove(worker)
            self.health.restarts += 1
            self.health.note_error(error)
            pool.note_crash(now)
            self.log("a worker of {} ended: {}".format(pool.release, error.message))
            self._fill(pool, now)

    def retire(self, worker: Worker) -> None:
        """Ends a worker whose last request is answered."""
        if worker in self._retiring:
            self._retiring.remove(worker)
            self._end(worker)

    def tick(self, now: float) -> None:
        """Loads a new release, replaces crashed workers, and ends workers that take too long."""
        self.check_current()
        if self.loading is not None and now - self.loading.since > _LOAD_S:
            message = "it was not loaded within {:g} s".format(_LOAD_S)
            self._fail(self.loading, Failure("serve.load-timeout", message, "", ""))
        if self.serving is not None:
            self._fill(self.serving, now)
            for worker in self.serving.workers:
                # a replacement that hangs while it loads; a new release is handled above
                if worker.facts is None and now - worker.since > _LOAD_S:
                    worker.kill()
        for worker, until in list(self._ending):
            if worker.process.poll() is not None:
                self._ending.remove((worker, until))
            elif now > until:
                worker.process.kill()

    def end(self) -> None:
        """Ends every worker, waits for each, and kills those that do not end."""
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

    def _fail(self, pool: WorkerPool, error: Failure) -> None:
        """Handles a release that does not load: the previous release continues to serve."""
        self.loading = None
        self.failed = (pool.release, error)
        self._retries += 1
        self._retry_at = time.monotonic() + min(2.0**self._retries, _MOST_RETRY_S)
        self.health.note_error(error)
        self.log("{} failed to load: {}".format(pool.release, error.message))
        self._dismiss(pool)

    def _dismiss(self, pool: WorkerPool) -> None:
        for worker in pool.workers:
            # it answers its request first; a killed worker will not
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
            worker.process.kill()  # it loads and does not read its socket until then
        self._ending.append((worker, time.monotonic() + _END_S))
