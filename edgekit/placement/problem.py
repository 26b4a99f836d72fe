"""From a request to the solver's problem: the network cut into kernels, their modes, the borders
between them and their transfers, and the savings of fused kernels.
Start with ``build_problem``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from edgekit.dla.plugin_formats import declared_formats
from edgekit.error_document import VerdictReason
from edgekit.network.model import Layer, Network
from edgekit.placement.costs.constants import layer_kinds
from edgekit.placement.costs.handover import CALLER, Handover, HandoverWay, layout_text
from edgekit.placement.costs.kernel_costs import Layout
from edgekit.placement.costs.model import CostModel, concurrent_speeds
from edgekit.placement.inputs import PlacementInputs, require_memory
from edgekit.placement.kernels import LayerKernel, fuse, join, join_groups
from edgekit.solver.problem import OUTSIDE, Border, Cost, Mode, PlacementProblem, Transfer

_Allowed = Callable[[Sequence[Layer], str], bool]
Kernels = tuple[LayerKernel, ...]
_Saved = dict[tuple[int, int], float]  # by (earlier part, later part): microseconds
CALLER_MODE = 0  # the mode of a network's inputs and outputs


def build_problem(
    request: PlacementInputs, *, plain: bool = False, kernels: tuple[LayerKernel, ...] | None = None
) -> BuiltProblem:
    """Returns the problem of a request.

    Args:
        request: The network and the request.
        plain: True to leave every tensor in its best format.
        kernels: Kernels to use instead of :func:`common_kernels`.

    Raises:
        GateError: No loadable can hold a layer that must be on a DLA.
    """
    if kernels is None:
        kernels = common_kernels(request)

    def allowed(layers: Sequence[Layer], device: str) -> bool:
        pins = {request.pins.get(layer.name) for layer in layers} - {None}
        if device == "GPU":
            return request.options.gpu and pins <= {"GPU"}
        return all(request.able[layer.name] for layer in layers) and pins <= {"DLA", device}

    wholes = {"GPU": gpu_kernels(request)}
    if request.cores:
        wholes |= dict.fromkeys(request.devices[1:], dla_kernels(request))
    built = problem_from_kernels(request, kernels, allowed, plain=plain)
    if not plain:
        # not for the baselines, which place only what fits
        require_memory(request, find_oversized(request, built))
    return with_fusions(request, built, wholes)


def find_oversized(request: PlacementInputs, built: BuiltProblem) -> dict[str, VerdictReason]:
    """Returns, by layer, the memory limit that keeps it off every DLA core in any placement."""
    found: dict[str, VerdictReason] = {}
    for v, kernel in enumerate(built.kernels):
        names = [request.network.layers[i].name for i in kernel.layers]
        able = request.cores and all(request.able[name] for name in names)
        row = built.problem.costs[v]
        # a layer with a mode on a core fits; without an allowed core, memory is not the reason
        if not able or any(cost and built.problem.device(m) for m, cost in enumerate(row)):
            continue
        if all(request.pins.get(name) == "GPU" for name in names):
            continue
        reason = request.capacity.refusal(names)
        found |= dict.fromkeys(names, reason) if reason else {}
    return found


def problem_from_kernels(
    request: PlacementInputs,
    kernels: tuple[LayerKernel, ...],
    allowed: _Allowed,
    *,
    plain: bool = False,
) -> BuiltProblem:
    """Returns the problem of given kernels."""
    network, model, options = request.network, request.model, request.options
    names = request.devices
    watts = [model.watts(name) for name in names]
    layers_of = [[network.layers[i] for i in kernel.layers] for kernel in kernels]
    able = [any(allowed(layers, name) for name in names[1:]) for layers in layers_of]
    # None in the usual case that everything fits together: the solver is faster without a test
    fits = request.capacity.fits(kernels, able) if any(able) else None
    if fits is not None:
        able = [ok and fits(frozenset((v,))) for v, ok in enumerate(able)]
    modes = Modes()
    rows: list[dict[int, Cost]] = []
    for v, (kernel, layers) in enumerate(zip(kernels, layers_of, strict=True)):
        row: dict[int, Cost] = {}
        if allowed(layers, "GPU"):
            layouts = request.handover.gpu(kernel)
            # fitted kernel times do not include the reformat beside a plugin
            own = bool(declared_formats(layers[0]))
            # without a loadable to hand tensors to, another layout only costs time
            for layout in layouts[:1] if plain or not request.cores else layouts:
                us = model.kernel_us(network, kernel, "GPU", layout[1])
                # as if its part stays fused; broken_regions adds the difference
                us = max(0.0, us - request.regions.saved(kernel))
                row[modes.gpu(layout, best=layout == layouts[0] and not own)] = _device_cost(
                    0, us, watts
                )
        for device, name in enumerate(names[1:], 1):
            if able[v] and allowed(layers, name):
                us = model.kernel_us(network, kernel, name)
                # one mode on a core: formats matter only at a loadable's borders, where ways
                # represent them
                row[modes.core(device)] = _device_cost(device, us, watts)
        rows.append(row)
    borders, tensors, ways, free = BorderFinder(
        network, request.handover, modes, [tuple(row) for row in rows], watts, plain
    ).find(kernels)
    if not options.gpu:
        # the caller has the DLA's formats, and no GPU reformats (build.mode standalone)
        borders, ways, free = [replace(border, transfers=()) for border in borders], {}, {}
    for name, border in broken_regions(request, kernels, rows, modes, watts):
        borders, tensors = [*borders, border], [*tensors, name]
    launch = model.launch_us() if request.cores else 0.0
    problem = PlacementProblem(
        devices=names,
        modes=tuple(modes.modes),
        costs=tuple(tuple(row.get(m) for m in range(len(modes.modes))) for row in rows),
        borders=tuple(borders),
        launch=(None, *(_device_cost(device, launch, watts) for device in range(1, len(names)))),
        max_loadables=options.max_loadables,
        pools=request.capacity.pools(kernels, able) if any(able) else (),
        fits=fits,
        min_size=options.min_loadable_layers if options.min_loadable_layers > 1 else 0,
        sizes=tuple(len(kernel.layers) for kernel in kernels),
        max_transitions=options.max_transitions,
        together=concurrent_speeds(names, model.target, hybrid=request.hybrid),
    )
    return BuiltProblem(kernels, problem, tuple(tensors), ways, free)


def with_engine_contention(
    request: PlacementInputs, problem: PlacementProblem, *placements: Sequence[int]
) -> PlacementProblem:
    """Returns the problem with the contention of the engines that placements are built as.

    Args:
        request: The network and the request.
        problem: The placements' problem.
        placements: Modes by node, for each plan of a mix.
    """
    used = [{problem.device(m) for m in modes} for modes in placements]
    hybrid = request.hybrid and any(0 in devices and len(devices) > 1 for devices in used)
    speeds = concurrent_speeds(problem.devices, request.model.target, hybrid=hybrid)
    return replace(problem, together=speeds)


def _device_cost(device: int, us: float, watts: Sequence[float]) -> Cost:
    load = [0.0] * (len(watts) + 1)
    load[device] = us
    return Cost(tuple(load), us * watts[device])


@dataclass(frozen=True)
class BuiltProblem:
    """A problem for the solver and its meaning.

    Attributes:
        kernels: By node.
        problem: The solver's problem.
        tensors: By border, the tensor's name.
        ways: The ways by (border, transfer); absent if the transfer is no hand-over.
        free: The loadable's format of a free hand-over, by (border, producer's mode, reader's
            mode).
    """

    kernels: tuple[LayerKernel, ...]
    problem: PlacementProblem
    tensors: tuple[str, ...]
    ways: Mapping[tuple[int, int], tuple[HandoverWay, ...]]
    free: Mapping[tuple[int, int, int], str]


def gpu_kernels(request: PlacementInputs) -> Kernels:
    """Returns the GPU's kernels if it runs everything."""
    fp16 = request.model.fp16_layers
    return _fuse(request.network, {x.name: x.name in fp16 for x in request.network.layers})


def dla_kernels(request: PlacementInputs) -> Kernels:
    """Returns a DLA's kernels if it runs all possible layers; the rest are the GPU's kernels."""
    able, fp16, batch = request.able, request.model.fp16_layers, request.capacity.batch
    return _fuse(
        request.network,
        {x.name: (able[x.name], x.name in fp16, batch[x.name]) for x in request.network.layers},
    )


def auto_runs(request: PlacementInputs) -> dict[str, int]:
    """Returns, by layer, the number (from 1) of its loadable in TensorRT's automatic placement."""
    loadables = [c for c in request.judgement.candidates if c.retained]
    return {
        name: number for number, loadable in enumerate(loadables, 1) for name in loadable.layers
    }


def auto_kernels(request: PlacementInputs) -> Kernels:
    """Returns the kernels of TensorRT's automatic placement."""
    run_of, fp16 = auto_runs(request), request.model.fp16_layers
    names = [layer.name for layer in request.network.layers]
    return _fuse(request.network, {name: (run_of.get(name, 0), name in fp16) for name in names})


def common_kernels(request: PlacementInputs) -> Kernels:
    """Returns the largest kernels that are each inside one kernel of every cut, with one pin.

    A kernel is on one device, so layers with independent devices must be in different kernels. The
    parts of a device's fusion run as one again on that device (:func:`with_fusions`).
    """
    network, cuts = request.network, [gpu_kernels(request)]
    if request.cores:
        cuts += [dla_kernels(request), auto_kernels(request)]
    places = [{i: n for n, kernel in enumerate(cut) for i in kernel.layers} for cut in cuts]
    pins = [request.pins.get(layer.name) for layer in network.layers]
    groups: list[list[int]] = []
    for kernel in cuts[0]:  # a path of layers, as in every cut
        before: object = None
        for i in kernel.layers:
            # layers of one kernel in every cut, with the same pin, can be on no two devices
            key = (pins[i], *(place[i] for place in places))
            if key != before:
                groups.append([])
            groups[-1].append(i)
            before = key
    # the last layer writes the output, so this is a topological order
    groups.sort(key=lambda group: group[-1])
    return join_groups(network, groups)


def _fuse(network: Network, key_of: Mapping[str, Hashable]) -> Kernels:
    """Fuses layers that have the same key."""
    rules = layer_kinds().fusion
    return fuse(network, rules.heads, rules.tails, lambda layer: str(key_of[layer.name]))


@dataclass
class Modes:
    """The modes of a problem, each once; index 0 is the caller's.

    A layout as a GPU kernel's best layout and the same layout as another are two modes: between
    best layouts a hand-over is free.

    Attributes:
        modes: The solver's modes.
        layouts: By mode, the layout of a GPU kernel (or the caller); None on a core.
        best: By mode, True if the layout is the kernel's best.
    """

    modes: list[Mode] = field(default_factory=list)
    layouts: list[Layout | None] = field(default_factory=list)
    best: list[bool] = field(default_factory=list)
    _gpu: dict[tuple[Layout, bool], int] = field(default_factory=dict)
    _core: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # must be the first: CALLER_MODE
        self._add(0, "caller", CALLER, best=True)

    def gpu(self, layout: Layout, *, best: bool) -> int:
        """Returns the mode of a GPU kernel in a layout."""
        key = (layout, best)
        if key not in self._gpu:
            text = layout_text(layout) if best else f"{layout_text(layout)} instead"
            self._gpu[key] = self._add(0, text, layout, best=best)
        return self._gpu[key]

    def core(self, device: int) -> int:
        """Returns the mode of a core, by the device's index."""
        if device not in self._core:
            self._core[device] = self._add(device, "", None, best=True)
        return self._core[device]

    def _add(self, device: int, text: str, layout: Layout | None, *, best: bool) -> int:
        self.modes.append(Mode(device, text, text))
        self.layouts.append(layout)
        self.best.append(best)
        return len(self.modes) - 1


class FoundBorders(NamedTuple):
    """Borders, their tensors, the ways by (border, transfer), and the loadable's format of free
    hand-overs by (border, producer's mode, reader's mode)."""

    borders: list[Border]
    tensors: list[str]
    ways: dict[tuple[int, int], tuple[HandoverWay, ...]]
    free: dict[tuple[int, int, int], str]


@dataclass(frozen=True)
class BorderFinder:
    """Makes the borders of kernels whose modes are known.

    Attributes:
        network: The layer graph.
        handover: The network's ways.
        modes: All modes.
        allowed: By kernel, its possible modes.
        watts: Power by device.
        plain: True for only the loadables' best formats, as in the predicted automatic placement.
    """

    network: Network
    handover: Handover
    modes: Modes
    allowed: Sequence[Sequence[int]]
    watts: Sequence[float]
    plain: bool = False

    def find(self, kernels: Sequence[LayerKernel]) -> FoundBorders:
        """Returns the borders of kernels."""
        readers: dict[str, list[int]] = {}
        for v, kernel in enumerate(kernels):
            for name in kernel.inputs:
                readers.setdefault(name, []).append(v)
        leaves = frozenset(self.network.outputs)
        ends = [(name, OUTSIDE) for name in self.network.inputs if name in readers]
        ends += [(name, v) for v, kernel in enumerate(kernels) for name in kernel.outputs]
        borders: list[Border] = []
        meaning: dict[tuple[int, int], tuple[HandoverWay, ...]] = {}
        free: dict[tuple[int, int, int], str] = {}
        for name, v in ends:
            users = tuple(readers.get(name, ()))
            transfers: list[Transfer] = []
            for pairs, ways in self._transfers(name, v, users, name in leaves, kernels):
                undominated = _drop_dominated([(way, self._cost(way, pairs)) for way in ways])
                # a free hand-over is no transfer for the solver, but the plan names its format
                if any(us > 0 for us in undominated[0][1].load_us):
                    meaning[len(borders), len(transfers)] = tuple(way for way, _ in undominated)
                    costs = tuple(cost for _, cost in undominated)
                    transfers.append(Transfer(frozenset(pairs), costs))
                else:
                    free.update(
                        ((len(borders), *pair), undominated[0][0].dla_format) for pair in pairs
                    )
            borders.append(Border(v, users, tuple(transfers), name in leaves))
        return FoundBorders(borders, [name for name, _ in ends], meaning, free)

    def _transfers(
        self, name: str, v: int, users: Sequence[int], leaves: bool, kernels: Sequence[LayerKernel]
    ) -> Iterable[tuple[list[tuple[int, int]], Sequence[HandoverWay]]]:
        sources = (0,) if v == OUTSIDE else self.allowed[v]
        goals = dict.fromkeys(m for u in users for m in self.allowed[u])
        if leaves:
            goals[0] = None
        for source in sources:
            layout = self.modes.layouts[source]
            if layout is None:
                several = len(users) + leaves > 1
                yield from self._core_transfers(name, source, goals, kernels[v], several)
                continue
            on_gpu: dict[Layout, list[tuple[int, int]]] = {}
            converted: dict[tuple[Layout, Layout], list[tuple[int, int]]] = {}
            fused = (
                v != OUTSIDE
                and users
                and all(self.handover.is_fused(kernels[v], kernels[u]) for u in users)
            )
            for goal in goals:
                other = self.modes.layouts[goal]
                if other is None:
                    # their common formats: a loadable reads the tensor once
                    able = [kernels[u] for u in users if goal in self.allowed[u]]
                    yield [(source, goal)], self._limit_ways(self.handover.into(name, layout, able))
                elif not fused and self._changes_type(source, goal):
                    for u in users:
                        if goal in self.allowed[u]:
                            best = self.handover.gpu(kernels[u])[0]
                            converted.setdefault((best, other), []).append((source, goal))
                elif self._needs_reformat(source, goal):
                    on_gpu.setdefault(other, []).append((source, goal))
            for other, pairs in on_gpu.items():
                yield pairs, [self._gpu_way(name, layout, other)]
            for (best, other), pairs in converted.items():
                # a kernel leaves its best layout for a DLA's format: conversions between two GPU
                # kernels get no cheaper by this, so the GPU alone has one time
                us = self._gpu_way(name, self.handover.gpu(kernels[v])[0], best).reformat_us
                yield pairs, [HandoverWay(layout, other, "", us, 0.0)]

    def _core_transfers(
        self, name: str, source: int, goals: Iterable[int], writer: LayerKernel, several: bool
    ) -> Iterable[tuple[list[tuple[int, int]], Sequence[HandoverWay]]]:
        """Yields a reformat for each layout that the GPU or the caller reads.

        A loadable writes a tensor in one format: the best format if there are several readers.
        """
        by_layout: dict[Layout, list[tuple[int, int]]] = {}
        for goal in goals:
            layout = self.modes.layouts[goal]
            if layout is not None:
                by_layout.setdefault(layout, []).append((source, goal))
        for layout, pairs in by_layout.items():
            ways = self.handover.out_of(name, layout, writer)
            yield pairs, ways[:1] if several else self._limit_ways(ways)

    def _changes_type(self, source: int, goal: int) -> bool:
        """Returns True if a tensor changes its type between two modes of the GPU."""
        a, b = self.modes.layouts[source] or CALLER, self.modes.layouts[goal] or CALLER
        return 0 not in (source, goal) and self.handover.changes_type(a, b)

    def _needs_reformat(self, source: int, goal: int) -> bool:
        """Returns True if a tensor is reformatted between two modes of the GPU or the caller."""
        a, b = self.modes.layouts[source] or CALLER, self.modes.layouts[goal] or CALLER
        best = self.modes.best[source] and self.modes.best[goal]
        # fitted kernel times include reformats between best layouts
        return not best and a[1] != b[1]

    def _gpu_way(self, name: str, source: Layout, goal: Layout) -> HandoverWay:
        tensor = self.network.tensors[name]
        us = self.handover.reformat_us(tensor, source, goal)
        return HandoverWay(source, goal, "", us, 0.0)

    def _limit_ways(self, ways: tuple[HandoverWay, ...]) -> tuple[HandoverWay, ...]:
        return ways[:1] if self.plain else ways

    def _cost(self, way: HandoverWay, pairs: Sequence[tuple[int, int]]) -> Cost:
        load = [0.0] * (len(self.watts) + 1)  # the delay comes last
        load[0] = way.reformat_us
        # the extra time is the core's at either end
        ends = {self.modes.modes[m].device for pair in pairs for m in pair} - {0}
        for core in ends:
            load[core] += way.io_us
        energy = sum(us * watts for us, watts in zip(load, self.watts, strict=False))
        return Cost(tuple(load), energy)


def _drop_dominated(ways: Sequence[tuple[HandoverWay, Cost]]) -> list[tuple[HandoverWay, Cost]]:
    """Returns the ways that no other way dominates; of equal ways the first."""
    undominated: list[tuple[HandoverWay, Cost]] = []
    for way, cost in ways:
        if not any(_costs_no_more(other, cost) for _, other in undominated):
            undominated = [row for row in undominated if not _costs_no_more(cost, row[1])]
            undominated.append((way, cost))
    return undominated


def _costs_no_more(a: Cost, b: Cost) -> bool:
    return a.energy_uj <= b.energy_uj and all(
        x <= y for x, y in zip(a.load_us, b.load_us, strict=True)
    )


def with_fusions(
    request: PlacementInputs, built: BuiltProblem, wholes: Mapping[str, Sequence[LayerKernel]]
) -> BuiltProblem:
    """Returns the problem in which parts of a kernel run as one if they are on the same device.

    The later part then costs its addition to the kernel. If the parts are on different devices, the
    later part costs its time alone: the border between the two, which has no other reader, pays the
    difference.

    Args:
        request: The network and its costs.
        built: The problem of the parts.
        wholes: By device, its fused kernels.
    """
    for device, name in enumerate(built.problem.devices):
        saved = _fusion_savings(request, built, device, wholes.get(name, ()))
        if saved:
            built = _with_savings(request.model, built, device, saved)
    return built


def _fusion_savings(
    request: PlacementInputs, built: BuiltProblem, device: int, wholes: Sequence[LayerKernel]
) -> _Saved:
    network, model, kernels = request.network, request.model, built.kernels
    whole_of: dict[int, Hashable] = {i: n for n, k in enumerate(wholes) for i in k.layers}
    parts = {k.layers for k in kernels}
    # no kernel of this device is cut
    if not whole_of or all(whole.layers in parts for whole in wholes):
        return {}
    name = built.problem.devices[device]
    consumers = network.consumers()
    last_of: dict[Hashable, tuple[int, tuple[int, ...]]] = {}  # latest part, layers so far
    saved: _Saved = {}
    for v, kernel in enumerate(kernels):
        found = {whole_of[i] for i in kernel.layers}
        if len(found) != 1 or not _modes_on_device(built.problem, v, device):
            continue
        whole = found.pop()
        u, before = last_of.get(whole, (v, ()))
        layers = tuple(sorted((*before, *kernel.layers)))
        last_of[whole] = (v, layers)
        # only parts that share a tensor can run as one
        if before and set(kernels[u].outputs) & set(kernel.inputs):
            # what this part adds to the parts before it, against its own kernel
            prefix = model.kernel_us(network, join(network, before, consumers), name)
            together = model.kernel_us(network, join(network, layers, consumers), name)
            alone = model.kernel_us(network, kernel, name)
            if max(0.0, together - prefix) < alone:
                saved[u, v] = alone - max(0.0, together - prefix)
    return saved


def _modes_on_device(problem: PlacementProblem, v: int, device: int) -> list[int]:
    """Returns the modes of a node on a device."""
    row = problem.costs[v]
    return [m for m, cost in enumerate(row) if cost and problem.device(m) == device]


def _with_savings(
    model: CostModel, built: BuiltProblem, device: int, saved: _Saved
) -> BuiltProblem:
    problem = built.problem
    watts = model.watts(problem.devices[device])

    def cost(us: float) -> Cost:
        load = [0.0] * (len(problem.devices) + 1)
        load[device] = us
        return Cost(tuple(load), us * watts)

    costs = [list(row) for row in problem.costs]
    for (_, v), us in saved.items():
        for m in _modes_on_device(problem, v, device):
            own = costs[v][m]
            assert own is not None
            costs[v][m] = cost(max(0.0, own.load_us[device] - us))
    borders: list[Border] = []
    # each saving is charged at one border: two tensors between the parts would pay twice
    left = dict(saved)
    for border in problem.borders:
        extra: list[Transfer] = []
        for v in border.consumers if border.producer != OUTSIDE else ():
            us = left.pop((border.producer, v), 0.0)
            sources = [
                m
                for m, own in enumerate(problem.costs[border.producer])
                if own and problem.device(m) != device
            ]
            if us and sources:
                goals = _modes_on_device(problem, v, device)
                extra.append(
                    Transfer(frozenset((a, b) for a in sources for b in goals), (cost(us),))
                )
        borders.append(replace(border, transfers=(*border.transfers, *extra)))
    problem = replace(problem, costs=tuple(map(tuple, costs)), borders=tuple(borders))
    return replace(built, problem=problem)


def broken_regions(
    request: PlacementInputs,
    kernels: Sequence[LayerKernel],
    rows: Sequence[Mapping[int, Cost]],
    modes: Modes,
    watts: Sequence[float],
) -> Iterator[tuple[str, Border]]:
    """Yields a name and a border without a tensor for every part that a DLA could break.

    The cost is paid once, whatever number of the part's kernels is on a DLA: like a tensor of the
    caller's that the GPU reformats once for several kernels on a DLA.
    """
    for region in request.regions.parts:
        inside = [v for v, k in enumerate(kernels) if not region.layers.isdisjoint(k.layers)]
        cores = {v: [m for m in rows[v] if modes.modes[m].device] for v in inside}
        able = tuple(v for v in inside if cores[v])
        if not able:
            continue
        load = [0.0] * (len(watts) + 1)
        load[0] = region.broken_us
        pairs = frozenset((CALLER_MODE, m) for v in able for m in cores[v])
        price = Cost(tuple(load), region.broken_us * watts[0])
        name = f"({len(region.layers)} layers that the GPU fuses)"  # differs from tensor names
        yield name, Border(OUTSIDE, able, (Transfer(pairs, (price,)),))


def with_unbroken_regions(built: BuiltProblem) -> BuiltProblem:
    """Returns a problem whose fused parts stay on the GPU, for a search that cannot price them.

    A kernel that is not allowed on the GPU stays on a DLA and breaks its part at no cost.
    """
    problem, tensors = built.problem, built.tensors
    odd = [b for b, name in enumerate(tensors) if name.startswith("(")]
    if not odd:
        return built
    inside = {v for b in odd for v in problem.borders[b].consumers}
    costs = []
    for v, row in enumerate(problem.costs):
        on_gpu = tuple(None if problem.modes[m].device else cost for m, cost in enumerate(row))
        costs.append(on_gpu if v in inside and any(on_gpu) else row)
    keep = [b for b in range(len(tensors)) if b not in odd]
    return replace(
        built,
        problem=replace(
            problem, costs=tuple(costs), borders=tuple(problem.borders[b] for b in keep)
        ),
        tensors=tuple(tensors[b] for b in keep),
    )
