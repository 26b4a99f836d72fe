"""Measured costs over the cost model: what a profile timed wins, everything else is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache

from edgekit.errors import DataError
from edgekit.network import Layer, Network, Tensor
from edgekit.placement._costs import CostModel, Layout
from edgekit.placement._costs_formats import padded_bytes
from edgekit.placement._costs_regions import connected_parts
from edgekit.placement._kernels import Kernel
from edgekit.placement._measured_match import Matched, match_rows
from edgekit.placement._measured_table import Table, Timed, shares
from edgekit.placement._profile_problem import EngineTimes
from edgekit.placement._profile_types import Profile, Row

__all__ = ["Measured", "check_origin", "measured_model"]

FEWEST = 0.2
"""The part of a profile's rows that must be layers of the model; below, it is another model's."""
MOST = 0.8
"""The part below which a plan warns."""


def measured_model(
    model: CostModel,
    profile: Profile | None,
    network: Network,
    able: Mapping[str, bool] | None = None,
) -> CostModel:
    """Returns the model with measured times put over it; the model itself without a profile.

    Args:
        model: Predicts what was not measured.
        profile: Of ``read_profile``.
        network: The network that is planned.
        able: By layer, whether a DLA core can run it.

    Raises:
        DataError: The profile is another board's (``profile.board``), precision's
            (``profile.precision``) or model's (``profile.model``).
    """
    if profile is None:
        return model
    if profile.kind == "table":
        from edgekit.placement._learnt import LearntModel

        return LearntModel.over(model, profile, network, able)
    return Measured.over(model, profile, network, able)


@dataclass(frozen=True)
class Measured(CostModel):
    """A cost model that answers with measured times where a profile has them.

    A row that covers several kernels (a fusion, a loadable) fixes their sum: its time is shared
    out over them as the model predicts them. A loadable's time contains its launch.

    What the GPU alone runs fused, and a profile timed in pieces beside a DLA, is predicted: the
    pieces do not add up to the fusion. They bound it, and they are the price of breaking it, the
    conversions between them included.

    Attributes:
        shorter: What the log's times, each taken alone, are multiplied by: 1, or less where the
            engine as a whole took less than they add up to.
        between: What conversions between the pieces take, and what of it was measured.
    """

    network: Network | None = None
    profile: Profile | None = None
    matched: Matched | None = None
    table: Table | None = field(default=None, compare=False, repr=False)
    shorter: float = 1.0
    between: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def over(
        cls,
        model: CostModel,
        profile: Profile,
        network: Network,
        able: Mapping[str, bool] | None = None,
    ) -> Measured:
        """Puts a profile over a model; raises as :func:`measured_model`."""
        check_origin(profile, model)
        matched = match_rows(profile, network, able)
        hits = matched.rows - len(matched.unmatched)
        if hits < FEWEST * matched.rows:
            raise DataError(
                f"{hits} of the profile's {matched.rows} rows are layers of this model",
                code="profile.model", where=profile.path,
                hint=f"the first unknown one is {matched.unmatched[0]!r}; profile this model",
            )  # fmt: skip
        whole = dict(profile.timings.run_us).get("gpu", 0.0) if profile.timings else 0.0
        engine, shorter = None, 1.0
        if profile.kind == "log" and whole:
            engine = EngineTimes(profile)
            shorter = min(1.0, whole / engine.total_us) if engine.total_us else 1.0
            profile, matched = _scaled(profile, matched, shorter)
        parts = connected_parts(model, network)
        table = Table(model, network, profile, matched.groups, parts)
        if not table.groups:
            raise DataError(
                f"nothing in the profile was timed for a plan in {model.precision}",
                code="profile.precision", where=profile.path,
                hint="profile an engine of the plan's precision and board",
            )  # fmt: skip
        between = (0.0, 0.0)
        if profile.kind == "log" and table.apart:
            whole_units = {timed.group.row.name for timed in table.of["GPU"].values()}
            loadables = {group.row.name for group in matched.groups if group.device == "DLA"}
            names = {row.name for row in profile.rows} - whole_units - loadables
            us, known_us = (engine or EngineTimes(profile)).between(names)
            between = (shorter * us, shorter * known_us)
        known = {f.name: getattr(model, f.name) for f in fields(model) if f.init}
        return cls(
            **known, network=network, profile=profile, matched=matched, table=table,
            shorter=shorter, between=between,
        )  # fmt: skip

    def layer_precision(self, layer: Layer, device: str) -> str:
        """Returns the precision of a layer; INT8 on the GPU also where only the builder knew."""
        predicted = super().layer_precision(layer, device)
        own = self.precision == "int8" and layer.name not in self.fp16_layers
        if own and predicted == "fp16" and self.table is not None:
            index = self.table.place.get(layer.name, -1)
            timed = self._timed(device).get(index)
            if timed is not None and timed.forms("int8"):
                return "int8"
        return predicted

    def formats(self, network: Network, kernel: Kernel, device: str) -> tuple[str, ...]:
        """Returns the formats of a kernel: on the GPU those that were timed, where they were."""
        predicted = super().formats(network, kernel, device)
        found = self._found(kernel, device) if device == "GPU" else []
        if not found:
            return predicted
        timed = self._timed(device)[found[0]]
        precision = self.layer_precision(network.layers[kernel.layers[0]], device)
        # the builder times formats that the model cannot price a reformat for (CHW4)
        forms = [form for form in timed.forms(precision) if _has_bytes((precision, form))]
        if not forms:
            return predicted
        return (*(f for f in predicted if f in forms), *(f for f in forms if f not in predicted))

    def kernel_us(
        self, network: Network, kernel: Kernel, device: str, format: str | None = None
    ) -> float:
        """Returns the measured time of a kernel as far as there is one, else the predicted."""
        found = self._found(kernel, device)
        if not found:
            us = super().kernel_us(network, kernel, device, format)
            return us * self._bound(network, kernel) if device == "GPU" else us
        precision = self.layer_precision(network.layers[kernel.layers[0]], device)
        if device == "GPU" and format is None:
            format = self.formats(network, kernel, device)[0]
        total = 0.0
        done: set[int] = set()
        for i in found:
            timed = self._timed(device)[i]
            us = timed.kernel_us(precision, format) if device == "GPU" else timed.us
            total += us * timed.share[i]
            done.add(i)
        left = self._left(network, kernel, done)
        return total + (left and left * super().kernel_us(network, kernel, device, format))

    def apart(self) -> Mapping[int, Timed]:
        """Returns by layer what the GPU runs fused, and was timed in pieces beside a DLA."""
        return self.table.apart if self.table is not None else {}

    def between_us(self, pieces: Iterable[Timed], *, measured: bool = False) -> float:
        """Returns what conversions between some pieces of all that were timed take."""
        every = sum(timed.us for timed in {id(one): one for one in self.apart().values()}.values())
        some = sum(timed.us for timed in pieces)
        return self.between[measured] * some / every if every else 0.0

    def fused_parts(self) -> tuple[frozenset[int], ...] | None:
        """Returns the parts that the GPU runs fused; None: as without a profile."""
        return self.table.fused if self.table is not None else None

    def _bound(self, network: Network, kernel: Kernel) -> float:
        """Returns the part of a predicted time that its pieces' measured sum leaves possible."""
        apart = self.apart()
        if not any(i in apart for i in kernel.layers):
            return 1.0
        part = shares(network, kernel.layers, 1.0)
        return sum(part[i] * (apart[i].bound if i in apart else 1.0) for i in kernel.layers)

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns the measured time of a conversion of such a tensor, else the predicted."""
        own = self.table.reformat_us(tensor, source, goal) if self.table else None
        return super().reformat_us(tensor, source, goal) if own is None else own

    def dla_io_us(self, tensor: Tensor, format: str, precision: str, direction: str) -> float:
        """Returns what a format at a loadable's border adds, measured where it was timed."""
        if self.table is not None:
            own = self.table.io_us(tensor.name, (precision, format), direction)
            if own is not None:
                return own
        return super().dla_io_us(tensor, format, precision, direction)

    def kernel_measured(self, kernel: Kernel, device: str) -> bool:
        """Whether a kernel's time on a device comes from the profile."""
        if self.network is None:
            return False
        found = set(self._found(kernel, device))
        return bool(found) and self._left(self.network, kernel, found) < 1 - MOST

    def timed_fused(self, kernel: Kernel) -> bool:
        """Whether a kernel's time on the GPU is measured with nothing of its fusion on a DLA."""
        return self.table is not None and self.kernel_measured(kernel, "GPU")

    def reformat_measured(self, tensor: Tensor, source: Layout, goal: Layout) -> bool:
        """Whether a conversion's time comes from the profile."""
        return self.table is not None and (self.table.reformat_us(tensor, source, goal) is not None)

    def layers_measured(self, device_of: Mapping[str, str]) -> set[str]:
        """Returns the layers of a placement whose time is a measured one.

        Those of a fusion or loadable that the placement keeps whole on its device; a part of one
        is only scaled by the measurement, and counts as predicted.

        Args:
            device_of: Device by layer's name ("GPU", "DLA0", ...).
        """
        if self.table is None or self.network is None:
            return set()
        whole: dict[tuple[int, str], bool] = {}
        found: set[str] = set()
        for name, device in device_of.items():
            timed = self._timed(device).get(self.table.place[name])
            if timed is None:
                continue
            key = (id(timed), device)
            if key not in whole:
                whole[key] = self._on(timed, device, device_of)
            if whole[key]:
                found.add(name)
        for timed in self.pieces(device_of):
            found.update(self.network.layers[i].name for i in timed.group.layers)
        return found

    def pieces(self, device_of: Mapping[str, str]) -> list[Timed]:
        """Returns the pieces of broken fusions that a placement runs as they were timed."""
        if self.table is None or self.network is None:
            return []
        layers = self.network.layers
        broken = {
            i for part in self.table.fused for i in part
            if any(device_of.get(layers[j].name, "GPU") != "GPU" for j in part)
        }  # fmt: skip
        pieces = {id(timed): timed for i, timed in self.table.apart.items() if i in broken}
        return [timed for timed in pieces.values() if self._on(timed, "GPU", device_of)]

    def _on(self, timed: Timed, device: str, device_of: Mapping[str, str]) -> bool:
        """Whether a placement has all of a group on a device."""
        assert self.network is not None
        members = (self.network.layers[i].name for i in timed.group.layers)
        return all(device_of.get(member) == device for member in members)

    def warnings(self) -> list[str]:
        """Returns what to know before believing the measured times, as sentences."""
        found = list(self.profile.notes) if self.profile else []
        pieces = {id(timed) for timed in self.apart().values()}
        if pieces:
            found.append(
                f"{len(pieces)} of the profile's times are of pieces of what the GPU alone runs "
                "fused, timed beside a DLA: they are not added up for a plan that keeps it fused"
            )
        if self.shorter < 1:
            found.append(
                "the profile's times, each taken alone, add up to more than its engine took as a "
                f"whole: they are taken as {100 * self.shorter:.1f} % of what they are"
            )
        if self.matched is not None and self.matched.parts:
            found.append(
                f"{len(self.matched.parts)} of the profile's rows are parts of a subgraph that was "
                f"timed as a whole, and not added to it; the first is {self.matched.parts[0]!r}"
            )
        if self.matched is not None and self.matched.unmatched:
            hits, rows = self.matched.rows - len(self.matched.unmatched), self.matched.rows
            if hits < MOST * rows:
                found.append(
                    f"only {hits} of the profile's {rows} rows are layers of this model; the "
                    f"first unknown one is {self.matched.unmatched[0]!r}"
                )
        return found

    def _timed(self, device: str) -> Mapping[int, Timed]:
        if self.table is None:
            return {}
        return self.table.of["GPU" if device == "GPU" else "DLA"]

    def _found(self, kernel: Kernel, device: str) -> list[int]:
        timed = self._timed(device)
        return [i for i in kernel.layers if i in timed]

    @staticmethod
    def _left(network: Network, kernel: Kernel, done: set[int]) -> float:
        """Returns the part of a kernel that no row covers; a fusion takes the small ones in."""
        part = shares(network, kernel.layers, 1.0)
        return sum(part[i] for i in kernel.layers if i not in done)


def _scaled(profile: Profile, matched: Matched, factor: float) -> tuple[Profile, Matched]:
    """Returns a profile and its groups with all times multiplied."""
    if factor == 1:
        return profile, matched

    def scaled(row: Row) -> Row:
        variants = (replace(v, us=None if v.us is None else factor * v.us) for v in row.variants)
        return replace(row, us=factor * row.us, variants=tuple(variants))

    groups = tuple(replace(group, row=scaled(group.row)) for group in matched.groups)
    reformats = tuple(replace(one, us=factor * one.us) for one in profile.reformats)
    return replace(profile, reformats=reformats), replace(matched, groups=groups)


@cache
def _has_bytes(layout: Layout) -> bool:
    try:
        padded_bytes((1, 1, 1, 1), layout)
    except ValueError:
        return False
    return True


def check_origin(profile: Profile, model: CostModel) -> None:
    """Raises DataError where a profile is of another board, power mode or precision."""
    target = model.target
    log, timings = profile.log, profile.timings
    boards = []
    if log and log.compute_capability and target.compute_capability:
        boards.append((log.compute_capability, target.compute_capability, "compute capability"))
    if timings and timings.sms and model.mode.gpu_sms:
        boards.append((str(timings.sms), str(model.mode.gpu_sms), "multiprocessors"))
    if profile.kind in ("bench", "table") and profile.board:
        boards.append((profile.board, target.name, "board"))
    mode = (profile.table or {}).get("power_mode")
    if mode:
        boards.append((str(mode), model.mode.name, "power mode"))
    for theirs, ours, what in boards:
        if theirs != ours:
            raise DataError(
                f"the profile was measured on another board or power mode: {what} {theirs}, and "
                f"{target.name} in {model.mode.name} has {ours}",
                code="profile.board",
                where=profile.path,
                hint="profile on the board and in the power mode to plan for",
            )
    if profile.precisions and model.precision not in profile.precisions:
        raise DataError(
            f"the profile's engine had {', '.join(profile.precisions)}, the plan is in "
            f"{model.precision}",
            code="profile.precision", where=profile.path, hint="profile in the plan's precision",
        )  # fmt: skip
