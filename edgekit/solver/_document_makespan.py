"""The makespan of a problem document: devices work side by side."""

from __future__ import annotations

from edgekit.errors import GateError
from edgekit.solver._document_answer import Times
from edgekit.solver._document_problem import Places
from edgekit.solver._document_read import Document
from edgekit.solver._problem import Placing, Problem

__all__ = ["side_by_side"]


def side_by_side(
    read: Document, problem: Problem, places: Places, seconds: float
) -> tuple[Placing | None, float, float, Times]:
    """Returns the placement, the proven bound, the makespan, and when everything runs."""
    raise GateError("the makespan is not there yet", code="plan.unsolved")
