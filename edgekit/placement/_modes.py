"""Modes of a network's kernels: on the GPU with a tensor format, or on a DLA core."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgekit.placement._costs import Layout
from edgekit.placement._handover import CALLER, text_of
from edgekit.solver import Mode

__all__ = ["Modes"]


@dataclass
class Modes:
    """The modes of a problem, each once; index 0 is the caller's.

    A GPU kernel's best layout and another one of the same name are two modes: best ones follow
    each other for nothing.

    Attributes:
        modes: As the solver takes them.
        layouts: By mode, the layout of a GPU kernel (or the caller); None on a core.
        best: By mode, whether the layout is the kernel's best one.
    """

    modes: list[Mode] = field(default_factory=list)
    layouts: list[Layout | None] = field(default_factory=list)
    best: list[bool] = field(default_factory=list)
    _gpu: dict[tuple[Layout, bool], int] = field(default_factory=dict)
    _core: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._add(0, "caller", CALLER, best=True)

    def gpu(self, layout: Layout, *, best: bool) -> int:
        """Returns the mode of a GPU kernel in a layout."""
        key = (layout, best)
        if key not in self._gpu:
            text = text_of(layout) if best else f"{text_of(layout)} instead"
            self._gpu[key] = self._add(0, text, layout, best=best)
        return self._gpu[key]

    def core(self, device: int) -> int:
        """Returns the mode of a core, by the device's index."""
        if device not in self._core:
            self._core[device] = self._add(device, "", None, best=True)
        return self._core[device]

    def _add(self, device: int, text: str, layout: Layout | None, *, best: bool) -> int:
        self.modes.append(Mode(device, text, text))
        self.layouts.append(layout)
        self.best.append(best)
        return len(self.modes) - 1
