"""A network cut into parts, so that the tensors that are measured fit into bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx

from edgekit.errors import ModelError
from edgekit.network.protos import reads
from edgekit.text import first_line

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network.model import Model


# bytes of tensors held together
PART_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class NetworkPart:
    """Consecutive nodes, run by themselves.

    Attributes:
        session: Runs them, without graph optimisations.
        inputs: Tensors that they read from earlier parts and from the network's inputs.
        wanted: Tensors to look at, in the graph's order.
        retained: Tensors that later parts read, besides those in ``wanted``.
        dropped: Previously kept tensors that no later part reads.
    """

    session: Any
    inputs: tuple[str, ...]
    wanted: tuple[str, ...]
    retained: tuple[str, ...]
    dropped: tuple[str, ...]


def parts(model: Model, wanted: Sequence[str], limit: int = PART_BYTES) -> list[NetworkPart]:
    """Cuts the network so that the wanted tensors of a part take at most ``limit`` bytes.

    The outputs of a node are never separated. Nodes after the last wanted tensor do not run. Every
    node runs once. Without graph optimisations its results do not depend on the cuts.
    """
    names = set(wanted)
    groups: list[list[onnx.NodeProto]] = []
    remaining = 0
    nodes = list(model.proto.graph.node)
    written_last = max((i for i, node in enumerate(nodes) if names & set(node.output)), default=-1)
    for node in nodes[: written_last + 1]:
        need = sum(model.graph.nbytes(name) for name in node.output if name in names)
        if not groups or need > remaining:
            groups.append([])
            # a node whose outputs exceed the limit gets a part of its own
            remaining = max(limit, need)
        groups[-1].append(node)
        remaining -= need
    if len(groups) == 1:
        return [_part(model, groups[0], names, set(), [])]
    later: list[set[str]] = [set()] * len(groups)
    # from the end, so that each group is looked at once
    for i in range(len(groups) - 2, -1, -1):
        later[i] = later[i + 1] | _reads(groups[i + 1])
    alive: set[str] = {value.name for value in model.proto.graph.input}
    made = []
    for i, group in enumerate(groups):
        alive |= {name for node in group for name in node.output}
        gone = sorted(alive - later[i])
        made.append(_part(model, group, names, later[i], gone))
        alive -= set(gone)
    return made


def run_parts(
    made: Sequence[NetworkPart], feed: Mapping[str, np.ndarray]
) -> Iterator[tuple[tuple[str, ...], list[np.ndarray]]]:
    """Yields the wanted tensors, part by part, for a set of inputs.

    Raises:
        ModelError: ONNX Runtime cannot run the model.
    """
    alive = dict(feed)
    for part in made:
        outputs = [*part.wanted, *part.retained]
        if outputs:
            try:
                arrays = part.session.run(outputs, {name: alive[name] for name in part.inputs})
            except ModelError:  # a plugin's function
                raise
            except Exception as error:  # a family of pybind types without a common base
                reason = first_line(error, type(error).__name__)
                raise ModelError(
                    f"ONNX Runtime could not run the model: {reason}",
                    code="model.run",
                    hint="check that ONNX Runtime can run the model",
                ) from error
            alive.update(zip(outputs, arrays, strict=True))
            found = arrays[: len(part.wanted)]
            # the caller frees arrays as it counts them: no reference may stay here
            del arrays
            for name in part.dropped:
                alive.pop(name, None)
            yield part.wanted, found
            del found


def _part(
    model: Model, nodes: list[onnx.NodeProto], names: set[str], later: set[str], gone: list[str]
) -> NetworkPart:
    from edgekit.network.session import session

    written = [name for node in nodes for name in node.output if name]
    wanted = tuple(name for name in written if name in names)
    retained = tuple(name for name in written if name in later and name not in names)
    inputs = tuple(sorted(_reads(nodes) - set(written) - model.graph.initializers.keys()))
    outputs = [*wanted, *retained]
    made = None
    if outputs:
        cut = model.cut({node.name for node in nodes}, inputs, outputs)
        made = session(cut, outputs=outputs, optimise=False)
    return NetworkPart(made, inputs, wanted, retained, tuple(gone))


def _reads(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in reads(node)}
