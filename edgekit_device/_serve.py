"""The server: one loop over its clients, its workers and the signals that it gets.

It never reads a tensor and never waits for anybody: what can hang or crash is a worker's.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from typing import Dict, List, Optional

from ._errors import DeviceError
from ._notify import Notifier
from ._root import App
from ._serve_crew import Worker
from ._serve_desk import Desk
from ._serve_door import Door
from ._serve_health import Health, Record, is_clients_fault
from ._serve_line import Options
from ._serve_log import Log
from ._serve_releases import Releases
from ._serve_rescue import Rescue
from ._serve_wire import VERSION, Closed, pack, read_head

__all__ = ["Server"]

_TICK_S = 0.2
_DRAIN_S = 30.0
_FAULTS = 3  # in a row: an engine whose device is lost fails for ever


class Server:
    """Serves one app until it is told to end."""

    def __init__(self, app: App, door: Door, options: Options, log: Log, loader: List[str]) -> None:
        self.app, self.options, self.log = app, options, log
        self.health, self.record = Health(), Record(app)
        self.stopping: Optional[float] = None
        self._selector = selectors.DefaultSelector()
        self._notifier = Notifier(os.environ)
        self._told_at, self._ready = 0.0, False
        self._signals: List[int] = []
        self.rescue = Rescue(app, self.health, self.record, log.say, loader)
        self.releases = Releases(
            app, options.workers, options.threads, self.health, self.record,
            self._listen, self._unlisten, log.say, self.rescue,
        )  # fmt: skip
        self.desk = Desk(
            app, door, options, log, self.health, self.releases, self._selector, self._stop
        )

    def run(self) -> None:
        """Serves until a signal or a client says stop, and what was taken is answered."""
        wake, poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            signal.set_wakeup_fd(poke)
            for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(name, lambda number, frame: self._signals.append(number))
            self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
            self.desk.open()
            self.record.write(pid=os.getpid(), socket=str(self.desk.door.path), release=None)
            if (self.app.folder / "deployment.json").exists():
                self.rescue.command("resume")
            self.releases.look()
            looked = 0.0
            while not self._ended():
                for key, _ in self._selector.select(_TICK_S):
                    key.data()
                now = time.monotonic()
                if now - looked >= _TICK_S or self._signals:
                    looked = now
                    self._tick(now)
                self._dispatch()
                self.desk.tell_waiting()
        finally:
            signal.set_wakeup_fd(-1)
            self._notifier.tell("STOPPING=1")
            self.releases.end()
            self.desk.close()
            self.record.write(pid=None, release=None)
            self._selector.close()
            os.close(wake)
            os.close(poke)

    # workers

    def _listen(self, worker: Worker) -> None:
        self._selector.register(
            worker.socket, selectors.EVENT_READ, lambda: self._hear_worker(worker)
        )

    def _unlisten(self, worker: Worker) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker.socket)

    def _hear_worker(self, worker: Worker) -> None:
        if worker.socket.fileno() < 0:
            return  # let go in the same turn of the loop
        try:
            data = worker.receive()
            if data is None:
                return
            answer = read_head(data)
        except (Closed, DeviceError):
            self._lose(worker)
            return
        if worker.facts is None:
            self.releases.loaded(worker, answer)
            return
        request, worker.request = worker.request, None
        error = answer.get("error")
        if request is not None:
            self.desk.finish(request, pack(answer), error)
        crew = self.releases.serving
        if error is None or is_clients_fault(str(error.get("code", ""))):
            worker.faults = 0
            if crew is not None and worker in crew.workers:
                crew.streak = 0
        else:
            worker.faults += 1
            if worker.faults >= _FAULTS:
                worker.kill(error)
        if worker.retiring:
            self.releases.retire(worker)

    def _lose(self, worker: Worker) -> None:
        """A worker has gone: its request is run once more, elsewhere."""
        self._unlisten(worker)
        worker.close()
        worker.process.kill()
        how = worker.ending()
        request, worker.request = worker.request, None
        self.releases.gone(worker, how)
        if request is None:
            return
        told = worker.verdict
        if told is None and request.tries < 2 and request.peer.open:
            self.desk.line.add_first(request)
            return
        if told is None:
            told = {
                "code": "serve.crashed",
                "message": "the worker ended ({}) while it ran this, twice".format(how),
                "where": "{}/{}".format(self.app.name, worker.release),
                "hint": "look at the server's log",
            }
        self.desk.finish(request, pack({"edgekit": VERSION, "error": told}), told)

    def _dispatch(self) -> None:
        crew = self.releases.serving
        while crew is not None and len(self.desk.line):
            worker = crew.idle()
            request = None if worker is None else self.desk.line.take()
            if worker is None or request is None:
                return
            if not worker.run(request):
                worker.kill()

    # time, signals and the door

    def _tick(self, now: float) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                self.releases.look(again=True)
            else:
                self._stop()
        if not self.app.folder.is_dir():
            self.log.say("the app is gone, so the server ends")
            self._stop()
        self.desk.tick(now)
        self.releases.tick(now)
        for worker in self.releases.workers:
            late = worker.request is not None and now - worker.since > self.options.timeout_s
            if late and worker.verdict is None:
                told = DeviceError(
                    "the engine did not answer in {:g} s".format(self.options.timeout_s),
                    code="serve.timeout",
                    where="{}/{}".format(self.app.name, worker.release),
                )
                worker.kill(_fields(told))
        self._notify(now)

    def _notify(self, now: float) -> None:
        lines = []
        if not self._ready and (self.releases.serving is not None or self.releases.settled()):
            self._ready = True
            lines.append("READY=1")
        every = self._notifier.every_s
        if lines or now - self._told_at >= (every or 10.0):
            self._told_at = now
            crew = self.releases.serving
            lines.append("STATUS=" + ("no release" if crew is None else crew.release))
            if every is not None:
                lines.append("WATCHDOG=1")
            self._notifier.tell(*lines)

    def _stop(self) -> None:
        if self.stopping is None:
            self.log.say("ending: what was taken is answered first")
            self.stopping = time.monotonic()
            self.desk.shut()

    def _ended(self) -> bool:
        if self.stopping is None:
            return False
        busy = len(self.desk.line) or any(w.request is not None for w in self.releases.workers)
        return not busy or time.monotonic() - self.stopping > _DRAIN_S


def _fields(error: DeviceError) -> Dict[str, str]:
    fields: Dict[str, str] = error.to_json()["error"]
    return fields
