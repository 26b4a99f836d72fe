"""Structured (2:4) sparsity: which convolutions could use it, which have it, what it could
save.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla.checks import Facts
from edgekit.dla.fact_files import sparsity_facts
from edgekit.dla.rule_files import titles_of
from edgekit.dla.rules import load_rules
from edgekit.dla.verdicts import Judgement, reason_of
from edgekit.error_document import VerdictReason
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    member,
    nullable,
    number,
    record,
    records,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.network.model import Layer, Model, Network
    from edgekit.targets.board import Target


_BLOCK = 1 << 22


def pattern_share(weights: NDArray[np.generic], zeros: int, of: int) -> float:
    """Returns the part of the groups of ``of`` along axis 1 with at least ``zeros`` zeros.

    Args:
        weights: (output maps, input channels of a group, kernel...); may be a memory map.
        zeros: Zeros that a group needs.
        of: Values in a group; a last group that is not full is filled up with zeros.
    """
    maps, channels = weights.shape[:2]
    kernel = weights.size // max(maps * channels, 1)
    step = max(1, _BLOCK // max(channels * kernel, 1))
    good = total = 0
    for first in range(0, maps, step):
        block = np.asarray(weights[first : first + step])
        filled = np.zeros((len(block), -(-channels // of) * of, kernel), bool)
        filled[:, :channels] = block.reshape(len(block), channels, kernel) != 0
        used = filled.reshape(len(block), -1, of, kernel).sum(axis=2)
        good += int(np.count_nonzero(used <= of - zeros))
        total += used.size
    return good / total if total else 1.0


@document(frozen=True)
class SparseConvolution:
    """One convolution and 2:4 sparsity; savings are predicted, for arithmetic alone.

    Attributes:
        layer: Its name.
        possible: Whether the DLA could use sparse weights for it.
        certainty: "disputed" where only conditions decide that newer releases may have lifted.
        reasons: The conditions that do not hold.
        macs: Dense multiply-accumulates for one inference.
        macs_saved: Those that sparse weights spare; 0 if it is not possible.
        weight_bytes: INT8 bytes of the dense weights.
        weight_bytes_saved: Those that sparse weights spare at most (their indices not counted).
        present: Whether the weights have the pattern already; None when they were not read.
        share: Part of the groups of four that have it, 0 to 1; None when not read.
    """

    layer: str = member(long_text)
    possible: bool = member(flag)
    certainty: str = member(choice("certain", "disputed"))
    reasons: tuple[VerdictReason, ...] = member(records(VerdictReason))
    macs: int = member(fields.count)
    macs_saved: int = member(fields.count)
    weight_bytes: int = member(fields.count)
    weight_bytes_saved: int = member(fields.count)
    present: bool | None = member(nullable(flag))
    share: float | None = member(nullable(fields.share))


@document(frozen=True)
class MeasuredSpeedup:
    """Speed-ups that NVIDIA measured for whole networks, least and most, and where they stand.

    Attributes:
        range: The least and the most factor.
    """

    range: tuple[float, float] = member(array(number(0, 1e6), 2, 2))
    source: str = member(long_text)


@document(frozen=True, kw_only=True)
class Sparsity:
    """All convolutions on the DLA.

    Attributes:
        convolutions: In graph order.
        possible: How many could be sparse.
        present: How many of these are; None where their weights were not read.
        macs: Dense multiply-accumulates of all of them.
        macs_saved: Multiply-accumulates spared if all that could were sparse, predicted.
        weight_bytes_saved: Bytes that sparse weights spare at most.
        seconds_saved: Time of these at the core's peak rate, predicted; less where memory is the
            limit.
        measured_speedup: What NVIDIA measured.
        pays: Whether the predicted latency would be shorter; None without a prediction.
        kind: "predicted", which all savings are.
    """

    kind: str = member(choice("predicted"), default="predicted")
    convolutions: tuple[SparseConvolution, ...] = member(records(SparseConvolution))
    possible: int = member(fields.count)
    present: int | None = member(nullable(fields.count))
    macs: int = member(fields.count)
    macs_saved: int = member(fields.count)
    weight_bytes_saved: int = member(fields.count)
    seconds_saved: float = member(fields.figure)
    measured_speedup: MeasuredSpeedup = member(record(MeasuredSpeedup))
    pays: bool | None = member(nullable(flag), default=None)


def sparsity(
    network: Network, judgement: Judgement, target: Target, model: Model | None = None
) -> Sparsity:
    """Says which convolutions on the DLA could use 2:4 sparsity and what it could save.

    The conditions stand in ``dla/sparsity.yaml``. Of every four weights next to each other along
    the input channels two must be zero. A convolution that arithmetic limits then does half of
    its products; one that memory limits gains less.

    Args:
        network: The layer graph that was judged.
        judgement: Its verdict: the layers placed on the DLA, and what each runs in, count.
        target: The board.
        model: The model, to read its weights and see whether they have the pattern; without it
            no weight is read.
    """
    facts = sparsity_facts()
    rows = tuple(
        _convolution(layer, network, judgement.precision_of(layer.name), target, model)
        for layer in network.layers
        if layer.kind in facts.kinds and layer.inputs and judgement.placed.get(layer.name) == "DLA"
    )
    measured = facts.measured
    chosen = [one for one in rows if one.possible]
    saved = sum(one.macs_saved for one in rows)
    macs_per_second = target.dla.int8_macs_per_clock * target.dla.max_mhz * 1e6
    unread = any(one.present is None for one in rows)
    return Sparsity(
        convolutions=rows,
        possible=len(chosen),
        present=None if unread else sum(bool(one.present) for one in chosen),
        macs=sum(one.macs for one in rows),
        macs_saved=saved,
        weight_bytes_saved=sum(one.weight_bytes_saved for one in chosen),
        seconds_saved=saved / macs_per_second if macs_per_second else 0.0,
        measured_speedup=MeasuredSpeedup(
            (measured.least, measured.most), titles_of(measured.source)
        ),
    )


def _convolution(
    layer: Layer, network: Network, precision: str, target: Target, model: Model | None
) -> SparseConvolution:
    params = layer.params
    channels = network.tensors[layer.inputs[0]].shape[1] // (params.get("groups") or 1)
    maps = params["out_maps"]
    weights = maps * channels
    for side in params["kernel"]:
        weights *= side
    known = Facts(
        generation=target.dla.generation,
        precision=precision,
        channels=channels,
        weights=weights,
        maps_modulo_64=maps % 64,
    )
    broken = list(_broken(known))
    possible = not broken
    saved = sparsity_facts().saved
    share = None if model is None else _share(layer, model, maps, channels)
    return SparseConvolution(
        layer=layer.name,
        possible=possible,
        certainty="disputed" if broken and all(c == "disputed" for c, _ in broken) else "certain",
        reasons=tuple(reason for _, reason in broken),
        macs=layer.macs,
        macs_saved=int(layer.macs * saved.macs) if possible else 0,
        weight_bytes=weights,
        weight_bytes_saved=int(weights * saved.weights) if possible else 0,
        present=None if share is None else share == 1.0,
        share=share,
    )


def _broken(known: Facts) -> Iterator[tuple[str, VerdictReason]]:
    for rule in load_rules():
        if rule.family != "sparsity" or rule.check is None:
            continue
        failure = rule.check(known)
        if failure is not None:
            yield rule.certainty, reason_of(rule, failure, known)


def _share(layer: Layer, model: Model, maps: int, channels: int) -> float | None:
    """The part of the groups of four along the input channels with two zeros or more."""
    pattern = sparsity_facts().pattern
    for name in layer.weights:
        values = model.weights[name]
        if values.ndim < 2:
            continue
        if values.ndim == 2 and _channels_first(layer, model, values.shape, (maps, channels)):
            values = values.T
        return pattern_share(values, pattern.zeros, pattern.of)
    return None


def _channels_first(
    layer: Layer, model: Model, shape: tuple[int, ...], wanted: tuple[int, int]
) -> bool:
    """Whether a matrix is (input channels, output maps): MatMul, and Gemm without transB."""
    if shape != wanted:
        return True
    if shape[0] != shape[1]:
        return False
    for node in model.proto.graph.node:
        if node.name in layer.nodes:
            return not any(a.name == "transB" and a.i for a in node.attribute)
    return False
