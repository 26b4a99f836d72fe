"""``edgekit check --sparsity``: which convolutions could have 2:4 sparse weights, and which do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report import _text as text
from edgekit.report._page import WIDTH, Page, shortened

__all__ = ["sparsity_text"]

OTHERS = 50  # columns that the rest of the table takes


def sparsity_text(
    document: Mapping[str, Any], *, width: int | None = None, colour: bool = False
) -> str:
    """Returns an ``edgekit.sparsity/1`` document as text.

    Args:
        document: From ``sparsity_document``, with the weights read.
        width: Columns; names are cut in their middle to fit. When None nothing is cut.
        colour: Whether to use escape sequences.
    """
    page = Page(min(width or WIDTH, WIDTH), colour=colour)
    every = document["convolutions"]
    page.add(
        f"{text.count(document['possible'])} of {text.plural(len(every), 'convolution')} on the "
        f"DLA could have 2:4 sparse weights, {text.count(document['present'])} of them have",
        style="bold",
    )
    if document["possible"]:
        low, high = document["measured_speedup"]["range"]
        page.add(
            f"all sparse: {text.macs(document['macs_saved'])} of {text.macs(document['macs'])} "
            f"MACs spared, at most {text.microseconds(1e6 * document['seconds_saved'])} saved "
            f"(predicted); NVIDIA measured {low:g} to {high:g} times the speed of whole networks "
            f"({document['measured_speedup']['source']})"
        )
    room = None if width is None else max(width - OTHERS, 12)
    rows = [
        [
            shortened(text.clean(one["layer"]), room), "yes" if one["possible"] else "no",
            text.percent(one["share"]), text.macs(one["macs_saved"]),
            ", ".join(reason["rule"] for reason in one["reasons"][:1]),
        ]
        for one in every
    ]  # fmt: skip
    if rows:
        page.add()
        page.table(("convolution", "could", "2:4 now", "MACs spared", "why not"), rows, "llrrl")
    return str(page)
