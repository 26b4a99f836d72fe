"""What the ONNX parser prints of a network: nodes with their tensors, inputs and outputs."""

from __future__ import annotations

import re
from typing import Any

from edgekit.buildlog._timing_types import OnnxNode

__all__ = ["SourceReader"]

_SIDE = re.compile(r"^(.*) \[([A-Za-z_0-9]+)\] (inputs|outputs): (.*)$")
_SHAPED = re.compile(r"^\(([-\d, ]*)\)\[[A-Za-z0-9_]+$")
_INPUT = re.compile(r"^Adding network input: (.+?) with dtype: \S+, dimensions: \(([-\d, ]*)\)$")
_OUTPUT = re.compile(r"^Marking (.+) as output: (.+)$")
_IO = re.compile(r"^(?:Input|Output)\(s\)s format: (.*)$")
_SMS = re.compile(r"^SMs: (\d{1,4})$")
_MOST = 100_000


class SourceReader:
    """Collects nodes; a network of more than a hundred thousand is cut there."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._inputs: dict[str, None] = {}
        self._outputs: dict[str, None] = {}
        self._io: list[str] = []
        self._sms = 0

    def feed(self, text: str) -> bool:
        """Takes a line; whether it was one of these."""
        if "puts: " in text and (match := _SIDE.match(text)):
            self._side(match[1], match[2], match[3], match[4])
            return True
        if match := _INPUT.match(text):
            self._inputs[match[1]] = None
            self._shapes[match[1]] = _shape(match[2])
            return True
        if match := _OUTPUT.match(text):
            self._outputs[match[2]] = None
            return True
        if match := _IO.match(text):
            self._io.append(match[1])
            return True
        if match := _SMS.match(text):
            self._sms = int(match[1])
            return True
        return False

    def facts(self) -> dict[str, Any]:
        """Returns the fields of a Timings."""
        return {
            "nodes": tuple(OnnxNode(name, *sides) for name, sides in self._nodes.items()),
            "shapes": tuple(self._shapes.items()),
            "inputs": tuple(self._inputs),
            "outputs": tuple(self._outputs),
            "io_formats": tuple(self._io),
            "sms": self._sms,
        }

    def _side(self, name: str, kind: str, side: str, rest: str) -> None:
        if name not in self._nodes and len(self._nodes) >= _MOST:
            return
        tensors = []
        # "[x -> (1, 3)[FLOAT]], [y -> (1)[FLOAT]], "
        for item in rest.split("]]"):
            name_, _, shape = item.rpartition(" -> ")
            if match := _SHAPED.match(shape):
                tensor = name_.lstrip(", ").removeprefix("[")
                tensors.append(tensor)
                self._shapes[tensor] = _shape(match[1])
        _, inputs, outputs = self._nodes.get(name, (kind, (), ()))
        if side == "inputs":
            inputs = tuple(tensors)
        else:
            outputs = tuple(tensors)
        self._nodes[name] = (kind, inputs, outputs)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part[:12]) for part in text.split(",") if part.strip())
