"""Functions of the commands that place layers, and answer questions about a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._api_open import open_pipeline

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.placement import Plan, Plans

__all__ = [
    "pareto", "plan", "plan_networks", "plan_of_log", "plan_table", "solve", "what_if", "why",
]  # fmt: skip


def plan(config: str | Path | Config, **options: Any) -> Plan:
    """Places every layer on GPU and DLA, as the configuration's ``placement`` asks.

    For example ``placement={"objective": "energy", "bounds": {"latency_us": 2000.0},
    "pin": [{"layers": "conv1", "device": "GPU"}], "profile": "profile.json"}``.

    Raises:
        GateError: No placement keeps what is asked; ``extra["conflict"]`` lists the smallest set
            of constraints that cannot hold together.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.plan()


def plan_networks(config: str | Path | Config, *, force: bool = False, **options: Any) -> Plans:
    """Places and schedules the networks of a configuration that has several (``model.networks``).

    Raises:
        UsageError: The configuration has one network; options that make no sense.
        GateError: Rates or deadlines that cannot be kept; ``extra["binding"]`` says by what.
    """
    from edgekit.config import open_config
    from edgekit.pipeline import plan_networks

    return plan_networks(open_config(config, **options), force=force)


def why(config: str | Path | Config, layer: str, **options: Any) -> dict[str, Any]:
    """Returns an ``edgekit.why/1``: why a layer (or an ONNX node) is where the plan has it."""
    with open_pipeline(config, options) as pipeline:
        return pipeline.why(layer)


def what_if(config: str | Path | Config, changes: str, **options: Any) -> dict[str, Any]:
    """Returns an ``edgekit.whatif/1``: the plan beside one with ``changes``.

    Changes are words such as "pin conv* GPU; mode 30W".
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.what_if(changes)


def pareto(
    config: str | Path | Config,
    first: str = "latency_us",
    second: str = "energy_uj",
    **options: Any,
) -> dict[str, Any]:
    """Returns an ``edgekit.pareto/1``: the front of two of latency_us, energy_uj, gpu_us and
    period_us.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.pareto(first, second)


def plan_table(
    config: str | Path | Config,
    *,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    objective: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Returns an ``edgekit.plan-table/1``: latency, throughput, energy by power mode and board.

    ``modes`` is a list of power modes or ["all"]. Each row is one plan: one for each of latency,
    throughput and energy, or one for ``objective``.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.table(modes=modes, targets=targets, objective=objective)


def plan_of_log(path: str | Path) -> dict[str, Any]:
    """Returns an ``edgekit.logplan/1``: the best formats by a verbose build log's own timings."""
    from edgekit.pipeline import plan_of_profile

    return plan_of_profile(Path(path))


def solve(problem: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ``edgekit.solution/1`` of an ``edgekit.problem/1``, a file or a document."""
    from edgekit.pipeline import solve_problem

    return solve_problem(Path(problem) if isinstance(problem, str) else problem)
