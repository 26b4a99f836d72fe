"""What is told of a step that was applied and proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._all import APPROXIMATE
from edgekit.rewrite._prove import RUNS, SEED
from edgekit.rewrite._types import Applied, names

if TYPE_CHECKING:
    from edgekit.rewrite._prove import Proof
    from edgekit.rewrite._types import Step

__all__ = ["entry_of"]


def entry_of(step: Step, proof: Proof, *, runs: int = RUNS, seed: int = SEED) -> Applied:
    """Returns the record's entry of a step; an approximate one has no error in float64."""
    exact = not step.rewrite.name.startswith(APPROXIMATE)
    return Applied(
        step.rewrite.name,
        step.rewrite.reason,
        step.anchor,
        names(step.old),
        names(step.new),
        proof.float32,
        proof.float64 if exact else None,
        runs,
        seed,
    )
