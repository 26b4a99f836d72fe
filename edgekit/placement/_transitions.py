"""How often an inference changes between GPU and DLA, without a plan."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network

__all__ = ["transitions"]


def transitions(network: Network, judgement: Judgement) -> int:
    """Returns the fewest device changes in any running order of TensorRT's automatic placement.

    Each kept candidate runs as one piece. Taking all that is ready on one device before changing
    to the other never needs more changes than any other order, so only the first device is tried
    both ways; linear in the layers.
    """
    piece_of: dict[str, int] = {}
    on_dla: list[bool] = []
    for candidate in judgement.candidates:
        if candidate.kept:
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
    return min(_changes(on_dla, after, first) for first in (False, True))


def _changes(on_dla: list[bool], after: list[set[int]], device: bool) -> int:
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
