"""The rewrites that there are, in the order in which they are tried at a node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING

from edgekit.rewriting.graph import APPROXIMATE

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


def _layout() -> tuple[Rewrite, ...]:
    from edgekit.rewriting.rules.layout.order import REWRITES

    return REWRITES


def _pointwise() -> tuple[Rewrite, ...]:
    from edgekit.rewriting.rules.pointwise.order import REWRITES

    return REWRITES


def _pooling() -> tuple[Rewrite, ...]:
    from edgekit.rewriting.rules.pooling.order import REWRITES

    return REWRITES


def _convolution() -> tuple[Rewrite, ...]:
    from edgekit.rewriting.rules.convolution.order import REWRITES

    return REWRITES


def _deconvolution() -> tuple[Rewrite, ...]:
    from edgekit.rewriting.rules.deconvolution.order import REWRITES

    return REWRITES


def _sequence() -> tuple[Rewrite, ...]:
    from edgekit.rewriting.rules.sequence.order import REWRITES

    return REWRITES


# by subject, in the order in which they are tried; each imports its rewrites when it is called
_SUBJECTS: dict[str, Callable[[], tuple[Rewrite, ...]]] = {
    "layout": _layout,
    "pointwise": _pointwise,
    "pooling": _pooling,
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "sequence": _sequence,
}

# where a network has none of these operators, no rewrite of the subject finds anything in it: other
# subjects make a ConvTranspose only from the last two, and a Resize that nothing has to be done
# about
_ONLY_WITH = {
    "deconvolution": {"ConvTranspose", "Resize", "Upsample", "DepthToSpace", "Transpose"},
    "sequence": {
        "Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND",
        "CumSum", "GRU", "LSTM", "RNN",
    },
}  # fmt: skip


def exact_for(operators: Collection[str]) -> list[Rewrite]:
    """Returns the exact rewrites that may find something in a network of these ONNX operators.

    In the order of ``rewrites``; subjects that cannot are not imported, which saves a check a fifth
    of its time.
    """
    found = (
        item
        for subject, rewrites_of in _SUBJECTS.items()
        if subject not in _ONLY_WITH or not _ONLY_WITH[subject].isdisjoint(operators)
        for item in rewrites_of()
    )
    return [item for item in found if not item.name.startswith(APPROXIMATE)]


@cache
def rewrites() -> tuple[Rewrite, ...]:
    """Returns every rewrite, in the order in which they are tried at a node."""
    return tuple(item for rewrites_of in _SUBJECTS.values() for item in rewrites_of())
