"""Text that others wrote, without what would steer the terminal that it is shown on."""

from __future__ import annotations

__all__ = ["plain"]

_KEPT = "\n\t"


def plain(text: str, most: int | None = None) -> str:
    """Returns the text with a question mark for each control character.

    Args:
        text: A board's, a file's or a user's.
        most: Longer ones are cut here.
    """
    short = text if most is None or len(text) <= most else text[:most] + "..."
    if short.isprintable():
        return short
    # what ends lines on other systems does so here, and steers nothing
    lines = short.replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in _KEPT else "?" for c in lines)
