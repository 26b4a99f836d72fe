"""A tuning's results: the ``edgekit.tune/1`` document, the learnt layer times, and ``tuned.yaml``,
the sections and pins that make a configuration plan like the winner.
"""

from __future__ import annotations

import glob
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import yaml
from pydantic import Field

from edgekit.config.loader import Config
from edgekit.config.schema import PinSection, PlacementSection, RewriteSection, given_keys
from edgekit.documents import (
    ClockName,
    Coded,
    Count,
    Device,
    DeviceKind,
    Document,
    Figure,
    Precision,
    Release,
)
from edgekit.errors import EdgekitError
from edgekit.pipeline.context import Context, variant
from edgekit.pipeline.steps.plan import keep_in_fp16, plan
from edgekit.pipeline.steps.rewrite import model_digest
from edgekit.placement.placing import Objective, Unit
from edgekit.placement.plan import Plan, PlanSummary, plan_summary, plan_value
from edgekit.placement.profiles.estimation import EXTRA
from edgekit.placement.profiles.profile import Contradiction, ProfileTable
from edgekit.tuning.candidates import SampledTimes, device_class, plan_signature
from edgekit.tuning.trials import (
    ORIGINAL,
    ORIGINAL_SECTION,
    REWRITTEN,
    UNITS,
    Duel,
    Trial,
    in_objective_unit,
    readable_value,
    rounded_value,
)

if TYPE_CHECKING:
    from edgekit.tuning.session import Tuning


CPU_NOTE = (
    "All times are from this CPU with the reference backend, which imitates the target's "
    "arithmetic, not its speed. They say nothing about the board and cannot be used to plan "
    "for one."
)
WORST = 8
_MANY_PINS = 200


class ExpectedCost(Document):
    """A plan's expected cost before its measurement, and the relative deviation.

    Attributes:
        relative_deviation: Standard deviation over the value.
    """

    value: Figure = Field(description="in the objective's unit")
    relative_deviation: Figure


class TriedPlan(Document):
    """A plan that was measured, or dropped; costs are in the objective's unit.

    Attributes:
        number: The plan's number in the tuning.
        predicted: The cost model's prediction.
        runs: Number of measurements.
        layers_on_dla: Number of layers on a DLA.
        loadables: Number of loadables.
        transitions: Changes between devices along the running order.
    """

    number: Count
    plan: str = Field(description="the difference from other plans")
    network: str | None
    origin: str = Field(description="start, other (network), gpu, dla or search")
    why: str
    status: Literal["measured", "dropped", "breaks a bound"]
    reason: str
    predicted: Figure
    expected: ExpectedCost | None
    measured: Figure | None = Field(description="the median of its runs")
    search: Figure | None = Field(None, description="the median of its runs in the search")
    final: Figure | None = Field(None, description="the median of its runs in the final turns")
    runs: Count
    verdicts: list[str]
    layers_on_dla: Count
    loadables: Count
    transitions: Count
    plans: Count = Field(description="that share the frames")


class LeastCost(Document):
    """A lower bound that no untried plan is likely to beat."""

    value: Figure = Field(description="in the objective's unit")
    meaning: str


class LearntSum(Document):
    """The time of layers on a device: predicted and learnt microseconds."""

    device: DeviceKind
    predicted_us: Figure
    learnt_us: Figure
    learnt_sd_us: Figure = Field(description="its standard deviation")
    factor: Figure = Field(description="learnt, or where it was measured measured, by predicted")


class LearntKind(LearntSum):
    """All layers of a kind on a device that are part of a measured sum.

    Attributes:
        layers: Number of layers.
    """

    kind: str
    layers: Count
    measured_us: Figure | None = Field(description="null: not each was measured by itself")


class LearntRow(LearntSum):
    """Layers that were measured as a sum."""

    layers: list[str]
    measured_us: Figure


class Learnt(Document):
    """The layer times that a tuning learnt.

    Attributes:
        transfer_factor: Learnt over predicted time of transfers.
        launch_factor: Learnt over predicted time of loadable launches.
    """

    devices: dict[DeviceKind, Figure] = Field(description="learnt by predicted time, by device")
    by_kind: list[LearntKind]
    worst: list[LearntRow] = Field(description="the sums that predictions miss most")
    frame_us: Figure = Field(description="of a frame beside its layers")
    transition_us: Figure
    transfer_factor: Figure
    launch_factor: Figure
    together_factor: Figure = Field(description="the cost of working at once")
    contradictions: list[Contradiction]
    rows: Count = Field(description="of the table of measured times")


class SideTimes(Document):
    """Microseconds on the device that layers leave, and on that to which they move.

    Attributes:
        from: Microseconds on the device that the layers leave.
        to: Microseconds on the device to which they move.
    """

    before: Figure = Field(alias="from")
    after: Figure = Field(alias="to")


class MovedLayers(Document):
    """Layers that the winner runs on another device than the starting plan."""

    layers: list[str]
    source: Device = Field(alias="from")
    goal: Device = Field(alias="to")
    us: SideTimes = Field(description="learnt")
    predicted_us: SideTimes
    why: str


class Tuned(Document):
    """A tuning's result. Costs are in ``unit``; predicted and measured values are kept apart."""

    schema_: Literal["edgekit.tune/1"] = Field(alias="schema")
    name: str
    objective: Objective
    unit: Unit
    clock: ClockName = Field(description="cpu-measured or board-measured")
    note: str
    board: str
    power_mode: str
    precision: Precision
    tensorrt: Release
    model: str
    backend: str
    network: str | None = Field(description="the winner's, where two were tried")
    networks: list[str]
    status: str = Field(description="converged, rounds, budget or interrupted")
    why: str
    seconds: Figure
    start: TriedPlan
    winner: TriedPlan
    changed: bool = Field(description="whether the winner is another plan than the first")
    proven: bool | None = Field(description="better beyond doubt; null: it did not change")
    turns: Duel | None
    bound: LeastCost | None
    plan: Annotated[PlanSummary, Coded()] = Field(description="the winner's")
    trials: list[TriedPlan]
    learnt: Learnt
    changes: list[MovedLayers]
    files: dict[str, str]
    notes: list[str]


def tune_document(tuning: Tuning, *, name: str, files: Mapping[str, str]) -> Tuned:
    """Returns the document of a finished tuning.

    ``turns.fraction`` compares costs: it is positive if the winner is better, for throughput too.
    """
    objective, winner, first = tuning.request.objective, tuning.winner, tuning.first
    clock = tuning.start_network.clock
    origin = tuning.measurement_conditions(winner.network)
    duel = _reported_duel(tuning)
    worlds, table = tuning.sampled_times(winner.network), tuning.table(winner.network)
    limit = winner.cost(objective)
    known = tuning.bound is not None and math.isfinite(tuning.bound)
    # 0 is no bound: some plan's uncertainty is as large as its cost
    bound = (min(tuning.bound or 0.0, limit) if known else 0.0) or None
    return Tuned(
        schema="edgekit.tune/1",
        name=name,
        objective=objective,
        unit=UNITS[objective],
        clock=clock,
        note=CPU_NOTE if clock == "cpu-measured" else "Measured on the board.",
        **{
            key: origin[key]
            for key in ("board", "power_mode", "precision", "tensorrt", "model", "backend")
        },
        network=winner.network or None,
        networks=[name for name in tuning.networks if name],
        status=tuning.status,
        why=tuning.why,
        seconds=round(tuning.seconds, 3),
        start=_trial(tuning, first),
        winner=_trial(tuning, winner),
        changed=winner is not first,
        proven=None if winner is first else bool(duel and duel.better),
        turns=duel,
        bound=None
        if bound is None
        else LeastCost(
            value=rounded_value(in_objective_unit(bound, objective)),
            meaning="no untried plan is likely to be better than this "
            + (
                "(from all measurements so far)"
                if tuning.status == "converged"
                else "(from the measurements before the last plan: the search was stopped)"
            ),
        ),
        plan=plan_summary(winner.plan),
        trials=[_trial(tuning, trial) for trial in tuning.trials],
        learnt=_learnt(worlds, table),
        changes=_changes(tuning, worlds),
        files=dict(files),
        notes=list(dict.fromkeys(tuning.notes)),
    )


def _reported_duel(tuning: Tuning) -> Duel | None:
    """Returns the turns' result, the medians in the objective's unit."""
    if tuning.duel is None:
        return None
    objective = tuning.request.objective
    medians = {"ours": tuning.duel.ours, "theirs": tuning.duel.theirs}
    return tuning.duel.model_copy(
        update={
            key: rounded_value(in_objective_unit(value, objective))
            for key, value in medians.items()
            if value is not None
        }
    )


def _trial(tuning: Tuning, trial: Trial) -> TriedPlan:
    objective = tuning.request.objective
    expected = trial.expected
    return TriedPlan(
        number=trial.number,
        plan=trial.key,
        network=trial.network or None,
        origin=trial.origin,
        why=trial.why,
        status="dropped" if trial.dropped else "breaks a bound" if trial.breaks else "measured",
        reason=trial.dropped or "; ".join(trial.breaks),
        predicted=rounded_value(plan_value(trial.plan)),
        expected=None
        if expected is None
        else ExpectedCost(
            value=rounded_value(in_objective_unit(expected[0], objective)),
            relative_deviation=rounded_value(expected[1] / expected[0] if expected[0] else 0.0),
        ),
        measured=_rounded_cost(trial.cost(objective) if trial.runs else None, objective),
        search=_rounded_cost(trial.search_cost(objective), objective),
        final=_rounded_cost(
            median(turns) if (turns := [*trial.turns(objective).values()]) else None, objective
        ),
        runs=len(trial.runs),
        verdicts=[verdict.status for run in trial.runs if (verdict := run.run.verdict)],
        layers_on_dla=sum(layer.device != "GPU" for layer in trial.plan.layers),
        loadables=len(trial.plan.loadables),
        transitions=trial.plan.transitions,
        plans=len(trial.plan.plans),
    )


def _rounded_cost(cost: float | None, objective: str) -> float | None:
    return None if cost is None else rounded_value(in_objective_unit(cost, objective))


@dataclass
class _Moves:
    """Layers of a run that move between the same devices, with sums of their times."""

    source: str
    goal: str
    layers: list[str] = field(default_factory=list)
    us: list[float] = field(default_factory=lambda: [0.0, 0.0])
    predicted_us: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def moved(self) -> MovedLayers:
        """Returns the document's row with the reason for the move."""
        (other, own), was = (
            [rounded_value(us) for us in times] for times in (self.us, self.predicted_us)
        )
        saving = (
            "they are faster there"
            if own < other
            else "it saves transitions or relieves the other device"
        )
        why = (
            f"predicted {readable_value(was[0])} on {self.source} and "
            f"{readable_value(was[1])} on {self.goal}; "
            f"learnt {readable_value(other)} and {readable_value(own)}: {saving}"
        )
        return MovedLayers(
            layers=self.layers,
            us=SideTimes(**{"from": other, "to": own}),
            predicted_us=SideTimes(**{"from": was[0], "to": was[1]}),
            why=why,
            **{"from": self.source, "to": self.goal},
        )


def _changes(tuning: Tuning, worlds: SampledTimes) -> list[MovedLayers]:
    """Returns the layers that moved, in runs, with their times on both devices.

    If the winner is of the other network, only layers of both networks count.
    """
    learnt, index = worlds.learnt, worlds.space.index
    times = learnt.times()
    before = {layer.name: layer.device for layer in tuning.first.plan.layers}
    found: list[_Moves] = []
    for layer in tuning.winner.plan.layers:
        old = before.get(layer.name)
        # a layer that exists only in the other network has not moved
        if old is None or old == layer.device:
            continue
        if not found or (found[-1].source, found[-1].goal) != (old, layer.device):
            found.append(_Moves(old, layer.device))
        last, i = found[-1], index[layer.name]
        last.layers.append(layer.name)
        for side, device in enumerate((old, layer.device)):
            name = device_class(device)
            last.us[side] += float(times[name][i])
            prior = float(learnt.prior_us[name][i])
            last.predicted_us[side] += prior if math.isfinite(prior) else 0.0
    return [moves.moved() for moves in found]


def _learnt(worlds: SampledTimes, table: ProfileTable) -> Learnt:
    """Returns predicted, learnt and measured times by kind and device, and the sums most off.

    Learnt times are the likeliest times: most layers are measured only in sums with others.
    """
    learnt, index = worlds.learnt, worlds.space.index
    rows = []
    for row in table.rows:
        if not all(name in index for name in row.layers):
            continue  # from a hand-written table
        times = _sum(worlds, row.device, [index[name] for name in row.layers])
        if times.predicted_us > 0 and row.us > 0:
            rows.append(
                LearntRow(
                    device=row.device,
                    layers=row.layers,
                    predicted_us=times.predicted_us,
                    learnt_us=times.learnt_us,
                    learnt_sd_us=times.learnt_sd_us,
                    factor=rounded_value(row.us / times.predicted_us),
                    measured_us=rounded_value(row.us),
                )
            )

    def log_error(row: LearntRow) -> float:
        # relative to the device's overall factor
        return abs(math.log(row.factor / learnt.scale[row.device])) if row.factor else 0.0

    extra = dict(zip(EXTRA, map(float, learnt.times()["extra"]), strict=True))
    return Learnt(
        devices={name: rounded_value(value) for name, value in learnt.scale.items()},
        by_kind=_kinds(worlds, table),
        worst=sorted(rows, key=log_error, reverse=True)[:WORST],
        frame_us=rounded_value(extra["frame"]),
        transition_us=rounded_value(extra["transition"]),
        transfer_factor=rounded_value(extra["transfer"]),
        launch_factor=rounded_value(extra["launch"]),
        together_factor=rounded_value(float(worlds.together[0])),
        contradictions=table.contradictions,
        rows=len(table.rows),
    )


def _kinds(worlds: SampledTimes, table: ProfileTable) -> list[LearntKind]:
    """Returns, by device and kind, the layers that are part of a measured sum."""
    layers = worlds.space.network.layers
    within = {(row.device, name) for row in table.rows for name in row.layers}
    alone = {(row.device, row.layers[0]): row.us for row in table.rows if len(row.layers) == 1}
    kinds: dict[tuple[str, str], list[int]] = {}
    for device, prior in worlds.learnt.prior_us.items():
        for i, layer in enumerate(layers):
            if (device, layer.name) in within and np.isfinite(prior[i]) and prior[i] > 0:
                kinds.setdefault((device, layer.kind), []).append(i)
    found = []
    for (device, kind), indices in sorted(kinds.items()):
        # a kind counts as measured only if each of its layers was measured by itself
        times = [alone.get((device, layers[i].name)) for i in indices]
        known = [us for us in times if us is not None]
        total = _sum(worlds, device, indices)
        found.append(
            LearntKind(
                device=device,
                kind=kind,
                layers=len(indices),
                predicted_us=total.predicted_us,
                learnt_us=total.learnt_us,
                learnt_sd_us=total.learnt_sd_us,
                factor=total.factor,
                measured_us=rounded_value(math.fsum(known)) if len(known) == len(times) else None,
            )
        )
    return found


def _sum(worlds: SampledTimes, device: str, indices: list[int]) -> LearntSum:
    """Returns a sum of layers: predicted, learnt, deviation and learnt / predicted."""
    predicted = float(np.nansum(worlds.learnt.prior_us[device][indices]))
    every = worlds.sums(worlds.learnt.row([(device, i) for i in indices]))
    us = float(every[0])
    return LearntSum(
        device=device,
        predicted_us=rounded_value(predicted),
        learnt_us=rounded_value(us),
        learnt_sd_us=rounded_value(float(np.std(every))),
        factor=rounded_value(us / predicted) if predicted > 0 else 0.0,
    )


def snippet(config: Config, tuning: Tuning, profile: Path, context: Context) -> str:
    """Returns ``tuned.yaml``: whole sections that can replace the configuration's own.

    They also fix the network: otherwise predictions decide about the rewrites, and decide
    differently with a profile.

    Args:
        config: The user's.
        tuning: A finished tuning.
        profile: The file of the winner's times, already written.
        context: The starting plan's; it re-plans with the written sections as a check.
    """
    winner, clock = tuning.winner, tuning.start_network.clock
    head = [
        f"# What edgekit tune found ({tuning.request.objective}, {clock}), for",
        f"# {config.path or config.file.name}",
        "# Not a complete configuration: in a copy of that one, replace",
        "# its sections of the same names with these.",
    ]
    rewrite = _network_section(config, winner.network)
    placement = config.file.placement.model_copy(update={"objective": tuning.request.objective})
    found = None
    # planning refuses a CPU's times as a profile: then there are only pins
    if clock == "board-measured":
        # layer_info belongs to the profile that this one replaces
        times = {"profile": str(profile.absolute()), "layer_info": None}
        found = _verified_placement(tuning, context, rewrite, placement.model_copy(update=times))
    if found is None:
        if len(winner.plan.plans) > 1:
            head.append(
                "# A mix of plans cannot be pinned: planning may give a slightly different plan."
            )
        elif len(pins := plan_pins(winner.plan)) > _MANY_PINS:
            head.append("# Too many layers to pin: planning may give a slightly different plan.")
        else:
            placement = placement.model_copy(update={"pin": pins})
            found = _verified_placement(tuning, context, rewrite, placement)
            if found is None:
                head.append(
                    "# With these pins planning gives a slightly different plan: compare them."
                )
    sections = {"rewrite": given_keys(rewrite)} if rewrite else {}
    sections["placement"] = given_keys(found or placement)
    return "\n".join([*head, yaml.safe_dump(sections, sort_keys=False)])


def _network_section(config: Config, network: str) -> RewriteSection | None:
    """Returns the section that fixes the network; None if there is only a single network."""
    if network == REWRITTEN:
        own: RewriteSection = config.file.rewrite
        return own.model_copy(update={"always": True})
    return ORIGINAL_SECTION if network == ORIGINAL else None


def _verified_placement(
    tuning: Tuning, context: Context, rewrite: RewriteSection | None, placement: PlacementSection
) -> PlacementSection | None:
    """Returns the placement if planning with both sections gives the winner and its network."""
    winner = tuning.winner
    network = tuning.networks[winner.network]
    try:
        again = variant(
            replace(context, explains=False),
            placement=given_keys(placement),
            rewrite=given_keys(rewrite) if rewrite else None,
        )
        # the gate's FP16 layers are a result of the first build, not of the configuration
        again = keep_in_fp16(again, getattr(network, "fp16_by_gate", ()))
        same = model_digest(again) == network.model
        return placement if same and plan_signature(plan(again)) == winner.key else None
    except EdgekitError:
        return None


def plan_pins(plan: Plan) -> list[PinSection]:
    """Returns pins that set every layer's device; a later pin takes precedence.

    The first pin puts all layers on the most used device; further pins move the others, by a prefix
    of their names if no layer of another device shares it.
    """
    device = {layer.name: layer.device for layer in plan.layers}
    # the GPU in a tie: it also runs layers that a changed network adds
    most = max(Counter(device.values()).items(), key=lambda item: (item[1], item[0] == "GPU"))[0]
    pins = [PinSection.model_validate({"layers": "*", "device": most})]
    for other in sorted(set(device.values()) - {most}):
        names = [name for name in device if device[name] == other]
        rest = [name for name in device if device[name] != other]
        pins += [
            PinSection.model_validate({"layers": words, "device": other})
            for words in _patterns(names, rest)
        ]
    return pins


def _patterns(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Returns few patterns that match all of these names and none of the others."""
    left, found = list(names), []
    while left:
        name = left[0]
        start = _unique_prefix(name, others)
        same = [other for other in left if start and other.startswith(start)]
        if len(same) > 1:
            # names of layers may contain [ and *
            found.append(glob.escape(start) + "*")
            left = [other for other in left if other not in same]
        else:
            found.append(glob.escape(name))
            left = left[1:]
    return found


def _unique_prefix(name: str, others: Sequence[str]) -> str:
    """Returns the shortest prefix of a name that none of the others has; empty if there is none."""
    for end in range(1, len(name) + 1):
        if not any(other.startswith(name[:end]) for other in others):
            return name[:end]
    return ""
