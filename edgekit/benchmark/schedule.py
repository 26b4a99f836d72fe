"""The predicted schedule of a plan's segments on their devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from edgekit.placement.plan import Plan, Share, booked_layers, unbooked_us

if TYPE_CHECKING:
    from edgekit.network.model import Network


# key of a plan's turn: the segment, and the turn's index in the segment
_OWN, _BEFORE, _AFTER = 0, -1, 1
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SlotPart:
    """A part of a turn: "layer", "reformat" (of a tensor), "launch" of a loadable with the cost
    of its formats, or "unfused" (the cost of broken fusions that belongs to no layer).
    """

    kind: str
    name: str
    us: float


@dataclass
class _Turn:
    """Uninterrupted work of a device, and the turns that it waits for."""

    device: str
    steps: list[SlotPart] = field(default_factory=list)
    waits: set[_Key] = field(default_factory=set)

    @property
    def us(self) -> float:
        return sum(step.us for step in self.steps)


class _Turns:
    """The turns of a plan: every microsecond of ``device_times`` belongs to a turn.

    A segment is a turn. The GPU reformats a tensor in the segment that writes it, or else in the
    first segment that reads it; if a DLA segment has no such neighbour on the GPU (the tensor
    belongs to the caller or the other core), the reformat is a separate turn.
    """

    def __init__(self, plan: Plan, variant: int, network: Network | None) -> None:
        share = plan.plans[variant]
        self.turns: dict[_Key, _Turn] = {}
        self._home: dict[str, int] = {}
        self._network = network
        for layer in sorted(booked_layers(share, network), key=lambda layer: layer.segment):
            turn = self.turns.setdefault((layer.segment, _OWN), _Turn(layer.device))
            turn.steps.append(SlotPart("layer", layer.name, max(layer.predicted_us, 0.0)))
            self._home[layer.name] = layer.segment
        # before reformats add turns: now each turn is a whole segment
        self._order()
        for loadable in plan.loadables:
            segment = self._home.get(next(iter(loadable.layers), ""))
            if loadable.plan == variant and segment is not None:
                us = loadable.launch_us + loadable.border_us
                self.turns[segment, _OWN].steps.insert(0, SlotPart("launch", "launch", us))
        self._reformat(share)
        for cost in unbooked_us(share, network):
            first = next(turn for turn in self.turns.values() if turn.device == cost.device)
            first.steps.insert(0, SlotPart("unfused", cost.what, cost.us))

    def _order(self) -> None:
        """Makes segments wait for the segments that they read; if unknown, for the previous
        segment.
        """
        segments = [segment for segment, _ in self.turns]
        if self._network is None:
            for before, after in pairwise(segments):
                self.turns[after, _OWN].waits.add((before, _OWN))
            return
        makers = self._network.producers()
        for layer in self._network.layers:
            here = self._home.get(layer.name)
            for tensor in layer.inputs:
                maker = makers.get(tensor)
                there = self._home.get(maker.name) if maker else None
                # a segment only reads from lower numbers (Plan)
                if here is not None and there is not None and there < here:
                    self.turns[here, _OWN].waits.add((there, _OWN))

    def _reformat(self, share: Share) -> None:
        network = self._network
        makers = network.producers() if network else {}
        readers = network.consumers() if network else {}
        for reformat in share.reformats:
            maker = makers[reformat.tensor].name if reformat.tensor in makers else ""
            users = [
                layer.name for layer in readers.get(reformat.tensor, ()) if layer.name in self._home
            ]
            step = SlotPart("reformat", reformat.tensor, reformat.us)
            if self._on_gpu(maker):
                self._insert(maker, step, after=True)
            elif reader := next(filter(self._on_gpu, users), ""):
                self._insert(reader, step, after=False)
            else:
                self._add_separate_reformat(
                    step, self._home.get(maker), [self._home[name] for name in users]
                )

    def _on_gpu(self, layer: str) -> bool:
        segment = self._home.get(layer)
        return segment is not None and self.turns[segment, _OWN].device == "GPU"

    def _insert(self, layer: str, step: SlotPart, *, after: bool) -> None:
        steps = self.turns[self._home[layer], _OWN].steps
        at = next(i for i, part in enumerate(steps) if (part.kind, part.name) == ("layer", layer))
        steps.insert(at + after, step)

    def _add_separate_reformat(
        self, step: SlotPart, writer: int | None, readers: list[int]
    ) -> None:
        """Adds a reformat between DLA cores, or between a core and the caller."""
        gpu = [segment for (segment, _), turn in self.turns.items() if turn.device == "GPU"]
        if writer is None and not readers and gpu:  # the tensor's owner is unknown
            self.turns[gpu[0], _OWN].steps.insert(0, step)
            return
        segments = [segment for segment, _ in self.turns]
        later = [segment for segment in readers if writer is None or segment > writer]
        if later or writer is None:
            segment = min(later, default=segments[0])
            key = (segment, _BEFORE)
            turn = self.turns.setdefault(key, _Turn("GPU"))
            self.turns[segment, _OWN].waits.add(key)
        else:
            segment, key = writer, (writer, _AFTER)
            turn = self.turns.setdefault(key, _Turn("GPU"))
        turn.steps.append(step)
        if writer is not None:
            turn.waits.add((writer, _OWN))

    def hand_over(self, latency_us: float) -> float:
        """Returns the time of a device change, so that the frame ends at the predicted latency.

        A plan's latency is the sum of its devices' work. If they overlap in a frame, the rest is
        divided evenly among the longest chain of device changes.
        """
        finish: dict[_Key, float] = {}
        changes: dict[_Key, int] = {}
        for key, turn in sorted(self.turns.items()):  # segments read lower numbers
            finish[key] = max((finish[earlier] for earlier in turn.waits), default=0.0) + turn.us
            changes[key] = max(
                (
                    changes[earlier] + (self.turns[earlier].device != turn.device)
                    for earlier in turn.waits
                ),
                default=0,
            )
        longest = max(changes.values(), default=0)
        rest = latency_us - max(finish.values(), default=0.0)
        return rest / longest if longest and rest > 0 else 0.0


def predicted_schedule(plan: Plan, network: Network | None = None) -> tuple[PredictedSlot, ...]:
    """Schedules a frame of each plan variant on the devices, first come, first served.

    A device runs a single segment at a time. Without ``network`` the segments of a frame run one
    after the other; with it a segment waits only for segments whose tensors it reads. A device's
    slots of a plan add up to its ``device_times``.

    Returns:
        Slots sorted by start.
    """
    waiting: dict[tuple[int, _Key], _Turn] = {}
    pause = 0.0
    for variant in range(len(plan.plans)):
        turns = _Turns(plan, variant, network)
        if variant == 0:
            pause = turns.hand_over(plan.predicted.latency_us or 0.0)
        waiting.update({(variant, key): turn for key, turn in turns.turns.items()})
    ends: dict[tuple[int, _Key], tuple[str, float]] = {}
    free: dict[str, float] = {}

    def start(variant: int, turn: _Turn) -> float:
        ready = (
            end + (pause if device != turn.device else 0.0)
            for device, end in (ends[variant, key] for key in turn.waits)
        )
        return max(*ready, free.get(turn.device, 0.0), 0.0)

    slots: list[PredictedSlot] = []
    while waiting:
        ready = [
            (variant, key)
            for (variant, key), turn in waiting.items()
            if all((variant, earlier) in ends for earlier in turn.waits)
        ]
        # at equal starts the lower variant and segment first: the same plan gives the same schedule
        begin, variant, key = min((start(v, waiting[v, k]), v, k) for v, k in ready)
        turn = waiting.pop((variant, key))
        slot = PredictedSlot(variant, key[0], turn.device, begin, tuple(turn.steps))
        ends[variant, key] = turn.device, begin + slot.duration_us
        free[slot.device] = begin + slot.duration_us
        slots.append(slot)
    return tuple(sorted(slots, key=lambda s: (s.start_us, s.variant, s.segment)))


@dataclass(frozen=True, slots=True)
class PredictedSlot:
    """A turn of a device; times in microseconds from the first frame's start.

    Attributes:
        variant: Index in ``Plan.plans``.
        segment: Segment number in running order; a turn without layers, in which the GPU reformats
            a DLA's input or output, has the number of the DLA's segment.
        device: "GPU", "DLA0" or "DLA1".
        start_us: Start.
        steps: Its work in running order, contiguous from the start.
    """

    variant: int
    segment: int
    device: str
    start_us: float
    steps: tuple[SlotPart, ...]

    @property
    def layers(self) -> tuple[tuple[str, float], ...]:
        """Name and microseconds of its layers."""
        return tuple((step.name, step.us) for step in self.steps if step.kind == "layer")

    @property
    def duration_us(self) -> float:
        """Sum of its steps."""
        return sum(step.us for step in self.steps)
