"""What INT8 costs layer by layer, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report._page import WIDTH, Page

__all__ = ["sensitivity_text"]

_SHOWN = 20
_HEAD = ("SNR", "cosine", "top-1", "device", "in INT8 alone")


def sensitivity_text(
    document: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False
) -> str:
    """Returns an ``edgekit.sensitivity/1`` document as text: the ranking and the proposal."""
    page = Page(width, colour=colour)
    kernels = document["kernels"]
    page.table(_HEAD, [_row(row, width) for row in kernels[:_SHOWN]], "rrrll")
    if len(kernels) > _SHOWN:
        page.add(f"and {len(kernels) - _SHOWN} that cost less (--json has all)", style="dim")
    floats = document["floats"]
    for row in floats[:_SHOWN]:
        rule = f" [{row['rule']}]" if row["rule"] else ""
        page.add(f"not INT8: {row['layer']}: {row['why']}{rule}", hang=2)
    if len(floats) > _SHOWN:
        page.add(f"and {len(floats) - _SHOWN} more that are not INT8", style="dim")
    if document["proposal"] is not None and document["proposal"]["reached"]:
        page.add(_proposal(document), hang=2)
    for note in document["notes"]:
        page.add(f"note: {note}", hang=2, style="yellow")
    return str(page)


def _row(row: Mapping[str, Any], width: int) -> Sequence[str]:
    from edgekit.build import snr_told

    ends = f" ({', '.join(row['place'])})" if row["place"] else ""
    room = max(20, width - 40)
    layers = " + ".join(row["layers"]) + ends
    if len(layers) > room:
        layers = f"{layers[: room - 3 - len(ends)]}...{ends}"
    return (
        snr_told(row),
        f"{row['cosine']:.6f}",
        f"{row['top1_agreement']:.1%}",
        row["device"],
        layers,
    )


def _proposal(document: Mapping[str, Any]) -> str:
    found = document["proposal"]
    metric = found["metric"]
    from edgekit.build import NOT_KNOWN, metric_told

    if not found["int8"].get("judged", True):
        return f"{metric} of all of it in INT8 is {NOT_KNOWN}: nothing is proposed"
    before, after = (metric_told(found[key], metric) for key in ("int8", "accuracy"))
    if not found["fp16_layers"]:
        return f"all of it in INT8 reaches {metric} {found['min']:.10g}: {before}"
    proof = "each of them is needed" if found["minimal"] else "not proven minimal"
    return (
        f"{found['kernels']} of {len(document['kernels'])} kernels in FP16 bring {metric} from "
        f"{before} to {after}; {proof} ({found['builds']} builds measured)"
    )
