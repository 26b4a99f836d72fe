"""Layers and loadables by the names that the builder's log gives them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.pipeline._check import CheckResult

__all__ = ["layers_in_log", "loadable_in_log", "without_kind"]

_KIND = re.compile(r"^[A-Z][A-Z_0-9]*: (?=.)")
_NODE = re.compile(r"\{ForeignNode\[(.+)\]\}")
_CUT = re.compile(r"\.\.\.|…")


def without_kind(name: str) -> str:
    """Returns "conv1" of "CONVOLUTION: conv1", as logs list layers on the GPU."""
    return _KIND.sub("", name)


def layers_in_log(result: CheckResult, name: str) -> set[str]:
    """Returns our layers that a log calls ``name``, fusions included; empty when there is none."""
    from edgekit.buildlog import layers_called

    return set(layers_called(result.network, name))


def loadable_in_log(result: CheckResult, name: str) -> dict[str, Any] | None:
    """Returns the predicted loadable that a log calls ``{ForeignNode[FIRST...LAST]}``, or None.

    It has ``name``, ``layers`` in graph order, ``kept`` (whether it goes to the DLA), ``dropped``
    (the rule that keeps it on the GPU, or None), and ``memory``: its entry in the check's
    ``memory`` or ``memory_refused``, None where no slot is left for it.
    """
    match = _NODE.search(name)
    if match is None:
        return None
    from edgekit.network import loadable_name

    groups = result.judgement.candidates
    names = [loadable_name(result.network, group.layers) for group in groups]
    found = [at for at, own in enumerate(names) if own == match[0]]
    # TensorRT 8 writes more parts into the name of a Gemm: then its layers decide
    ends = [] if found else _ends(result, match[1])
    found += [
        at
        for at, group in enumerate(groups)
        if any(group.layers[0] in first and group.layers[-1] in last for first, last in ends)
    ]
    if not found:
        return None
    group = groups[found[0]]
    document = result.document
    entries = (*document["memory"], *document["memory_refused"])
    return {
        "name": names[found[0]],
        "layers": list(group.layers),
        "kept": group.kept,
        "dropped": group.dropped or None,
        "memory": next((one for one in entries if one["layers"] == list(group.layers)), None),
    }


def _ends(result: CheckResult, inside: str) -> list[tuple[set[str], set[str]]]:
    """Returns our layers of a loadable's first and last name; a name may itself hold dots."""
    cuts = [(inside[: cut.start()], inside[cut.end() :]) for cut in _CUT.finditer(inside)]
    pairs = cuts or [(inside, inside)]
    return [(layers_in_log(result, first), layers_in_log(result, last)) for first, last in pairs]
