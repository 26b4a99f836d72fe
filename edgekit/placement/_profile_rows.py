"""Which rows of a profile are layers, and whose time a row shows.

Up to TensorRT 8 a loadable's own row shows only its start; the wait for the DLA is in the first
"... from nvm" after it (NVIDIA/TensorRT issue 3143: 0.0085 ms and 7.69 ms).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgekit.placement._profile_types import Row

__all__ = ["attributed", "booked_rows"]

_FOREIGN = re.compile(r"^\{ForeignNode\[.*\]\}$")
_FROM = re.compile(r" from nvm$")
_TO = re.compile(r" to nvm$")
_COPY = re.compile(
    r"^Reformatt(?:ing|ed) |^reformat|input reformatter|output reformatter| copy(?: finish)?$"
    r"|^Input copy|^Output copy", re.IGNORECASE,
)  # fmt: skip


def attributed(
    rows: Sequence[Row],
    kinds: Mapping[str, str],
    writes: Mapping[str, Sequence[str]] | None = None,
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Returns (layers, what is no layer) with the DLA's time on the DLA's rows.

    Several loadables can run before the first wait (two cores, or one after the other): a wait
    belongs to the loadable that writes its tensor, where the layer information lists that; else
    each loadable has the next wait in turn, and where waits are fewer the last loadables have
    them, for whom the earlier ones were waited with.

    Each row keeps its place in that order; a wait is drawn where its loadable began.

    Args:
        rows: In running order.
        kinds: Layer types of --exportLayerInfo by name; empty without.
        writes: Tensors that each layer writes, of the same file.
    """
    nvm = any(_FROM.search(row.name) or _TO.search(row.name) for row in rows)
    layers: list[Row] = []
    others: list[tuple[int, Row]] = []
    pending: list[int] = []  # loadables whose wait is still to come
    waits: list[tuple[int, Row]] = []  # waits that no tensor's name gives to one of them

    def settle() -> None:
        takers = pending if len(waits) >= len(pending) else pending[-len(waits) :]
        for (_, row), place in zip(waits, takers, strict=False):
            layers[place] = replace(layers[place], us=layers[place].us + row.us)
        others.extend((at, replace(row, device="GPU")) for at, row in waits[len(takers) :])
        pending.clear()
        waits.clear()

    for at, given in enumerate(rows):
        row = replace(given, place=at)
        kind = kinds.get(row.name, "")
        if _FOREIGN.match(row.name):
            device = "DLA" if kind == "DLA" or (nvm and not kind) else "GPU" if kind else ""
            if device == "DLA" and nvm:
                if waits:
                    settle()
                pending.append(len(layers))
            layers.append(replace(row, device=device))
        elif _FROM.search(row.name):
            tensor = _FROM.sub("", row.name)
            writer = next(
                (
                    place
                    for place in pending
                    if tensor in (writes or {}).get(layers[place].name, ())
                ),
                None,
            )
            if writer is not None:
                layers[writer] = replace(layers[writer], us=layers[writer].us + row.us)
                pending.remove(writer)
            elif pending:
                waits.append((at, row))
            else:
                others.append((at, replace(row, device="GPU")))
        elif _TO.search(row.name) or _COPY.search(row.name) or kind == "Reformat":
            others.append((at, replace(row, device="GPU")))
        else:
            layers.append(replace(row, device="DLA" if kind == "DLA" else "GPU"))
    if waits:
        settle()
    return tuple(layers), tuple(row for _, row in sorted(others, key=lambda item: item[0]))


def booked_rows(times: Sequence[tuple[str, float]]) -> tuple[tuple[Row, bool], ...]:
    """Returns what a profiler of a hybrid engine timed, in its order, by the device it is of.

    Args:
        times: Name and microseconds of each row; none tells which loadable a wait is for.

    Returns:
        Rows, the waits booked to the loadables, and whether each is a layer.
    """
    layers, others = attributed([Row(name, us) for name, us in times], {})
    both = [*((row, True) for row in layers), *((row, False) for row in others)]
    return tuple(sorted(both, key=lambda one: one[0].place))
