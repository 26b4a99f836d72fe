"""What one build in a log says, collected line by line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from edgekit.buildlog._types import Fallback, LogLayer, LogLoadable
from edgekit.dla import MemoryNeed

__all__ = ["MOST", "PROFILES", "Build"]

# of each kind; a network of this many layers builds on no Jetson
MOST = 100_000
_CUT = re.compile(r"\.\.\.|…")
_LOOSE = 8
# printed on Orin for every profile with a range, whether a DLA is asked for or not
PROFILES = "DLA requests all profiles have same min, max, and opt"


class Build:
    """Facts of one build; every list keeps each name once and at most ``MOST`` of them."""

    def __init__(self) -> None:
        self.sections = False
        self.dla_section = False
        self.notes: list[str] = []
        self.counts: dict[str, int] = {}
        self.accepted: tuple[int, int] | None = None
        self.pool_limits: MemoryNeed | None = None
        self.pool_total: MemoryNeed | None = None
        self._capable: dict[str, None] = {}
        self._gpu: dict[str, LogLayer] = {}
        self._refused: dict[str, Fallback] = {}
        self._late: dict[str, Fallback] = {}
        self._sections: dict[str, tuple[str, ...]] = {}
        self._offloaded: dict[str, MemoryNeed | None] = {}
        self._members: dict[str, list[str]] = {}
        self._engine: dict[str, None] = {}
        self._reasons: dict[str, list[str]] = {}
        self._loose: list[tuple[int, str]] = []
        self._last = ""
        self._cut = False

    @property
    def placed(self) -> bool:
        """Whether it lists any layer or subgraph."""
        return bool(
            self.sections or self._offloaded or self._engine or self._members or self.accepted
        )

    @property
    def told(self) -> bool:
        """Whether it says anything about placement."""
        return bool(self.placed or self._refused or self._late or self.notes or self.pool_limits)

    @property
    def asked(self) -> bool:
        """Whether the builder spoke of the DLA as if it was asked for."""
        return bool(
            self._refused or self._late or self._offloaded or self._sections or self._capable
            or self._engine or self.accepted
            or any(not note.startswith(PROFILES) for note in self.notes)
        )  # fmt: skip

    def capable_layer(self, name: str) -> None:
        self._keep(self._capable, name, None)

    def on_gpu(self, layer: LogLayer) -> None:
        self._keep(self._gpu, layer.name, layer)

    def in_section(self, node: str) -> None:
        self._keep(self._sections, node, ())

    def group(self, layers: list[str]) -> None:
        """A subgraph of the oldest wording, by its layers."""
        if layers:
            ends = layers[0] if len(layers) == 1 else f"{layers[0]}...{layers[-1]}"
            self._keep(self._sections, f"{{{ends}}}", tuple(layers))

    def offloaded(self, node: str) -> None:
        self._keep(self._offloaded, node, None)
        self._last = node

    def in_engine(self, node: str) -> None:
        self._keep(self._engine, node, None)

    def begin_members(self, node: str) -> None:
        self._keep(self._members, node, [])

    def member(self, node: str, layer: str) -> None:
        members = self._members.get(node)
        if members is not None and len(members) < MOST:
            members.append(layer)

    def pools_of_last(self, pools: MemoryNeed) -> None:
        if self._offloaded.get(self._last, pools) is None:
            self._offloaded[self._last] = pools

    def loose_reason(self, text: str, line: int) -> None:
        """A sentence about the DLA; the line that refuses a layer comes next, if any."""
        self._loose = [*self._loose[-_LOOSE + 1 :], (line, text)]

    def reason(self, layer: str, words: str) -> None:
        found = self._reasons.setdefault(layer, []) if len(self._reasons) < MOST else []
        if words not in found and len(found) < _LOOSE:
            found.append(words)

    def refuse(self, layer: str, kind: str, cause: str, words: str, line: int) -> None:
        """A layer goes to the GPU, for the reasons that stood just before."""
        for number, text in self._loose:
            if text.startswith(f"{layer}: "):
                self.reason(layer, text[len(layer) + 2 :])
            elif (": " not in text or text.startswith("DLA ")) and (
                cause == "validation" or number == line - 1
            ):
                # names no layer: it is said of the one that follows
                self.reason(layer, text)
        self._loose = []
        if words:
            self.reason(layer, words)
        # after the lists it may already belong to the next build of the same log
        into = self._late if self.placed else self._refused
        known = into.get(layer)
        if known is None:
            self._keep(into, layer, Fallback(layer, kind, cause, (), line))
        elif kind and not known.kind:
            into[layer] = replace(known, kind=kind)

    def next_build(self) -> Build:
        """Returns the build that follows in the log, with what was said ahead of its lists."""
        following = Build()
        following._refused, self._late = self._late, {}
        following._reasons = self._reasons
        return following

    def facts(self) -> dict[str, Any]:
        """Returns the fields of a BuildLog."""
        return {
            "loadables": self._loadables(),
            "capable": tuple(self._capable),
            "gpu_layers": tuple(self._gpu.values()),
            "dla_section": self.dla_section,
            "fallbacks": tuple(
                replace(fallback, words=tuple(self._reasons.get(name, ())))
                for name, fallback in {**self._late, **self._refused}.items()
            ),
            "accepted": self.accepted,
            "pool_limits": self.pool_limits,
            "pool_total": self.pool_total,
            "counts": self.counts,
            "notes": tuple(self.notes),
            "cut": self._cut,
        }

    def _loadables(self) -> tuple[LogLoadable, ...]:
        # what was offloaded counts; older logs have the DLA's section alone, cut ones the engine
        nodes = self._offloaded or self._sections or self._engine or self._members
        place = {name: index for index, name in enumerate(self._capable)}
        order = list(self._capable)
        return tuple(self._loadable(node, place, order) for node in nodes)

    def _loadable(self, node: str, place: dict[str, int], order: list[str]) -> LogLoadable:
        pools = self._offloaded.get(node)
        members = tuple(self._sections.get(node, ())) or tuple(self._members.get(node, ()))
        inner = node.removeprefix("{").removesuffix("}")
        inner = inner.removeprefix("ForeignNode[").removesuffix("]") if "[" in inner else inner
        first, last = _ends(inner, place)
        if members:
            return LogLoadable(node, members[0], members[-1], members, True, pools)
        if first in place and last in place:
            members = tuple(order[place[first] : place[last] + 1])
        return LogLoadable(node, first, last, members, len(members) == 1, pools)

    def _keep(self, into: dict[str, Any], name: str, value: Any) -> None:
        if name in into:
            return
        if len(into) < MOST:
            into[name] = value
        else:
            self._cut = True


def _ends(inner: str, place: dict[str, int]) -> tuple[str, str]:
    """First and last layer; a name may itself contain dots, so known names decide."""
    cuts = [(match.start(), match.end()) for match in _CUT.finditer(inner)]
    if not cuts or inner in place:
        return inner, inner
    for start, end in cuts:
        if inner[:start] in place and inner[end:] in place:
            return inner[:start], inner[end:]
    start, end = cuts[0]
    return inner[:start], inner[end:]
