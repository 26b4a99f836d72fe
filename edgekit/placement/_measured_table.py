"""Measured times by layer, tensor and format, made for looking up."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.network import Network, Tensor
from edgekit.placement._costs import CostModel, Layout, cost_data
from edgekit.placement._kernels import Kernel, fuse, join
from edgekit.placement._measured_match import Group
from edgekit.placement._profile_formats import layout_of
from edgekit.placement._profile_types import Profile

if TYPE_CHECKING:
    from edgekit.buildlog import Combination

__all__ = ["Table", "Timed", "shares"]

_ALLOWED = {"int8": ("int8", "fp16", "fp32"), "fp16": ("fp16", "fp32"), "fp32": ("fp32",)}
_CONV = "_conv_out"


@dataclass(frozen=True)
class Timed:
    """A group and its predictions: how its measured time is shared out over its layers.

    Attributes:
        group: Layers and row.
        share: By layer, its part of the group's time; adds up to 1.
        predicted_us: What the model predicts for the group.
        us: The group's time in its fastest formats; a loadable's without its launch.
        variants: (layouts read, layouts written, microseconds), as ``us``.
        reads: The tensors that the group reads from outside, by input.
        writes: Those that others read of it.
    """

    group: Group
    share: Mapping[int, float]
    predicted_us: float
    us: float
    variants: tuple[tuple[tuple[Layout | None, ...], tuple[Layout | None, ...], float], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def bound(self) -> float:
        """What a prediction is multiplied by at most: a fusion takes no longer than its pieces."""
        return min(1.0, self.us / self.predicted_us) if self.predicted_us else 1.0

    def kernel_us(self, precision: str, form: str | None) -> float:
        """Returns the group's time with a type and format at its borders, where that was timed."""
        same_type, same_both = [], []
        for reads, writes, us in self.variants:
            sides = [layout for layout in (*reads, *writes) if layout is not None]
            if all(layout[0] == precision for layout in sides):
                same_type.append(us)
                if form is None or all(layout[1] == form for layout in sides):
                    same_both.append(us)
        return min(same_both or same_type or [self.us])

    def forms(self, precision: str) -> tuple[str, ...]:
        """Returns the formats that were timed at all borders alike in a type, fastest first."""
        found: dict[str, float] = {}
        for reads, writes, us in self.variants:
            sides = {layout for layout in (*reads, *writes) if layout is not None}
            if len(sides) == 1 and next(iter(sides))[0] == precision:
                form = next(iter(sides))[1]
                found[form] = min(us, found.get(form, us))
        return tuple(sorted(found, key=lambda form: (found[form], form)))

    def io_us(self, tensor: str, layout: Layout, direction: str) -> float | None:
        """Returns what a format at one border adds to the fastest; None where it was not timed."""
        names = self.reads if direction == "read" else self.writes
        if tensor not in names or not self.variants:
            return None
        number = names.index(tensor)
        found = []
        for reads, writes, us in self.variants:
            side = reads if direction == "read" else writes
            if len(side) == len(names) and side[number] == layout:
                found.append(us)
        return min(found) - self.us if found else None


class Table:
    """Measured times of one network on one board.

    Attributes:
        of: By "GPU" or "DLA" and layer, the group that was timed there.
        apart: By layer, the group that was timed on the GPU beside a DLA, of what the GPU alone
            runs fused: its time holds where a DLA breaks the fusion, and bounds it elsewhere.
        fused: The parts that the GPU alone runs fused.
    """

    def __init__(
        self, model: CostModel, network: Network, profile: Profile, groups: Sequence[Group],
        fused: Sequence[Collection[int]] = (),
    ) -> None:  # fmt: skip
        self._model, self._network = model, network
        self.of: dict[str, dict[int, Timed]] = {"GPU": {}, "DLA": {}}
        self.apart: dict[int, Timed] = {}
        self.fused = self._joined(fused, groups)
        self.place = {layer.name: i for i, layer in enumerate(network.layers)}
        self._border: dict[tuple[str, str], Timed] = {}
        consumers = network.consumers()
        usable = [group for group in groups if _usable(group, model)]
        broken = self._broken(groups)
        for device in self.of:
            mine = [group for group in usable if group.device == device]
            weights = self._weights(device, mine)
            for group in mine:
                timed = self._timed(group, weights, join(network, group.layers, consumers))
                apart = device == "GPU" and not broken.isdisjoint(group.layers)
                times = self.apart if apart else self.of[device]
                times.update(dict.fromkeys(group.layers, timed))
                if device == "DLA":
                    self._border.update({(name, "read"): timed for name in timed.reads})
                    self._border.update({(name, "write"): timed for name in timed.writes})
        self.groups = len(usable)
        self.reformats = dict(self._reformats(profile))

    def _joined(
        self, fused: Sequence[Collection[int]], groups: Sequence[Group]
    ) -> tuple[frozenset[int], ...]:
        """Returns the parts that the GPU runs fused, as the profile's engine had them.

        Rewritten for the DLA, a transformer has convolutions of one point between its parts; with
        a loadable of such layers the engine was in pieces from the first part on.
        """
        on_dla = [group.layers for group in groups if group.device == "DLA"]
        if not any(all(map(self._of_transformer, layers)) for layers in on_dla):
            return tuple(frozenset(part) for part in fused)
        joined = {i for part in fused for i in part}
        live: set[str] = set()
        for i, layer in enumerate(self._network.layers):
            if i in joined or (self._of_transformer(i) and not live.isdisjoint(layer.inputs)):
                joined.add(i)
                live.update(layer.outputs)
        return (frozenset(joined),) if joined else ()

    def _broken(self, groups: Sequence[Group]) -> set[int]:
        """Returns the layers of the parts that the profile's engine had in pieces for a DLA."""
        on_dla = {i for group in groups if group.device == "DLA" for i in group.layers}
        return {i for part in self.fused if not on_dla.isdisjoint(part) for i in part}

    def _of_transformer(self, index: int) -> bool:
        layer = self._network.layers[index]
        points = math.prod(layer.params.get("kernel", ()))
        return layer.kind in cost_data("kinds")["regions"]["kinds"] or (
            layer.kind == "CONVOLUTION" and points == 1
        )

    def _weights(self, device: str, groups: Sequence[Group]) -> dict[int, float]:
        """Returns the predicted time of every layer in a group; a kernel's by its work."""
        model, network = self._model, self._network
        if not groups:
            return {}
        number = {i: n for n, group in enumerate(groups) for i in group.layers}
        place = self.place
        rules = cost_data("kinds")["fusion"]
        kernels = fuse(
            network, rules["heads"], rules["tails"], lambda la: number.get(place[la.name], -1)
        )
        where = "GPU" if device == "GPU" else "DLA0"
        weights: dict[int, float] = {}
        for kernel in kernels:
            if kernel.layers[0] in number:
                us = model.kernel_us(network, kernel, where)
                weights.update(shares(network, kernel.layers, us))
        return weights

    def _timed(self, group: Group, weights: Mapping[int, float], whole: Kernel) -> Timed:
        total = sum(weights[i] for i in group.layers)
        even = 1 / len(group.layers)
        share = {i: weights[i] / total if total else even for i in group.layers}
        dla = group.device == "DLA"
        launch = self._model.launch_us() if dla else 0.0
        variants = tuple(
            (_layouts(v.reads, dla=dla), _layouts(v.writes, dla=dla), max(0.0, v.us - launch))
            for v in _allowed(group, self._model.precision) if v.us is not None
        )  # fmt: skip
        fastest = min((us for *_, us in variants), default=max(0.0, group.row.us - launch))
        return Timed(group, share, total, fastest, variants, whole.inputs, whole.outputs)

    def _reformats(self, profile: Profile) -> Iterator[tuple[tuple[object, ...], float]]:
        """By a tensor's shape and two layouts, which is all that a reformat's time depends on."""
        on_dla = _texts(profile, "DLA")
        on_gpu = _texts(profile, "GPU")
        outputs = {layer.name: layer.outputs for layer in self._network.layers}
        said = dict(profile.timings.shapes) if profile.timings else {}
        best: dict[tuple[object, ...], float] = {}
        for reformat in profile.reformats:
            name = reformat.tensor
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
        """Returns what a format at a loadable's border adds; None where that was not timed."""
        timed = self._border.get((tensor, direction))
        return None if timed is None else timed.io_us(tensor, layout, direction)

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float | None:
        """Returns a measured conversion, None where there is none."""
        return self.reformats.get((tensor.shape, source, goal))


def shares(network: Network, layers: Sequence[int], us: float) -> dict[int, float]:
    """Shares a kernel's time out over its layers by multiply-accumulates, evenly without."""
    macs = sum(network.layers[i].macs for i in layers)
    return {i: us * (network.layers[i].macs / macs if macs else 1 / len(layers)) for i in layers}


def _usable(group: Group, model: CostModel) -> bool:
    """Whether the plan's precision could run it so, and the board has such a device."""
    if group.device == "DLA" and not (model.target.dla.cores and model.precision != "fp32"):
        return False
    return not group.row.variants or bool(_allowed(group, model.precision))


def _allowed(group: Group, precision: str) -> list[Combination]:
    types = _ALLOWED[precision]
    found = []
    for variant in group.row.variants:
        sides = _layouts((*variant.reads, *variant.writes), dla=group.device == "DLA")
        if all(layout is None or layout[0] in types for layout in sides):
            found.append(variant)
    return found


def _layouts(texts: Sequence[str], *, dla: bool) -> tuple[Layout | None, ...]:
    return tuple(layout_of(text, dla=dla) for text in texts)


def _texts(profile: Profile, device: str) -> set[str]:
    rows = (row for row in profile.rows if row.device == device)
    return {text for row in rows for v in row.variants for text in (*v.reads, *v.writes)}


def _sides(text: str, on_dla: set[str], on_gpu: set[str]) -> set[Layout]:
    found = set()
    if text in on_dla:
        found.add(layout_of(text, dla=True))
    if text in on_gpu or text not in on_dla:
        found.add(layout_of(text))
    return {layout for layout in found if layout is not None}
