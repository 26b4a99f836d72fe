"""A rich console that removes control characters from foreign text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from edgekit.text import printable


class Unpadded:
    """A stream that strips the trailing blanks of lines (padding of rich's tables)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes whole lines from rich."""
        self._stream.write(re.sub(r" +(?=\n)", "", text))
        return len(text)


class PlainConsole(Console):
    """A console that writes its own colours and cursor movements, but none from a text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Renders like rich, with terminal control characters escaped in every text."""
        if isinstance(renderable, str):  # measured as displayed
            renderable = printable(renderable)
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                # a cell may come from a model or a board
                yield Segment(printable(segment.text), segment.style)
