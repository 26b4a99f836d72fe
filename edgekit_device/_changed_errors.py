"""What is said of a release whose board is no longer what it was tested on."""

from __future__ import annotations

from typing import Dict, List, Mapping

from ._errors import DeviceError

__all__ = ["failed", "refusal", "told"]


def told(found: List[Dict[str, str]]) -> str:
    """Changes as a text: "tensorrt 10.3.0 -> 10.7.0"."""
    return "; ".join("{what} {from} -> {to}".format(**one) for one in found)


def refusal(change: str, where: str, lacks: bool) -> DeviceError:
    """The error of a board that may not, or (``lacks``) cannot, do anything about it."""
    hint = "deploy again: that builds and tests for the board as it is now"
    if lacks:
        hint += " (the bundle has nothing to rebuild from: build it with on_change: rebuild)"
    else:
        hint += "; deploy.health.on_change: rebuild lets the board do it itself"
    return DeviceError(
        "this board is no longer what the release was tested on: " + change,
        code="board.changed",
        where=where,
        hint=hint,
    )


def failed(change: str, where: str, error: Mapping[str, str]) -> DeviceError:
    """The error of a release that was tested again here and did not pass."""
    return DeviceError(
        "this board is no longer what the release was tested on ({}), and it does not pass "
        "here any more: {}: {}".format(change, error.get("code"), error.get("message")),
        code="board.changed",
        where=where,
        hint="deploy again: that builds and tests for the board as it is now",
    )
