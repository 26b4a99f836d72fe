"""Operators that TensorRT's parser writes as several layers: what the matrix says of the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.dla._checks import Failure
from edgekit.dla._reason import reason_of
from edgekit.dla._rules import Rules

if TYPE_CHECKING:
    from edgekit.dla._types import Verdict
    from edgekit.network import Layer, Network

__all__ = ["dispute_composed"]

_RULE = "operators.composed"


def dispute_composed(network: Network, rules: Rules, verdicts: dict[str, Verdict]) -> None:
    """Marks as disputed what the rules allow layer by layer and the matrix does not expose.

    Args:
        network: The layer graph.
        rules: With the operator matrix.
        verdicts: By layer name; changed in place.
    """
    nodes: dict[tuple[str, ...], list[Layer]] = {}
    for layer in network.layers:
        row = rules.operators.get(layer.op)
        if row is not None and row.composed:
            nodes.setdefault(layer.origin, []).append(layer)
    rule = rules.rules[_RULE]
    for layers in nodes.values():
        if not all(verdicts[layer.name].ok for layer in layers):
            continue
        op = layers[0].op
        yes = [
            title
            for layer in layers
            for title in rules.allowing(layer.kind, layer.params.get("function"))
        ]
        reason = reason_of(rule, Failure(op, rule.limit, op), {}, rules.operators[op], yes)
        for layer in layers:
            known = verdicts[layer.name]
            verdicts[layer.name] = replace(
                known, certainty="disputed", reasons=(*known.reasons, reason)
            )
