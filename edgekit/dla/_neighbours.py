"""Facts of a layer that are its neighbours'."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.dla._facts import Facts

__all__ = ["COMPARISONS", "consumer_kinds", "consumer_types", "neighbours", "producer_kind"]

# functions of ELEMENTWISE that compare
COMPARISONS = frozenset({"EQUAL", "GREATER", "LESS"})


def consumer_kinds(facts: Facts) -> tuple[str, ...]:
    """Kinds of the layers that read a layer's outputs; "nothing" where none does."""
    readers = [
        reader for name in facts.layer.outputs for reader in facts.graph.consumers.get(name, ())
    ]
    return tuple(reader.kind for reader in readers) or ("nothing",)


def consumer_types(facts: Facts) -> tuple[str, ...]:
    """Types that the readers of a layer's outputs write."""
    graph = facts.graph
    readers = [r for name in facts.layer.outputs for r in graph.consumers.get(name, ())]
    return tuple(graph.tensors[name].dtype for reader in readers for name in reader.outputs)


def producer_kind(facts: Facts) -> str | None:
    """Kind of the layer that writes the first input, and whether a comparison stays on the GPU."""
    producer = facts.graph.producers.get(facts.layer.inputs[0]) if facts.layer.inputs else None
    if producer is None:
        return "graph input"
    if producer.kind == "ELEMENTWISE" and producer.params.get("function") in COMPARISONS:
        return "comparison on the GPU" if producer.name in facts.graph.refused else "comparison"
    return producer.kind


def neighbours(facts: Facts) -> tuple[str, ...]:
    """Kinds of the layers before and behind a layer."""
    graph = facts.graph
    before = [graph.producers[name].kind for name in facts.layer.inputs if name in graph.producers]
    after = [r.kind for name in facts.layer.outputs for r in graph.consumers.get(name, ())]
    return (*before, *after)
