"""Which rows of a profile are layers, and whose time a row shows.

Up to TensorRT 8 a loadable's own row shows only its start; the wait for the DLA is in the first
"... from nvm" after it (NVIDIA/TensorRT issue 3143: 0.0085 ms and 7.69 ms).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgekit.placement._profile_types import Row

__all__ = ["attributed"]

_FOREIGN = re.compile(r"^\{ForeignNode\[.*\]\}$")
_FROM = re.compile(r" from nvm$")
_TO = re.compile(r" to nvm$")
_COPY = re.compile(
    r"^Reformatt(?:ing|ed) |^reformat|input reformatter|output reformatter| copy(?: finish)?$"
    r"|^Input copy|^Output copy", re.IGNORECASE,
)  # fmt: skip


def attributed(
    rows: Sequence[Row], kinds: Mapping[str, str]
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Returns (layers, what is no layer) with the DLA's time on the DLA's rows.

    Args:
        rows: In running order.
        kinds: Layer types of --exportLayerInfo by name; empty without.
    """
    nvm = any(_FROM.search(row.name) or _TO.search(row.name) for row in rows)
    layers: list[Row] = []
    others: list[Row] = []
    waiting: int | None = None  # the loadable whose wait is still to come
    for row in rows:
        kind = kinds.get(row.name, "")
        if _FOREIGN.match(row.name):
            device = "DLA" if kind == "DLA" or (nvm and not kind) else "GPU" if kind else ""
            if device == "DLA" and nvm:
                waiting = len(layers)
            layers.append(replace(row, device=device))
        elif _FROM.search(row.name):
            if waiting is not None:
                loadable = layers[waiting]
                layers[waiting] = replace(loadable, us=loadable.us + row.us)
                waiting = None
            else:
                others.append(replace(row, device="GPU"))
        elif _TO.search(row.name) or _COPY.search(row.name) or kind == "Reformat":
            others.append(replace(row, device="GPU"))
        else:
            layers.append(replace(row, device="DLA" if kind == "DLA" else "GPU"))
    return tuple(layers), tuple(others)
