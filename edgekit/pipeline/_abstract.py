"""Plans without a network: of a problem's document, and of a profile alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit._listed import counted
from edgekit.pipeline._progress import Progress, Quiet, found_words
from edgekit.pipeline._steps import Steps

__all__ = ["plan_of_profile", "solve_problem"]

SECONDS = 60.0  # of search; what is not proved by then carries its gap


def solve_problem(
    problem: Path | Mapping[str, Any],
    progress: Progress | None = None,
    *,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Returns the ``edgekit.solution/1`` of an ``edgekit.problem/1``, a file or a document.

    Raises:
        DataError: The file is none.
        GateError: No placement keeps its constraints.
    """
    from edgekit.solver import read_document, solve_document

    steps = Steps(["solve"], progress or Quiet())
    with steps.step("solve") as step:

        def tell(value: float, bound: float) -> None:
            steps.progress.update(0, 0, found_words(value, bound))

        read = read_document(problem) if isinstance(problem, Path) else problem
        document = solve_document(read, seconds=seconds, progress=tell)
        proof = "optimal under the model" if document["optimal"] else f"gap {document['gap']:.2%}"
        step.detail = f"{document['objective']} {document['value']:.6g}, {proof}"
    return document


def plan_of_profile(
    path: Path, progress: Progress | None = None, *, layer_info: Path | None = None
) -> dict[str, Any]:
    """Returns what a builder's verbose log alone says of the best formats and devices.

    Raises:
        DataError: The file has no timings of alternatives.
    """
    from edgekit.placement import plan_of_log, read_profile

    steps = Steps(["profile", "plan"], progress or Quiet())
    with steps.step("profile") as step:
        profile = read_profile(path, layer_info=layer_info)
        step.detail = counted(len(profile.rows), "row")
    with steps.step("plan") as step:
        plan = plan_of_log(profile, seconds=SECONDS)
        step.detail = "optimal under the model" if plan.optimal else f"gap {plan.gap:.2%}"
    return plan.to_json()
