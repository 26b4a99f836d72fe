"""Cuts of a network after which its first part runs whole on a DLA core, and the rest elsewhere: in
a GPU engine, in ONNX Runtime, or in the user's code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.dla.loadables import find_candidates
from edgekit.dla.memory import drop_oversized
from edgekit.dla.verdicts import Judgement, LoadableCandidate
from edgekit.network.model import Layer, Model, Network
from edgekit.network.module_names import enclosing_modules
from edgekit.placement.costs.kernel_costs import noise
from edgekit.placement.costs.model import concurrent_speeds
from edgekit.placement.forecast import CORE, DIGITS, PlacementTimer, macs_fraction
from edgekit.targets.board import Target
from edgekit.text import yaml_line
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member, record

# A cut is a set of layers that contains the dependencies of each layer. The largest such set that a
# DLA runs is known from the verdicts; the other cuts are its beginnings, in graph order and by
# depth. Beginnings with few output bytes are timed as one loadable, with the model of the check and
# of the plan's baselines; memory is checked last, for cuts that pay.

MOST = 10
"""Maximum number of proposed cuts."""
_TIMED = 4  # beginnings by order: the fewest output bytes in each quarter of the layers
_MOST_ENDS = 16  # maximum output tensors of a part
_FEW, _NEARLY_ALL = 2, 0.99  # loadables; share of the arithmetic
_ALIKE = 0.03  # two cuts are equal within this share of the arithmetic and of the objective


@document(frozen=True)
class SplitCost:
    """Predicted costs of a frame, without measurements.

    Attributes:
        latency_us: Latency in microseconds.
        throughput_qps: Frames a second, if GPU and DLA work on different frames at once.
        gpu_us: The GPU's microseconds.
        energy_uj: Microjoules if frames run back to back.
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
        layers: Layers of the part, all on the DLA.
        macs_fraction: Their share of the network's multiply-accumulates, 0 to 1.
        modules: The outermost PyTorch modules that are whole in the part.
        loadables: Loadables of the part.
        rest: Layers of the rest.
        unknown: Layers of the rest with unknown cost, which no figure counts.
        whole: Costs of part and rest together, if the rest runs in a GPU engine.
    """

    outputs: tuple[str, ...] = member(array(long_text))
    layers: int = member(fields.count)
    macs_fraction: float = member(fields.share)
    modules: tuple[str, ...] = member(array(long_text))
    loadables: int = member(fields.count)
    rest: int = member(fields.count)
    unknown: int = member(fields.count)
    whole: SplitCost = member(record(SplitCost))

    @property
    def yaml(self) -> str:
        """The line of a configuration that applies the cut."""
        return cut_yaml(self.outputs)


@dataclass(frozen=True)
class WholePart:
    """The largest part of a network that runs whole on a DLA core, up to ``outputs``.

    Attributes:
        outputs: The tensors at which the network is cut.
        layers: Layers of the part.
        macs_fraction: Their share of the network's multiply-accumulates, 0 to 1.
        loadables: Loadables of the part.
    """

    outputs: tuple[str, ...]
    layers: int
    macs_fraction: float
    loadables: int


@dataclass(frozen=True)
class _Beginning:
    """A part that was timed.

    Attributes:
        layers: In graph order.
        ends: Its outputs.
        macs: Its share of the network's multiply-accumulates.
        have: Costs of the whole network, by metric.
    """

    layers: Sequence[Layer]
    ends: tuple[str, ...]
    macs: float
    have: Mapping[str, float]


def cuts(
    network: Network,
    judgement: Judgement,
    clock: PlacementTimer | None,
    model: Model,
    *,
    objective: str = "gpu_time",
) -> tuple[Cut, ...]:
    """Returns the cuts that pay, the best by the objective first, at most ``MOST``.

    A cut pays if it beats the GPU alone in the objective, and TensorRT's automatic placement in the
    objective or in latency, by more than the prediction's noise. There are no cuts for a network
    that runs whole on the DLA, or whose end alone TensorRT leaves on the GPU.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        clock: Predicts times; without it there are no cuts.
        model: The model; it is cut at the tensors of its file.
        objective: One of :data:`edgekit.placement.plan.OBJECTIVES`.
    """
    if clock is None:
        return ()
    largest = _beginning(network, judgement)
    loadables = sum(group.retained for group in judgement.candidates)
    only_an_end = loadables <= _FEW and macs_fraction(network, largest) >= _NEARLY_ALL
    if not largest or len(largest) == len(network.layers) or only_an_end:
        return ()
    # imported here so that a check without cuts starts faster
    from edgekit.solver.problem import METRIC

    # TensorRT's own placement is one engine; a cut gives each part an engine without waits
    automatic, alone = (_figures(clock, own, hybrid=True) for own in (judgement.candidates, ()))
    metric, least = METRIC[objective], 1 - noise()
    timed = list[_Beginning]()
    for layers, ends in _parts(network, model, largest):
        # timed as one loadable; _cut counts the real loadables
        whole = LoadableCandidate(tuple(layer.name for layer in layers), True, "")
        have = _figures(clock, [whole], hybrid=False)
        timed.append(_Beginning(layers, ends, macs_fraction(network, layers), have))
    chosen, found = list[_Beginning](), list[Cut]()
    for part in sorted(timed, key=lambda each: (each.have[metric], len(each.ends))):
        pays = part.have[metric] < least * automatic[metric] or (
            part.have["latency_us"] < least * automatic["latency_us"]
        )
        alike = (
            abs(part.have[metric] - other.have[metric]) <= _ALIKE * other.have[metric]
            and abs(part.macs - other.macs) <= _ALIKE
            for other in chosen
        )
        if not pays or part.have[metric] > least * alone[metric] or any(alike):
            continue
        # memory and groups of the builder only now: they cost more than the times
        cut = _cut(network, judgement, clock, part)
        if cut is not None and len(found) < MOST:
            chosen.append(part)
            found.append(cut)
    return tuple(found)


def largest_part(
    network: Network, judgement: Judgement, target: Target, model: Model
) -> WholePart | None:
    """Returns the part with the most arithmetic that a standalone build runs, or None.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        target: The board.
        model: The file's model; the part ends at its tensors.
    """
    largest = _beginning(network, judgement)
    if not largest or len(largest) == len(network.layers):
        return None
    found = list[WholePart]()
    for layers, ends in _parts(network, model, largest):
        groups = _groups(network, judgement, target, layers, ends)
        if all(group.retained for group in groups):
            share = macs_fraction(network, layers)
            found.append(WholePart(ends, len(layers), share, len(groups)))
    return max(found, key=lambda part: (part.macs_fraction, -len(part.outputs)), default=None)


def cut_yaml(outputs: Sequence[str]) -> str:
    """Returns the line of a configuration that cuts a network at tensors."""
    return yaml_line({"model": {"outputs": [*outputs]}})


def _figures(
    clock: PlacementTimer, loadables: Sequence[LoadableCandidate], *, hybrid: bool
) -> dict[str, float]:
    """Returns the costs of a frame, by metric."""
    from edgekit.solver.problem import PlacementProblem, metrics

    gpu_us, dla_us = clock.loads_us(loadables)
    devices, load_us = ("GPU", CORE), (gpu_us, dla_us, 0.0)
    speeds = concurrent_speeds(devices, clock.target, hybrid=hybrid and dla_us > 0)
    problem = PlacementProblem(devices, (), (), (), (None, None), together=speeds)
    return metrics(problem, load_us, clock.model.energy(devices, load_us)[0])


def _parts(
    network: Network, model: Model, largest: Sequence[Layer]
) -> Iterator[tuple[list[Layer], tuple[str, ...]]]:
    """Yields the beginnings with few outputs, all tensors of the file, and these outputs."""
    tensors = {name for node in model.graph.nodes() for name in node.outputs}
    for layers in _beginnings(network, largest):
        ends = _ends(network, layers)
        if ends and len(ends) <= _MOST_ENDS and tensors.issuperset(ends):
            yield layers, ends


def _beginning(network: Network, judgement: Judgement) -> list[Layer]:
    """Returns the layers that a DLA can run, and with them all that they depend on, in graph
    order.
    """
    outside: set[str] = set()
    found = []
    for layer in network.layers:
        if judgement.verdicts[layer.name].placeable and outside.isdisjoint(layer.inputs):
            found.append(layer)
        else:
            outside.update(layer.outputs)
    return found


def _beginnings(network: Network, largest: Sequence[Layer]) -> list[list[Layer]]:
    """Returns the largest beginning, the same without final layers that do no arithmetic, and
    smaller beginnings with few output bytes; all in graph order."""
    producers = network.producers()
    depth: dict[str, int] = {}
    for layer in largest:
        sources = (producers[name].name for name in layer.inputs if name in producers)
        depth[layer.name] = 1 + max((depth[source] for source in sources), default=0)
    # final reshapes and the like are less work for the reader of the raw maps
    every = [{layer.name for layer in largest}, _without_tail(largest)]
    for order in (largest, sorted(largest, key=lambda layer: depth[layer.name])):
        crossing = _crossing_elements(network, order)
        ends = [len(order) * quarter // _TIMED for quarter in range(_TIMED + 1)]
        for low, high in itertools.pairwise(ends):
            if low < high - 1:
                count = min(range(low + 1, high), key=lambda at: (crossing[at], -at))
                every.append({layer.name for layer in order[:count]})
    different = [names for at, names in enumerate(every) if names not in every[:at]]
    return [[layer for layer in largest if layer.name in names] for names in different]


def _without_tail(layers: Sequence[Layer]) -> set[str]:
    needed: set[str] = set()
    kept = set[str]()
    for layer in reversed(layers):
        if layer.macs or not needed.isdisjoint(layer.outputs):
            kept.add(layer.name)
            needed.update(layer.inputs)
    return kept


def _crossing_elements(network: Network, order: Sequence[Layer]) -> list[int]:
    """Returns, by ``count``, the output elements of the first ``count`` layers."""
    place = {layer.name: number for number, layer in enumerate(order)}
    last: dict[str, int] = dict.fromkeys(network.outputs, len(order))
    for reader in network.layers:
        at = place.get(reader.name, len(order))
        for name in reader.inputs:
            # a tensor crosses each place between its writer and its last reader
            last[name] = max(last.get(name, 0), at)
    crossing = [0] * (len(order) + 2)
    for number, layer in enumerate(order):
        for name in layer.outputs:
            elements = network.tensors[name].elements
            crossing[number + 1] += elements
            crossing[max(number, last.get(name, number)) + 1] -= elements
    return list(itertools.accumulate(crossing))


def _ends(network: Network, layers: Sequence[Layer]) -> tuple[str, ...]:
    """Returns the output tensors of a beginning, with the file's names."""
    inside = {layer.name for layer in layers}
    read = {n for layer in network.layers if layer.name not in inside for n in layer.inputs}
    read.update(network.outputs)
    written = [name for layer in layers for name in layer.outputs]
    # a layer may read a view (a free reshape) that is no tensor of the file
    return tuple(network.views.get(name, name) for name in written if name in read)


def _cut(
    network: Network, judgement: Judgement, clock: PlacementTimer, part: _Beginning
) -> Cut | None:
    """Returns a cut; None if the part does not run whole on a DLA core."""
    inside = {layer.name for layer in part.layers}
    groups = _groups(network, judgement, clock.target, part.layers, part.ends)
    if not all(group.retained for group in groups):
        return None
    have = part.have if len(groups) == 1 else _figures(clock, groups, hybrid=False)
    rest = [layer for layer in network.layers if layer.name not in inside]
    nodes = {name for layer in part.layers for name in layer.origin}
    constants = sum(constant.origin[0] not in nodes for constant in network.constants)
    return Cut(
        part.ends,
        len(part.layers),
        part.macs,
        whole_modules(part.layers, rest),
        len(groups),
        len(rest) + constants,
        sum(not layer.formula for layer in rest),
        SplitCost(
            round(have["latency_us"], DIGITS),
            round(1e6 / have["period_us"], DIGITS) if have["period_us"] else 0.0,
            round(have["gpu_us"], DIGITS),
            round(have["energy_uj"], DIGITS),
        ),
    )


def _groups(
    network: Network,
    judgement: Judgement,
    target: Target,
    layers: Sequence[Layer],
    ends: tuple[str, ...],
) -> tuple[LoadableCandidate, ...]:
    """Returns the loadables of a part; loadables that are not retained do not fit a core."""
    part = replace(network, layers=tuple(layers), outputs=ends)
    precisions = judgement.precisions or judgement.precision
    able = {layer.name: True for layer in layers}
    groups = find_candidates(part, able, judgement.slots, precisions)
    return drop_oversized(part, groups, target, precisions)


def whole_modules(part: Sequence[Layer], rest: Sequence[Layer]) -> tuple[str, ...]:
    """Returns the outermost modules without layers in the rest."""
    outside = {path for layer in rest for path in enclosing_modules(layer.module)}
    found: dict[str, None] = {}
    for layer in part:
        whole = next((path for path in enclosing_modules(layer.module) if path not in outside), "")
        if whole:
            found[whole] = None
    return tuple(found)
