"""How much work a call is, in lines of edgekit's code: the same on every machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["lines_of"]


def lines_of(work: Callable[[], object]) -> int:
    """Runs ``work`` and returns how many lines of edgekit it ran."""
    count = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if "edgekit" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
