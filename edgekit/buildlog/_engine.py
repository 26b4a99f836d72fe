"""What the builder decided: the reformats it put in, and the layers of the finished engine."""

from __future__ import annotations

import re

from edgekit.buildlog._timing_types import ChosenReformat, EngineLayer, EngineTensor

__all__ = ["EngineReader"]

_CHOSEN = re.compile(
    r"^Adding reformat layer: Reformatted (?:Input|Output) Tensor \d+ (?:to|from) (.*) "
    r"\((.*?)\) from ([A-Za-z]\w*\(?[^()]*\)?) to ([A-Za-z]\w*\(?[^()]*\)?)$"
)
_HEADING = "Engine Layer Information"
_LAYER = re.compile(r"^Layer\(([A-Za-z_0-9]+)\): (.+), Tactic: \S+, (.*)$")
# 8.6 and later: name (Int8[1,3:4,224,224]); before: name[Int8(1,3:4,224,224)]
_STYLES = (
    (")", " (", re.compile(r"^[A-Za-z]\w*\[[^\[\]()]*\]$")),
    ("]", "[", re.compile(r"^[A-Za-z]\w*\([^\[\]()]*\)$")),
)
_LONGEST = 1 << 14


class EngineReader:
    """Collects both."""

    def __init__(self) -> None:
        self.open = False
        self._chosen: list[ChosenReformat] = []
        self._layers: list[EngineLayer] = []

    def feed(self, text: str) -> bool:
        """Takes a line; whether it was one of these."""
        if text.startswith("Adding reformat layer: "):
            if len(text) < _LONGEST and (match := _CHOSEN.match(text)):
                self._chosen.append(ChosenReformat(*match.groups()))
            return True
        if text.startswith(_HEADING):
            self.open, self._layers = True, []
            return True
        if not self.open:
            return False
        match = _LAYER.match(text)
        if match is None:
            self.open = False
            return False
        inputs, _, outputs = match[3].partition(" -> ")
        if "->" in outputs:
            # a tensor's own name has the arrow: the last one parts the sides
            inputs, _, outputs = match[3].rpartition(" -> ")
        self._layers.append(EngineLayer(match[1], match[2], _tensors(inputs), _tensors(outputs)))
        return True

    def chosen(self) -> tuple[ChosenReformat, ...]:
        """Returns the reformats, in the builder's order."""
        return tuple(self._chosen)

    def layers(self) -> tuple[EngineLayer, ...]:
        """Returns the engine's layers, in running order."""
        return tuple(self._layers)


def _tensors(text: str) -> tuple[EngineTensor, ...]:
    for close, opening, shape in _STYLES:
        found = []
        for item in f"{text}, ".split(f"{close}, "):
            name, _, form = item.rpartition(opening)
            if name and shape.match(form):
                found.append(EngineTensor(name.strip(), form))
        if found:
            return tuple(found)
    return ()
