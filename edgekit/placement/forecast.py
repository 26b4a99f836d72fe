"""Predicted times of TensorRT's automatic placement and of the GPU alone; the saving of fixing each
broken rule; the device changes of an inference.

The times equal the baselines of a plan, without the optimiser and linear in the layers, so that
``check`` can report them, and also for more layers on the DLA.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edgekit.dla.loadables import find_candidates
from edgekit.dla.memory import drop_oversized
from edgekit.dla.plugin_formats import declared_formats
from edgekit.dla.rules import load_rules
from edgekit.dla.verdicts import Judgement, LoadableCandidate
from edgekit.network.model import Layer, Network
from edgekit.placement.costs.constants import device_constants, layer_kinds
from edgekit.placement.costs.handover import CALLER, Handover, HandoverWay
from edgekit.placement.costs.kernel_costs import Layout, noise
from edgekit.placement.costs.model import CostModel
from edgekit.placement.costs.regions import find_regions
from edgekit.placement.kernels import LayerKernel, fuse
from edgekit.targets.board import Target
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    long_text,
    mapping,
    member,
    nullable,
)

DIGITS = 6  # decimals of microseconds and microjoules in documents
CORE = "DLA0"

#: Kernels, True for each kernel on the DLA, and the loads of GPU and DLA in microseconds.
_Loads = tuple[tuple[LayerKernel, ...], list[bool], float, float]
#: The purpose of a fix: a shorter predicted latency, or layers that can then run on the DLA.
LATENCY, LEGALITY = "latency", "legality"
# share of the multiply-accumulates: a smaller gain does not justify another loadable
_SHARE = 0.005


@document(frozen=True)
class Forecast:
    """Predicted times of one inference in microseconds, without measurements.

    Attributes:
        power_mode: The board's power mode.
        auto_us: Latency with TensorRT's automatic DLA placement.
        dla_us: The part of ``auto_us`` in loadables, including their launches.
        gpu_only_us: Latency on the GPU alone.
        layer_us: The automatic placement's time by layer. A kernel's time is divided by each
            layer's contribution; hand-overs and launches belong to no layer. In a document None for
            a layer of unknown cost.
        clock: "predicted".
    """

    power_mode: str = member(long_text)
    auto_us: float = member(fields.figure)
    dla_us: float = member(fields.figure)
    gpu_only_us: float = member(fields.figure)
    layer_us: Mapping[str, float | None] = member(
        mapping(nullable(fields.figure), long_text), key="layers", absent=dict
    )
    clock: str = member(choice("predicted"), default="predicted")


def macs_fraction(network: Network, on_dla: Sequence[Layer]) -> float:
    """Returns the share of a network's multiply-accumulates in some of its layers, 0 to 1.

    For a network without multiply-accumulates it is 1 if ``on_dla`` has a layer.
    """
    macs = sum(layer.macs for layer in network.layers)
    return sum(layer.macs for layer in on_dla) / macs if macs else float(bool(on_dla))


def forecast(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    power_mode: str | None = None,
) -> Forecast | None:
    """Predicts the times of a judged network with TensorRT's automatic placement.

    Args:
        network: The layer graph.
        judgement: Its verdicts; its retained candidates are the loadables, all on one core.
        target: The board.
        power_mode: NVIDIA's name; the board's MAXN or default mode if None.

    Returns:
        The prediction, equal to the ``tensorrt_auto`` and ``gpu_only`` baselines of a plan; None
        without cost data for the board's GPU or DLA.

    Raises:
        UsageError: The board has no such power mode.
    """
    clock = make_timer(network, judgement, target, power_mode=power_mode)
    return None if clock is None else clock.forecast(judgement.candidates)


def make_timer(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    power_mode: str | None = None,
) -> PlacementTimer | None:
    """Returns a timer for placements of a network; None for a board without cost data."""
    mode = target.mode(power_mode)
    constants = device_constants()
    known = target.gpu.arch in constants.gpu and mode.gpu_mhz and mode.gpu_sms
    if not known or (target.dla.cores and target.dla.generation not in constants.dla):
        return None
    by_layer = judgement.precisions
    # Q/DQ nodes make layers INT8 whatever precision was requested
    precision = "int8" if "int8" in by_layer.values() else judgement.precision
    fp16 = {name for name, own in by_layer.items() if own == "fp16"}
    able = {name: verdict.placeable for name, verdict in judgement.verdicts.items()}
    return PlacementTimer(
        network, CostModel(target, mode, precision, frozenset(fp16), constants), able
    )


class PlacementTimer:
    """Times automatic placements of one network; results are cached.

    ``able`` are the layers that a DLA could run; they decide the savings of the GPU's fused parts.
    """

    def __init__(self, network: Network, model: CostModel, able: Mapping[str, bool]) -> None:
        self._network = network
        #: The cost model.
        self.model = model
        self._able = able
        self._rules = layer_kinds().fusion
        # by device and layers: placements of fixes and cuts have most kernels in common
        self._kernel_us: dict[tuple[bool, tuple[int, ...]], float] = {}
        self._loads: dict[tuple[tuple[str, ...], ...], _Loads] = {}
        self._outputs = frozenset(network.outputs)
        self._regions = find_regions(model, network, able)
        self._handover = Handover(network, model, [part.layers for part in self._regions.parts])
        kernels, on_dla, *loads = self._devices(())
        self._gpu_only = sum(loads)
        #: Microseconds to convert tensors between the GPU's kernels if all layers are on the GPU.
        self.between_us = self._handovers(kernels, on_dla)[0]

    @property
    def target(self) -> Target:
        """The board."""
        return self.model.target

    @property
    def gpu_only_us(self) -> float:
        """Latency on the GPU alone."""
        return round(self._gpu_only, DIGITS)

    def auto_us(self, candidates: Sequence[LoadableCandidate]) -> float:
        """Returns the latency with these loadables and all other layers on the GPU."""
        return round(sum(self._devices(candidates)[2:]), DIGITS)

    def loads_us(self, candidates: Sequence[LoadableCandidate]) -> tuple[float, float]:
        """Returns the GPU's and the DLA's work with these loadables, other layers on the GPU."""
        _, _, gpu_us, dla_us = self._devices(candidates)
        return gpu_us, dla_us

    def forecast(self, candidates: Sequence[LoadableCandidate]) -> Forecast:
        """Returns times of the placement with these loadables."""
        kernels, on_dla, gpu_us, dla_us = self._devices(candidates)
        layers = self._network.layers
        layer_us: dict[int, float] = {}
        for kernel, dla in zip(kernels, on_dla, strict=True):
            time = self._kernel_time(kernel, dla)
            shares = self.model.layer_shares(self._network, kernel, CORE if dla else "GPU")
            for i, share in zip(kernel.layers, shares, strict=True):
                layer_us[i] = round(time * share, DIGITS)
        return Forecast(
            self.model.mode.name,
            round(gpu_us + dla_us, DIGITS),
            round(dla_us, DIGITS),
            self.gpu_only_us,
            {layers[i].name: layer_us[i] for i in sorted(layer_us)},
        )

    def times_by_device(self) -> dict[str, tuple[float, float]]:
        """Returns, by layer that a DLA could run, its kernel's time on the GPU and on the DLA."""
        layers = self._network.layers
        fp16 = self.model.fp16_layers
        kernels = fuse(
            self._network,
            self._rules.heads,
            self._rules.tails,
            lambda layer: (self._able.get(layer.name, False), layer.name in fp16),
        )
        return {
            layers[i].name: (
                round(self._kernel_time(kernel, False), DIGITS),
                round(self._kernel_time(kernel, True), DIGITS),
            )
            for kernel in kernels
            if self._able.get(layers[kernel.layers[0]].name)
            for i in kernel.layers
        }

    def _devices(self, candidates: Sequence[LoadableCandidate]) -> _Loads:
        loadables = tuple(candidate.layers for candidate in candidates if candidate.retained)
        if loadables not in self._loads:
            self._loads[loadables] = self._compute(loadables)
        return self._loads[loadables]

    def _compute(self, loadables: Sequence[Sequence[str]]) -> _Loads:
        # numbered from 1: 0 is the GPU
        run_of = {name: number for number, names in enumerate(loadables, 1) for name in names}
        layers = self._network.layers
        fp16 = self.model.fp16_layers
        kernels = fuse(
            self._network,
            self._rules.heads,
            self._rules.tails,
            lambda layer: (run_of.get(layer.name, 0), layer.name in fp16),
        )
        on_dla = [layers[kernel.layers[0]].name in run_of for kernel in kernels]
        load = [0.0, 0.0]
        for kernel, dla in zip(kernels, on_dla, strict=True):
            load[dla] += self._kernel_time(kernel, dla)
        if run_of:
            inside = {i for i, layer in enumerate(layers) if layer.name in run_of}
            # the price of breaking fused parts is the GPU's
            load[0] += self._regions.broken_us(inside)
        for device, us in enumerate(self._handovers(kernels, on_dla)):
            load[device] += us
        load[1] += self.model.launch_us() * len(set(run_of.values()))
        return kernels, on_dla, load[0], load[1]

    def _kernel_time(self, kernel: LayerKernel, dla: bool) -> float:
        key = (dla, kernel.layers)
        known = self._kernel_us.get(key)
        if known is None:
            device = CORE if dla else "GPU"
            known = self.model.kernel_us(self._network, kernel, device)
            if not dla:
                known = max(0.0, known - self._regions.saved(kernel))
            self._kernel_us[key] = known
        return known

    def _handovers(
        self, kernels: Sequence[LayerKernel], on_dla: Sequence[bool]
    ) -> tuple[float, float]:
        """Returns the borders' cost to GPU and DLA: once per tensor, direction and layout."""
        readers: dict[str, list[int]] = {}
        for v, kernel in enumerate(kernels):
            for name in kernel.inputs:
                readers.setdefault(name, []).append(v)
        handover = self._handover
        # fitted kernel times do not include the reformat beside a plugin
        plugin = [
            bool(declared_formats(self._network.layers[joint.layers[0]])) for joint in kernels
        ]
        ways: list[HandoverWay] = []
        converted = 0.0
        for name in self._network.inputs:
            users = readers.get(name, ())
            inside = [kernels[u] for u in users if on_dla[u]]
            if inside:
                ways.append(handover.into(name, CALLER, inside)[0])
            # only beside a plugin: the fitted times of other kernels include the reformat
            on_gpu = {handover.gpu(kernels[u])[0]: True for u in users if plugin[u]}
            converted += self._reformats_us(name, CALLER, on_gpu)
        for v, kernel in enumerate(kernels):
            for name in kernel.outputs:
                users = readers.get(name, ())
                if not on_dla[v]:
                    inside = [kernels[u] for u in users if on_dla[u]]
                    own = handover.gpu(kernel)[0]
                    if inside:
                        ways.append(handover.into(name, own, inside)[0])
                    # inside a fused part no tensor is converted
                    fused = all(handover.is_fused(kernel, kernels[u]) for u in users)
                    others: dict[Layout, bool] = {}
                    for u in users:
                        if not on_dla[u] and not fused:
                            goal = handover.gpu(kernels[u])[0]
                            others[goal] = others.get(goal, False) or plugin[u] or plugin[v]
                    if plugin[v] and name in self._outputs:
                        others[CALLER] = True
                    converted += self._reformats_us(name, own, others)
                    continue
                goals = dict.fromkeys(handover.gpu(kernels[u])[0] for u in users if not on_dla[u])
                if name in self._outputs:
                    goals[CALLER] = None
                ways += [handover.out_of(name, goal, kernel)[0] for goal in goals]
        return converted + sum(way.reformat_us for way in ways), sum(way.io_us for way in ways)

    def _reformats_us(self, name: str, own: Layout, goals: Mapping[Layout, bool]) -> float:
        """Returns the time of a tensor's reformats on the GPU; ``goals``: True beside a plugin."""
        return sum(
            self._handover.reformat_us(self._network.tensors[name], own, goal)
            for goal, plugin in goals.items()
            if (CALLER not in (own, goal) and self._handover.changes_type(own, goal))
            or (plugin and own[1] != goal[1])
        )


@document(frozen=True)
class Fix:
    """The effect of allowing layers that break the same rules on the DLA.

    Attributes:
        rules: The rules that all these layers break.
        layers: The layers, in graph order.
        fix: The instruction for each rule.
        candidates: Candidate loadables afterwards.
        loadables: Kept candidates afterwards.
        dla_layers: Layers on the DLA afterwards.
        dla_macs_fraction: Their share of the multiply-accumulates.
        auto_us: Predicted latency afterwards; None without a prediction for the board.
        gain_us: Predicted microseconds saved, against the automatic placement or the GPU alone,
            whichever is faster now; None if within the prediction's noise.
        offer: ``LATENCY`` if it saves latency. ``LEGALITY`` if more layers would be on the DLA, in
            no more loadables or with more of the arithmetic, and the automatic placement is not
            slower than now beyond the prediction's noise. Else empty.
        rewrites: Rewrites that apply the fix.
    """

    rules: tuple[str, ...] = member(array(long_text))
    layers: tuple[str, ...] = member(array(long_text))
    fix: tuple[str, ...] = member(array(long_text))
    candidates: int = member(fields.count)
    loadables: int = member(fields.count)
    dla_layers: int = member(fields.count)
    dla_macs_fraction: float = member(fields.share)
    auto_us: float | None = member(nullable(fields.figure))
    gain_us: float | None = member(nullable(fields.figure))
    offer: str = member(choice(LATENCY, LEGALITY, ""))
    rewrites: tuple[str, ...] = member(array(long_text), default=())


def find_fixes(
    network: Network, judgement: Judgement, clock: PlacementTimer | None
) -> tuple[Fix, ...]:
    """Returns the gain of fixing each set of broken rules, the best first.

    Layers that break the same rules count together, because fixing a single rule of two does not
    help. A fixed layer's cost on the DLA is predicted from its size. Rules of the whole network (no
    DLA, FP32, a TensorRT without DLA) and rules without a fix are omitted.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        clock: Predicts times; without it fixes are ranked by loadables and layers.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    ways: dict[tuple[str, ...], dict[str, None]] = {}
    known = load_rules().rules
    for layer in network.layers:
        verdict = judgement.verdicts[layer.name]
        if verdict.placeable:
            continue
        reasons = {reason.rule: reason for reason in verdict.reasons}
        rules = tuple(sorted(reasons))
        hopeless = any(known[r].network or not reasons[r].mends for r in rules)
        if hopeless or not all(reason.fix for reason in reasons.values()):
            continue
        groups.setdefault(rules, []).append(layer.name)
        # the same rule can have other fixes for other layers
        ways.setdefault(rules, {}).update(dict.fromkeys(reasons[rule].fix for rule in rules))
    auto_us = clock.auto_us(judgement.candidates) if clock is not None else 0.0
    found = [
        _predict_fix(network, judgement, clock, auto_us, rules, names, tuple(ways[rules]))
        for rules, names in groups.items()
    ]
    return tuple(sorted(found, key=_fix_rank))


def combine_fixes(
    network: Network,
    judgement: Judgement,
    clock: PlacementTimer | None,
    chosen: Sequence[Fix],
) -> Fix:
    """Returns the gain of several of ``fixes`` at once; it can be more than their sum.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        clock: Predicts times, or None.
        chosen: The fixes.
    """
    rules = dict.fromkeys(rule for fix in chosen for rule in fix.rules)
    wanted = {name for fix in chosen for name in fix.layers}
    names = [layer.name for layer in network.layers if layer.name in wanted]
    ways = dict.fromkeys(way for fix in chosen for way in fix.fix)
    auto_us = clock.auto_us(judgement.candidates) if clock is not None else 0.0
    return _predict_fix(network, judgement, clock, auto_us, tuple(rules), names, tuple(ways))


def _predict_fix(
    network: Network,
    judgement: Judgement,
    clock: PlacementTimer | None,
    auto_us: float,
    rules: tuple[str, ...],
    names: Sequence[str],
    ways: tuple[str, ...],
) -> Fix:
    """Returns the effect of allowing ``names`` on the DLA as well.

    ``auto_us`` is the automatic placement's current time, by the clock.
    """
    more = frozenset(names)
    ok = {name: verdict.ok or name in more for name, verdict in judgement.verdicts.items()}
    mended = _four_dimensions(network, more)
    given = judgement.precisions or judgement.precision
    # the loadables that the builder would form, up to the limit of a core
    groups = find_candidates(mended, ok, judgement.slots, given)
    if clock is not None:
        groups = drop_oversized(mended, groups, clock.target, given)
    names_on_dla = {name for group in groups if group.retained for name in group.layers}
    on_dla = [layer for layer in network.layers if layer.name in names_on_dla]
    after, gain, slower = None, None, False
    if clock is not None:
        after = clock.auto_us(groups)
        # no published time includes a recurrence
        guess = any(layer.params.get("steps") for layer in network.layers if layer.name in more)
        gain = saved_us(clock, auto_us, after, extrapolated=guess)
        slower = after > auto_us * (1 + noise(extrapolated=guess))
    accepted, share = sum(group.retained for group in groups), macs_fraction(network, on_dla)
    now = [layer for layer in network.layers if judgement.placed.get(layer.name) == "DLA"]
    # a first loadable is no loss
    before = max(1, sum(group.retained for group in judgement.candidates))
    more_work = share >= macs_fraction(network, now) + _SHARE
    offer = LATENCY if gain is not None else ""
    if not (offer or slower) and len(on_dla) > len(now) and (accepted <= before or more_work):
        offer = LEGALITY
    return Fix(
        rules, tuple(names), ways, len(groups), accepted, len(on_dla), share, after, gain, offer
    )


def saved_us(
    clock: PlacementTimer, auto_us: float, after_us: float, *, extrapolated: bool = False
) -> float | None:
    """Returns a latency's saving against the fastest current placement; None within the noise.

    Args:
        clock: Predicts times.
        auto_us: The automatic placement's time with the current verdicts.
        after_us: The latency.
        extrapolated: True if no published time supports the latency.
    """
    now = min(auto_us, clock.gpu_only_us)
    if after_us >= now * (1 - noise(extrapolated=extrapolated)):
        return None
    return round(now - after_us, DIGITS)


def _four_dimensions(network: Network, names: Collection[str]) -> Network:
    """Returns the network with the fixed layers' outputs as N, C, 1, 1.

    The DLA's batch is the part of a shape before the last three dimensions. A fixed layer gets the
    network's batch, otherwise it would be a loadable of its own.
    """
    tensors = dict(network.tensors)
    for layer in network.layers:
        if layer.name in names:
            for name in layer.outputs:
                tensor = tensors[name]
                batch = tensor.shape[0] if tensor.shape else 1
                rest = tensor.elements // batch if batch else 0
                tensors[name] = replace(tensor, shape=(batch, rest, 1, 1))
    return replace(network, tensors=tensors)


def _fix_rank(fix: Fix) -> tuple[int, float, int, int, tuple[str, ...]]:
    order = (LATENCY, LEGALITY, "").index(fix.offer)
    return order, fix.auto_us or 0.0, fix.candidates, -fix.dla_layers, fix.rules


def automatic_transitions(network: Network, judgement: Judgement) -> int:
    """Returns the fewest device changes in any running order of TensorRT's automatic placement.

    Each kept candidate runs as one piece. Running everything ready on one device before changing to
    the other is optimal, so only the two choices of the first device are tried. Linear in the
    layers.
    """
    piece_of: dict[str, int] = {}
    on_dla: list[bool] = []
    for candidate in judgement.candidates:
        if candidate.retained:
            piece_of.update(dict.fromkeys(candidate.layers, len(on_dla)))
            on_dla.append(True)
    for layer in network.layers:
        if layer.name not in piece_of:
            piece_of[layer.name] = len(on_dla)
            on_dla.append(False)
    producers = network.producers()
    after: list[set[int]] = [set() for _ in on_dla]
    for layer in network.layers:
        reader = piece_of[layer.name]
        for name in layer.inputs:
            source = producers.get(name)
            if source is not None and piece_of[source.name] != reader:
                after[piece_of[source.name]].add(reader)
    return min(_count_changes(on_dla, after, first) for first in (False, True))


def _count_changes(on_dla: list[bool], after: list[set[int]], device: bool) -> int:
    # Kahn's algorithm with a queue for each device
    missing = [0] * len(on_dla)
    for readers in after:
        for reader in readers:
            missing[reader] += 1
    ready: dict[bool, deque[int]] = {False: deque(), True: deque()}
    for piece, count in enumerate(missing):
        if not count:
            ready[on_dla[piece]].append(piece)
    changes = 0
    ran = False
    while ready[False] or ready[True]:
        if not ready[device]:
            device = not device
            changes += ran
        ran = True
        piece = ready[device].popleft()
        for reader in after[piece]:
            missing[reader] -= 1
            if not missing[reader]:
                ready[on_dla[reader]].append(reader)
    return changes
