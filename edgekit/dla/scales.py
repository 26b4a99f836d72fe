"""INT8 scales required by the hardware: TensorRT's symmetric scheme for weights, and tensors that
must share a scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla.checks import Facts
from edgekit.dla.rule_files import Rule, Ties
from edgekit.dla.rules import load_rules

if TYPE_CHECKING:
    import onnx

    from edgekit.network.model import Layer


#: The largest INT8 code of a symmetric scale, ``amax / 127``.
LEVELS = 127
_BLOCK_ELEMENTS = 1 << 22


def channel_axis(node: onnx.NodeProto, rank: int) -> int | None:
    """Returns the axis of the output channels of a node's second input; None without INT8.

    Args:
        node: The node that multiplies by it.
        rank: Number of axes of the second input.
    """
    op = node.op_type
    if op == "Conv":
        return 0
    if op == "ConvTranspose":
        return 1
    if op == "MatMul":
        return 1 if rank == 2 else None
    if op == "Gemm":
        return 0 if any(item.name == "transB" and item.i for item in node.attribute) else 1
    return None


def weight_scales(value: np.ndarray, axis: int | None) -> np.ndarray:
    """Returns amax / 127 in float32; 1 if that is no normal number, as for zeros.

    NaN and infinity are kept.

    Args:
        value: A weight.
        axis: Axis of its channels, each of which has a scale; None for a single scalar scale.
    """
    source = value[np.newaxis] if axis is None else np.moveaxis(value, axis, 0)
    amax = np.zeros(source.shape[0], np.float32)
    rest = tuple(range(1, source.ndim))
    for block in channel_blocks(source):
        part = source[block]
        # from both ends: abs() would copy the block
        amax[block] = np.maximum(part.max(axis=rest, initial=0), -part.min(axis=rest, initial=0))
    scales = amax / np.float32(LEVELS)
    scales[scales < np.finfo(np.float32).tiny] = 1.0
    return scales.reshape(()) if axis is None else scales


def channel_blocks(array: np.ndarray) -> list[slice]:
    """Cuts the first axis so that temporaries stay a few megabytes (fully connected layers)."""
    channels = array.shape[0]
    step = max(1, _BLOCK_ELEMENTS * channels // max(1, array.size))
    return [slice(start, start + step) for start in range(0, channels, step)]


@dataclass(frozen=True, slots=True, eq=False)
class ScaleTie:
    """A rule that gives tensors of a layer one INT8 scale.

    Attributes:
        rule: The rule.
        ties: The tensors that share it, and the cases in which it holds.
        kinds: Layer kinds that it holds for.
    """

    rule: Rule
    ties: Ties
    kinds: tuple[str, ...]

    def tensors(self, layer: Layer) -> tuple[str, ...]:
        """Returns the tensors of a layer that share a scale, each once."""
        inputs_only = self.ties.tensors == "inputs"
        names = layer.inputs if inputs_only else (*layer.inputs, *layer.outputs)
        return tuple(dict.fromkeys(names))


class _Parameters(Facts):
    """A layer's parameters; a missing parameter breaks no rule."""

    def __missing__(self, key: str) -> None:
        return None


def find_scale_tie(layer: Layer) -> ScaleTie | None:
    """Returns the rule that ties the INT8 scales of a layer's tensors; None if none does."""
    for tie in _ties_by_kind().get(layer.kind, ()):
        if tie.ties.when is None or tie.ties.when(_Parameters(layer.params)) is None:
            return tie
    return None


@lru_cache(maxsize=1)
def scale_ties() -> tuple[ScaleTie, ...]:
    """Returns all rules that tie scales, in the order of the rule files."""
    return tuple(
        ScaleTie(rule, rule.ties, rule.ties.kinds or rule.kinds)
        for rule in load_rules()
        if rule.ties is not None
    )


@lru_cache(maxsize=1)
def _ties_by_kind() -> Mapping[str, tuple[ScaleTie, ...]]:
    ties = scale_ties()
    kinds = dict.fromkeys(kind for tie in ties for kind in tie.kinds)
    return {kind: tuple(tie for tie in ties if kind in tie.kinds) for kind in kinds}
