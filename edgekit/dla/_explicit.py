"""Whether a TensorRT release drives a DLA, and takes Q/DQ nodes to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.dla._rules import load_rules
from edgekit.dla._versions import parse_version

if TYPE_CHECKING:
    from edgekit.targets import Target

__all__ = ["drives_dla", "reads_qdq"]

_RULE = "general.explicit_quantization"


def drives_dla(target: Target, tensorrt: str) -> bool:
    """Says whether a TensorRT release drives the DLA of a board (the board file's ranges)."""
    part = target.facts.get("dla")
    ranges = part.get("tensorrt", ()) if isinstance(part, Mapping) else ()
    version = parse_version(tensorrt)
    return any(
        parse_version(r["since"]) <= version
        and ("until" not in r or version < parse_version(r["until"]))
        for r in ranges
    )


def reads_qdq(target: Target, tensorrt: str) -> bool:
    """Says whether a TensorRT release may place layers of a Q/DQ model on a board's DLA.

    Where it may not (below 11.4.1), INT8 on the DLA is implicit: a plain model and a calibration
    cache. The rule general.explicit_quantization has the sources.

    Raises:
        UsageError: ``tensorrt`` is no release.
    """
    rule = load_rules().rules[_RULE]
    return not rule.holds_for("QUANTIZE", target.dla.generation, parse_version(tensorrt))
