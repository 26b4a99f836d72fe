"""Structured (2:4) sparsity: convolutions that could use it, convolutions that have it, and the
possible savings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla.checks import Facts
from edgekit.dla.fact_files import sparsity_facts
from edgekit.dla.rule_files import join_titles
from edgekit.dla.rules import load_rules
from edgekit.dla.verdicts import Judgement, verdict_reason
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
    """Returns the fraction of groups of ``of`` along axis 1 with at least ``zeros`` zeros.

    Args:
        weights: (output maps, input channels of a group, kernel...); may be a memory map.
        zeros: Zeros that a group needs.
        of: Values in a group; an incomplete last group is padded with zeros.
    """
    maps, channels = weights.shape[:2]
    kernel = weights.size // max(maps * channels, 1)
    # a few megabytes at a time: weights may be memory maps of any size
    step = max(1, _BLOCK // max(channels * kernel, 1))
    good = total = 0
    for first in range(0, maps, step):
        block = np.asarray(weights[first : first + step])
        filled = np.zeros((len(block), -(-channels // of) * of, kernel), bool)
        filled[:, :channels] = block.reshape(len(block), channels, kernel) != 0
        used = filled.reshape(len(block), -1, of, kernel).sum(axis=2)
        # `of - zeros` values may be other than 0
        good += int(np.count_nonzero(used <= of - zeros))
        total += used.size
    return good / total if total else 1.0


@document(frozen=True)
class SparseConvolution:
    """2:4 sparsity of a convolution; savings are predicted, for arithmetic alone.

    Attributes:
        layer: Its name.
        possible: True if the DLA could use sparse weights for it.
        certainty: "disputed" if it depends only on conditions that newer releases may have lifted.
        reasons: The conditions that do not hold.
        macs: Dense multiply-accumulates for one inference.
        macs_saved: Multiply-accumulates saved by sparse weights; 0 if not possible.
        weight_bytes: INT8 bytes of the dense weights.
        weight_bytes_saved: Bytes saved at most by sparse weights (their indices not counted).
        present: True if the weights have the pattern already; None if they were not read.
        share: Fraction of the groups of four with the pattern, 0 to 1; None if not read.
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
    """Speed-ups that NVIDIA measured for whole networks, with their source.

    Attributes:
        range: The smallest and the largest factor.
    """

    range: tuple[float, float] = member(array(number(0, 1e6), 2, 2))
    source: str = member(long_text)


@document(frozen=True, kw_only=True)
class Sparsity:
    """All convolutions on the DLA.

    Attributes:
        convolutions: In graph order.
        possible: Number of convolutions that could be sparse.
        present: Number of these that are sparse; None if their weights were not read.
        macs: Dense multiply-accumulates of all convolutions.
        macs_saved: Multiply-accumulates saved if all possible convolutions were sparse, predicted.
        weight_bytes_saved: Bytes saved at most by sparse weights.
        seconds_saved: Time of ``macs_saved`` at the core's peak rate, predicted; less if memory is
            the limit.
        measured_speedup: NVIDIA's measurements.
        pays: True if the predicted latency would be shorter; None without a prediction.
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


def assess_sparsity(
    network: Network, judgement: Judgement, target: Target, model: Model | None = None
) -> Sparsity:
    """Returns the convolutions on the DLA that could use 2:4 sparsity, and the possible savings.

    The conditions are in ``dla/sparsity.yaml``. Two of every four adjacent weights along the input
    channels must be zero. A convolution limited by arithmetic then does half of its products; a
    convolution limited by memory gains less.

    Args:
        network: The layer graph that was judged.
        judgement: Its verdict: the layers on the DLA, and their precisions, are used.
        target: The board.
        model: The model, to read its weights and look for the pattern; without a model no weight
            is read.
    """
    facts = sparsity_facts()
    rows = tuple(
        _assess_convolution(layer, network, judgement.precision_of(layer.name), target, model)
        for layer in network.layers
        if layer.kind in facts.kinds and layer.inputs and judgement.placed.get(layer.name) == "DLA"
    )
    measured = facts.measured
    possible = [row for row in rows if row.possible]
    saved = sum(row.macs_saved for row in rows)
    macs_per_second = target.dla.int8_macs_per_clock * target.dla.max_mhz * 1e6
    unread = any(row.present is None for row in rows)
    return Sparsity(
        convolutions=rows,
        possible=len(possible),
        # unknown as a whole if any weight was not read
        present=None if unread else sum(bool(row.present) for row in possible),
        macs=sum(row.macs for row in rows),
        macs_saved=saved,
        weight_bytes_saved=sum(row.weight_bytes_saved for row in possible),
        seconds_saved=saved / macs_per_second if macs_per_second else 0.0,
        measured_speedup=MeasuredSpeedup(
            (measured.least, measured.most), join_titles(measured.source)
        ),
    )


def _assess_convolution(
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
    broken = list(_broken_rules(known))
    possible = not broken
    saved = sparsity_facts().saved
    share = None if model is None else _read_pattern_share(layer, model, maps, channels)
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


def _broken_rules(known: Facts) -> Iterator[tuple[str, VerdictReason]]:
    for rule in load_rules():
        if rule.family != "sparsity" or rule.check is None:
            continue
        failure = rule.check(known)
        if failure is not None:
            yield rule.certainty, verdict_reason(rule, failure, known)


def _read_pattern_share(layer: Layer, model: Model, maps: int, channels: int) -> float | None:
    """Returns the fraction of groups of four along the input channels with two or more zeros."""
    pattern = sparsity_facts().pattern
    for name in layer.weights:
        values = model.weights[name]
        # a bias
        if values.ndim < 2:
            continue
        if values.ndim == 2 and _channels_first(layer, model, values.shape, (maps, channels)):
            values = values.T
        return pattern_share(values, pattern.zeros, pattern.of)
    return None


def _channels_first(
    layer: Layer, model: Model, shape: tuple[int, ...], wanted: tuple[int, int]
) -> bool:
    """Returns True if a matrix is (input channels, output maps): MatMul, Gemm without transB."""
    if shape != wanted:
        return True
    if shape[0] != shape[1]:
        return False
    for node in model.proto.graph.node:
        if node.name in layer.nodes:
            return not any(a.name == "transB" and a.i for a in node.attribute)
    return False
