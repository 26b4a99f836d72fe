"""Where to cut a network so that its first part runs whole on a DLA core, and the rest elsewhere:
in a GPU engine, in ONNX Runtime, or in the user's code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from edgekit.dla.loadables import candidates
from edgekit.dla.memory import within_memory
from edgekit.dla.verdicts import Judgement, LoadableCandidate
from edgekit.network.model import SHUFFLES, Layer, Model, Network
from edgekit.network.module_names import enclosing
from edgekit.placement.costs.kernel_costs import noise
from edgekit.placement.costs.model import concurrent_speeds
from edgekit.placement.forecast import CORE, DIGITS, PlacementTimer, macs_fraction
from edgekit.solver.problem import METRIC, PlacementProblem, metrics
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member, record

# A cut is a set of layers that holds, with each layer, the layers that it depends on. The largest
# such set that a DLA runs is known from the verdicts; the others are its beginnings, in graph order
# and by depth. A beginning is timed where few bytes cross its border, with the model of the check
# and of the plan's baselines.

MOST = 10
"""Cuts that are proposed at most."""
_TIMED = 12  # beginnings by order; those that few bytes leave
_MOST_ENDS = 16  # tensors: more outputs make no part that anybody would take over
_ALIKE = 0.03  # share of the arithmetic, and of the objective, in which two cuts are the same


@document(frozen=True)
class SplitCost:
    """What a frame takes, by prediction; nothing of it is measured.

    Attributes:
        latency_us: Latency.
        throughput_qps: Frames a second, if GPU and DLA work on different frames at once.
        gpu_us: The GPU's time.
        energy_uj: Energy, back to back.
    """

    latency_us: float = member(fields.figure)
    throughput_qps: float = member(fields.figure)
    gpu_us: float = member(fields.figure)
    energy_uj: float = member(fields.figure)


@document(frozen=True)
class Cut:
    """A proposed cut: the part up to ``outputs`` runs whole on one DLA core.

    Attributes:
        outputs: The tensors at which the network is cut: ``model.outputs``.
        layers: Layers of the part, all of them on the DLA.
        macs_fraction: Their share of the network's multiply-accumulates, 0 to 1.
        modules: The outermost PyTorch modules that are whole in the part.
        loadables: Loadables of the part.
        rest: Layers of the rest.
        unknown: Those of them whose cost is unknown and counted nowhere.
        whole: What part and rest take together, if the rest runs in a GPU engine.
    """

    outputs: tuple[str, ...] = member(array(long_text))
    layers: int = member(fields.count)
    macs_fraction: float = member(fields.share)
    modules: tuple[str, ...] = member(array(long_text))
    loadables: int = member(fields.count)
    rest: int = member(fields.count)
    unknown: int = member(fields.count)
    whole: SplitCost = member(record(SplitCost))


@dataclass(frozen=True)
class _Part:
    """A beginning of the network, its borders and its loadables; ``value`` is the objective's."""

    layers: Sequence[Layer]
    ends: tuple[str, ...]
    loadables: int
    cost: SplitCost
    value: float


def cuts(
    network: Network,
    judgement: Judgement,
    clock: PlacementTimer,
    model: Model,
    *,
    objective: str = "gpu_time",
) -> tuple[Cut, ...]:
    """Returns the cuts that pay, the best by the objective first, at most ``MOST``.

    A cut pays if it beats the GPU alone in the objective, and TensorRT's automatic placement in
    the objective or in latency, by more than the prediction's noise. A network that runs whole on
    the DLA has none.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        clock: What predicts times.
        model: The model; it is cut at the tensors of its file.
        objective: One of :data:`edgekit.placement.plan.OBJECTIVES`.
    """
    tensors = {name for node in model.graph.nodes() for name in node.outputs}
    able = [v.name for v in network.layers if judgement.verdicts[v.name].placeable]
    largest = _beginning(network, frozenset(able))
    if not largest or len(largest) == len(network.layers):
        return ()
    automatic, alone = (_figures(clock, own, hybrid=True) for own in (judgement.candidates, ()))
    metric, least = METRIC[objective], 1 - noise()
    found = list[_Part]()
    for layers in _beginnings(network, largest):
        part = _timed(network, judgement, clock, tensors, objective, layers)
        if part is None or part.value > least * alone[metric]:
            continue
        if part.value < least * automatic[metric] or (
            part.cost.latency_us < least * automatic["latency_us"]
        ):
            found.append(part)
    macs = {id(part): macs_fraction(network, part.layers) for part in found}
    chosen = list[_Part]()
    for part in sorted(found, key=lambda one: (one.value, len(one.ends), -len(one.layers))):
        alike = (
            abs(one.value - part.value) <= _ALIKE * one.value
            and abs(macs[id(one)] - macs[id(part)]) <= _ALIKE
            for one in chosen
        )
        if len(chosen) < MOST and not any(alike):
            chosen.append(part)
    return tuple(_cut(network, part, macs[id(part)]) for part in chosen)


def _figures(
    clock: PlacementTimer, loadables: Sequence[LoadableCandidate], *, hybrid: bool
) -> dict[str, float]:
    gpu_us, dla_us = clock.loads_us(loadables)
    devices, load_us = ("GPU", CORE), (gpu_us, dla_us, 0.0)
    speeds = concurrent_speeds(devices, clock.target, hybrid=hybrid and dla_us > 0)
    problem = PlacementProblem(devices, (), (), (), (None, None), together=speeds)
    return metrics(problem, load_us, clock.model.energy(devices, load_us)[0])


def _beginning(network: Network, able: Collection[str]) -> list[Layer]:
    """Returns the layers that are able, and all that they depend on, in graph order."""
    outside: set[str] = set()
    found = []
    for layer in network.layers:
        if layer.name in able and outside.isdisjoint(layer.inputs):
            found.append(layer)
        else:
            outside.update(layer.outputs)
    return found


def _beginnings(network: Network, largest: Sequence[Layer]) -> Iterator[Sequence[Layer]]:
    """Yields the largest beginning, and smaller ones that few bytes leave."""
    yield largest
    # reshapes and the like at the end are less work for what reads the raw maps
    idle = [layer for layer in largest if layer.kind in SHUFFLES or not layer.macs]
    yield _without_tail(largest, {layer.name for layer in idle})
    producers = network.producers()
    depth: dict[str, int] = {}
    for layer in largest:
        sources = (producers[name].name for name in layer.inputs if name in producers)
        depth[layer.name] = 1 + max((depth[source] for source in sources), default=0)
    for order in (largest, sorted(largest, key=lambda one: depth[one.name])):
        crossing = _crossing_bytes(network, order)
        few = sorted(range(1, len(order)), key=lambda count: (crossing[count], -count))
        for count in sorted(few[:_TIMED]):
            yield order[:count]


def _without_tail(layers: Sequence[Layer], idle: Collection[str]) -> list[Layer]:
    """Returns layers without those at their ends that are ``idle``."""
    needed: set[str] = set()
    kept = list[Layer]()
    for layer in reversed(layers):
        if layer.name not in idle or not needed.isdisjoint(layer.outputs):
            kept.append(layer)
            needed.update(layer.inputs)
    return kept[::-1]


def _crossing_bytes(network: Network, order: Sequence[Layer]) -> list[int]:
    """Returns the elements that leave the first ``count`` layers, by ``count``."""
    place = {layer.name: number for number, layer in enumerate(order)}
    last: dict[str, int] = dict.fromkeys(network.outputs, len(order))
    for reader in network.layers:
        at = place.get(reader.name, len(order))
        for name in reader.inputs:
            last[name] = max(last.get(name, 0), at)
    crossing = [0] * (len(order) + 2)
    for number, layer in enumerate(order):
        for name in layer.outputs:
            crossing[number + 1] += network.tensors[name].elements
            crossing[max(number, last.get(name, number)) + 1] -= network.tensors[name].elements
    total = 0
    for count, change in enumerate(crossing):
        total += change
        crossing[count] = total
    return crossing


def _timed(
    network: Network,
    judgement: Judgement,
    clock: PlacementTimer,
    tensors: Collection[str],
    objective: str,
    layers: Sequence[Layer],
) -> _Part | None:
    """Returns a beginning with its costs; None if it is no part of its own on a DLA core."""
    inside = {layer.name for layer in layers}
    written = [name for layer in layers for name in layer.outputs]
    read = {name for layer in network.layers if layer.name not in inside for name in layer.inputs}
    read.update(network.outputs)
    ends = tuple(network.views.get(name, name) for name in written if name in read)
    if not ends or len(ends) > _MOST_ENDS or not set(ends) <= set(tensors):
        return None
    part = replace(network, layers=tuple(sorted(layers, key=_place(network))), outputs=ends)
    precisions = judgement.precisions or judgement.precision
    ok = dict.fromkeys(inside, True)
    groups = candidates(part, ok, judgement.slots, precisions)
    groups = within_memory(part, groups, clock.target, precisions)
    if not all(group.retained for group in groups):
        return None
    have = _figures(clock, groups, hybrid=False)
    cost = SplitCost(
        round(have["latency_us"], DIGITS),
        round(1e6 / have["period_us"], DIGITS) if have["period_us"] else 0.0,
        round(have["gpu_us"], DIGITS),
        round(have["energy_uj"], DIGITS),
    )
    return _Part(part.layers, ends, len(groups), cost, have[METRIC[objective]])


def _place(network: Network) -> Callable[[Layer], int]:
    place = {layer.name: number for number, layer in enumerate(network.layers)}
    return lambda layer: place[layer.name]


def _cut(network: Network, part: _Part, macs: float) -> Cut:
    inside = {layer.name for layer in part.layers}
    rest = [layer for layer in network.layers if layer.name not in inside]
    nodes = {name for layer in part.layers for name in layer.origin}
    constants = sum(one.origin[0] not in nodes for one in network.constants)
    return Cut(
        part.ends, len(part.layers), macs, _whole_modules(part.layers, rest), part.loadables,
        len(rest) + constants, sum(not layer.formula for layer in rest), part.cost,
    )  # fmt: skip


def _whole_modules(part: Sequence[Layer], rest: Sequence[Layer]) -> tuple[str, ...]:
    """Returns the outermost modules of which no layer is in the rest."""
    outside = {path for layer in rest for path in enclosing(layer.module)}
    found: dict[str, None] = {}
    for layer in part:
        whole = next((path for path in enclosing(layer.module) if path not in outside), "")
        if whole:
            found[whole] = None
    return tuple(found)
