"""Layers in a trace: maps names in a measurement to a plan's layers, places profiled layers within
a segment's run, and shows a profiler's layer times as a frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from edgekit.benchmark.measurement import BOARD_MEASURED, MeasuredRun, NodeTime
from edgekit.benchmark.trace.chrome import HOST, EventArgs, TraceProcess, nanoseconds
from edgekit.network.module_tree import layer_modules
from edgekit.placement.profiles.profile import Profile, booked_rows
from edgekit_device.protocol.fields import dla_core

if TYPE_CHECKING:
    from edgekit.network.model import Network
    from edgekit.placement.plan import PlacedLayer, Plan, Share


_FOREIGN = re.compile(r"^\{ForeignNode\[(.*)\]\}$")
_PARTS = re.compile(r" \+ | \|\| |, |\.\.\.")
_WRAP = re.compile(r"^(?:PWN|copied_)?\(*|\)+$")
_VERBS = {"QuantizeLinear": "quantise", "DequantizeLinear": "dequantise", "Cast": "cast"}
_PROFILED = (
    "durations from a profiler; start times were not measured",
    "one inference, as profiled",
)
_WORDS = {
    "log": (
        "the builder's time of each fastest tactic; no inference was run",
        "sum of the fastest tactics",
    ),
    "bench": (
        "durations from edgekit bench; start times were not measured",
        "one inference, shared among its layers",
    ),
    "table": (
        "durations from edgekit tune; start times were not measured, and layers may overlap",
        "sum of the measured times",
    ),
}
Linked = Callable[[str], EventArgs | None]


def layer_args(layer: PlacedLayer) -> EventArgs:
    """Returns a placed layer as arguments of an event."""
    return EventArgs(
        layer=layer.name,
        nodes=list(layer.nodes),
        device=layer.device,
        precision=layer.precision,
        segment=layer.segment,
    )


def layers_args(members: Sequence[PlacedLayer]) -> EventArgs:
    """Returns the layers of a fusion as arguments of an event, placed like the first layer."""
    args = layer_args(members[0])
    if len(members) < 2:
        return args
    return args.model_copy(
        update={
            "layer": " + ".join(layer.name for layer in members[:50]),
            "nodes": [node for layer in members for node in layer.nodes],
            "layers": [layer.name for layer in members],
        }
    )


def linked_layers(plan: Plan | Share | None) -> Linked:
    """Returns a function that finds a layer by its name, its nodes' names, or a fusion's parts.

    A loadable (``{ForeignNode[first...last]}``) is all layers from its first to its last that are
    placed on that core; a fusion has the nodes of all its parts, and the device and segment of the
    first part.
    """
    layers = plan.layers if plan else ()
    place = {layer.name: number for number, layer in enumerate(layers)}
    for number, layer in enumerate(layers):
        for node in layer.nodes:
            place.setdefault(node, number)
    known: dict[str, EventArgs | None] = {}

    def find(name: str) -> EventArgs | None:
        if name not in known:
            # an export may have millions of names
            if len(known) >= 1 << 14:
                known.clear()
            known[name] = match_layers(name)
        return known[name]

    def match_layers(name: str) -> EventArgs | None:
        if name in place:
            return layer_args(layers[place[name]])
        match = _FOREIGN.match(name)
        parts = [_WRAP.sub("", part.strip()) for part in _PARTS.split(match[1] if match else name)]
        numbers = [place[part] for part in parts if part in place]
        if not numbers:
            return None
        if match:
            first = layers[min(numbers)]
            members = [
                layer
                for layer in layers[min(numbers) : max(numbers) + 1]
                # layers in between may run on other devices at the same time
                if layer.segment == first.segment
            ]
        else:
            members = [layers[number] for number in sorted(set(numbers))]
        predicted = sum(layer.predicted_us for layer in members)
        return layers_args(members).model_copy(update={"predicted_us": predicted})

    return find


def with_modules(linked: Linked, network: Network) -> Linked:
    """Returns ``linked``, extended by the modules of the found layers."""
    module = layer_modules(network)

    def find(name: str) -> EventArgs | None:
        found = linked(name)
        return found.of_module(module) if found and module else found

    return find


@dataclass(frozen=True, slots=True)
class LayerSlice:
    """A layer's slice in a run, in whole nanoseconds."""

    name: str
    device: str
    start: int
    end: int
    args: EventArgs


class Owners:
    """Finds the plan's layer of an engine's node.

    Nodes that edgekit added for rounding and scaling are named TENSOR#... after their tensor, so
    they belong to the layer that writes it. TensorRT's nodes are fusions and loadables.

    Args:
        plan: The plan; None: no layer is found.
        network: The plan's network, for the layers' tensors.
        lane: Index of the plan's variant.
    """

    def __init__(self, plan: Plan | None, network: Network | None, lane: int) -> None:
        # a lane of a measurement is a plan of a mix
        share = plan.plans[lane] if plan and lane < len(plan.plans) else plan
        layers = share.layers if share else ()
        by_name = {layer.name: layer for layer in layers}
        self._by_node = by_name | {node: layer for layer in layers for node in layer.nodes}
        self._by_tensor = {
            tensor: by_name[layer.name]
            for layer in (network.layers if network else ())
            for tensor in layer.outputs
            if layer.name in by_name
        }
        self._linked = linked_layers(share)

    def find(self, node: str) -> PlacedLayer | None:
        """Returns the layer of a node; None if there is none."""
        if node in self._by_node:
            return self._by_node[node]
        tensor, mark, _ = node.partition("#")
        return self._by_tensor.get(tensor) if mark else None

    def borders(self, node: str, segment: int, within: Collection[str]) -> PlacedLayer | None:
        """Returns the layer of another segment whose tensor a node converts, or None.

        Args:
            node: The engine's node.
            segment: Number of the node's segment.
            within: The segment's layers; the plan's if the loader does not report them.
        """
        layer = self.find(node) if node not in self._by_node else None
        if layer is None or (layer.name in within if within else layer.segment == segment):
            return None
        return layer

    def fused(self, name: str) -> EventArgs:
        """Returns the plan's facts about a fusion or loadable as arguments of an event."""
        return self._linked(name) or EventArgs()


def layer_slices(
    run: MeasuredRun,
    nodes: Sequence[NodeTime],
    owners: Owners,
    *,
    board: bool,
    within: Collection[str] = (),
) -> list[LayerSlice]:
    """Places a run's layers; adjacent nodes of the same layer are merged.

    A hybrid engine is a segment on two devices. Its loadables are the DLA's, including the wait
    that the profiler shows after them (as in ``edgekit.placement``); its other layers, and the
    reformats and copies for the DLA, are the GPU's.

    Args:
        run: The device's run.
        nodes: The profiled nodes in running order; ``measured_us`` of the result is their sum.
        owners: Finds the nodes' layers.
        board: True if TensorRT ran them: nodes of a DLA segment are then of a hybrid engine, since
            a loadable has no profiler.
        within: The segment's layers, if known.
    """
    total = sum(node.us for node in nodes)
    scale = run.duration_us / total if total > 0 else 1.0
    if board and run.device != "GPU":
        # they fill the whole run, since one of the two devices is always busy
        groups = list(_hybrid_groups(run, nodes, owners))
    else:
        # layers were timed in separate runs under the profiler, which slows them
        scale = min(1.0, scale)
        groups = list(_layer_groups(run, nodes, owners, within))
    found = []
    end, elapsed = nanoseconds(run.start_us + run.duration_us), run.start_us
    for name, us, args in groups:
        begin, elapsed = min(nanoseconds(elapsed), end), elapsed + scale * us
        stop = min(nanoseconds(elapsed), end)
        timed = args.model_copy(update={"measured_us": us})
        found.append(LayerSlice(name, args.device or run.device, begin, stop, timed))
    return found


def device_parts(
    run: MeasuredRun, layers: Sequence[LayerSlice]
) -> Iterator[tuple[str, int, int, list[LayerSlice]]]:
    """Yields device, start and end of a run's parts by device, each with its layers."""
    start, end = nanoseconds(run.start_us), nanoseconds(run.start_us + run.duration_us)
    parts = [
        (device, list(members)) for device, members in groupby(layers, lambda layer: layer.device)
    ]
    if len(parts) < 2:
        yield (parts[0][0] if parts else run.device), start, end, list(layers)
        return
    for device, members in parts:
        yield device, members[0].start, members[-1].end, members


def _layer_groups(
    run: MeasuredRun, nodes: Sequence[NodeTime], owners: Owners, within: Collection[str]
) -> Iterator[tuple[str, float, EventArgs]]:
    groups: list[tuple[PlacedLayer | None, bool, list[NodeTime]]] = []
    for node in nodes:
        border = owners.borders(node.node, run.segment, within)
        layer = border or owners.find(node.node)
        if groups and layer is not None and groups[-1][0] is layer:
            groups[-1][2].append(node)
        else:
            groups.append((layer, border is not None, [node]))
    here = {"segment": run.segment, "device": run.device}
    for layer, converts, members in groups:
        if layer is None:
            args = owners.fused(members[0].node or "node")
            name = _node_text(members[0])
        elif converts:
            # it converts another segment's tensor, but runs here, so it is no time of that tensor's
            # layer. A quantisation ends in casts for its readers
            verb = next(
                (verb for op, verb in _VERBS.items() if any(n.op == op for n in members)), "convert"
            )
            name = f"{verb} {layer.name}'s output"
            args = EventArgs(border_of=layer.name)
        else:
            name, args = layer.name, layer_args(layer)
        # a slice has the segment and device on which it ran, not those of the plan's layer
        own = {**here, "measured_nodes": [node.node for node in members]}
        yield name, sum(node.us for node in members), args.model_copy(update=own)


def _node_text(node: NodeTime) -> str:
    """Returns the displayed name of a node without a layer: its action if edgekit or the
    runtime added it, since such names do not help the reader.
    """
    tensor = node.node.partition("#")[0]
    if node.op in _VERBS:
        return f"{_VERBS[node.op]} {tensor.removesuffix('_q').removesuffix('_dq')}"
    if node.op.startswith("Reorder"):
        return "reorder for the next kernel"
    return f"convert {tensor}" if "#" in node.node else node.node or "node"


def _hybrid_groups(
    run: MeasuredRun, nodes: Sequence[NodeTime], owners: Owners
) -> Iterator[tuple[str, float, EventArgs]]:
    for row, is_layer in booked_rows([(node.node, node.us) for node in nodes]):
        layer = owners.find(row.name) if is_layer else None
        known = layer_args(layer) if layer else owners.fused(row.name) if is_layer else EventArgs()
        # a GPU subgraph of TensorRT is named like a loadable
        device = "GPU" if row.device == "GPU" or known.device == "GPU" else run.device
        own = {"segment": run.segment, "device": device, "measured_nodes": [row.name]}
        yield row.name if layer is None else layer.name, row.us, known.model_copy(update=own)


def profile_process(
    profile: Profile, *, pid: int, dla_cores: int, core: int = 0, linked: Linked | None = None
) -> TraceProcess:
    """Returns a profiler's layer times as a frame, with the DLA's wait on the DLA's track.

    A profile has durations and an order but no starts: its layers are placed one after the other
    from 0. A build log has no inference, only timed tactics. The first "... from nvm" of an
    ``IProfiler`` after a loadable is the wait for that loadable (as in ``edgekit.placement``);
    reformats and copies have a separate track.

    Args:
        profile: From ``edgekit.placement.profiles.reader.read_profile``.
        pid: Process number.
        dla_cores: DLA cores of the target.
        core: Core of loadables that the plan does not place: an engine's loadables run on a single
            core.
        linked: Finds the plan's facts about a layer.
    """
    board = profile.board or "the board"
    what = "fastest tactics of the build" if profile.kind == "log" else "layers"
    process = TraceProcess(
        pid,
        f"{what} measured on {board}, one after the other",
        BOARD_MEASURED,
        max(dla_cores, core + 1),
    )
    process.label, frame = _WORDS.get(profile.kind, _PROFILED)
    elapsed = 0.0
    shown = [(row, "layer") for row in profile.rows] + [(row, "copy") for row in profile.overhead]
    for row, category in sorted(shown, key=lambda item: item[0].place):
        found = map(linked, (row.name, *row.layers)) if linked else ()
        args = next(filter(None, found), EventArgs())
        device = args.device or row.device or ""
        if row.device == "GPU":
            device = "GPU"  # a layer measured on the GPU is shown there, even if planned elsewhere
        elif device == "DLA" or (row.device == "DLA" and dla_core(device) is None):
            device = f"DLA{core}"
        track = "copies" if category == "copy" else device or "GPU or DLA"
        begin, elapsed = nanoseconds(elapsed), elapsed + row.us
        args = args.model_copy(update={"device": device or None, "measured_us": row.us})
        if row.layers:
            args = args.model_copy(update={"layers": list(row.layers)})
        process.add(track, row.name or "layer", begin, nanoseconds(elapsed), category, args)
    process.add(
        HOST,
        frame,
        0,
        nanoseconds(elapsed),
        "frame",
        EventArgs(device=HOST, file_kind=profile.kind, notes=list(profile.notes)),
    )
    return process
