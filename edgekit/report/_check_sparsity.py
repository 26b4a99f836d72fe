"""``edgekit check --sparsity``: which convolutions could have 2:4 sparse weights, and which do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report import _text as text
from edgekit.report._page import WIDTH, Page
from edgekit.report._table import names_in_columns

__all__ = ["sparsity_text"]

_RIGHT = ("2:4 now", "MACs spared")


def sparsity_text(
    document: Mapping[str, Any], *, width: int | None = None, colour: bool = False
) -> str:
    """Returns an ``edgekit.sparsity/1`` document as text.

    Args:
        document: From ``sparsity_document``, with the weights read.
        width: Columns; a name that does not fit has a line of its own. When None they may be any.
        colour: Whether to use escape sequences.
    """
    page = Page(min(width or WIDTH, WIDTH), colour=colour)
    every = document["convolutions"]
    page.add(
        f"{text.count(document['possible'])} of {text.counted(len(every), 'convolution')} on the "
        f"DLA could have 2:4 sparse weights, {text.count(document['present'])} of them have",
        style="bold",
    )
    if document["possible"]:
        low, high = document["measured_speedup"]["range"]
        saved = f"at most {text.microseconds(1e6 * document['seconds_saved'])} saved"
        page.add(
            f"all sparse: {text.macs(document['macs_saved'])} of {text.macs(document['macs'])} "
            f"MACs spared, {saved if document['pays'] else 'and no shorter latency'} "
            f"(predicted); NVIDIA measured {low:g} to {high:g} times the speed of whole networks "
            f"({document['measured_speedup']['source']})"
        )
    rows = [
        {
            "convolution": text.clean(one["layer"]), "could": "yes" if one["possible"] else "no",
            "2:4 now": text.percent(one["share"]), "MACs spared": text.macs(one["macs_saved"]),
            "why not": ", ".join(reason["rule"] for reason in one["reasons"][:1]),
        }
        for one in every
    ]  # fmt: skip
    if rows:
        page.add()
        names_in_columns(page, list(rows[0]), rows, width=width, right=_RIGHT)
    return str(page)
