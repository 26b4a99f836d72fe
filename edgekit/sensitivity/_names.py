"""Which layers a user's globs mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from edgekit._listed import listed
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["layers_named"]

_SHOWN = 5


def layers_named(
    network: Network, patterns: Iterable[str], *, where: str = "", strict: bool = True
) -> frozenset[str]:
    """Returns the layers whose name, or that of one of their ONNX nodes, matches a glob.

    Args:
        network: The layer graph.
        patterns: Globs; a name that has brackets of its own also matches as it is written.
        where: What to say where a glob matches nothing.
        strict: Whether that is an error.

    Raises:
        UsageError: "calibration.fp16": a glob matches nothing.
    """
    named: dict[str, set[str]] = {}
    for layer in network.layers:
        for name in (layer.name, *layer.origin):
            named.setdefault(name, set()).add(layer.name)
    found: set[str] = set()
    for pattern in patterns:
        names = [name for name in named if name == pattern or fnmatchcase(name, pattern)]
        if not names and strict:
            near = difflib.get_close_matches(pattern, named, 1)
            raise UsageError(
                f"{pattern!r} matches no layer and no node",
                code="calibration.fp16",
                where=where,
                hint=f"the nearest is {near[0]!r}"
                if near
                else f"there are {listed(map(repr, named), _SHOWN)} (edgekit check --by-layer)",
            )
        found.update(*(named[name] for name in names))
    return frozenset(found)
