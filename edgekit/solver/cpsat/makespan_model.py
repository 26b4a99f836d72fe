"""The CP-SAT model of a makespan: on top of the running order, intervals of nodes, loadables and
transfers that do not overlap on a device.
"""

from __future__ import annotations

from typing import Any

from edgekit.solver.cpsat.running_order_model import OrderModel

# Devices work side by side until the last network ends.
#
# On top of the order of ``running_order_model`` every node off the cores, every loadable and
# every transfer is an optional interval, and the intervals of a device do not overlap. A loadable
# reads all it needs before it starts and has its outputs when it ends. ``RunIntervals`` has a
# smaller model for loadables along an order, and for nodes by themselves.


def _limit_loads(model: OrderModel, most: Any) -> None:
    """Ends no earlier than each device can be done, and keeps the other measures' limits."""
    sums = model.sums()
    for index in model.request["objective"]:
        model.model.add(sums[index] <= most)  # a device's load
    model.limit(sums)
    for first, twin in model.request["twins"]:
        model.model.add(sums[first] >= sums[twin])


class LevelIntervals(OrderModel):
    def _goal(self) -> None:
        model, request = self.model, self.request
        self.most = model.new_int_var(request["lower"], request["upper"], "")
        self.work: dict[int, list[Any]] = {}
        self.begin = [self._time() for _ in self.nodes]  # when a node needs its inputs
        self.ready = [self._time() for _ in self.nodes]  # when its outputs are there
        for v in self.nodes:
            model.add(self.ready[v] <= self.most)
            for m, b in self.mode[v].items():
                device, us, delay = request["times"][v][m]
                if device not in request["cores"]:
                    self._interval(device, self.begin[v], us, b)
                    model.add(self.ready[v] >= self.begin[v] + us + delay).only_enforce_if(b)
        self.member: list[dict[int, Any]] = [{} for _ in self.nodes]
        for net, used in zip(request["networks"], self.used, strict=True):
            self._units(net, used)
        for net in request["networks"]:
            for u, v in net["edges"]:
                self._before(u, v)
        self.sent = [
            self._sending(t, transfer, ways)
            for t, (transfer, ways) in enumerate(zip(request["transfers"], self.ways, strict=True))
        ]
        for works in self.work.values():
            model.add_no_overlap(works)
        _limit_loads(self, self.most)
        model.minimize(self.most)

    def _time(self) -> Any:
        return self.model.new_int_var(0, self.request["upper"], "")

    def _interval(self, device: int, start: Any, us: Any, chosen: Any) -> None:
        interval = self.model.new_optional_interval_var(start, us, start + us, chosen, "")
        self.work.setdefault(device, []).append(interval)

    def _units(self, net: dict[str, Any], used: dict[int, Any]) -> None:
        """The loadables of a network as intervals, and their nodes' times."""
        model, request = self.model, self.request
        where = request["mode_device"]
        for p, devices in enumerate(net["positions"]):
            if devices[0] not in request["cores"]:
                continue
            core = devices[0]
            start, end = self._time(), self._time()
            length, lag = request["launch_times"][request["cores"].index(core)], 0
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
                    _, us, delay = request["times"][v][m]
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
        cores = set(self.request["cores"])
        where = self.request["mode_device"]
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
        model, request = self.model, self.request
        starts = []
        for w, chosen in enumerate(ways):
            device, us, delay = request["way_times"][index][w]
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


# Where a loadable is a run of its network's order, the model is smaller.
#
# Every node is an interval on its device. In an order of a network, given as each node's
# ``previous`` one, a node on a core may be joined to the one before it: it starts when that one
# ends, and both are of one loadable, whose launch its first node pays. Along a path that is every
# loadable there can be. Without launches and limits (no order given) nothing is ever joined.


class RunIntervals(OrderModel):
    def _slots(self) -> None:
        """Which nodes are joined, and what limits loadables and device changes."""
        model, request = self.model, self.request
        where = request["mode_device"]
        self.previous = request["previous"] or [-1] * len(self.nodes)
        self.on_device: list[dict[int, Any]] = []
        for choice in self.mode:
            modes: dict[int, list[Any]] = {}
            for m, b in choice.items():
                modes.setdefault(where[m], []).append(b)
            self.on_device.append({d: self._any(some) for d, some in modes.items()})
        self.join = [0 if u < 0 else model.new_bool_var("") for u in self.previous]
        self.opens: list[dict[int, Any]] = [{} for _ in self.nodes]
        if request["previous"]:
            for v in self.nodes:
                self._joined(v)
            self._limits()
        self.count = {
            core: sum(opens[core] for opens in self.opens if core in opens)
            for core in request["cores"]
        }
        if request["max_loadables"] is not None:
            for total in self.count.values():
                if not isinstance(total, int):
                    model.add(total <= request["max_loadables"])

    def _limits(self) -> None:
        """What fits into a loadable, what it has at least, and how often a network moves."""
        model, request = self.model, self.request
        for window in request["windows"]:
            model.add_bool_or([~self.join[v] for v in window[1:]])
        for v, needed in enumerate(request["needed"]):
            for opens in self.opens[v].values():
                if needed is None:
                    model.add(opens == 0)
                for w in needed or []:
                    model.add_implication(opens, self.join[w])
        for net in request["networks"]:
            self._changes(net)

    def _any(self, literals: list[Any]) -> Any:
        if len(literals) == 1:
            return literals[0]
        found = self.model.new_bool_var("")
        self.model.add(sum(literals) == found)  # at most one of them holds
        return found

    def _joined(self, v: int) -> None:
        model, join, u = self.model, self.join[v], self.previous[v]
        cores = [c for c in self.request["cores"] if c in self.on_device[v]]
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
        model, request = self.model, self.request
        self.most = model.new_int_var(request["lower"], request["upper"], "")
        self.work: dict[int, list[Any]] = {}
        self.begin = [self._time() for _ in self.nodes]
        self.stop = [self._time() for _ in self.nodes]
        self.length = [self._node(v) for v in self.nodes]
        # of a loadable: when it starts and ends
        self.enter, self.leave = list(self.begin), list(self.stop)
        if request["previous"]:
            for net in request["networks"]:
                if not net["path"]:
                    self._units(net)
        paths = {v for net in request["networks"] if net["path"] for v in net["nodes"]}
        free = not request["previous"]
        for v in self.nodes:
            model.add(self._ready(v) <= self.most)
            if self.previous[v] >= 0:
                before = self.stop[self.previous[v]]
                model.add(self.begin[v] == before).only_enforce_if(self.join[v])
        for net in request["networks"]:
            for u, v in net["edges"]:
                self._before(u, v, path=net["path"])
        self.sent = [
            self._sending(t, transfer, ways, paths, free)
            for t, (transfer, ways) in enumerate(zip(request["transfers"], self.ways, strict=True))
        ]
        for works in self.work.values():
            model.add_no_overlap(works)
        for net in request["networks"]:
            if net["path"]:
                self._whole(net)
        _limit_loads(self, self.most)
        model.minimize(self.most)

    def _time(self) -> Any:
        return self.model.new_int_var(0, self.request["upper"], "")

    def _node(self, v: int) -> Any:
        """A node's intervals; returns its length."""
        model, request = self.model, self.request
        length: Any = 0
        for m, b in self.mode[v].items():
            device, us, _ = request["times"][v][m]
            length += us * b
            size: Any = us
            if device in self.opens[v]:
                size += (
                    request["launch_times"][request["cores"].index(device)] * self.opens[v][device]
                )
            interval = model.new_optional_interval_var(self.begin[v], size, self.stop[v], b, "")
            self.work.setdefault(device, []).append(interval)
        for c, opens in self.opens[v].items():
            length += request["launch_times"][request["cores"].index(c)] * opens
        model.add(self.stop[v] == self.begin[v] + length)
        return length

    def _ready(self, v: int) -> Any:
        """When a node's outputs are there."""
        delays = (self.request["times"][v][m][2] * b for m, b in self.mode[v].items())
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
        if not self.request["previous"] or path:
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
            zip(self.request["transfers"], self.ways, strict=True)
        ):
            inner = {(c[0], c[2]) for c in transfer["clauses"]}
            if len(inner) == 1 and nodes.issuperset(*inner):
                for way, (_, us, delay) in zip(ways, self.request["way_times"][index], strict=True):
                    total += (us + delay) * way
        self.model.add(total <= self.most)

    def _sending(
        self, index: int, transfer: dict[str, Any], ways: list[Any], paths: set[int], free: bool
    ) -> list[Any]:
        """The ways of a transfer as intervals between its producer and those who need it."""
        model, request = self.model, self.request
        clauses = transfer["clauses"]
        ends = {(clause[0], clause[2]) for clause in clauses}
        alone = len(ends) == 1 and all(v >= 0 and (free or v in paths) for v in next(iter(ends)))
        starts = []
        span: Any = 0
        for way, chosen in enumerate(ways):
            device, us, delay = request["way_times"][index][way]
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
                # nothing needs it otherwise: taken without a need it only takes time
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

    def answer(self, solver: Any) -> dict[str, Any]:
        def true(literal: Any) -> bool:
            return not isinstance(literal, int) and solver.boolean_value(literal)

        return {
            **super().answer(solver),
            "join": [true(join) for join in self.join],
            "start": [solver.value(t) for t in self.enter],
            "sent": [[solver.value(t) for t in starts] for starts in self.sent],
        }
