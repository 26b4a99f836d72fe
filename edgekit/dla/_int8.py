"""Which ONNX operators have INT8 kernels, and what these do with it: ``dla/int8.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["Int8Operators", "int8_operators"]

_SCHEMA = "edgekit.dla-int8/1"


@dataclass(frozen=True, slots=True)
class Int8Operators:
    """ONNX operators with INT8 kernels on the GPU and on the DLA, by what these do.

    Attributes:
        weighted: With quantised weights.
        pointwise: From values at the same place; fused with the layer before.
        moving: What moves or interpolates values.
        selecting: Whose outputs are some of their inputs' values, or 0.
        computing: Those with weights and the pointwise ones: their results first exist with the
            precision of sums.
        every: All of them; any other operator runs in FP16.
        fused_kinds: TensorRT's kinds of layers that run together with the one before them.
    """

    weighted: frozenset[str]
    pointwise: frozenset[str]
    moving: frozenset[str]
    selecting: frozenset[str]
    computing: frozenset[str]
    every: frozenset[str]
    fused_kinds: frozenset[str]


@lru_cache(maxsize=1)
def int8_operators() -> Int8Operators:
    """Reads ``dla/int8.yaml``.

    Raises:
        ValueError: The file is of another schema, or names an operator twice: edgekit's own file
            is wrong.
    """
    path = data_folder("dla") / "int8.yaml"
    document = read_knowledge(path)
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"{path} is no file of schema {_SCHEMA}")
    groups = document["operators"]
    named = [operator for operators in groups.values() for operator in operators]
    if len(set(named)) < len(named) or not set(document["selecting"]) <= set(named):
        raise ValueError(f"{path}: an operator stands twice, or selects and has no group")
    return Int8Operators(
        weighted=frozenset(groups["weighted"]),
        pointwise=frozenset(groups["pointwise"]),
        moving=frozenset(groups["moving"]),
        selecting=frozenset(document["selecting"]),
        computing=frozenset(groups["weighted"]) | frozenset(groups["pointwise"]),
        every=frozenset(named),
        fused_kinds=frozenset(document["fused"]["kinds"]),
    )
