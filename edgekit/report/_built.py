"""What boards built, beside the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report import _text as text

__all__ = ["built_line", "built_view"]


def built_view(boards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns each board's build for the page: its engines, and where it is not as planned.

    Args:
        boards: The ``boards`` of an ``edgekit.build/1``.
    """
    return [
        {
            "board": text.clean(board["board"]),
            "facts": text.clean(built_line(board)),
            "engines": [_engine(one) for one in board["engines"]],
            "differences": [text.clean(told) for told in board["plan"]["differences"]],
        }
        for board in boards
    ]


def built_line(board: Mapping[str, Any]) -> str:
    """Returns a board's build in one line."""
    how = {"python": "its Python API", "trtexec": "trtexec"}
    module = board["fingerprint"].get("module")
    told = board["plan"]["differences"]
    return ", ".join(
        part
        for part in (
            f"TensorRT {board['tensorrt']} through {how.get(board['builder'], board['builder'])}",
            module,
            text.counted(len(told), "difference") + " from the plan" if told else "as planned",
        )
        if part
    )


def _engine(one: Mapping[str, Any]) -> dict[str, str]:
    """Returns a row: sizes are of the file, stripped and with its weights."""
    whole = one.get("full_bytes")
    stripped = one["stripped"] and whole
    tried = len(one["attempts"])
    return {
        "name": text.clean(one["key"]),
        "size": text.size(one["bytes"]),
        "whole": text.size(whole) if stripped else text.ABSENT,
        "share": text.percent(one["bytes"] / whole) if stripped else text.ABSENT,
        "seconds": text.seconds(one["seconds"]),
        "flags": text.clean(", ".join(one["attempts"][one["attempt"]]["flags"])) or text.ABSENT,
        "tried": f"{tried}th attempt" if tried > 3 else ("first", "second", "third")[tried - 1],
    }
