"""The numerical proof of a rewrite: old and new nodes on random inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model

__all__ = ["RUNS", "SEED", "TOLERANCE", "prove"]

RUNS = 4
SEED = 0
TOLERANCE = 1e-5  # of the largest value, in FP32


def prove(before: Model, after: Model, match: Match) -> float:
    """Returns the largest ``max|a-b| / max|b|`` over ``RUNS`` seeded random inputs.

    Only the replaced nodes are run, old and new, on standard normal inputs in FP32.
    """
    import numpy as np

    from edgekit.network import session

    inputs, outputs = _borders(before.proto.graph, set(match.nodes))
    old = session(_part(before, inputs, outputs), optimise=False, threads=1)
    new = session(_part(after, inputs, outputs), optimise=False, threads=1)
    shapes = {value.name: value.shape for value in old.get_inputs()}
    random = np.random.default_rng(SEED)
    worst = 0.0
    for _ in range(RUNS):
        feed = {
            name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        for a, b in zip(new.run(outputs, feed), old.run(outputs, feed), strict=True):
            scale = float(np.abs(b).max()) or 1.0
            worst = max(worst, float(np.abs(a - b).max()) / scale)
    return worst


def _borders(graph: onnx.GraphProto, nodes: set[str]) -> tuple[list[str], list[str]]:
    """Returns the activation tensors that ``nodes`` read from outside and those they write."""
    constants = {tensor.name for tensor in graph.initializer}
    chosen = [node for node in graph.node if node.name in nodes]
    written = [name for node in chosen for name in node.output]
    read = [name for node in chosen for name in node.input if name and name not in constants]
    return [n for n in dict.fromkeys(read) if n not in written], written


def _part(model: Model, inputs: list[str], outputs: list[str]) -> Model:
    from edgekit.network import Model, extract

    nodes = _between(model.proto.graph, set(inputs), outputs)
    proto = extract(model, nodes, inputs, outputs)
    names = {tensor.name for tensor in proto.graph.initializer}
    # by name: some weights are computed when they are read
    weights = {name: model.weights[name] for name in model.weights if name in names}
    return Model(proto, weights, model.digest, model.source)


def _between(graph: onnx.GraphProto, inputs: set[str], outputs: list[str]) -> set[str]:
    producer = {name: node for node in graph.node for name in node.output}
    todo, found = list(outputs), set()
    while todo:
        name = todo.pop()
        node = producer.get(name)
        if name in inputs or node is None or node.name in found:
            continue
        found.add(node.name)
        todo += [source for source in node.input if source]
    return found
