"""Which rewrites would help where, without applying them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._chosen import chosen
from edgekit.rewrite._decide import Judge
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._regions import regions
from edgekit.rewrite._search import Search

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.targets import Target

__all__ = ["offers"]


def offers(
    model: Model, target: Target, *, precision: str, tensorrt: str | None = None
) -> dict[str, str]:
    """Returns the rewrite by ONNX node that it would take away, where more runs on the DLA then.

    Nothing is proved and nothing compared as a whole, so this takes milliseconds.

    Args:
        model: The network.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release on the board; the target's usual one when None.
    """
    if target.dla.cores == 0:
        return {}
    from edgekit.rewrite._raise_opset import raise_opset

    raised = raise_opset(model)
    if raised is None:
        return {}
    judge = Judge(target, precision, tensorrt, None)
    search = Search(Graph(raised), chosen("all", (), ()), judge, proved=False)
    search.run()
    steps = [item.step for item in search.taken]
    found: dict[str, str] = {}
    for region in regions(search.graph, steps):
        if not any(search.taken[i].better for i in region.steps):
            continue
        for i in region.steps:
            for node in steps[i].old:
                if node.proto is not None:
                    found.setdefault(node.name, steps[i].rewrite.name)
    return found
