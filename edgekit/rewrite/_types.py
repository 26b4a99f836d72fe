"""The values of this floor: what a rewrite is and what was applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model

__all__ = ["Applied", "Match", "Rewrite"]


@dataclass(frozen=True, slots=True)
class Match:
    """A place where a rewrite applies: the ONNX nodes it would replace, in graph order."""

    nodes: tuple[str, ...]


class Rewrite(Protocol):
    """One rewrite, equal in real arithmetic.

    Attributes:
        name: For ``rewrite.enable`` and ``rewrite.disable``.
        reason: Why it helps, for people.
    """

    @property
    def name(self) -> str:
        """The rewrite's name."""

    @property
    def reason(self) -> str:
        """Why it helps."""

    def match(self, model: Model) -> list[Match]:
        """Returns the places in ``model`` where it applies."""

    def replace(self, model: Model, match: Match) -> list[onnx.NodeProto]:
        """Returns the nodes that take the place of ``match.nodes``, same inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A rewrite that was applied and proved.

    Attributes:
        rewrite: Its name.
        reason: Why it helps.
        nodes: ONNX nodes it touched.
        max_error: Largest ``max|a-b| / max|b|`` of the rewritten nodes' outputs in FP32.
        runs: Number of random inputs the proof ran on.
        seed: Their seed.
    """

    rewrite: str
    reason: str
    nodes: tuple[str, ...]
    max_error: float
    runs: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Returns the machine-readable record that travels with the bundle."""
        return {
            "rewrite": self.rewrite,
            "reason": self.reason,
            "nodes": list(self.nodes),
            "max_error": self.max_error,
            "runs": self.runs,
            "seed": self.seed,
        }
