"""What a plan consists of: sums of unknown times, and what tells it from other plans."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.placement._types import PlacedLayer, Plan, Share

__all__ = ["Piece", "class_of", "pieces", "signature"]

STEPS = 40
"""Of shares: 0.25 each and 0.3 beside 0.2 can differ by a twentieth of the frames a second."""


def class_of(device: str) -> str:
    """Returns "GPU" or "DLA": the cores of a board are alike."""
    return "GPU" if device == "GPU" else "DLA"


@dataclass(frozen=True)
class Piece:
    """A plan of a mix as sums of unknown times.

    Attributes:
        share: Of the frames.
        layers: (class, layer's index), in running order.
        load: By device, the layers it runs.
        segments: (device, layers' names), in running order.
        extra: Multiples of the unknowns that are no layer's.
    """

    share: float
    layers: tuple[tuple[str, int], ...]
    load: Mapping[str, tuple[tuple[str, int], ...]]
    segments: tuple[tuple[str, tuple[str, ...]], ...]
    extra: Mapping[str, float]


def pieces(plan: Plan, index: Mapping[str, int]) -> tuple[Piece, ...]:
    """Returns the plans of a mix; ``index`` is each layer's place in the network."""
    found = []
    for number, share in enumerate(plan.plans):
        layers = tuple((class_of(one.device), index[one.name]) for one in share.layers)
        load: dict[str, list[tuple[str, int]]] = {}
        for one, pair in zip(share.layers, layers, strict=True):
            load.setdefault(one.device, []).append(pair)
        launch = sum(one.launch_us for one in plan.loadables if one.plan == number)
        own = sum(one.predicted_us for one in share.layers)
        predicted = share.predicted or plan.predicted
        found.append(Piece(
            share.share, layers, {name: tuple(some) for name, some in load.items()},
            tuple(_segments(share.layers)),
            {"frame": 1.0, "transition": float(share.transitions), "launch": launch,
             "transfer": max(0.0, predicted.latency_us - own - launch)},
        ))  # fmt: skip
    return tuple(found)


def _segments(layers: Sequence[PlacedLayer]) -> Iterator[tuple[str, tuple[str, ...]]]:
    members: dict[int, list[PlacedLayer]] = {}
    for layer in layers:
        members.setdefault(layer.segment, []).append(layer)
    for number in sorted(members):
        yield members[number][0].device, tuple(layer.name for layer in members[number])


def signature(plan: Plan) -> str:
    """Returns what tells a plan's builds from others: the device of every layer, and the shares."""

    def one(share: Share) -> list[object]:
        # shares follow from times: a mix whose shares moved a little is no other plan
        return [
            round(share.share * STEPS),
            sorted((x.name, x.device, x.segment) for x in share.layers),
        ]

    text = json.dumps([one(share) for share in plan.plans], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
