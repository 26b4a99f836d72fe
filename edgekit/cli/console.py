"""A rich console that removes control characters from text that comes from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from edgekit.text import plain


class Unpadded:
    """A stream that writes lines without the blanks at their ends, which pad rich's tables."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes whole lines, as rich gives them."""
        self._stream.write(re.sub(r" +(?=\n)", "", text))
        return len(text)


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
