"""Where the builder put our layers, as far as a log tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.buildlog._comparison import LogOnly
from edgekit.buildlog._names import Names
from edgekit.buildlog._types import BuildLog, Fallback, LogLoadable

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network

__all__ = ["Placed", "placed"]

# of a log's names in a network: fewer, and it is the log of another one
_FEW = 0.1


@dataclass
class Placed:
    """The builder's placement in our names.

    Attributes:
        where: "DLA", "slots", "GPU" or "capable" by layer.
        refused: The builder's refusal by layer.
        subgraphs: Each loadable with its layers, in graph order.
        absorbed: Names of constants and shuffles that fusions remove.
        unknown: Names that are no layers of ours.
        foreign: (names of the log that are ours, its names) where almost none is: the log of
            another network, which places nothing of this one.
    """

    where: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Fallback] = field(default_factory=dict)
    subgraphs: list[tuple[LogLoadable, tuple[str, ...]]] = field(default_factory=list)
    absorbed: dict[str, LogOnly] = field(default_factory=dict)
    unknown: dict[str, LogOnly] = field(default_factory=dict)
    foreign: tuple[int, int] | None = None


def placed(network: Network, judgement: Judgement, log: BuildLog) -> Placed:
    """Maps a log onto our layers."""
    fused = [name for loadable in log.loadables for name in (loadable.first, *loadable.layers)]
    names = Names(network, dict.fromkeys([*fused, *log.capable]))
    found = Placed()
    if log.evidence == "none":
        # a build for the GPU alone proves nothing about the DLA
        return found
    if said := log.all_on_gpu:
        for layer in network.whole.layers:
            found.where[layer.name] = "GPU"
            found.refused[layer.name] = Fallback(layer.name, "", "unsupported", (said,), 0)
    found.foreign = _foreign(log, names)
    if found.foreign:
        for name, kind in _told(log):
            found.unknown.setdefault(name, LogOnly(name, kind, "", absorbed=False))
        return found
    on_gpu = _listed(log, names, found)
    for fallback in log.fallbacks:
        ours = names.find(fallback.layer, fallback.kind)
        if not ours:
            _folded(found, names, fallback.layer, fallback.kind, fallback.words)
        for name in ours:
            found.refused.setdefault(name, fallback)
            found.where[name] = "slots" if fallback.cause == "slots" else "GPU"
    _subgraphs(network, judgement, log, names, on_gpu, found)
    for _, layers in found.subgraphs:
        found.where.update(dict.fromkeys(layers, "DLA"))
    _untold(network, log, found)
    return found


def _told(log: BuildLog) -> list[tuple[str, str]]:
    """Every layer that the log names, with its type where it has one."""
    told = [(layer.name, layer.kind) for layer in log.gpu_layers]
    told += [(name, "") for name in log.capable]
    told += [(fallback.layer, fallback.kind) for fallback in log.fallbacks]
    told += [
        (name, "") for one in log.loadables for name in (one.first, one.last, *one.layers) if name
    ]
    return list(dict.fromkeys(told))


def _foreign(log: BuildLog, names: Names) -> tuple[int, int] | None:
    """Counts the names that are ours; None where they are enough, or too few to tell."""
    known = total = 0
    for name, kind in _told(log):
        if names.own(name, kind) or not names.telling(name):
            continue
        hit = bool(names.find(name) or names.absorbed(name, kind))
        known += hit
        # constants are folded by both sides, not always under the same name
        total += hit or kind != "CONSTANT"
    return (known, total) if total and known < _FEW * total else None


def _listed(log: BuildLog, names: Names, found: Placed) -> set[str]:
    """The two lists of layers; returns what stands under the GPU's heading."""
    on_gpu: set[str] = set()
    for listed in log.gpu_layers:
        ours = names.find(listed.name, listed.kind) or names.find(listed.name)
        on_gpu.update(ours)
        if not ours and not names.own(listed.name, listed.kind):
            _folded(found, names, listed.name, listed.kind, ())
    for capable in log.capable:
        ours = names.find(capable)
        found.where.update(dict.fromkeys(ours, "slots"))
        if not ours:
            _folded(found, names, capable, "", ())
    found.where.update(dict.fromkeys(on_gpu, "GPU"))
    return on_gpu


def _untold(network: Network, log: BuildLog, found: Placed) -> None:
    """Where a log does not tell which subgraphs found room, a layer is "capable" at most."""
    if log.evidence not in ("capability", "refusals"):
        return
    for name, where in found.where.items():
        if where == "slots" and name not in found.refused:
            found.where[name] = "capable"
    if log.evidence == "refusals" and (found.refused or not found.unknown):
        for layer in network.layers:
            if layer.nodes:
                # the builder names every node that it refuses, of the model that it builds
                found.where.setdefault(layer.name, "capable")


def _folded(found: Placed, names: Names, name: str, kind: str, words: tuple[str, ...]) -> None:
    into = names.absorbed(name, kind)
    target = found.unknown if into is None else found.absorbed
    target.setdefault(name, LogOnly(name, kind, into or "", into is not None, words))


def _subgraphs(
    network: Network,
    judgement: Judgement,
    log: BuildLog,
    names: Names,
    on_gpu: set[str],
    found: Placed,
) -> None:
    known = [layer.name for layer in network.layers]
    place = {name: index for index, name in enumerate(known)}
    by_ends = {(group.layers[0], group.layers[-1]): group.layers for group in judgement.candidates}
    taken: set[str] = set()
    pending = []
    for loadable in log.loadables:
        layers, exact = _members(loadable, names, known, place, by_ends)
        if exact:
            layers = tuple(name for name in layers if name not in taken)
            taken.update(layers)
        pending.append((loadable, layers, exact))
    # the shortest range first: what lies inside another range belongs to itself
    for loadable, layers, exact in sorted(pending, key=lambda entry: len(entry[1])):
        if not exact:
            kept = tuple(name for name in layers if name not in on_gpu and name not in taken)
            taken.update(kept)
        else:
            kept = layers
        found.subgraphs.append((loadable, kept))
        if not kept:
            _folded(found, names, loadable.name, "DLA", ())
    order = {loadable.name: index for index, loadable in enumerate(log.loadables)}
    found.subgraphs.sort(key=lambda entry: order[entry[0].name])


def _members(
    loadable: LogLoadable,
    names: Names,
    known: Sequence[str],
    place: dict[str, int],
    by_ends: dict[tuple[str, str], tuple[str, ...]],
) -> tuple[tuple[str, ...], bool]:
    """Our layers of a loadable in graph order, and whether they are certain."""
    # a constant is no part of a subgraph
    listed = {layer for name in loadable.layers for layer in names.find(name) if layer in place}
    if loadable.exact:
        return tuple(sorted(listed, key=place.__getitem__)), True
    first = [name for name in names.find(loadable.first) if name in place]
    last = [name for name in names.find(loadable.last) if name in place]
    if not last:
        return (), False
    low, high = min(place[name] for name in first or last), max(place[name] for name in last)
    within = [name for name in known[low : high + 1] if not listed or name in listed]
    ends = (known[low], known[high])
    # a range also holds layers of other subgraphs; with the ends of a predicted one it is that
    if ends in by_ends:
        expected = set(by_ends[ends])
        within = [name for name in within if name in expected]
    return tuple(within), False
