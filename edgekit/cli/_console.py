"""A rich console that writes others' text as the boundary of edgekit._plain does."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from edgekit._plain import plain

__all__ = ["PlainConsole"]


class PlainConsole(Console):
    """Writes its own colours and cursor movements, and nothing of the kind from a text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Renders as rich does, what steers a terminal being escapes in every text."""
        if isinstance(renderable, str):  # as wide as it is shown
            renderable = plain(renderable)
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)
