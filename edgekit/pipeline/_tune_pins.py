"""Pins with which planning gives a placement again, in few words."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.placement import Plan

__all__ = ["pins_of"]


def pins_of(plan: Plan) -> list[dict[str, str]]:
    """Returns pins that name every layer's device; a later one wins.

    All layers are pinned where most are, then the others, by the beginning of their names where no
    layer of another device begins so.
    """
    device = {layer.name: layer.device for layer in plan.layers}
    # in a draw the GPU: it runs whatever a change of the network brings
    most = max(Counter(device.values()).items(), key=lambda item: (item[1], item[0] == "GPU"))[0]
    pins = [{"layers": "*", "device": most}]
    for other in sorted(set(device.values()) - {most}):
        names = [name for name in device if device[name] == other]
        rest = [name for name in device if device[name] != other]
        pins += [{"layers": words, "device": other} for words in _patterns(names, rest)]
    return pins


def _patterns(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Returns few patterns that all of these names match and none of the others."""
    left, found = list(names), []
    while left:
        name = left[0]
        start = _beginning(name, others)
        same = [one for one in left if start and one.startswith(start)]
        if len(same) > 1:
            found.append(glob.escape(start) + "*")
            left = [one for one in left if one not in same]
        else:
            found.append(glob.escape(name))
            left = left[1:]
    return found


def _beginning(name: str, others: Sequence[str]) -> str:
    """Returns the shortest beginning of a name that none of the others has; empty for none."""
    for end in range(1, len(name) + 1):
        if not any(one.startswith(name[:end]) for one in others):
            return name[:end]
    return ""
