"""What was asked of a placement, as one value: so that it can be asked again with a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.dla import Judgement
from edgekit.network import Network
from edgekit.placement._types import Options, Plan, Predicted
from edgekit.targets import Target

if TYPE_CHECKING:
    from edgekit.placement._place import Prepared

__all__ = ["UNITS", "Ask", "plan_value", "value_of"]

#: The unit of each objective's value.
UNITS = {
    "latency": "us", "throughput": "qps", "period": "us", "energy": "uj", "gpu_time": "us",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ask:
    """A network, its verdicts, a board and the user's options: all that ``place`` needs."""

    network: Network
    judgement: Judgement
    target: Target
    precision: str
    power_mode: str | None
    options: Options

    def plan(
        self,
        options: Options | None = None,
        progress: Callable[[int, int], None] | None = None,
        told: Callable[[float, float], None] | None = None,
    ) -> Plan:
        """Places the layers; with other options where they are given.

        Raises:
            UsageError, GateError: As ``place``, without the wishes that conflict.
        """
        from edgekit.placement._place import place

        return place(
            self.network, self.judgement, self.target, precision=self.precision,
            power_mode=self.power_mode, options=options or self.options, progress=progress,
            told=told,
            explains=False,
        )  # fmt: skip

    def prepared(self, beside: str = "") -> Prepared:
        """Returns the problem as the solver sees it; ``beside`` as ``prepare`` has it.

        Raises:
            UsageError, GateError: As ``place``.
        """
        from edgekit.placement._place import prepare

        return prepare(
            self.network, self.judgement, self.target, precision=self.precision,
            power_mode=self.power_mode, options=self.options, beside=beside,
        )  # fmt: skip

    def able(self, layer: str) -> Ask:
        """Returns the same with a layer that a DLA core may run, whatever its verdict."""
        verdicts = dict(self.judgement.verdicts)
        verdicts[layer] = replace(verdicts[layer], ok=True)
        return replace(self, judgement=replace(self.judgement, verdicts=verdicts))


def plan_value(plan: Plan) -> float:
    """Returns the value of a plan's objective: microseconds, microjoules or frames a second."""
    return value_of(plan.objective, plan.predicted)


def value_of(objective: str, predicted: Predicted) -> float:
    """Returns what a prediction is worth for an objective, in the objective's unit."""
    if objective == "period":
        return 1e6 / predicted.throughput_qps if predicted.throughput_qps else 0.0
    names = {"latency": "latency_us", "throughput": "throughput_qps", "energy": "energy_uj"}
    return float(getattr(predicted, names.get(objective, "gpu_us")))
