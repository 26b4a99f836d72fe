"""Measured costs over the cost model: the layers of each row of a profile, times by layer, tensor
and format, predictions for everything else, and the measured part of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.buildlog.timings import Combination
from edgekit.errors import DataError
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.costs.constants import layer_kinds
from edgekit.placement.costs.kernel_costs import Layout, padded_bytes
from edgekit.placement.costs.model import CostModel, Measurements
from edgekit.placement.costs.regions import attention_parts
from edgekit.placement.forecast import DIGITS
from edgekit.placement.kernels import LayerKernel, fuse, join
from edgekit.placement.plan import MeasuredPart
from edgekit.placement.profiles.engine_graph import nodes_between
from edgekit.placement.profiles.engine_times import EngineTimes, parse_layout
from edgekit.placement.profiles.profile import Profile, ProfileRow
from edgekit.text import percent

if TYPE_CHECKING:
    from edgekit.buildlog.layer_names import LayerNames
    from edgekit.placement.plan import PlacedLayer


LEAST_MATCHED = 0.2
"""Minimum share of a profile's rows that match the model; below, it is another model's profile."""

USUALLY_MATCHED = 0.8
"""The share of matched rows below which a plan warns."""

_ALLOWED = {"int8": ("int8", "fp16", "fp32"), "fp16": ("fp16", "fp32"), "fp32": ("fp32",)}
_CONV = "_conv_out"
_FOREIGN, _BETWEEN = "{ForeignNode[", "..."


@dataclass(frozen=True, slots=True)
class TimedLayers:
    """Layers (indices, ascending) that were timed as one on a device ("GPU" or "DLA")."""

    device: str
    layers: tuple[int, ...]
    row: ProfileRow


@dataclass(frozen=True)
class Matched:
    """A profile's rows matched with a network's layers.

    Attributes:
        groups: Disjoint on each device.
        unmatched: Names of rows that match no layer.
        rows: Total number of rows.
        parts: Names of rows that are a part of a subgraph with a row of its own: timed alone, and
            included in the subgraph's time.
    """

    groups: tuple[TimedLayers, ...]
    unmatched: tuple[str, ...]
    rows: int
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimedGroup:
    """A group, its measured time, and the division of this time over its layers.

    Attributes:
        group: Layers and row.
        share: By layer, its part of the group's time; adds up to 1.
        predicted_us: The model's prediction for the group.
        us: The group's time in its fastest formats; without the launch for a loadable.
        variants: (layouts read, layouts written, microseconds), as ``us``.
        reads: The tensors that the group reads from outside, by input.
        writes: The group's tensors that others read.
    """

    group: TimedLayers
    share: Mapping[int, float]
    predicted_us: float
    us: float
    variants: tuple[tuple[tuple[Layout | None, ...], tuple[Layout | None, ...], float], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def bound(self) -> float:
        """Maximum factor of a prediction: a fusion takes no longer than its pieces."""
        return min(1.0, self.us / self.predicted_us) if self.predicted_us else 1.0

    def kernel_us(self, precision: str, form: str | None) -> float:
        """Returns the group's time with a type and format at its borders, if timed."""
        same_type, same_both = [], []
        for reads, writes, us in self.variants:
            sides = [layout for layout in (*reads, *writes) if layout is not None]
            if all(layout[0] == precision for layout in sides):
                same_type.append(us)
                if form is None or all(layout[1] == form for layout in sides):
                    same_both.append(us)
        # not timed in this format: the best of the type, else of any
        return min(same_both or same_type or [self.us])

    def forms(self, precision: str) -> tuple[str, ...]:
        """Returns the formats that were timed at all borders at once in a type, fastest first."""
        found: dict[str, float] = {}
        for reads, writes, us in self.variants:
            # a GPU mode of the problem has one layout at all borders
            sides = {layout for layout in (*reads, *writes) if layout is not None}
            if len(sides) == 1 and next(iter(sides))[0] == precision:
                form = next(iter(sides))[1]
                found[form] = min(us, found.get(form, us))
        return tuple(sorted(found, key=lambda form: (found[form], form)))

    def io_us(self, tensor: str, layout: Layout, direction: str) -> float | None:
        """Returns the extra time of a format at one border over the fastest; None if not timed."""
        names = self.reads if direction == "read" else self.writes
        if tensor not in names or not self.variants:
            return None
        number = names.index(tensor)
        found = []
        for reads, writes, us in self.variants:
            side = reads if direction == "read" else writes
            # a row with other ports than the network's tensors cannot be assigned
            if len(side) == len(names) and side[number] == layout:
                found.append(us)
        return min(found) - self.us if found else None


class MeasuredTimes:
    """Measured times of one network on one board.

    Attributes:
        of: By "GPU" or "DLA" and layer, the group that was timed there.
        pieces: By layer of a part that the GPU alone runs fused, the group that was timed on the
            GPU next to a DLA: its time is valid if a DLA breaks the fusion, and an upper bound
            else.
        fused: The parts that the GPU alone runs fused.
    """

    def __init__(
        self,
        model: CostModel,
        network: Network,
        profile: Profile,
        groups: Sequence[TimedLayers],
        fused: Sequence[Collection[int]] = (),
    ) -> None:
        self._model, self._network = model, network
        self.of: dict[str, dict[int, TimedGroup]] = {"GPU": {}, "DLA": {}}
        self.pieces: dict[int, TimedGroup] = {}
        self.fused = self._merge_fused_parts(fused, groups)
        self.place = {layer.name: i for i, layer in enumerate(network.layers)}
        self._border: dict[tuple[str, str], TimedGroup] = {}
        consumers = network.consumers()
        usable = [group for group in groups if _fits_plan(group, model)]
        # the layers of the parts that the profile's engine had in pieces for a DLA
        on_dla = {i for group in groups if group.device == "DLA" for i in group.layers}
        broken = {i for part in self.fused if not on_dla.isdisjoint(part) for i in part}
        for device in self.of:
            mine = [group for group in usable if group.device == device]
            weights = self._weights(device, mine)
            for group in mine:
                timed = self._timed(group, weights, join(network, group.layers, consumers))
                in_pieces = device == "GPU" and not broken.isdisjoint(group.layers)
                times = self.pieces if in_pieces else self.of[device]
                times.update(dict.fromkeys(group.layers, timed))
                if device == "DLA":
                    self._border.update({(name, "read"): timed for name in timed.reads})
                    self._border.update({(name, "write"): timed for name in timed.writes})
        self.groups = len(usable)
        self.reformats = dict(self._reformats(profile))

    def _merge_fused_parts(
        self, fused: Sequence[Collection[int]], groups: Sequence[TimedLayers]
    ) -> tuple[frozenset[int], ...]:
        """Returns the parts that the GPU runs fused in the profile's engine.

        Rewritten for the DLA, a transformer has 1x1 convolutions between its parts; with a loadable
        of such layers the engine was in pieces from the first part.
        """
        on_dla = [group.layers for group in groups if group.device == "DLA"]
        if not any(all(map(self._is_transformer_layer, layers)) for layers in on_dla):
            return tuple(frozenset(part) for part in fused)
        joined = {i for part in fused for i in part}
        live: set[str] = set()
        for i, layer in enumerate(self._network.layers):
            if i in joined or (self._is_transformer_layer(i) and not live.isdisjoint(layer.inputs)):
                joined.add(i)
                live.update(layer.outputs)
        return (frozenset(joined),) if joined else ()

    def _is_transformer_layer(self, index: int) -> bool:
        layer = self._network.layers[index]
        points = math.prod(layer.params.get("kernel", ()))
        return layer.kind in layer_kinds().regions.kinds or (
            layer.kind == "CONVOLUTION" and points == 1
        )

    def _weights(self, device: str, groups: Sequence[TimedLayers]) -> dict[int, float]:
        """Returns the predicted time of every layer in a group; a kernel's by its work."""
        model, network = self._model, self._network
        if not groups:
            return {}
        number = {i: n for n, group in enumerate(groups) for i in group.layers}
        place = self.place
        rules = layer_kinds().fusion
        # within rows, so that no kernel gets parts of two times
        kernels = fuse(
            network, rules.heads, rules.tails, lambda layer: number.get(place[layer.name], -1)
        )
        where = "GPU" if device == "GPU" else "DLA0"
        weights: dict[int, float] = {}
        for kernel in kernels:
            if kernel.layers[0] in number:
                us = model.kernel_us(network, kernel, where)
                weights.update(divide_time(network, kernel.layers, us))
        return weights

    def _timed(
        self, group: TimedLayers, weights: Mapping[int, float], whole: LayerKernel
    ) -> TimedGroup:
        total = sum(weights[i] for i in group.layers)
        even = 1 / len(group.layers)
        share = {i: weights[i] / total if total else even for i in group.layers}
        dla = group.device == "DLA"
        # a loadable's row includes its launch, which the plan counts by itself
        launch = self._model.launch_us() if dla else 0.0
        variants = tuple(
            (_layouts(v.reads, dla=dla), _layouts(v.writes, dla=dla), max(0.0, v.us - launch))
            for v in _allowed_variants(group, self._model.precision)
            if v.us is not None
        )
        fastest = min((us for *_, us in variants), default=max(0.0, group.row.us - launch))
        return TimedGroup(group, share, total, fastest, variants, whole.inputs, whole.outputs)

    def _reformats(self, profile: Profile) -> Iterator[tuple[tuple[object, ...], float]]:
        """Yields reformat times by a tensor's shape and both layouts, which determine the time."""
        on_dla = _texts(profile, "DLA")
        on_gpu = _texts(profile, "GPU")
        outputs = {layer.name: layer.outputs for layer in self._network.layers}
        said = dict(profile.timings.shapes) if profile.timings else {}
        best: dict[tuple[object, ...], float] = {}
        for reformat in profile.reformats:
            name = reformat.tensor
            # the builder's name for the output of a product made from a convolution
            if name not in self._network.tensors and name.endswith(_CONV):
                name = next(iter(outputs.get(name.removesuffix(_CONV), ())), name)
            tensor = self._network.tensors.get(name)
            shape = tensor.shape if tensor else said.get(name)
            if not shape:
                continue
            for source in _sides(reformat.source, on_dla, on_gpu):
                for goal in _sides(reformat.goal, on_dla, on_gpu):
                    key = (shape, source, goal)
                    best[key] = min(reformat.us, best.get(key, reformat.us))
        yield from best.items()

    def io_us(self, tensor: str, layout: Layout, direction: str) -> float | None:
        """Returns the extra time of a format at a loadable's border; None if not timed."""
        timed = self._border.get((tensor, direction))
        return None if timed is None else timed.io_us(tensor, layout, direction)

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float | None:
        """Returns the measured time of a conversion; None if not measured."""
        return self.reformats.get((tensor.shape, source, goal))


def divide_time(network: Network, layers: Sequence[int], us: float) -> dict[int, float]:
    """Divides a kernel's time over its layers by multiply-accumulates; evenly if there are none."""
    macs = sum(network.layers[i].macs for i in layers)
    return {i: us * (network.layers[i].macs / macs if macs else 1 / len(layers)) for i in layers}


def _fits_plan(group: TimedLayers, model: CostModel) -> bool:
    """Returns True if the group fits the plan's precision and the board's devices."""
    if group.device == "DLA" and not (model.target.dla.cores and model.precision != "fp32"):
        return False
    return not group.row.variants or bool(_allowed_variants(group, model.precision))


def _allowed_variants(group: TimedLayers, precision: str) -> list[Combination]:
    types = _ALLOWED[precision]
    found = []
    for variant in group.row.variants:
        sides = _layouts((*variant.reads, *variant.writes), dla=group.device == "DLA")
        if all(layout is None or layout[0] in types for layout in sides):
            found.append(variant)
    return found


def _layouts(texts: Sequence[str], *, dla: bool) -> tuple[Layout | None, ...]:
    return tuple(parse_layout(text, dla=dla) for text in texts)


def _texts(profile: Profile, device: str) -> set[str]:
    rows = (row for row in profile.rows if row.device == device)
    return {text for row in rows for v in row.variants for text in (*v.reads, *v.writes)}


def _sides(text: str, on_dla: set[str], on_gpu: set[str]) -> set[Layout]:
    found = set()
    # the text depends on the device: linear is DLA_LINEAR at a loadable
    if text in on_dla:
        found.add(parse_layout(text, dla=True))
    if text in on_gpu or text not in on_dla:
        found.add(parse_layout(text))
    return {layout for layout in found if layout is not None}


@dataclass(frozen=True)
class ProfileCosts(Measurements):
    """A profile's times for a network.

    Attributes:
        network: The timed network.
        profile: The profile.
        matched: The profile's rows matched with layers.
    """

    network: Network
    profile: Profile
    matched: Matched

    def layers_measured(self, device_of: Mapping[str, str]) -> set[str]:
        """Returns the layers of a placement with a measured time.

        Args:
            device_of: Device by layer's name ("GPU", "DLA0", ...).
        """
        raise NotImplementedError

    def pieces_us(self, device_of: Mapping[str, str], own_us: Sequence[float]) -> float:
        """Returns the extra time of the measured pieces of broken fusions over their layers.

        Args:
            device_of: As for :meth:`layers_measured`.
            own_us: Each layer's time in the plan.
        """
        return 0.0

    def warnings(self) -> list[str]:
        """Returns warnings about the measured times, as sentences."""
        found = [*self.profile.notes, *self.cautions()]
        parts, unmatched, rows = self.matched.parts, self.matched.unmatched, self.matched.rows
        if parts:
            found.append(
                f"{len(parts)} rows of the profile are parts of a subgraph that was timed as a "
                f"whole, and are not added to it; the first is {parts[0]!r}"
            )
        hits = rows - len(unmatched)
        if unmatched and hits < USUALLY_MATCHED * rows:
            found.append(
                f"only {hits} of the profile's {rows} rows are layers of this model; the "
                f"first unknown one is {unmatched[0]!r}"
            )
        return found

    def cautions(self) -> list[str]:
        """Returns the warnings that depend on the use of the times."""
        return []


@dataclass(frozen=True)
class MeasuredCosts(ProfileCosts):
    """Measured times if the profile has them, else predicted times.

    A row that covers several kernels (a fusion, a loadable) fixes their sum: its time is divided
    in proportion to the model's predictions. A loadable's time includes its launch.

    A part that the GPU alone runs fused, and that a profile timed in pieces next to a DLA, is
    predicted: the pieces do not add up to the fusion. They bound it, and with the conversions
    between them they are the cost of breaking it.

    Attributes:
        table: The times by layer.
        shorter: Factor of the log's single times: 1, or less if the whole engine took less than
            their sum.
        between: The time of conversions between the pieces, and its measured part.
    """

    table: MeasuredTimes = field(compare=False, repr=False)
    shorter: float = 1.0
    between: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def over(
        cls,
        model: CostModel,
        profile: Profile,
        network: Network,
        able: Mapping[str, bool] | None = None,
    ) -> MeasuredCosts:
        """Matches a profile with a model's network; raises as ``measured_model``."""
        check_origin(profile, model)
        matched = match_rows(profile, network, able)
        hits = matched.rows - len(matched.unmatched)
        if hits < LEAST_MATCHED * matched.rows:
            raise DataError(
                f"{hits} of the profile's {matched.rows} rows are layers of this model",
                code="profile.model",
                where=profile.path,
                hint=f"the first unknown one is {matched.unmatched[0]!r}; profile this model",
            )
        whole = dict(profile.timings.run_us).get("gpu", 0.0) if profile.timings else 0.0
        engine, shorter = None, 1.0
        # only a log has the time of the whole engine beside those of its units
        if profile.kind == "log" and whole:
            engine = EngineTimes(profile)
            shorter = min(1.0, whole / engine.total_us) if engine.total_us else 1.0
            profile, matched = _scale_times(profile, matched, shorter)
        parts = attention_parts(model, network)
        table = MeasuredTimes(model, network, profile, matched.groups, parts)
        if not table.groups:
            raise DataError(
                f"the profile has no times for a plan in {model.precision}",
                code="profile.precision",
                where=profile.path,
                hint="profile an engine of the plan's precision and board",
            )
        between = (0.0, 0.0)
        if profile.kind == "log" and table.pieces:
            whole_units = {timed.group.row.name for timed in table.of["GPU"].values()}
            loadables = {group.row.name for group in matched.groups if group.device == "DLA"}
            names = {row.name for row in profile.rows} - whole_units - loadables
            us, known_us = (engine or EngineTimes(profile)).between(names)
            between = (shorter * us, shorter * known_us)
        return cls(network, profile, matched, table, shorter, between)

    def layer_precision(self, model: CostModel, layer: Layer, device: str, predicted: str) -> str:
        """Returns the predicted precision, or INT8 on the GPU if the builder used it there."""
        own = model.precision == "int8" and layer.name not in model.fp16_layers
        if own and predicted == "fp16":
            timed = self._timed(device).get(self.table.place.get(layer.name, -1))
            # the builder timed an INT8 kernel, whatever the support matrix states
            if timed is not None and timed.forms("int8"):
                return "int8"
        return predicted

    def formats(
        self,
        model: CostModel,
        network: Network,
        kernel: LayerKernel,
        device: str,
        predicted: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Returns the formats of a kernel: on the GPU the timed formats, if any."""
        found = self._timed_layers(kernel, device) if device == "GPU" else []
        if not found:
            return predicted
        timed = self._timed(device)[found[0]]
        precision = model.layer_precision(network.layers[kernel.layers[0]], device)
        # the builder times formats that the model cannot price a reformat for (CHW4)
        forms = [form for form in timed.forms(precision) if _has_bytes((precision, form))]
        if not forms:
            return predicted
        # the model's best format stays the first
        return (*(f for f in predicted if f in forms), *(f for f in forms if f not in predicted))

    def kernel_us(
        self,
        model: CostModel,
        network: Network,
        kernel: LayerKernel,
        device: str,
        format: str | None,
    ) -> float | None:
        """Returns a kernel's time if a row covers a part; the remainder is predicted."""
        found = self._timed_layers(kernel, device)
        if not found:
            bound = self._upper_factor(network, kernel) if device == "GPU" else 1.0
            return (
                None if bound == 1 else bound * model.predicted_us(network, kernel, device, format)
            )
        precision = model.layer_precision(network.layers[kernel.layers[0]], device)
        if device == "GPU" and format is None:
            format = model.formats(network, kernel, device)[0]
        total = 0.0
        for i in found:
            timed = self._timed(device)[i]
            us = timed.kernel_us(precision, format) if device == "GPU" else timed.us
            total += us * timed.share[i]
        left = self._unmeasured_share(network, kernel, found)
        # most kernels are measured whole: no prediction is needed
        return total + (left and left * model.predicted_us(network, kernel, device, format))

    def reformat_us(
        self, model: CostModel, tensor: Tensor, source: Layout, goal: Layout
    ) -> float | None:
        """Returns the measured time of a conversion of such a tensor."""
        return self.table.reformat_us(tensor, source, goal)

    def dla_io_us(
        self, model: CostModel, tensor: Tensor, format: str, precision: str, direction: str
    ) -> float | None:
        """Returns the extra time of a format at a loadable's border, if timed."""
        return self.table.io_us(tensor.name, (precision, format), direction)

    def has_kernel(self, kernel: LayerKernel, device: str) -> bool:
        """Returns True if a kernel's time on a device comes from the profile."""
        found = self._timed_layers(kernel, device)
        return (
            bool(found)
            and self._unmeasured_share(self.network, kernel, found) < 1 - USUALLY_MATCHED
        )

    def has_reformat(self, tensor: Tensor, source: Layout, goal: Layout) -> bool:
        """Returns True if a conversion's time comes from the profile."""
        return self.table.reformat_us(tensor, source, goal) is not None

    def fused_parts(self) -> tuple[frozenset[int], ...] | None:
        """Returns the parts that the profile's engine had fused on the GPU."""
        return self.table.fused

    def is_fused(self, kernel: LayerKernel) -> bool:
        """Returns True if a kernel's GPU time was measured with its whole fusion on the GPU."""
        return self.has_kernel(kernel, "GPU")

    def is_piece(self, layer: int) -> bool:
        """Returns True if a layer of a fused part was timed in pieces, next to a DLA."""
        return layer in self.table.pieces

    def breaking_us(self, layers: Collection[int], saved_us: Mapping[int, float]) -> float:
        """Returns the extra time of a fused part's timed pieces over the fusion."""
        timed = self.table.pieces
        pieces = {id(timed[i]): timed[i] for i in sorted(layers) if i in timed}.values()
        longer = 0.0
        for piece in pieces:
            fused = piece.bound * piece.predicted_us
            fused -= sum(saved_us.get(i, 0.0) for i in piece.share)
            longer += max(0.0, piece.us - max(0.0, fused))
        return longer + self._between_us(pieces, self.between[False])

    def layers_measured(self, device_of: Mapping[str, str]) -> set[str]:
        """Returns the layers of a placement with a measured time.

        These are the layers of fusions and loadables that the placement keeps whole on their
        device; partial groups are only scaled by the measurement, and count as predicted.
        """
        whole: dict[tuple[int, str], bool] = {}
        found: set[str] = set()
        for name, device in device_of.items():
            timed = self._timed(device).get(self.table.place[name])
            if timed is None:
                continue
            # one test for all layers of a group
            key = (id(timed), device)
            if key not in whole:
                whole[key] = self._is_whole_on(timed, device, device_of)
            if whole[key]:
                found.add(name)
        for timed in self._broken_pieces(device_of):
            found.update(self.network.layers[i].name for i in timed.group.layers)
        return found

    def pieces_us(self, device_of: Mapping[str, str], own_us: Sequence[float]) -> float:
        """Returns the extra time of the measured pieces of broken fusions over their layers."""
        pieces = self._broken_pieces(device_of)
        longer = (piece.us - sum(own_us[i] for i in piece.group.layers) for piece in pieces)
        return sum(max(0.0, us) for us in longer) + self._between_us(pieces, self.between[True])

    def cautions(self) -> list[str]:
        """Returns warnings about pieces of a fusion and about the whole engine's time."""
        found = []
        pieces = {id(timed) for timed in self.table.pieces.values()}
        if pieces:
            found.append(
                f"{len(pieces)} times of the profile are of parts that the GPU alone runs "
                "fused; they were timed in a plan with a DLA and are not added up where a plan "
                "keeps them fused"
            )
        if self.shorter < 1:
            found.append(
                "the single times of the profile add up to more than its engine took as a "
                f"whole; they are scaled to {100 * self.shorter:.1f} %"
            )
        return found

    def _broken_pieces(self, device_of: Mapping[str, str]) -> list[TimedGroup]:
        """Returns the pieces of broken fusions that a placement runs as they were timed."""
        layers = self.network.layers
        broken = {
            i
            for part in self.table.fused
            for i in part
            if any(device_of.get(layers[j].name, "GPU") != "GPU" for j in part)
        }
        pieces = {id(timed): timed for i, timed in self.table.pieces.items() if i in broken}
        return [timed for timed in pieces.values() if self._is_whole_on(timed, "GPU", device_of)]

    def _between_us(self, pieces: Collection[TimedGroup], all_us: float) -> float:
        """Returns these pieces' part of the time of conversions between all timed pieces."""
        every = sum({id(row): row.us for row in self.table.pieces.values()}.values())
        return all_us * sum(timed.us for timed in pieces) / every if every else 0.0

    def _upper_factor(self, network: Network, kernel: LayerKernel) -> float:
        """Returns the maximum factor of a predicted time, by the measured sum of its pieces."""
        timed = self.table.pieces
        if not any(i in timed for i in kernel.layers):
            return 1.0
        part = divide_time(network, kernel.layers, 1.0)
        return sum(part[i] * (timed[i].bound if i in timed else 1.0) for i in kernel.layers)

    def _is_whole_on(self, timed: TimedGroup, device: str, device_of: Mapping[str, str]) -> bool:
        """Returns True if a placement has the whole group on a device."""
        members = (self.network.layers[i].name for i in timed.group.layers)
        return all(device_of.get(member) == device for member in members)

    def _timed(self, device: str) -> Mapping[int, TimedGroup]:
        return self.table.of["GPU" if device == "GPU" else "DLA"]

    def _timed_layers(self, kernel: LayerKernel, device: str) -> list[int]:
        timed = self._timed(device)
        return [i for i in kernel.layers if i in timed]

    @staticmethod
    def _unmeasured_share(network: Network, kernel: LayerKernel, done: Collection[int]) -> float:
        """Returns the part of a kernel that no row covers; fusions absorb small layers."""
        part = divide_time(network, kernel.layers, 1.0)
        return sum(part[i] for i in kernel.layers if i not in done)


def _scale_times(profile: Profile, matched: Matched, factor: float) -> tuple[Profile, Matched]:
    """Returns a profile and its groups with all times multiplied."""
    if factor == 1:
        return profile, matched

    def scaled(row: ProfileRow) -> ProfileRow:
        variants = (replace(v, us=None if v.us is None else factor * v.us) for v in row.variants)
        return replace(row, us=factor * row.us, variants=tuple(variants))

    groups = tuple(replace(group, row=scaled(group.row)) for group in matched.groups)
    reformats = tuple(replace(reformat, us=factor * reformat.us) for reformat in profile.reformats)
    return replace(profile, reformats=reformats), replace(matched, groups=groups)


@cache
def _has_bytes(layout: Layout) -> bool:
    try:
        padded_bytes((1, 1, 1, 1), layout)
    except ValueError:
        return False
    return True


def check_origin(profile: Profile, model: CostModel) -> None:
    """Raises DataError if a profile is of another board, power mode or precision."""
    target = model.target
    log, timings = profile.log, profile.timings
    boards = []
    # a log has no name of a board: compute capability and SMs distinguish them
    if log and log.compute_capability and target.compute_capability:
        boards.append((log.compute_capability, target.compute_capability, "compute capability"))
    if timings and timings.sms and model.mode.gpu_sms:
        boards.append((str(timings.sms), str(model.mode.gpu_sms), "multiprocessors"))
    if profile.kind in ("bench", "table") and profile.board:
        boards.append((profile.board, target.name, "board"))
    if profile.table and (mode := profile.table.power_mode):
        boards.append((mode, model.mode.name, "power mode"))
    for theirs, ours, what in boards:
        if theirs != ours:
            raise DataError(
                f"the profile was measured on another board or in another power mode: {what} "
                f"{theirs}, but {target.name} in {model.mode.name} has {ours}",
                code="profile.board",
                where=profile.path,
                hint="profile on the board and in the power mode that you plan for",
            )
    if profile.precisions and model.precision not in profile.precisions:
        raise DataError(
            f"the profiled engine used {', '.join(profile.precisions)}, but the plan is in "
            f"{model.precision}",
            code="profile.precision",
            where=profile.path,
            hint="profile in the plan's precision",
        )


def match_rows(
    profile: Profile, network: Network, able: Mapping[str, bool] | None = None, *, join: bool = True
) -> Matched:
    """Matches by the builder's names: layers, fusions, and subgraphs by their first and last.

    Args:
        profile: Measured rows.
        network: The layer graph.
        able: By layer, True if a DLA can run it. Decides a subgraph's device if the profile does
            not have it, and which layers between its ends can belong to it.
    """
    from edgekit.buildlog.layer_names import (
        LayerNames,  # imported here so that plans without a profile start faster
    )

    names = LayerNames(network, [row.name for row in profile.rows])
    place = {layer.name: index for index, layer in enumerate(network.layers)}
    log = profile.log
    listed = {found.name: found.layers for found in log.loadables if found.exact} if log else {}
    whole: list[tuple[ProfileRow, tuple[int, ...]]] = []
    ranges: list[tuple[ProfileRow, int, int]] = []
    unmatched: list[str] = []
    for row in profile.rows:
        members = row.layers or listed.get(row.name, ())
        found = _find_layers(names, members, place) if members else ()
        if not found and row.name.startswith(_FOREIGN):
            inner = row.name[len(_FOREIGN) :].removesuffix("]}")
            first, _, last = inner.partition(_BETWEEN)
            low, high = (
                _find_layers(names, [first], place),
                _find_layers(names, [last or first], place),
            )
            if low and high and last:
                ranges.append((row, min(low), max(high)))
                continue
            found = low
        elif not found and not members:
            # the builder's notation for layers that it merged side by side
            found = _find_layers(names, row.name.split(" || "), place)
        if found:
            whole.append((row, found))
        else:
            unmatched.append(row.name)
    parts = _parts(network, whole, ranges)
    whole = [(row, found) for row, found in whole if row.name not in parts]
    ranges = [pair for pair in ranges if pair[0].name not in parts]
    groups = [TimedLayers(_device(row, found, network, able), found, row) for row, found in whole]
    taken = {index for group in groups for index in group.layers}
    # short ranges first: a long one takes only the layers that these leave
    for row, start, end in sorted(ranges, key=lambda entry: (entry[2] - entry[1], entry[1])):
        within = [i for i in range(start, end + 1) if i not in taken]
        dla = row.device == "DLA"
        if dla and able is not None:
            within = [i for i in within if able.get(network.layers[i].name, True)]
        if not within:
            unmatched.append(row.name)
            continue
        taken.update(within)
        members_ = tuple(within)
        groups.append(TimedLayers(_device(row, members_, network, able), members_, row))
    found_groups = _join_overlapping(groups) if join else groups
    return Matched(tuple(found_groups), tuple(unmatched), len(profile.rows), tuple(parts))


def _parts(
    network: Network,
    whole: Sequence[tuple[ProfileRow, tuple[int, ...]]],
    ranges: Sequence[tuple[ProfileRow, int, int]],
) -> dict[str, None]:
    """Returns the rows of layers that the GPU runs inside a subgraph with a time of its own."""
    timed = [(row, frozenset(layers)) for row, layers in whole]
    subgraphs = []
    for row, start, end in ranges:
        nodes = [(layer.inputs, layer.outputs) for layer in network.layers[start : end + 1]]
        subgraphs.append((row, frozenset(start + i for i in nodes_between(nodes))))
    return {
        row.name: None
        for subgraph, members in subgraphs
        for row, layers in (*timed, *subgraphs)
        if "DLA" not in (subgraph.device, row.device) and layers and layers < members
    }


def _find_layers(
    names: LayerNames, parts: Sequence[str], place: Mapping[str, int]
) -> tuple[int, ...]:
    found: set[int] = set()
    for part in parts:
        layers = names.find(part)
        if not layers:
            into = names.absorbed(part, "")
            layers = (into,) if into else ()
        found.update(place[name] for name in layers if name in place)
    return tuple(sorted(found))


def _device(
    row: ProfileRow, layers: Sequence[int], network: Network, able: Mapping[str, bool] | None
) -> str:
    if row.device:
        return row.device
    if able is None:
        return "GPU"
    # a ForeignNode can be a subgraph on the GPU: a loadable has only layers that a DLA can run
    return "DLA" if all(able.get(network.layers[i].name, False) for i in layers) else "GPU"


def _join_overlapping(groups: Sequence[TimedLayers]) -> list[TimedLayers]:
    """Joins rows that share a layer, such as a reshape that was timed apart from its neighbour."""
    held: dict[tuple[str, int], TimedLayers] = {}
    for group in groups:
        keys = [(group.device, i) for i in group.layers]
        shared = list({id(held[key]): held[key] for key in keys if key in held}.values())
        joined = _join_rows((*shared, group)) if shared else group
        held.update(dict.fromkeys([(group.device, i) for i in joined.layers], joined))
    return list({id(group): group for group in held.values()}.values())


def _join_rows(groups: Sequence[TimedLayers]) -> TimedLayers:
    rows = [group.row for group in groups]
    main = max(rows, key=lambda row: row.us)
    us = sum(row.us for row in rows)
    variants = tuple(replace(v, us=v.us + us - main.us) for v in main.variants if v.us is not None)
    layers = tuple(sorted({i for group in groups for i in group.layers}))
    return TimedLayers(groups[0].device, layers, replace(main, us=us, variants=variants))


def measured_part(
    model: CostModel,
    layers: Sequence[PlacedLayer],
    reformats: Sequence[tuple[float, bool]],
    unfused_us: float,
    latency_us: float,
) -> MeasuredPart | None:
    """Returns the part of a plan that a profile measured, None without a profile.

    Launches and the costs of formats at a loadable's border count as measured in the same
    proportion as the DLA's layers.

    Args:
        model: The plan's cost model.
        layers: Its layers.
        reformats: Microseconds of each reformat, and True if they were measured.
        unfused_us: The cost of broken fusions; measured in the proportion of their pieces.
        latency_us: The plan's total latency.
    """
    costs = model.measured
    if not isinstance(costs, ProfileCosts):
        return None
    device_of = {layer.name: layer.device for layer in layers}
    known_layers = costs.layers_measured(device_of)
    known = on_dla = known_on_dla = total = 0.0
    for layer in layers:
        us = layer.predicted_us
        own = us if layer.name in known_layers else 0.0
        total, known = total + us, known + own
        if layer.device != "GPU":
            on_dla, known_on_dla = on_dla + us, known_on_dla + own
    total += sum(us for us, _ in reformats)
    known += sum(us for us, measured in reformats if measured)
    total += unfused_us
    # never more than the plan counts
    known += min(unfused_us, costs.pieces_us(device_of, [layer.predicted_us for layer in layers]))
    busy = {"gpu": (total - on_dla, known - known_on_dla), "dla": (on_dla, known_on_dla)}
    # launches and borders: measured in the proportion of the DLA's layers
    rest = max(0.0, latency_us - total)
    known += rest * known_on_dla / on_dla if on_dla else 0.0
    fraction = min(1.0, round(known / latency_us, DIGITS)) if latency_us else 0.0
    sentence = (
        f"{percent(fraction)} of the latency is measured ({costs.profile.path}), the rest predicted"
    )
    if fraction == 1:
        sentence = f"all of the latency is measured ({costs.profile.path})"
    return MeasuredPart(
        file=costs.profile.path,
        kind=costs.profile.kind,
        fraction=fraction,
        fraction_of={
            device: round(min(1.0, own / whole), DIGITS) if whole else 1.0
            for device, (whole, own) in busy.items()
        },
        measured_us=round(known, DIGITS),
        layers={
            layer.name: "measured" if layer.name in known_layers else "predicted"
            for layer in layers
        },
        rows=costs.matched.rows,
        unmatched=tuple(costs.matched.unmatched),
        notes=(sentence, *costs.warnings()),
    )


def time_source(measured: MeasuredPart | None) -> str:
    """Returns the source of a plan's times: "predicted", or the part that a profile measured."""
    if measured is None or not measured.fraction:
        return "predicted"
    by = f"measured by {Path(measured.file).name}"
    whole = measured.fraction == 1
    return by if whole else f"{percent(measured.fraction)} {by}, the rest predicted"
