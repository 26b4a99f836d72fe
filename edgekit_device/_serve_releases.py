"""Which release a server answers with: follows ``current``, and goes back after crashes."""

from __future__ import annotations

import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ._errors import DeviceError
from ._root import App
from ._serve_crew import Crew, Worker
from ._serve_health import Health, Record
from ._serve_rescue import Rescue

__all__ = ["Releases"]

_LOAD_S = 600.0
_END_S = 10.0
_MOST_RETRY_S = 30.0


class Releases:
    """The crew that serves, the one that loads, and the workers that end.

    Args:
        app: Whose releases.
        count: Workers of a crew.
        threads: Of each engine; 0 takes the backend's default.
        health: Is told of crashes and failures.
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
        health: Health,
        record: Record,
        listen: Callable[[Worker], None],
        unlisten: Callable[[Worker], None],
        log: Callable[[str], None],
        rescue: Rescue,
    ) -> None:
        self.app, self.count, self.threads = app, count, threads
        self.health, self.record, self.log = health, record, log
        self.serving: Optional[Crew] = None
        self.loading: Optional[Crew] = None
        #: The release that did not load, and its error's fields.
        self.failed: Optional[Tuple[str, Dict[str, Any]]] = None
        self._listen, self._unlisten, self._rescue = listen, unlisten, rescue
        self._retiring: List[Worker] = []
        self._ending: List[Tuple[Worker, float]] = []
        self._retries, self._retry_at = 0, 0.0

    @property
    def workers(self) -> List[Worker]:
        """Every worker that may still answer."""
        crews = [crew for crew in (self.serving, self.loading) if crew is not None]
        return [worker for crew in crews for worker in crew.workers] + self._retiring

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
        self.loading = Crew(self.app, wanted, self.count, self.threads)
        for _ in range(self.count):
            self._hire(self.loading)

    def loaded(self, worker: Worker, answer: Mapping[str, Any]) -> None:
        """A worker has said that it is ready, or why it cannot be."""
        error = answer.get("error")
        crew = self.loading
        if error is not None:
            if crew is not None and worker in crew.workers:
                self._fail(crew, dict(error))
            else:
                # in place of a crashed one: it ends now, which counts as its crash
                worker.verdict = dict(error)
            return
        worker.facts, worker.request = dict(answer), None
        if crew is None or not crew.ready:
            return
        before, self.serving, self.loading = self.serving, crew, None
        crew.since = time.monotonic()
        self._retries = 0
        self.log("serving {}".format(crew.release))
        self.record.write(release=crew.release)
        if before is not None:
            self._dismiss(before)

    def gone(self, worker: Worker, how: str) -> None:
        """A worker's socket has ended; what it ran is the caller's to answer."""
        now = time.monotonic()
        told = worker.verdict or {
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
            self._fail(self.loading, told)
        elif self.serving is not None and worker in self.serving.workers:
            crew = self.serving
            crew.workers.remove(worker)
            self.health.restarts += 1
            self.health.note(told)
            crew.crashed(now)
            self.log("a worker of {} ended: {}".format(crew.release, told["message"]))
            self._rescue.consider(crew, now)
            self._fill(crew, now)

    def retire(self, worker: Worker) -> None:
        """Lets a worker go whose last request is answered."""
        if worker in self._retiring:
            self._retiring.remove(worker)
            self._end(worker)

    def tick(self, now: float) -> None:
        """Looks after everything that only time brings."""
        self.look()
        if self.loading is not None and now - self.loading.since > _LOAD_S:
            told = DeviceError(
                "it was not loaded after {:g} s".format(_LOAD_S), code="serve.load-timeout"
            )
            self._fail(self.loading, told.to_json()["error"])
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
        if self._rescue.heard():
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

    def _hire(self, crew: Crew) -> None:
        self._listen(crew.hire())

    def _fill(self, crew: Crew, now: float) -> None:
        while len(crew.workers) < crew.count and now >= crew.start_at:
            self._hire(crew)

    def _fail(self, crew: Crew, error: Dict[str, Any]) -> None:
        """The release that was to serve does not load: what served before serves on."""
        self.loading = None
        self.failed = (crew.release, error)
        self._retries += 1
        self._retry_at = time.monotonic() + min(2.0**self._retries, _MOST_RETRY_S)
        self.health.note(error)
        self.log("{} did not load: {}".format(crew.release, error.get("message")))
        self._dismiss(crew)

    def _dismiss(self, crew: Crew) -> None:
        for worker in crew.workers:
            if worker.request is not None and worker.verdict is None:
                worker.retiring = True
                self._retiring.append(worker)
            else:
                self._end(worker)
        crew.workers = []

    def _end(self, worker: Worker) -> None:
        self._unlisten(worker)
        worker.close()
        if worker.facts is None:
            worker.process.kill()  # it loads, and would not look at its socket for long
        self._ending.append((worker, time.monotonic() + _END_S))
