"""What scale constraints changed, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report._page import WIDTH, Page
from edgekit.report._table import names_in_columns

__all__ = ["changes_text"]

_SHOWN = 10
_HEAD = ("tensor", "scale", "was", "bits lost", "rule", "by")


def changes_text(
    changes: Sequence[Mapping[str, Any]], *, width: int = WIDTH, colour: bool = False
) -> str:
    """Returns the ``changes`` of an ``edgekit.scales/1`` as text, worst first; the rest counted."""
    page = Page(width, colour=colour)
    many = "1 scale was" if len(changes) == 1 else f"{len(changes)} scales were"
    page.add(f"{many} widened, for the hardware cannot rescale there:")
    rows = [_row(change) for change in changes[:_SHOWN]]
    names_in_columns(
        page, _HEAD, rows, width=width, spared=("by", "rule"), right=("scale", "was", "bits lost")
    )
    if len(changes) > _SHOWN:
        page.add(f"and {len(changes) - _SHOWN} that lose less (--json has all)", style="dim")
    return str(page)


def _row(change: Mapping[str, Any]) -> dict[str, str]:
    layers = change["layers"]
    return {
        "tensor": change["tensor"],
        "scale": f"{change['new']:.5g}",
        "was": "none" if change["old"] is None else f"{change['old']:.5g}",
        "bits lost": f"{change['bits']:.1f}",
        "rule": change["rule"],
        "by": layers[0] + (f" and {len(layers) - 1} more" if layers[1:] else ""),
    }
