"""The proposed cuts of a check or a plan as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.reports import text
from edgekit.reports.text import WIDTH, Page, names_in_columns
from edgekit.text import percent

if TYPE_CHECKING:
    from edgekit.placement.cuts import Cut


def add_cuts(page: Page, cuts: Sequence[Cut], *, width: int = WIDTH) -> None:
    """Adds the proposed cuts as a table, and the line of YAML for each cut."""
    if not cuts:
        return
    page.add()
    page.add("Where to cut: the first part runs on the DLA alone", style="bold")
    rows = [
        {
            "cut": str(number),
            "layers on the DLA": f"{text.count(cut.layers)} ({percent(cut.macs_fraction)} of MACs)",
            "loadables": str(cut.loadables),
            "latency": text.microseconds(cut.whole.latency_us),
            "per second": text.count(cut.whole.throughput_qps),
            "GPU time": text.microseconds(cut.whole.gpu_us),
            "energy": text.energy(cut.whole.energy_uj),
        }
        for number, cut in enumerate(cuts, 1)
    ]
    head = list(rows[0])
    names_in_columns(page, head, rows, width=width, spared=("energy", "per second"), right=head)
    page.add(
        "of the whole network, predicted: the rest in a GPU engine. The rest may also run in "
        "ONNX Runtime or in your code",
        style="dim",
    )
    for number, cut in enumerate(cuts, 1):
        page.add(f"{number}. {text.clean(cut.yaml)}", indent=2, hang=3)
