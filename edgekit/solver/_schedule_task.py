"""The worker's part of ``_schedule``: devices work side by side until the last network ends.

On top of the order of ``_steps_task`` every node off the cores, every loadable and every transfer
is an optional interval, and the intervals of a device do not overlap. A loadable reads all it
needs before it starts and has its outputs when it ends. ``_schedule_runs_task`` has a smaller
model for loadables along an order, and for nodes by themselves.
"""

from __future__ import annotations

from typing import Any

from edgekit.solver._schedule_runs_task import Runs
from edgekit.solver._steps_task import Steps, search

__all__ = ["solve"]


def solve(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Solves the integer problem that ``_schedule`` describes.

    Returns:
        As ``_steps_task.solve``, with ``start`` by node and by [transfer, way].
    """
    return search(Runs if request["kind"] == "runs" else _Schedule, request, seconds)


class _Schedule(Steps):
    def _goal(self) -> None:
        model, asked = self.model, self.asked
        self.most = model.new_int_var(asked["lower"], asked["upper"], "")
        self.work: dict[int, list[Any]] = {}
        self.begin = [self._time() for _ in self.nodes]  # when a node needs its inputs
        self.ready = [self._time() for _ in self.nodes]  # when its outputs are there
        for v in self.nodes:
            model.add(self.ready[v] <= self.most)
            for m, b in self.mode[v].items():
                device, us, delay = asked["times"][v][str(m)]
                if device not in asked["cores"]:
                    self._interval(device, self.begin[v], us, b)
                    model.add(self.ready[v] >= self.begin[v] + us + delay).only_enforce_if(b)
        self.member: list[dict[int, Any]] = [{} for _ in self.nodes]
        for net, used in zip(asked["networks"], self.used, strict=True):
            self._units(net, used)
        for net in asked["networks"]:
            for u, v in net["edges"]:
                self._before(u, v)
        self.sent = [
            self._sending(t, transfer, ways)
            for t, (transfer, ways) in enumerate(zip(asked["transfers"], self.ways, strict=True))
        ]
        for works in self.work.values():
            model.add_no_overlap(works)
        sums = self._sums()
        for index, total in enumerate(sums):
            limit = asked["measures"][index]["limit"]
            if limit is not None:
                model.add(total <= limit)
            if index in asked["objective"]:
                model.add(total <= self.most)  # a device's load
        for first, twin in asked["twins"]:
            model.add(sums[first] >= sums[twin])
        model.minimize(self.most)

    def _slots(self) -> None:
        twins, self.asked["twins"] = self.asked["twins"], []
        super()._slots()
        self.asked["twins"] = twins  # told apart by their loads here

    def _time(self) -> Any:
        return self.model.new_int_var(0, self.asked["upper"], "")

    def _interval(self, device: int, start: Any, us: Any, chosen: Any) -> None:
        interval = self.model.new_optional_interval_var(start, us, start + us, chosen, "")
        self.work.setdefault(device, []).append(interval)

    def _units(self, net: dict[str, Any], used: dict[int, Any]) -> None:
        """The loadables of a network as intervals, and their nodes' times."""
        model, asked = self.model, self.asked
        where = asked["mode_device"]
        for p, devices in enumerate(net["positions"]):
            if devices[0] not in asked["cores"]:
                continue
            core = devices[0]
            start, end = self._time(), self._time()
            length, lag = asked["launch_times"][asked["cores"].index(core)], 0
            for v in net["nodes"]:
                modes = [m for m in self.mode[v] if where[m] == core]
                if not modes:
                    continue
                inside = model.new_bool_var("")
                model.add(inside == self.inside(v, p))
                self.member[v][p] = inside
                model.add(self.begin[v] == start).only_enforce_if(inside)
                model.add(self.ready[v] >= end).only_enforce_if(inside)
                for m in modes:
                    _, us, delay = asked["times"][v][str(m)]
                    both = inside
                    if len(modes) > 1:
                        both = model.new_bool_var("")
                        model.add_bool_or([~inside, ~self.mode[v][m], both])
                        model.add_implication(both, inside)
                        model.add_implication(both, self.mode[v][m])
                    length = length + us * both
                    lag = lag + delay * both
            work, stop = self._time(), self._time()
            model.add(work == length).only_enforce_if(used[p])
            model.add(end >= stop + lag).only_enforce_if(used[p])
            interval = model.new_optional_interval_var(start, work, stop, used[p], "")
            self.work.setdefault(core, []).append(interval)

    def _before(self, u: int, v: int) -> None:
        """A node's inputs are there when it starts, but for those from its own loadable."""
        cores = set(self.asked["cores"])
        where = self.asked["mode_device"]
        for m, b in self.mode[u].items():
            if where[m] not in cores:
                self.model.add(self.ready[u] <= self.begin[v]).only_enforce_if(b)
        for p, inside in self.member[u].items():
            later = self.after[v][p + 1]
            row = [inside] if isinstance(later, int) else [inside, later]
            if not isinstance(later, int) or later:
                self.model.add(self.ready[u] <= self.begin[v]).only_enforce_if(row)

    def _sending(self, index: int, transfer: dict[str, Any], ways: list[Any]) -> list[Any]:
        """The ways of a transfer as intervals between its producer and those who need it."""
        model, asked = self.model, self.asked
        starts = []
        for w, chosen in enumerate(ways):
            device, us, delay = asked["way_times"][index][w]
            start = self._time()
            starts.append(start)
            if device >= 0 and us:
                self._interval(device, start, us, chosen)
            model.add(start + us + delay <= self.most).only_enforce_if(chosen)
            for producer in sorted({clause[0] for clause in transfer["clauses"]}):
                if producer >= 0:
                    model.add(self.ready[producer] <= start).only_enforce_if(chosen)
            for producer, writes, consumer, reads in transfer["clauses"]:
                if consumer < 0:
                    continue
                for writing in writes or [None]:
                    for reading in reads:
                        if reading not in self.mode[consumer]:
                            continue
                        row = [chosen, self.mode[consumer][reading]]
                        if writing is not None and producer >= 0:
                            if writing not in self.mode[producer]:
                                continue
                            row.append(self.mode[producer][writing])
                        before = model.add(start + us + delay <= self.begin[consumer])
                        before.only_enforce_if(row)
        return starts

    def answer(self, solver: Any) -> dict[str, Any]:
        return {
            **super().answer(solver),
            "start": [solver.value(t) for t in self.begin],
            "sent": [[solver.value(t) for t in starts] for starts in self.sent],
        }
