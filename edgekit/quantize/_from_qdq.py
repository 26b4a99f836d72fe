"""From a Q/DQ model to a plain network with a scale for each tensor: explicit to implicit INT8.

TensorRT up to 10.7 puts nothing of a Q/DQ model on a DLA; what it takes there is a plain network
with a calibration cache and a precision for each layer. The steps are those of NVIDIA's
qdq-translator 0.2.0 (Deep-Learning-Accelerator-SW, tools/qdq-translator).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.network import QDQ
from edgekit.quantize._follow import follow
from edgekit.quantize._needs import needs
from edgekit.quantize._qdq_grid import Constants, Problems
from edgekit.quantize._qdq_half import widened
from edgekit.quantize._qdq_inside import without_effect
from edgekit.quantize._qdq_names import Names
from edgekit.quantize._qdq_propagate import Propagated, propagate
from edgekit.quantize._qdq_read import Reading, Use, read_qdq
from edgekit.quantize._qdq_weights import keeps, other_codes, values_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model, Network

__all__ = ["UNEQUAL", "Translated", "from_qdq", "has_qdq"]

UNEQUAL = ("refuse", "largest")
_LISTED = 3


@dataclass(frozen=True, eq=False)
class Translated:
    """A Q/DQ model as implicit INT8.

    Attributes:
        model: The plain network; its weights are floats.
        scales: By activation tensor of ``model``: those of the Q/DQ nodes bit for bit, and those
            that follow from them (``propagated``).
        fp16_nodes: Nodes that run in FP16, since they have FP16 types in the Q/DQ model or a
            tensor that they read has no scale.
        missing: Tensors that INT8 layers need a scale of and that have none.
        propagated: What no Q/DQ node said.
        quantizers: How many scales the Q/DQ nodes gave.
        weights: How many constants were quantised.
        other_codes: Weights that have other codes when they are quantised anew per output
            channel, as TensorRT's implicit INT8 and edgekit's emulation do.
        notes: What a person should know.
    """

    model: Model
    scales: Mapping[str, float]
    fp16_nodes: tuple[str, ...]
    missing: tuple[str, ...]
    propagated: tuple[Propagated, ...]
    quantizers: int
    weights: int
    other_codes: tuple[str, ...]
    notes: tuple[str, ...]


def has_qdq(model: Model) -> bool:
    """Whether a model has Q/DQ nodes."""
    return any(node.op_type in QDQ for node in model.proto.graph.node)


def from_qdq(model: Model, *, unequal: str = "refuse") -> Translated:
    """Translates a Q/DQ model: takes its Q/DQ nodes out and keeps what they say as scales.

    A tensor's scale holds for everything that reads it, also for what reads it unquantised in
    the Q/DQ model. Constants hold what their codes stand for, or the file's own floats where
    these give the same codes.

    Args:
        model: A model with Q/DQ nodes, of ai.onnx opset 10 or later.
        unequal: "refuse" a tensor that is read with different scales, or take the "largest".

    Returns:
        The plain network and its scales.

    Raises:
        ModelError: Codes ``qdq.*``: it has no Q/DQ nodes, or quantises in a way that implicit
            INT8 does not have; what does so is named.
        UsageError: ``unequal`` is something else.
    """
    from edgekit.network import canonical, layers

    if unequal not in UNEQUAL:
        raise UsageError(
            f"unequal scales can be {' or '.join(UNEQUAL)}, not {unequal!r}", code="qdq.unequal"
        )
    model, typed, left = widened(model)
    reading = read_qdq(model)
    notes = [left] if left else []
    steps = _scales(model, reading, unequal, notes)
    names = Names(model, reading)
    values: dict[str, np.ndarray] = {}
    coded: set[str] = set()
    constants = Constants(model)
    for fixed in reading.fixed:
        value = values_of(fixed, constants)
        if keeps(fixed, value, constants, names.readers(fixed.tensor)):
            value = constants[fixed.source]
        else:
            coded.add(names.of(fixed))
        values[names.of(fixed)] = value
    proto = names.plain()
    weights: dict[str, np.ndarray] = {n: v for n, v in model.weights.items() if n not in values}
    plain = canonical(proto, None, source=model.source, weights={**weights, **values})
    plain = replace(plain, folded={**model.folded, **plain.folded}, notes=model.notes)
    steps = names.renamed(steps, plain)
    network = layers(plain)
    scales, propagated = propagate(plain, network, steps)
    nodes, missing = _lacking(network, scales, frozenset(typed))
    differ = other_codes(plain, coded)
    notes += _notes(reading, propagated, nodes, missing, differ)
    lost = without_effect(network, steps, scales)
    if lost:
        notes.append(
            f"without effect, for a kernel does not round inside: the scales of "
            f"{_some(lost, 'tensor')}; what they cut off in the Q/DQ model goes on"
        )
    if typed:
        notes.append(f"kept in FP16, as the file's types have it: {_some(typed, 'node')}")
    halves = tuple(dict.fromkeys((*typed, *nodes)))
    return Translated(
        plain, scales, halves, missing, propagated, len(steps), len(reading.fixed), tuple(differ),
        tuple(notes),
    )  # fmt: skip


def _scales(model: Model, reading: Reading, unequal: str, notes: list[str]) -> dict[str, float]:
    """One scale for each quantised tensor.

    Where a tensor is quantised twice in a row (requantised) and only the last result is read, the
    last scale counts.
    """
    found: dict[str, float] = {}
    problems = Problems()
    again = []
    for tensor, uses in reading.uses.items():
        read = [use for use in uses if use in reading.direct] or uses[-1:]
        if len({use.grid.step for use in uses}) > len({use.grid.step for use in read}):
            again.append(tensor)
        steps = {use.grid.step: use for use in read}
        if len(steps) > 1 and unequal == "refuse":
            problems.add("qdq.conflict", tensor, _both(steps))
        elif len(steps) > 1:
            notes.append(f"{tensor!r} takes the larger of its scales: {_both(steps)}")
        found[tensor] = max(steps)
    problems.refuse(model.source)
    if again:
        notes.append(
            f"quantised twice in a row: {_some(again, 'tensor')}; the last scale counts, and the "
            "first rounding is left out"
        )
    return found


def _lacking(
    network: Network, scales: Mapping[str, float], typed: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the nodes that read a tensor which lacks a scale, and those tensors (step 5).

    The names of nodes that a layer stands for, so that layers of any rewriting can be found. What
    is ``typed`` FP16 needs no scale.
    """
    known = {**scales, **follow(network, scales)}
    halves = {layer.name for layer in network.layers if typed.issuperset(layer.nodes)}
    found = {lack.tensor: {*lack.layers} - halves for lack in needs(network, known).lacks}
    lacks = {tensor: layers for tensor, layers in found.items() if layers}
    nodes: dict[str, None] = {}
    for layer in network.layers:
        if any(layer.name in lacks.get(name, ()) for name in layer.inputs):
            nodes.update(dict.fromkeys(layer.nodes or layer.origin))
    return tuple(nodes), tuple(lacks)


def _both(steps: Mapping[float, Use]) -> str:
    return ", ".join(f"{step:g} by {use.grid.node}" for step, use in steps.items())


def _notes(
    reading: Reading,
    propagated: tuple[Propagated, ...],
    nodes: tuple[str, ...],
    missing: tuple[str, ...],
    differ: list[str],
) -> list[str]:
    notes = []
    if reading.floats:
        notes.append(
            f"read unquantised too in the Q/DQ model: {_some(reading.floats, 'tensor')}; in "
            "implicit INT8 all readers share the scale"
        )
    if propagated:
        notes.append(
            f"without Q/DQ, with the scale of a neighbour: "
            f"{_some([row.tensor for row in propagated], 'tensor')}"
        )
    if nodes:
        notes.append(
            f"kept in FP16: {_some(nodes, 'node')}, for there is no scale for "
            f"{_some(missing, 'tensor')}"
        )
    if differ:
        notes.append(
            f"{_some(differ, 'weight')} {'has' if len(differ) == 1 else 'have'} other codes than "
            "in the Q/DQ model: TensorRT takes amax/127 of each output channel as its scale, and "
            "the model does not"
        )
    return notes


def _some(names: Collection[str], noun: str) -> str:
    count = len(names)
    return f"{count} {noun}{'' if count == 1 else 's'} ({_listed(names)})"


def _listed(names: Collection[str]) -> str:
    return ", ".join(list(names)[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
