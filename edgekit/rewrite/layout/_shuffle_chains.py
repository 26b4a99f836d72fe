"""Chains of per-channel nodes between a channel shuffle and a convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from edgekit.rewrite._types import Node
from edgekit.rewrite.layout._channelwise import channelwise
from edgekit.rewrite.layout._shuffles import MOST_BRANCHES

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["chain_before", "chains_behind", "write_chain"]

#: Whether a chain ends, or begins, at a node.
Ends: TypeAlias = Callable[["Graph", Node], bool]

# a chain of per-channel operators is followed for so many nodes
_MOST_NODES = 8


def chain_before(graph: Graph, tensor: str, ends: Ends) -> tuple[Node, ...] | None:
    """Returns the nodes from a convolution to a tensor that only one node reads, else None."""
    chain: list[Node] = []
    for _ in range(_MOST_NODES):
        node = graph.producer(tensor)
        if node is None or graph.only_reader(tensor) is None:
            return None
        chain.insert(0, node)
        if ends(graph, node):
            return tuple(chain)
        parts = channelwise(graph, node)
        if parts is None:
            return None
        tensor = node.inputs[parts.data]
    return None


def chains_behind(graph: Graph, output: str, ends: Ends) -> tuple[tuple[Node, ...], ...] | None:
    """Returns the chains from a tensor to convolutions; None when another node reads it."""
    readers = graph.readers(output)
    if not 0 < len(readers) <= MOST_BRANCHES or not graph.inner(output, readers):
        return None
    chains = [_chain(graph, reader, output, ends) for reader in readers]
    found = tuple(chain for chain in chains if chain is not None)
    return found if len(found) == len(chains) else None


def _chain(graph: Graph, reader: Node, tensor: str, ends: Ends) -> tuple[Node, ...] | None:
    chain: list[Node] = []
    node: Node | None = reader
    for _ in range(_MOST_NODES):
        if node is None:
            return None
        chain.append(node)
        if ends(graph, node):
            return tuple(chain) if node.inputs.index(tensor) == 0 else None
        parts = channelwise(graph, node)
        if parts is None or node.inputs[parts.data] != tensor:
            return None
        tensor = node.outputs[0]
        node = graph.only_reader(tensor)
    return None


def write_chain(
    graph: Graph,
    chain: tuple[Node, ...],
    new: Writer,
    order: str,
    source: str,
    output: str,
    at_end: Mapping[int, int],
) -> None:
    """Writes a chain again; ``at_end``: axis of its convolution's constants along the channels."""
    for node in chain:
        parts = channelwise(graph, node)
        data, axes = (0, at_end) if parts is None else (parts.data, parts.axes)
        inputs = list(node.inputs)
        for position, axis in axes.items():
            if node.input(position):
                inputs[position] = new.node("Gather", [inputs[position], order], axis=axis)
        inputs[data] = source
        target = output if node is chain[-1] else ""
        source = new.node(node.op, inputs, output=target, name=node.name, **node.attrs)
