"""The reasons for a layer's device: its verdict, costs and binding constraints, and the effect of
another device; and the constraints that keep a whole network off the DLA.
Start with ``explain_layer``.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from edgekit.dla.verdicts import LayerVerdict
from edgekit.documents import (
    Coded,
    Count,
    Device,
    Document,
    Figure,
    Fraction,
    Number,
    Precision,
    TargetName,
    omitted,
)
from edgekit.errors import GateError, UsageError
from edgekit.network.layer_names import layers_matching, named_things, nearest_names
from edgekit.network.model import Layer, Model, Network
from edgekit.placement.assembly import gpu_best_note
from edgekit.placement.costs.model import CostModel
from edgekit.placement.costs.regions import FusedRegions
from edgekit.placement.forecast import DIGITS
from edgekit.placement.inputs import PinImpossible, usable_cores
from edgekit.placement.kernels import LayerKernel
from edgekit.placement.placing import (
    Objective,
    PlacementQuery,
    Unit,
    UserConstraint,
    UserConstraints,
)
from edgekit.placement.plan import (
    OBJECTIVE_UNITS,
    MovedLayer,
    Options,
    Pin,
    Plan,
    PredictedCost,
    SlackChoice,
    booked_layers,
    optimum_value,
    percent_change,
    plan_value,
)
from edgekit.placement.problem import BuiltProblem
from edgekit.solver.problem import OUTSIDE, Border
from edgekit.text import PYTORCH, counted, listed
from edgekit_device.protocol.codec import document

MOST = 1500  # maximum layers of a network for pinning each layer
SAME = 1e-9  # relative; smaller differences count as equal
OnProgress = Callable[[int, int], None]
_REASONS_WITHOUT_LAYER = {
    "constant": "it is computed from constants",
    "identity": "it passes its input on",
    "branch": "it is a branch whose condition is known",
    "function": "it is a call that was inlined",
    "given": "its values were given",
    "unused": "no output needs it",
}


class KernelCost(Document):
    """A kernel's time and energy on a device in a tensor format."""

    device: Device
    precision: Precision
    format: str
    us: Figure = Field(description="microseconds")
    uj: Figure = Field(description="microjoules, predicted")
    clock: Literal["measured", "predicted"]


class BorderCost(Document):
    """The time of conversions at one of a kernel's borders: microseconds, predicted."""

    tensor: str
    direction: Literal["reads", "writes"]
    neighbours: list[Device | Literal["PyTorch", "caller"]] = Field(
        description="devices on the other side, PyTorch for a left-out module, or the caller"
    )
    us: Figure = Field(description="where the kernel is")
    otherwise_us: Figure = Field(description="on the other device")


class Bind(Document):
    """A constraint without which the layer would move, or the objective gain."""

    kind: str
    text: str = Field(description="as the user wrote it")
    value: Figure | None = Field(description="the objective's without it; null: no plan")
    device: Device | None = Field(description="the layer's without it")
    moves: bool
    gains: bool


class MovedAlone(Document):
    """The effect of moving only this kernel; counts are differences.

    Attributes:
        difference: Change of the plan's objective, in the objective's unit.
        transitions: Additional changes between devices.
        loadables: Additional loadables.
        reformats: Additional reformats.
    """

    value: Figure = Field(description="the objective's")
    difference: Number
    percent: Number | None
    transitions: int
    loadables: int
    reformats: int


class Otherwise(Document):
    """The best plan with the kernel on the other device.

    Attributes:
        difference: Change of the plan's objective, in the objective's unit.
        transitions: Changes between devices.
        loadables: Number of loadables.
    """

    device: Device | None
    pinned: list[str] = Field(description="the kernel's layers")
    possible: bool
    reason: str = Field(description="why it is not possible")
    value: Figure | None = Field(description="the objective's")
    difference: Number | None
    percent: Number | None
    predicted: Annotated[PredictedCost, Coded()] | None
    transitions: Count | None = omitted()
    loadables: Count | None = omitted()
    moved: list[Annotated[MovedLayer, Coded()]]


class Why(Document):
    """The reasons for a layer's device; all is predicted unless a cost's ``clock`` differs."""

    schema_: Literal["edgekit.why/1"] = Field(alias="schema")
    layer: str
    nodes: list[str]
    kind: str
    target: TargetName
    power_mode: str
    precision: Precision
    objective: Objective
    value: Figure = Field(description="the plan's, in the unit")
    unit: Unit = Field(description="us, uj or qps")
    slack: Annotated[SlackChoice, Coded()] | None = None
    clock: Literal["predicted"]
    device: Device
    shares: dict[Device, Fraction] = Field(description="of the frames, by device")
    dla: Annotated[LayerVerdict, Coded()]
    kernel: list[str] = Field(description="layers that run as one with it")
    planned_us: Figure = Field(description="microseconds of the kernel in the plan")
    costs: list[KernelCost]
    launch_us: Figure | None = Field(description="of a loadable; null: no DLA core is used")
    borders: list[BorderCost]
    binds: list[Bind]
    alone: MovedAlone | None
    otherwise: Otherwise
    because: list[str] = Field(description="the reasons, the deciding one first")


def explain_layer(
    query: PlacementQuery, plan: Plan, name: str, progress: OnProgress | None = None
) -> Why:
    """Returns the reasons for a layer's place.

    Args:
        query: The network and the request.
        plan: The resulting plan.
        name: A layer or an ONNX node.
        progress: Called with (placements tried, total placements).

    Raises:
        UsageError: "layer.unknown": no layer or node has the name; the hint has the nearest name.
    """
    layer = find_layer(query.network, name)
    placed = next(row for row in plan.layers if row.name == layer.name)
    verdict = query.judgement.verdicts[layer.name]
    cores = usable_cores(query.options, query.target, query.precision)
    costing = _kernel_costs(query, plan)
    kernel = costing.find_kernel(layer.name)
    members = [query.network.layers[i].name for i in kernel.layers]
    other = "GPU" if placed.device != "GPU" else f"DLA{cores[0]}" if cores else ""
    blocked = _find_obstacle(query, members, other, cores)
    trials = PlacementTrials(query, plan, layer.name, members, progress)
    binds = trials.binding()
    found = Why(
        schema="edgekit.why/1",
        layer=layer.name,
        nodes=list(layer.nodes),
        kind=layer.kind,
        target=plan.target,
        power_mode=plan.power_mode,
        precision=plan.precision,
        objective=plan.objective,
        value=plan_value(plan),
        unit=OBJECTIVE_UNITS[plan.objective],
        slack=plan.slack,
        clock="predicted",
        device=placed.device,
        shares=_shares(plan, layer.name),
        dla=verdict,
        kernel=members,
        planned_us=sum(
            row.predicted_us
            for row in booked_layers(plan.plans[0], query.network)
            if row.name in members
        ),
        costs=costing.costs(kernel, "GPU")
        + [
            row
            for core in cores
            if verdict.placeable
            for row in costing.costs(kernel, f"DLA{core}")
        ],
        launch_us=costing.model.launch_us() if cores else None,
        borders=costing.borders(kernel, {x.name: x.device for x in plan.layers}, other)
        if other and verdict.placeable
        else [],
        binds=binds,
        alone=trials.alone(other, blocked),
        otherwise=trials.otherwise(other, blocked),
        because=[],
    )
    return found.model_copy(update={"because": _list_reasons(found, blocked)})


def find_layer(network: Network, name: str) -> Layer:
    """Returns the layer with a name, an ONNX node's name, or the only layer of a glob or module.

    Raises:
        UsageError: "layer.unknown": no layer matches; "layer.several": several layers match.
    """
    layers = network.layers
    # a node can have several layers, of which the layer with its name is meant first
    for fits in (lambda x: name == x.name, lambda x: name in x.nodes, lambda x: name in x.origin):
        found = next((layer for layer in layers if fits(layer)), None)
        if found is not None:
            return found
    matching = layers_matching(network, name)
    if len(matching) == 1:
        return network.layer(matching[0])
    if matching:
        raise UsageError(
            f"{name!r} names {len(matching)} layers, and the reasons are of one",
            code="layer.several",
            where=network.name,
            hint=f"name one of {listed(matching)}",
        )
    near = nearest_names(network, name)
    raise UsageError(
        f"there is no {named_things(network)} named {name!r}",
        code="layer.unknown",
        where=network.name,
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else "`edgekit check --by-layer` lists the layers",
    )


def resolve_layer(network: Network, model: Model, name: str) -> str:
    """Returns the layer of a name, which may be an ONNX node's that loading removed.

    Args:
        network: The layers.
        model: The original model.
        name: A layer's or an ONNX node's.

    Raises:
        UsageError: "layer.unknown": no layer or node has the name.
    """
    gone = model.folded.get(name)
    try:
        if gone is None:
            return find_layer(network, name).name
        writers = [x.name for x in network.layers if set(x.outputs) & set(gone.outputs)]
        return writers[0] if writers else find_layer(network, gone.after).name
    except UsageError as error:
        error.where = model.source
        if gone is not None:
            error.message = (
                f"no layer corresponds to the node {name!r}: {_REASONS_WITHOUT_LAYER[gone.reason]}"
            )
            error.hint = "`edgekit check --by-layer` lists the layers"
        raise


def _kernel_costs(query: PlacementQuery, plan: Plan) -> KernelCosts:
    prepared = query.prepared()
    request, own = prepared.request, plan.plans[0].predicted or plan.predicted
    others = (0.0,) * len(request.cores[1:])  # cores are alike
    # the watts that make up the plan's energy depend on its loads (CostModel.energy)
    gpu_us, latency_us = own.gpu_us or 0.0, own.latency_us or 0.0
    load_us = (gpu_us, latency_us - gpu_us, *others)[: len(request.devices)]
    _, watts = request.model.energy(request.devices, load_us)
    by_device = dict(zip(request.devices, watts, strict=True))
    return KernelCosts(query.network, request.model, prepared.built, request.regions, by_device)


def _shares(plan: Plan, layer: str) -> dict[str, float]:
    """Returns the share of frames by device: a mix of plans may have a layer on several."""
    found: Counter[str] = Counter()
    for part in plan.plans:
        found[next(x.device for x in part.layers if x.name == layer)] += part.share  # type: ignore[assignment]
    return {device: round(float(share), 9) for device, share in sorted(found.items())}


def _find_obstacle(
    query: PlacementQuery, members: list[str], other: str, cores: tuple[int, ...]
) -> str:
    """Returns the reason why the other device is impossible, or ""."""
    if not other:
        if not query.target.dla.cores:
            return f"{query.target.name} has no DLA"
        if query.precision == "fp32":
            return "FP32 does not run on a DLA"
        return "no DLA core is allowed (dla_cores none)" if not cores else ""
    if other == "GPU":
        return "" if query.options.gpu else "the plan is standalone, without the GPU"
    for name in members:
        verdict = query.judgement.verdicts[name]
        if not verdict.placeable:
            return verdict.reasons[0].message if verdict.reasons else "the DLA cannot run it"
    return ""


def _list_reasons(found: Why, blocked: str) -> list[str]:
    """Returns the reasons in sentences, the deciding one first."""
    sentences = []
    here, other = found.device, found.otherwise
    there = _device_text(other.device or "")
    if blocked:
        sentences.append(f"it has to be there: {blocked}")
    if found.slack and found.slack.given_up:
        sentences.append(
            f"of the plans within {100 * found.slack.allowed:g} % (placement.slack) of "
            f"the best {found.objective}, the one with the least "
            f"{found.slack.metric.partition('_')[0]} is chosen"
        )
    sentences += [
        f"{bind.text} keeps it there: without this limit it would be on {_device_text(bind.device)}"
        for bind in found.binds
        if bind.moves and bind.device and bind.kind not in ("verdict", "together")
    ]
    if other.difference is not None:
        worse = other.difference if found.objective != "throughput" else -other.difference
        figure = "" if other.percent is None else f" by {_digits(abs(other.percent))} %"
        if abs(worse) <= SAME * abs(found.value):
            sentences.append(
                f"the objective would be the same on the {other.device}; the placement with "
                "fewer transitions is chosen"
            )
        else:
            word = "worse" if worse > 0 else "better"
            sentences.append(f"on {there} {found.objective} would be {word}{figure} (predicted)")
    elif other.reason and not blocked:
        sentences.append(f"it cannot run on {there}: {other.reason}")
    # reversed, so that a device's first row stays: its best format
    best = {row.device: row for row in reversed(found.costs)}
    if len(best) > 1 and here in best:
        # by kind of device: DLA0 and DLA1 are no alternatives to each other
        rival = min((d for d in best if d[:3] != here[:3]), default="", key=lambda d: best[d].us)
        if rival:
            sentences.append(
                f"its kernel takes {best[here].us:,.4g} µs on {_device_text(here)} "
                f"({best[here].clock}) and {best[rival].us:,.4g} µs on {_device_text(rival)} "
                f"({best[rival].clock})"
            )
    if alone := found.alone:
        counts = [
            (alone.transitions, "transition"),
            (alone.loadables, "loadable"),
            (alone.reformats, "reformat"),
        ]
        more = ", ".join(
            f"{'-' if count < 0 else '+'}{counted(abs(count), name)}"
            for count, name in counts
            if count
        )
        sentences.append(
            f"moved alone to {there}: {found.objective} "
            f"{_digits(alone.percent or 0, '+')} % (predicted)" + (f"; {more}" if more else "")
        )
    paid = sum(row.us for row in found.borders)
    would = sum(row.otherwise_us for row in found.borders)
    if paid or would:
        sentences.append(
            f"reformats at its inputs and outputs take {paid:,.4g} µs here and would take "
            f"{would:,.4g} µs on {there} if its neighbours stay (predicted)"
        )
    return sentences


def _digits(value: float, sign: str = "") -> str:
    """Returns a number with three digits, or with all digits before the point if more."""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


def _device_text(device: str) -> str:
    return "the GPU" if device == "GPU" else device


@document(frozen=True)
class KernelCosts:
    """A network's kernels with their cost model.

    Attributes:
        network: The layers.
        model: Measured costs if known, else predicted costs.
        built: The solver's problem.
        regions: The parts that the GPU runs fused.
        watts: Watts by device that make up the plan's energy.
    """

    network: Network
    model: CostModel
    built: BuiltProblem
    regions: FusedRegions
    watts: Mapping[str, float]

    def find_kernel(self, layer: str) -> LayerKernel:
        """Returns a layer's kernel."""
        index = next(i for i, row in enumerate(self.network.layers) if row.name == layer)
        return next(kernel for kernel in self.built.kernels if index in kernel.layers)

    def costs(self, kernel: LayerKernel, device: str) -> list[KernelCost]:
        """Returns the kernel's time and energy on a device, by tensor format, its best first.

        ``clock`` is "measured" or "predicted" for the time; the energy is predicted.
        """
        network, model = self.network, self.model
        first = network.layers[kernel.layers[0]]
        known = model.measured.has_kernel(kernel, device)
        rows = []
        for form in model.formats(network, kernel, device):
            us = model.kernel_us(network, kernel, device, form)
            if device == "GPU":
                us = max(0.0, us - self.regions.saved(kernel))
            rows.append(
                KernelCost(
                    device=device,
                    precision=model.layer_precision(first, device),
                    format=form,
                    us=round(us, DIGITS),
                    uj=round(us * self.watts[device], DIGITS),
                    clock="measured" if known else "predicted",
                )
            )
        # a DLA core computes in one format only; the other formats are for its borders
        return rows if device == "GPU" else rows[:1]

    def borders(
        self, kernel: LayerKernel, devices: Mapping[str, str], other: str
    ) -> list[BorderCost]:
        """Returns the costs of conversions at the kernel's borders, on its device and on ``other``.

        Its neighbours keep their devices, and every kernel has its best format.

        Args:
            kernel: The kernel.
            devices: By layer, its device in the plan.
            other: The alternative device.
        """
        problem, kernels = self.built.problem, self.built.kernels
        own = kernels.index(kernel)
        # left-out modules exchange tensors like the GPU
        names = [devices.get(self.network.layers[k.layers[0]].name, PYTORCH) for k in kernels]
        here = [self._mode(v, "GPU" if name == PYTORCH else name) for v, name in enumerate(names)]
        there = [*here]
        there[own] = self._mode(own, other)
        rows = []
        for border, tensor in zip(problem.borders, self.built.tensors, strict=True):
            if own != border.producer and own not in border.consumers:
                continue
            writes = own == border.producer
            near = [*border.consumers] if writes else [border.producer]
            sides = [names[v] for v in near if v != OUTSIDE]
            sides += ["caller"] * (border.output if writes else border.producer == OUTSIDE)
            rows.append(
                BorderCost(
                    tensor=tensor,
                    direction="writes" if writes else "reads",
                    neighbours=list(dict.fromkeys(sides)),
                    us=round(self._paid(border, here), DIGITS),
                    otherwise_us=round(self._paid(border, there), DIGITS),
                )
            )
        return rows

    def _mode(self, node: int, device: str) -> int | None:
        """Returns the best mode of a node on a device."""
        problem = self.built.problem
        fitting = [
            (sum(cost.load_us), m)
            for m, cost in enumerate(problem.costs[node])
            if cost is not None and problem.devices[problem.device(m)] == device
        ]
        return min(fitting)[1] if fitting else None

    def _paid(self, border: Border, modes: Sequence[int | None]) -> float:
        outside = self.built.problem.outside
        source = outside if border.producer == OUTSIDE else modes[border.producer]
        users = [modes[v] for v in border.consumers] + [outside] * border.output
        pairs = {(source, user) for user in users}
        return sum(
            min(sum(way.load_us) for way in transfer.ways)
            for transfer in border.transfers
            if pairs & transfer.pairs
        )


class PlacementTrials:
    """Placements of the same request with changes, to find the deciding constraints."""

    def __init__(
        self,
        query: PlacementQuery,
        plan: Plan,
        layer: str,
        members: list[str],
        progress: OnProgress | None,
    ) -> None:
        self._query, self._plan, self._layer, self._members = query, plan, layer, members
        self._value = plan_value(plan)
        self._optimum = optimum_value(plan)
        self._constraints = UserConstraints(query)
        self._done = 0
        self._report = progress or (lambda done, total: None)

    def _place(self, options: Options, query: PlacementQuery | None = None) -> Plan:
        self._done += 1
        total = len(self._constraints.all) + 4
        self._report(min(self._done, total), total)
        return (query or self._query).plan(options)

    def binding(self) -> list[Bind]:
        """Returns the constraints without which the layer would move or the objective gain."""
        found = []
        verdict = self._query.judgement.verdicts[self._layer]
        cores = usable_cores(self._query.options, self._query.target, self._query.precision)
        # a pin overrides the verdict
        pinned = any(constraint.kind == "pin" for constraint in self._constraints.all)
        if not verdict.placeable and cores and self._query.options.gpu and not pinned:
            found.append(self._verdict())
        constraints = self._constraints.all
        if not constraints:
            return found
        # all constraints dropped: if the plan is the same, none of them binds
        free = self._effect(constraints[0], self._constraints.keep_only(frozenset()))
        if not free.moves and not free.gains:
            return found  # no constraint binds
        for constraint in constraints:
            effect = self._effect(constraint, self._constraints.without({constraint}))
            if effect.moves or effect.gains:
                found.append(effect)
        if not any(effect.moves for effect in found) and free.moves:
            # the constraints hold the layer only together
            together = {"kind": "together", "text": "several constraints together"}
            found.append(free.model_copy(update=together))
        return found

    def _verdict(self) -> Bind:
        """Returns the cost of the DLA's rules: the plan if the DLA could run this kernel."""
        query = self._query
        for name in self._members:
            query = query.allow_on_dla(name)
        rules = [r.rule for r in query.judgement.verdicts[self._layer].reasons]
        constraint = UserConstraint(
            "verdict", "", f"verdict: {', '.join(rules) or 'cannot run on a DLA'}"
        )
        return self._effect(constraint, self._query.options, query)

    def _effect(
        self, constraint: UserConstraint, options: Options, query: PlacementQuery | None = None
    ) -> Bind:
        kind, text = constraint.kind, constraint.text
        try:
            plan = self._place(options, query)
        except GateError:
            return Bind(kind=kind, text=text, value=None, device=None, moves=False, gains=False)
        value = plan_value(plan)
        device = next(x.device for x in plan.layers if x.name == self._layer)
        here = next(x.device for x in self._plan.layers if x.name == self._layer)
        change = optimum_value(plan) - self._optimum
        change *= 1 if self._plan.objective == "throughput" else -1
        # either value may be off by its gap to the bound
        tolerance = max(SAME, 2 * self._plan.gap, 2 * plan.gap) * abs(self._value)
        return Bind(
            kind=kind,
            text=text,
            value=value,
            device=device,
            moves=device[:3] != here[:3],
            gains=change > tolerance,
        )

    def alone(self, other: str, blocked: str) -> MovedAlone | None:
        """Returns the effect of moving only this kernel; None if impossible.

        This shows the transitions, launches and reformats that its device avoids.
        """
        plan = self._plan
        # a mix has no single placement to change
        if blocked or not other or len(plan.plans) > 1 or len(plan.layers) > MOST:
            return None
        pins = tuple(
            # a name may have characters of a glob
            Pin(glob.escape(x.name), other if x.name in self._members else x.device)
            for x in plan.layers
        )
        # the move itself is asked for, allowed or not
        options = replace(
            self._query.options, pins=pins, bounds={}, max_transitions=None, min_loadable_layers=1
        )
        try:
            moved = self._place(options)
        except GateError:
            return None
        value = plan_value(moved)
        return MovedAlone(
            value=value,
            difference=value - self._value,
            percent=percent_change(self._value, value),
            transitions=moved.transitions - plan.transitions,
            loadables=len(moved.loadables) - len(plan.loadables),
            reformats=len(moved.reformats) - len(plan.reformats),
        )

    def otherwise(self, other: str, blocked: str) -> Otherwise:
        """Returns the best plan's figures with the layer's kernel on the other device."""
        if blocked or not other:
            return self._impossible(other, blocked)
        device = "GPU" if other == "GPU" else "DLA"
        pins = tuple(Pin(glob.escape(name), device) for name in self._members)
        options = replace(self._query.options, pins=(*self._query.options.pins, *pins))
        try:
            plan = self._place(options)
        except PinImpossible as error:
            return self._impossible(other, error.why)
        except GateError as error:
            return self._impossible(other, error.message)
        was = {x.name: x.device for x in self._plan.layers}
        value = plan_value(plan)
        return Otherwise(
            device=other,
            pinned=self._members,
            possible=True,
            reason="",
            value=value,
            difference=value - self._value,
            percent=percent_change(self._value, value),
            predicted=plan.predicted,
            transitions=plan.transitions,
            loadables=len(plan.loadables),
            moved=[
                MovedLayer(x.name, was[x.name], x.device)
                for x in plan.layers
                if was[x.name] != x.device
            ],
        )

    def _impossible(self, other: str, reason: str) -> Otherwise:
        return Otherwise(
            device=other or None,
            pinned=self._members,
            possible=False,
            reason=reason,
            value=None,
            difference=None,
            percent=None,
            predicted=None,
            moved=[],
        )


def explain_gpu_only(
    query: PlacementQuery, plan: Plan, progress: Callable[[int, int], None] | None = None
) -> Plan:
    """Returns a plan with the constraints that keep it off the DLA, in ``kept_off`` and its notes.

    A plan is returned unchanged if it uses a DLA, if no layer of its network can run on the DLA, or
    if it would be the same without constraints.
    """
    if plan.dla_cores:
        return plan
    if not usable_cores(query.options, query.target, query.precision):
        return plan  # a note has the reason
    if not any(verdict.placeable for verdict in query.judgement.verdicts.values()):
        return plan
    constraints = UserConstraints(query)
    own = [
        constraint
        for constraint in constraints.all
        # a default cannot be advised against, and "no GPU" does not hold for a plan on the GPU
        if not constraint.default and constraint.kind != "gpu"
    ]
    report = progress or (lambda done, total: None)

    def without(*dropped: UserConstraint) -> Plan | None:
        try:
            other = query.plan(constraints.without(frozenset(dropped)))
        except GateError:
            return None
        return other if other.dla_cores else None

    if not own or (free := without(*own)) is None:
        return plan
    found = []
    for number, constraint in enumerate(own):
        report(number, len(own))
        other = without(constraint) if len(own) > 1 else free
        if other is not None:
            found.append((constraint.text, other))
    report(len(own), len(own))
    together = " and ".join(constraint.text for constraint in own)
    # without a single cause, all constraints together are the cause
    named = found or [(together, free)]
    notes = [note for note in plan.notes if note != gpu_best_note(query.options)]
    for text, other in named:
        keep, it = ("keeps", "it") if found else ("keep", "them")
        value = f"{plan_value(other):,.6g} {OBJECTIVE_UNITS[plan.objective]}"
        notes.append(
            f"{text} {keep} everything off the DLA: without {it} {plan.objective} would be {value} "
            f"instead of {plan_value(plan):,.6g} (predicted)"
        )
    return replace(plan, kept_off=tuple(text for text, _ in named), notes=tuple(notes))
