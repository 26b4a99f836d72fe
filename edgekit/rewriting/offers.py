"""Finds helpful rewrites by node, without applying them. ``check`` calls it, so this module must
not import modules that only a whole rewriting needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from edgekit.network.model import Model
from edgekit.rewriting.engine.opset import raise_opset
from edgekit.rewriting.engine.replay import regions
from edgekit.rewriting.engine.scoring import Judge
from edgekit.rewriting.engine.search import RewriteSearch
from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.rules.order import REWRITES

if TYPE_CHECKING:
    from edgekit.targets.board import Target


# Largest distance, in nodes, from a node of interest to a tried node: preparing steps are close,
# with only views and activations in between.
_REACH = 6


def offers(
    model: Model,
    target: Target,
    *,
    precision: str,
    tensorrt: str | None = None,
    nodes: Iterable[str] | None = None,
) -> dict[str, str]:
    """Returns the rewrite by ONNX node that it would remove, if more layers then run on the DLA.

    Steps are not proved and whole networks not compared, so this takes milliseconds.

    Args:
        model: The network.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release on the board; None for the target's default release.
        nodes: ONNX nodes of interest; nodes far from them are skipped. None for all nodes.
    """
    if target.dla.cores == 0:
        return {}

    raised = raise_opset(model)
    if raised is None:
        return {}
    # no costs: verdicts alone decide, which saves their prediction
    judge = Judge(target, precision, tensorrt, None)
    graph = RewriteGraph(raised)
    near = None if nodes is None else _near(graph, nodes)
    # approximate rewrites change results, and need the user's consent
    items = [item for item in REWRITES if not item.approximate]
    search = RewriteSearch(graph, items, judge, proved=False, near=near)
    search.run()
    steps = [item.step for item in search.taken]
    found: dict[str, str] = {}
    for region in regions(search.graph, steps):
        # preparing steps alone change no verdict
        if not any(search.taken[i].better for i in region.steps):
            continue
        for i in region.steps:
            for node in steps[i].old:
                # nodes of earlier steps are not in the user's file
                if node.proto is not None:
                    found.setdefault(node.name, steps[i].rewrite.name)
    return found


def _near(graph: RewriteGraph, nodes: Iterable[str]) -> Collection[str]:
    """Returns the names of the nodes from which a node of interest is within reach."""
    found = {name for name in nodes if graph.has(name)}
    edge = found
    for _ in range(_REACH):
        read = [graph.node(name) for name in edge]
        around = {
            item.name
            for node in read
            for tensors, writes in ((node.inputs, False), (node.outputs, True))
            for tensor in tensors
            for item in (graph.readers(tensor) if writes else [graph.producer(tensor)])
            if item is not None
        }
        edge = around - found
        found |= edge
    return found
