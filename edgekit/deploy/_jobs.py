"""Jobs of one board: long work that goes on without this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit._plain import plain
from edgekit.deploy._answers import document, failure
from edgekit.deploy._channel import LONG_S, SHORT_S, Channel
from edgekit.deploy._streams import json_line
from edgekit.errors import BoardError, EnvironmentLack

__all__ = ["JobClient", "JobLog", "read_log"]

_WAIT_S = 20.0
_MOST_TEXT = 2000
# how long the board gathers news for one answer: often at first, for a short job is most jobs
_GATHER_S = (0.5, 0.5, 1.0, 2.0)
_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_CUT = ("board.connection-lost", "board.timeout", "board.unreachable")


@dataclass(frozen=True, slots=True)
class JobLog:
    """A part of a job's log: its bytes, where it ends, the whole log's size, the job's state."""

    data: bytes
    end: int
    size: int
    state: str


def read_log(out: bytes, start: int, where: str) -> JobLog:
    """Reads the answer of ``job-log``: a line of facts, then as many bytes as it says.

    Raises:
        BoardError: "board.protocol".
    """
    out = out[max(out.find(b'{"log":'), 0) :]  # after what the board's shell prints
    head, _, data = out.partition(b"\n")
    try:
        facts = json.loads(head)
        size, whole = facts["bytes"], facts["size"]
        if type(size) is not int or type(whole) is not int or not 0 <= size <= len(data):
            raise ValueError(size)
        return JobLog(data[:size], start + size, whole, str(facts["state"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BoardError(
            "the board's answer is no log", code="board.protocol", where=where
        ) from error


class JobClient(Channel):
    """The commands about jobs. An ``id`` is what ``start_job`` and ``jobs`` give as "job"."""

    def start_job(self, kind: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Starts work that outlives this connection, or joins or reuses the very same.

        Args:
            kind: "build" or "selftest".
            request: What to do; the same request to the same loader on the same board is the
                same job.

        Returns:
            "job" (its id), "state", "reused" (it was done before, its result is there) and
            "joined" (somebody started it before, and it still runs).
        """
        stdin = [json_line({"kind": kind, "request": request})]
        if self.board.container is None:
            answer = self._ask("job-start", stdin=stdin, timeout=LONG_S)
        else:
            answer = self._ask("job-start", "--no-run", stdin=stdin, timeout=LONG_S)
            if not answer["reused"] and not answer["joined"]:
                self._run_contained(answer["job"])
        return answer

    def jobs(self) -> list[dict[str, Any]]:
        """Returns the board's jobs, the newest first, as ``job-list`` has them."""
        return list(self._ask("job-list")["jobs"])

    def watch_job(
        self, id: str, *, after: int = 0, patience_s: float = 600.0
    ) -> Iterator[dict[str, Any]]:
        """Yields a job's news as they come, until it has ended.

        A connection that is cut is made again for up to ``patience_s`` seconds; no event is lost
        or told twice. The job does not notice.

        Args:
            id: The job.
            after: The number of the last event known.
            patience_s: How long to try to reach the board again.

        Yields:
            "n" (counts from 1; 0 where the phase is "connection": the board was not reached),
            "time" (seconds since 1970 by the board's clock), "phase", "done", "total" (0: not
            known), "text" and "state".
        """
        since: float | None = None
        attempt = asked = 0
        while True:
            try:
                if since is not None:
                    self._renew()
                news = self._watch(id, after, _GATHER_S[min(asked, len(_GATHER_S) - 1)])
            except (BoardError, EnvironmentLack) as error:
                now = time.monotonic()
                since = since or now
                if error.code not in _CUT or self._reconnect is None or now - since > patience_s:
                    raise
                text = f"{error.message}; the job goes on, trying again"
                yield {"n": 0, "time": time.time(), "phase": "connection", "done": 0, "total": 0,
                       "text": text, "state": "running"}  # fmt: skip
                time.sleep(_AGAIN_S[min(attempt, len(_AGAIN_S) - 1)])
                attempt += 1
                continue
            since, attempt, asked = None, 0, asked + 1
            for event in news["events"]:
                words = {name: plain(event[name], _MOST_TEXT) for name in ("phase", "text")}
                yield {**event, **words, "state": news["state"]}
            after = news["next"]
            if news["ended"]:
                return

    def job_log(self, id: str, *, start: int = 0, most: int = 1 << 20) -> JobLog:
        """Returns at most ``most`` bytes of the log from byte ``start`` on."""
        argv = self._argv("job-log", f"--job={id}", f"--from={start}", f"--most={most}")
        done = self._run("job-log", argv, timeout=SHORT_S)
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        return read_log(done.out, start, self.name)

    def cancel_job(self, id: str, *, grace_s: float = 10.0) -> str:
        """Ends a job and returns its state then; one that has ended already stays as it is."""
        answer = self._ask(
            "job-cancel", f"--job={id}", f"--grace-s={grace_s:g}", timeout=SHORT_S + grace_s
        )
        return str(answer["state"])

    def job_result(self, id: str) -> dict[str, Any]:
        """Returns what a job made; raises its error when it failed."""
        return self._ask("job-result", f"--job={id}")

    def remove_job(self, id: str) -> None:
        """Forgets a job that has ended."""
        self._ask("job-remove", f"--job={id}")

    def _watch(self, id: str, after: int, gather_s: float) -> dict[str, Any]:
        times = (f"--wait-s={_WAIT_S:g}", f"--gather-s={gather_s:g}")
        argv = self._argv("job-watch", f"--job={id}", f"--after={after}", *times)
        done = self._run("job-watch", argv, timeout=SHORT_S + _WAIT_S)
        return document(done, self.name, self.board.python, "job-watch")

    def _run_contained(self, id: str) -> None:
        """Starts the container of a prepared job; one of its name runs that job already."""
        argv = self._argv("job-run", f"--job={id}", "--foreground", detached=f"edgekit-job-{id}")
        done = self._run("job-run", argv, timeout=LONG_S)
        if done.status != 0 and b"already in use" not in done.err:
            raise BoardError(
                f"docker did not start the job: {_last(done.err)}",
                code="board.container",
                where=self.name,
                hint="see `container:` of this board; `edgekit doctor` checks docker there",
            )


def _last(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return plain(lines[-1], 300) if lines else "it said nothing"
