"""Structured (2:4) sparsity: which convolutions could use it, which have it, what it could
save.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.dla.rules import load_rules, sparsity_facts, titles_of
from edgekit.dla.verdicts import Judgement, VerdictReason, reason_of

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


@dataclass(frozen=True, slots=True)
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

    layer: str
    possible: bool
    certainty: str
    reasons: tuple[VerdictReason, ...]
    macs: int
    macs_saved: int
    weight_bytes: int
    weight_bytes_saved: int
    present: bool | None = None
    share: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "layer": self.layer,
            "possible": self.possible,
            "certainty": self.certainty,
            "reasons": [reason.to_json() for reason in self.reasons],
            "macs": self.macs,
            "macs_saved": self.macs_saved,
            "weight_bytes": self.weight_bytes,
            "weight_bytes_saved": self.weight_bytes_saved,
            "present": self.present,
            "share": self.share,
        }


@dataclass(frozen=True, slots=True)
class SparsityReport:
    """All convolutions on the DLA.

    Attributes:
        convolutions: In graph order.
        macs_per_second: Dense INT8 rate of one core at its highest clock.
        measured: Speed-ups that NVIDIA measured for whole networks, least and most.
        source: Where they stand.
    """

    convolutions: tuple[SparseConvolution, ...]
    macs_per_second: float
    measured: tuple[float, float]
    source: str

    @property
    def macs_saved(self) -> int:
        """Multiply-accumulates spared if every convolution that could were sparse, predicted."""
        return sum(one.macs_saved for one in self.convolutions)

    @property
    def seconds_saved(self) -> float:
        """Time of these at the core's peak rate, predicted; less where memory is the limit."""
        return self.macs_saved / self.macs_per_second if self.macs_per_second else 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; ``kind`` says that savings are predicted."""
        chosen = [one for one in self.convolutions if one.possible]
        return {
            "kind": "predicted",
            "convolutions": [one.to_json() for one in self.convolutions],
            "possible": len(chosen),
            "present": None
            if any(one.present is None for one in self.convolutions)
            else sum(bool(one.present) for one in chosen),
            "macs": sum(one.macs for one in self.convolutions),
            "macs_saved": self.macs_saved,
            "weight_bytes_saved": sum(one.weight_bytes_saved for one in chosen),
            "seconds_saved": self.seconds_saved,
            "measured_speedup": {"range": list(self.measured), "source": self.source},
        }


def sparsity(
    network: Network, judgement: Judgement, target: Target, model: Model | None = None
) -> SparsityReport:
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
        if layer.kind in facts["kinds"]
        and layer.inputs
        and judgement.placed.get(layer.name) == "DLA"
    )
    return SparsityReport(
        convolutions=rows,
        macs_per_second=target.dla.int8_macs_per_clock * target.dla.max_mhz * 1e6,
        measured=(facts["measured"]["least"], facts["measured"]["most"]),
        source=titles_of(facts["measured"]["source"]),
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
    known = {
        "generation": target.dla.generation,
        "precision": precision,
        "channels": channels,
        "weights": weights,
        "maps_modulo_64": maps % 64,
    }
    broken = list(_broken(known))
    possible = not broken
    saved = sparsity_facts()["saved"]
    share = None if model is None else _share(layer, model, maps, channels)
    return SparseConvolution(
        layer=layer.name,
        possible=possible,
        certainty="disputed" if broken and all(c == "disputed" for c, _ in broken) else "certain",
        reasons=tuple(reason for _, reason in broken),
        macs=layer.macs,
        macs_saved=int(layer.macs * saved["macs"]) if possible else 0,
        weight_bytes=weights,
        weight_bytes_saved=int(weights * saved["weights"]) if possible else 0,
        present=None if share is None else share == 1.0,
        share=share,
    )


def _broken(known: dict[str, Any]) -> Iterator[tuple[str, VerdictReason]]:
    for rule in load_rules():
        if rule.family != "sparsity" or rule.check is None:
            continue
        failure = rule.check(known)
        if failure is not None:
            yield rule.certainty, reason_of(rule, failure, known)


def _share(layer: Layer, model: Model, maps: int, channels: int) -> float | None:
    """The part of the groups of four along the input channels with two zeros or more."""
    pattern = sparsity_facts()["pattern"]
    for name in layer.weights:
        values = model.weights[name]
        if values.ndim < 2:
            continue
        if values.ndim == 2 and _channels_first(layer, model, values.shape, (maps, channels)):
            values = values.T
        return pattern_share(values, pattern["zeros"], pattern["of"])
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
