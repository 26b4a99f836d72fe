"""The rewrites that there are."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["APPROXIMATE", "exact_for", "rewrites"]

APPROXIMATE = "approx-"
_GROUPS = ("layout", "pointwise", "pooling", "convolution", "deconvolution", "sequence")


# where a network has none of these operators, no rewrite of the group finds anything in it: other
# groups make a ConvTranspose only from the last two, and a Resize that nothing has to be done about
_ONLY_WITH = {
    "deconvolution": {"ConvTranspose", "Resize", "Upsample", "DepthToSpace", "Transpose"},
    "sequence": {
        "Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND",
        "CumSum", "GRU", "LSTM", "RNN",
    },
}  # fmt: skip


def exact_for(operators: Collection[str]) -> list[Rewrite]:
    """Returns the exact rewrites that may find something in a network of these ONNX operators.

    In the order of ``rewrites``; groups that cannot are not imported, which saves a check a fifth
    of its time.
    """
    groups = [
        name
        for name in _GROUPS
        if name not in _ONLY_WITH or not _ONLY_WITH[name].isdisjoint(operators)
    ]
    found = (item for name in groups for item in import_module(f"edgekit.rewrite.{name}").REWRITES)
    return [item for item in found if not item.name.startswith(APPROXIMATE)]


@cache
def rewrites() -> tuple[Rewrite, ...]:
    """Returns every rewrite, in the order in which they are tried at a node."""
    groups = [import_module(f"edgekit.rewrite.{name}") for name in _GROUPS]
    return tuple(item for group in groups for item in group.REWRITES)
