"""The worker's part of ``_schedule`` where a loadable is a run of its network's order.

Every node is an interval on its device. In an order of a network, given as each node's
``previous`` one, a node on a core may be joined to the one before it: it starts when that one
ends, and both are of one loadable, whose launch its first node pays. Along a path that is every
loadable there can be. Without launches and limits (no order given) nothing is ever joined.
"""

from __future__ import annotations

from typing import Any

from edgekit.solver._steps_task import Steps

__all__ = ["Runs"]


class Runs(Steps):
    def _slots(self) -> None:
        """Which nodes are joined, and what limits loadables and device changes."""
        model, asked = self.model, self.asked
        where = asked["mode_device"]
        self.previous = asked["previous"] or [-1] * len(self.nodes)
        self.on_device: list[dict[int, Any]] = []
        for choice in self.mode:
            modes: dict[int, list[Any]] = {}
            for m, b in choice.items():
                modes.setdefault(where[m], []).append(b)
            self.on_device.append({d: self._any(some) for d, some in modes.items()})
        self.join = [0 if u < 0 else model.new_bool_var("") for u in self.previous]
        self.opens: list[dict[int, Any]] = [{} for _ in self.nodes]
        if asked["previous"]:
            for v in self.nodes:
                self._joined(v)
            self._limits()
        self.count = {
            core: sum(opens[core] for opens in self.opens if core in opens)
            for core in asked["cores"]
        }
        if asked["max_loadables"] is not None:
            for total in self.count.values():
                if not isinstance(total, int):
                    model.add(total <= asked["max_loadables"])

    def _limits(self) -> None:
        """What fits into a loadable, what it has at least, and how often a network moves."""
        model, asked = self.model, self.asked
        for window in asked["windows"]:
            model.add_bool_or([~self.join[v] for v in window[1:]])
        for v, needed in enumerate(asked["needed"]):
            for opens in self.opens[v].values():
                if needed is None:
                    model.add(opens == 0)
                for w in needed or []:
                    model.add_implication(opens, self.join[w])
        for net in asked["networks"]:
            self._changes(net)

    def _any(self, literals: list[Any]) -> Any:
        if len(literals) == 1:
            return literals[0]
        found = self.model.new_bool_var("")
        self.model.add(sum(literals) == found)  # at most one of them holds
        return found

    def _joined(self, v: int) -> None:
        model, join, u = self.model, self.join[v], self.previous[v]
        cores = [c for c in self.asked["cores"] if c in self.on_device[v]]
        for c in cores:
            here = self.on_device[v][c]
            if u < 0:
                self.opens[v][c] = here
                continue
            self.opens[v][c] = opens = model.new_bool_var("")
            model.add_bool_or([~here, join, opens])
            model.add_implication(opens, here)
            model.add_implication(opens, ~join)
            before = self.on_device[u].get(c)
            model.add_bool_or([~join, ~here, *([] if before is None else [before])])
        if u >= 0:
            model.add_bool_or([~join, *(self.on_device[v][c] for c in cores)])

    def _changes(self, net: dict[str, Any]) -> None:
        if net["max_transitions"] is None and not net["contiguous"]:
            return
        model = self.model
        enters: dict[int, list[Any]] = {}
        first: dict[int, Any] = {}
        for v in net["nodes"]:
            u = self.previous[v]
            for d, here in self.on_device[v].items():
                if u < 0:
                    first[d] = here
                elif d not in self.on_device[u]:
                    enters.setdefault(d, []).append(here)
                else:
                    enter = model.new_bool_var("")
                    model.add_bool_or([~here, self.on_device[u][d], enter])
                    enters.setdefault(d, []).append(enter)
        if net["max_transitions"] is not None:
            changes = [enter for some in enters.values() for enter in some]
            if changes:
                model.add(sum(changes) <= net["max_transitions"])
        if net["contiguous"]:
            for d, some in enters.items():
                model.add(sum(some) + first.get(d, 0) <= 1)

    def _goal(self) -> None:
        model, asked = self.model, self.asked
        self.most = model.new_int_var(asked["lower"], asked["upper"], "")
        self.work: dict[int, list[Any]] = {}
        self.begin = [self._time() for _ in self.nodes]
        self.stop = [self._time() for _ in self.nodes]
        self.length = [self._node(v) for v in self.nodes]
        # of a loadable: when it starts and ends
        self.enter, self.leave = list(self.begin), list(self.stop)
        if asked["previous"]:
            for net in asked["networks"]:
                if not net["path"]:
                    self._units(net)
        paths = {v for net in asked["networks"] if net["path"] for v in net["nodes"]}
        free = not asked["previous"]
        for v in self.nodes:
            model.add(self._ready(v) <= self.most)
            if self.previous[v] >= 0:
                before = self.stop[self.previous[v]]
                model.add(self.begin[v] == before).only_enforce_if(self.join[v])
        for net in asked["networks"]:
            for u, v in net["edges"]:
                self._before(u, v, path=net["path"])
        self.sent = [
            self._sending(t, transfer, ways, paths, free)
            for t, (transfer, ways) in enumerate(zip(asked["transfers"], self.ways, strict=True))
        ]
        for works in self.work.values():
            model.add_no_overlap(works)
        for net in asked["networks"]:
            if net["path"]:
                self._whole(net)
        self._loads()
        model.minimize(self.most)

    def _loads(self) -> None:
        model, asked = self.model, self.asked
        sums = self._sums()
        for index, total in enumerate(sums):
            limit = asked["measures"][index]["limit"]
            if limit is not None:
                model.add(total <= limit)
            if index in asked["objective"]:
                model.add(total <= self.most)  # a device's load
        for first, twin in asked["twins"]:
            model.add(sums[first] >= sums[twin])

    def _time(self) -> Any:
        return self.model.new_int_var(0, self.asked["upper"], "")

    def _node(self, v: int) -> Any:
        """A node's intervals; returns its length."""
        model, asked = self.model, self.asked
        length: Any = 0
        for m, b in self.mode[v].items():
            device, us, _ = asked["times"][v][str(m)]
            length += us * b
            size: Any = us
            if device in self.opens[v]:
                size += asked["launch_times"][asked["cores"].index(device)] * self.opens[v][device]
            interval = model.new_optional_interval_var(self.begin[v], size, self.stop[v], b, "")
            self.work.setdefault(device, []).append(interval)
        for c, opens in self.opens[v].items():
            length += asked["launch_times"][asked["cores"].index(c)] * opens
        model.add(self.stop[v] == self.begin[v] + length)
        return length

    def _ready(self, v: int) -> Any:
        """When a node's outputs are there."""
        delays = (self.asked["times"][v][str(m)][2] * b for m, b in self.mode[v].items())
        return self.leave[v] + sum(delays)

    def _units(self, net: dict[str, Any]) -> None:
        model = self.model
        for v in net["nodes"]:
            if self.previous[v] >= 0:
                self.enter[v] = self._time()
        following = {self.previous[v]: v for v in net["nodes"]}
        for u in following:
            if u >= 0:
                self.leave[u] = self._time()
        for u, v in following.items():
            if u < 0:
                continue
            join = self.join[v]
            model.add(self.enter[v] == self.enter[u]).only_enforce_if(join)
            model.add(self.enter[v] == self.begin[v]).only_enforce_if(~join)
            model.add(self.leave[u] == self.leave[v]).only_enforce_if(join)
            model.add(self.leave[u] == self.stop[u]).only_enforce_if(~join)

    def _before(self, u: int, v: int, *, path: bool) -> None:
        model = self.model
        model.add(self.begin[v] >= self.stop[u])
        if not self.asked["previous"] or path:
            model.add(self.begin[v] >= self._ready(u))
            return
        joins = []
        w = v
        while w != u:
            joins.append(self.join[w])
            w = self.previous[w]
        same = model.new_bool_var("")
        for join in joins:
            model.add_implication(same, join)
        model.add_bool_or([same, *(~join for join in joins)])
        model.add(self.enter[v] >= self._ready(u)).only_enforce_if(~same)

    def _whole(self, net: dict[str, Any]) -> None:
        """A path's work is done one after the other."""
        nodes = set(net["nodes"])
        total = sum(self.length[v] for v in net["nodes"])
        for index, (transfer, ways) in enumerate(
            zip(self.asked["transfers"], self.ways, strict=True)
        ):
            inner = {(c[0], c[2]) for c in transfer["clauses"]}
            if len(inner) == 1 and nodes.issuperset(*inner):
                for way, (_, us, delay) in zip(ways, self.asked["way_times"][index], strict=True):
                    total += (us + delay) * way
        self.model.add(total <= self.most)

    def _sending(
        self, index: int, transfer: dict[str, Any], ways: list[Any], paths: set[int], free: bool
    ) -> list[Any]:
        """The ways of a transfer as intervals between its producer and those who need it."""
        model, asked = self.model, self.asked
        clauses = transfer["clauses"]
        ends = {(clause[0], clause[2]) for clause in clauses}
        alone = len(ends) == 1 and all(v >= 0 and (free or v in paths) for v in next(iter(ends)))
        starts = []
        span: Any = 0
        for way, chosen in enumerate(ways):
            device, us, delay = asked["way_times"][index][way]
            start = self._time()
            starts.append(start)
            if device >= 0 and us:
                interval = model.new_optional_interval_var(start, us, start + us, chosen, "")
                self.work.setdefault(device, []).append(interval)
            model.add(start + us + delay <= self.most).only_enforce_if(chosen)
            for producer in sorted({clause[0] for clause in clauses}):
                if producer >= 0:
                    model.add(start >= self._ready(producer))
            span += (us + delay) * chosen
            if alone:
                # whoever needs it has no other use for it: taken for nothing it only takes time
                model.add(self.begin[clauses[0][2]] >= start + (us + delay) * chosen)
                continue
            for producer, writes, consumer, reads in clauses:
                if consumer < 0:
                    continue
                written = [self.mode[producer][m] for m in writes if m in self.mode[producer]]
                for writing in written if producer >= 0 else [None]:
                    for reading in reads:
                        if reading in self.mode[consumer]:
                            row = [chosen, self.mode[consumer][reading]]
                            row += [] if writing is None else [writing]
                            before = model.add(start + us + delay <= self.enter[consumer])
                            before.only_enforce_if(row)
        if alone:
            ((producer, consumer),) = ends
            model.add(self.begin[consumer] >= self._ready(producer) + span)
        return starts

    def _hint(self) -> None:
        hint = self.asked["hint"]
        if hint is None:
            return
        for v in self.nodes:
            for m, b in self.mode[v].items():
                self.model.add_hint(b, int(m == hint["mode"][v]))

    def answer(self, solver: Any) -> dict[str, Any]:
        def true(literal: Any) -> bool:
            return not isinstance(literal, int) and solver.boolean_value(literal)

        return {
            **super().answer(solver),
            "join": [true(join) for join in self.join],
            "start": [solver.value(t) for t in self.enter],
            "sent": [[solver.value(t) for t in starts] for starts in self.sent],
        }
