"""The result's entry of one engine."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ._build_config import refit_kind
from ._build_inspect import reformats, summary
from ._build_types import EngineSpec

__all__ = ["entry_of"]


def entry_of(
    spec: EngineSpec,
    made: Mapping[str, Any],
    facts: Mapping[str, Any],
    inspector: Optional[str],
    notes: List[str],
) -> Dict[str, Any]:
    """The entry of an engine that was built, but for what its attempts tell.

    Args:
        spec: The engine.
        made: What the attempt gave.
        facts: What loading the plan told, or what was asked for.
        inspector: Digest of the inspector's JSON, None without.
        notes: Takes what is odd.
    """
    flags = made["flags"]
    text = facts["inspector"] or made["inspector"]
    layers: List[Dict[str, str]] = []
    odd: List[str] = []
    if not spec.standalone:
        layers, odd = summary(text)
    # what goes from one segment to the next in a format that both have; a reformat to LINEAR is no
    # surprise: the network's own tensors have it, and borders whose format the GPU lacks
    formatted = [
        io.name for io in (*spec.inputs, *spec.outputs) if io.formats and "LINEAR" not in io.formats
    ]
    notes.extend(made["notes"])
    notes.extend(facts["notes"])
    notes.extend("{}: {}".format(spec.key, text) for text in odd)
    compatible = "VERSION_COMPATIBLE" in flags
    return {
        "key": spec.key,
        "kind": spec.kind,
        "engine": made["engine"],
        "full": facts["full"],
        "bytes": made["bytes"],
        "full_bytes": facts["full_bytes"],
        "tensorrt": made["tensorrt"],
        "flags": flags,
        "stripped": "STRIP_PLAN" in flags,
        "version_compatible": compatible,
        "lean_embedded": compatible and "EXCLUDE_LEAN_RUNTIME" not in flags,
        "refit": refit_kind(flags),
        "dla_core": spec.dla_core,
        "weights": facts["weights"],
        "io": facts["io"],
        "can_run_on_dla": made["can_run_on_dla"],
        "unmapped": made["unmapped"],
        "layers": layers,
        "reformats": reformats(text, formatted),
        "inspector": inspector,
        "log": made["log"],
        "timing_cache": made["timing_cache"],
    }
