"""The values of this floor: verdicts, reasons and loadables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.dla._rules import loadables_per_core

__all__ = ["Judgement", "LoadableCandidate", "MemoryNeed", "Reason", "Verdict"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a layer cannot run on a DLA: the rule, what was found, the limit, source and fix.

    ``mends`` is False where the fix only says to leave the layer on the GPU.
    """

    rule: str
    message: str
    found: str
    limit: str
    source: str
    fix: str
    mends: bool = True

    def to_json(self) -> dict[str, str]:
        """Returns the contract's reason object."""
        return {
            "rule": self.rule, "message": self.message, "found": self.found,
            "limit": self.limit, "source": self.source, "fix": self.fix,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one layer can run on a DLA.

    Attributes:
        layer: The layer's name.
        ok: Whether it can.
        certainty: "certain", or "disputed" where the sources are silent or disagree.
        reasons: Why it cannot; of a disputed yes, what speaks against it.
        precision: What a DLA computes it in ("fp16", "int8"); empty where it cannot.
        needs_gpu: The builder lets the DLA run it with a part on the GPU.
    """

    layer: str
    ok: bool
    certainty: str = "certain"
    reasons: tuple[Reason, ...] = ()
    precision: str = ""
    needs_gpu: bool = False

    @property
    def placeable(self) -> bool:
        """Whether a plan may place it on a DLA."""
        return self.ok and not self.needs_gpu

    def to_json(self) -> dict[str, Any]:
        """Returns the contract's ``dla`` object."""
        return {
            "ok": self.ok,
            "certainty": self.certainty,
            "reasons": [r.to_json() for r in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Pool sizes of one loadable in bytes, powers of two of at least 4 KiB."""

    managed_sram: int
    local_dram: int
    global_dram: int

    def to_json(self) -> dict[str, int]:
        """Returns the contract's ``memory`` object."""
        return {
            "managed_sram": self.managed_sram,
            "local_dram": self.local_dram,
            "global_dram": self.global_dram,
        }


@dataclass(frozen=True, slots=True)
class LoadableCandidate:
    """A maximal convex run of DLA-capable layers, in graph order.

    ``kept`` says whether it is a loadable; where it is none ``dropped`` is the rule that says why:
    "memory.loadables" where larger ones take all slots, or the memory limit that it breaks.
    """

    layers: tuple[str, ...]
    kept: bool
    dropped: str = ""


@dataclass(frozen=True, eq=False)
class Judgement:
    """The verdict of a whole network for a target, precision and TensorRT version.

    Attributes:
        verdicts: By layer name, in graph order.
        candidates: What TensorRT would group with automatic DLA placement.
        placed: "DLA" or "GPU" by layer name after the slot limit.
        slots: Loadables that a core holds with this TensorRT release.
        precisions: By layer name what it was judged in, where that is known by layer: "int8" or
            "fp16"; empty where the whole network was refused.
    """

    target: str
    precision: str
    tensorrt: str
    verdicts: Mapping[str, Verdict]
    candidates: tuple[LoadableCandidate, ...]
    placed: Mapping[str, str]
    slots: int = field(default_factory=loadables_per_core)
    precisions: Mapping[str, str] = field(default_factory=dict)

    def precision_of(self, layer: str) -> str:
        """Returns what a layer was judged in; what was asked for where nothing is known of it."""
        return self.precisions.get(layer, self.precision)
