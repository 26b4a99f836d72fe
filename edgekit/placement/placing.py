"""``place``: from a network and its verdicts to a plan. Also everything that places repeatedly: the
same request with a change (``PlacementQuery``), conflicts between the user's constraints, and the
exact trade-off of two metrics.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from edgekit.dla.rules import loadables_per_core
from edgekit.dla.verdicts import Judgement
from edgekit.documents import (
    Count,
    Device,
    Document,
    Figure,
    Precision,
    Ruled,
    TargetName,
    omitted,
)
from edgekit.error_document import StatedConstraint
from edgekit.errors import GateError
from edgekit.network.layer_names import layers_matching
from edgekit.network.model import Network
from edgekit.placement.assembly import assemble, baseline_costs, check_baselines
from edgekit.placement.baselines import Baseline, baselines
from edgekit.placement.costs.constants import device_constants
from edgekit.placement.costs.model import SUMS, CostModel
from edgekit.placement.few_loadables import Placed, reduce_loadables
from edgekit.placement.inputs import PlacementInputs, check_options, make_inputs
from edgekit.placement.plan import (
    SECOND_METRICS,
    Options,
    Pin,
    Plan,
    bounded,
    has_known_time,
    objectives,
    plan_value,
    units,
)
from edgekit.placement.problem import BuiltProblem, build_problem, with_engine_contention
from edgekit.placement.profiles.estimation import measured_model
from edgekit.placement.search import (
    SAME,
    PlanShare,
    Solved,
    fixed_uj,
    is_better,
    limit_cores,
    objective_value,
    optimise_second,
    search,
    solver_bounds,
)
from edgekit.solver.optimiser import (
    APART,
    OBJECTIVE_OF_METRIC,
    ParetoFront,
    ParetoPoint,
    pareto,
    smallest_conflict,
)
from edgekit.solver.problem import OPTIMAL_GAP, PlacementProblem, Placing, metrics
from edgekit.targets.board import Target
from edgekit_device.protocol.codec import write

OnProgress = Callable[[int, int], None]
Objective = Annotated[str, Ruled(objectives)]
Unit = Annotated[str, Ruled(units)]
_UNDECIDED = "plan.limit"  # no placement was found, and none was ruled out
MOST_POINTS = 25


@dataclass(frozen=True)
class Prepared:
    """A request prepared for the solver, and the conversion of its answer to a plan."""

    request: PlacementInputs

    @cached_property
    def built(self) -> BuiltProblem:
        """The problem and the meaning of its indices."""
        return build_problem(self.request)

    @cached_property
    def baselines(self) -> dict[str, Baseline | None]:
        """The baselines of every plan."""
        value = partial(objective_value, self.request.options.objective)
        return baselines(self.request, value)

    @property
    def problem(self) -> PlacementProblem:
        """The problem for ``edgekit.solver``."""
        return self.built.problem

    def plan(self, placing: Placing, bound: float) -> Plan:
        """Returns the plan of a placement of :attr:`problem` whose value is at least ``bound``."""
        solved = Solved((PlanShare(1.0, placing),), placing.value, bound)
        return assemble(self.request, self.built, solved, self.baselines)


def prepare(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    precision: str,
    power_mode: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
    concurrent: str = "",
) -> Prepared:
    """Returns the problem that :func:`place` solves; arguments and errors are the same.

    ``concurrent`` names the sum that the solver uses as energy: a placement's energy is the smaller
    of two sums (``CostModel.energy``). The plan always has the smaller sum.
    """
    check_options(options, target)
    mode = target.mode(power_mode)
    fp16, power = options.fp16_layers, ""
    if precision == "int8":
        # layers without a scale, as in the verdicts and `check`
        fp16 |= {name for name, own in judgement.precisions.items() if own == "fp16"}
        # watts are known by build: without any INT8 layer it draws the power of FP16
        power = "fp16" if all(layer.name in fp16 for layer in network.layers) else ""
    able = {name: verdict.placeable for name, verdict in judgement.verdicts.items()}
    predicts = CostModel(
        target,
        mode,
        precision,
        fp16,
        device_constants(),
        power,
        concurrent,
        rate_hz=options.rate_hz,
    )
    model = measured_model(predicts, options.profile, network, able)
    return Prepared(make_inputs(network, judgement, model, options))


def place(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    precision: str,
    power_mode: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
    progress: OnProgress | None = None,
    on_bound: Callable[[float, float], None] | None = None,
    explains: bool = True,
) -> Plan:
    """Chooses each layer's device and the formats at borders, optimally under the cost model.

    Args:
        network: The layer graph.
        judgement: Verdicts for the same network, target and precision.
        target: The board.
        precision: "int8", "fp16" or "fp32"; FP32 runs on the GPU only.
        power_mode: NVIDIA's name; None is the board's MAXN or default mode.
        options: Objective, bounds, cores, pins, limits of loadables.
        progress: Called with (steps done, total steps).
        on_bound: Called with the best value so far and the proven bound during a long search.
        explains: True to report an impossible placement with the smallest set of conflicting
            constraints, which takes further placements.

    Returns:
        The plan. Its ``bound`` is in the objective's unit: microseconds, microjoules, or frames
        a second for throughput, which it bounds from above. For a mix of plans ``predicted`` has
        the longest latency of any frame and the mean energy and GPU time of a frame.

    Raises:
        UsageError: Invalid options, or a pin that matches no layer.
        DataError: The profile belongs to another board, precision or model.
        GateError: "plan.impossible" (standalone, but layers do not fit the DLA),
            "plan.infeasible" (no placement meets pins, bounds or limits) or "plan.limit" (the
            search ended before a plan was found or ruled out).
    """
    if explains:
        query = PlacementQuery(network, judgement, target, precision, power_mode, options)
        try:
            return query.plan(progress=progress, on_bound=on_bound)
        except GateError as error:
            explain_conflict(query, error)
            raise
    report = progress or (lambda done, total: None)
    shared = energy_sums(options)
    compared: Mapping[str, Baseline | None] = {}
    found, refused, proven = list[Placed](), list[GateError](), list[float]()
    for cores, engines, concurrent in product(
        core_counts(options), engine_kinds(options, judgement), shared
    ):
        prepared = prepare(
            network,
            judgement,
            target,
            precision=precision,
            power_mode=power_mode,
            options=engines,
            concurrent=concurrent,
        )
        request = prepared.request
        if not compared:
            # equal for every number of cores and every sum
            compared = prepared.baselines
            report(1, 3)
        try:
            built, solved, notes = search(
                request, prepared.built, prepared.baselines, on_bound, cores=cores
            )
        except GateError as error:
            # another number of cores or sum can still have a plan
            refused.append(error)
            continue
        fixed = fixed_uj(request, cores)
        proven.append(solved.bound + (fixed if options.objective == "energy" else 0.0))
        if options.objective not in ("throughput", "latency"):
            first = solved.parts[0].placing
            energy_uj, _ = request.model.energy(built.problem.devices, first.load_us)
            # compared by the plan's cost with the contention of its engines
            problem = with_engine_contention(request, built.problem, first.modes)
            value = objective_value(options.objective, problem, first.load_us, energy_uj)
            solved = replace(solved, value=value)
        # a mix found without a sum gives only the bound (energy_sums)
        if concurrent or len(shared) == 1:
            found.append((replace(request, options=options), built, solved, notes, cores))
        # on the GPU alone the other problems are the same
        if not request.cores:
            break
    limits = [error for error in refused if error.code != "plan.infeasible"]
    if not found:
        # a search without an answer comes first: another problem's "infeasible" is no proof
        raise (limits or refused)[0]
    request, built, solved, notes, _ = _best_placed(found)
    # the best plan can be in any of the problems
    bound = max(proven) if options.objective == "throughput" else min(proven)
    if limits:  # a sum whose search hit a limit has no proof
        bound = math.inf if options.objective == "throughput" else 0.0
    solved = replace(solved, bound=bound)
    report(2, 3)
    optimum = assemble(request, built, solved, compared, notes)
    plan = _choose_within_slack(optimum, found, compared)
    plan = reduce_loadables(optimum, plan, found, compared)
    report(3, 3)
    return plan


def _best_placed(found: Sequence[Placed]) -> Placed:
    best = found[0]
    for other in found[1:]:
        if is_better(best[0].options, other[2].value, best[2].value):
            best = other
    return best


def _choose_within_slack(
    optimum: Plan, found: Sequence[Placed], compared: Mapping[str, Baseline | None]
) -> Plan:
    """Returns the plan within the slack with the smallest second figure.

    Ties go to the plan with the fewest device changes. Returns the optimum if no plan is better.
    """
    slack = found[0][0].options.slack
    if not slack or not plan_value(optimum):
        return optimum
    best, metric = optimum, SECOND_METRICS[optimum.objective]
    most = plan_value(optimum) * (1 + slack)
    for request, built, solved, notes, cores in found:
        other = optimise_second(request, built, solved, most, cores)
        if other is None:
            continue
        plan = assemble(request, built, other, compared, notes, optimum)
        assert plan.slack is not None
        if plan.slack.given_up > slack * (1 + APART):
            continue  # its engines slow each other down
        ours, theirs = (getattr(candidate.predicted, metric) or 0.0 for candidate in (plan, best))
        if ours < theirs * (1 - SAME) or (
            ours <= theirs * (1 + SAME) and plan.transitions < best.transitions
        ):
            best = plan
    return best


def core_counts(options: Options) -> tuple[int, ...]:
    """Returns the numbers of DLA cores to solve a placement for.

    At a given frame rate a core in use also draws energy between frames. If the energy counts, the
    best placement is therefore the best over all numbers of cores.
    """
    most = len(set(options.dla_cores))
    energy = options.objective == "energy" or "energy_uj" in options.bounds
    if options.rate_hz is None or not energy or options.objective == "throughput":
        return (most,)
    # without the GPU at least one core
    return tuple(range(most, 0 if not options.gpu else -1, -1))


def energy_sums(options: Options) -> tuple[str, ...]:
    """Returns the values of ``CostModel.concurrent`` to solve a placement for.

    The energy is the smaller of two sums, so a placement that is best, or within a bound, is so by
    one of the sums: the best placement is the better of two. Plans of a mix can keep a bound by
    either sum; mixes are bounded by the problem with less energy than both, which comes last.
    """
    if options.rate_hz is not None:
        return ("",)  # at a rate, devices share no energy
    if not options.gpu or (options.objective != "energy" and "energy_uj" not in options.bounds):
        return ("",)  # a single core shares no energy
    return (*SUMS, "") if options.objective == "throughput" else SUMS


def engine_kinds(options: Options, judgement: Judgement) -> tuple[Options, ...]:
    """Returns the options to solve a placement for.

    If the period counts: a hybrid engine is slower beside a busy GPU than an engine on one device,
    so the best placement is the better of two, the best hybrid engine and the best placement
    without a device change.
    """
    period = options.objective in ("throughput", "period") or "period_us" in options.bounds
    whole = all(verdict.placeable for verdict in judgement.verdicts.values())
    if not (period and whole and options.gpu) or options.split or options.max_transitions == 0:
        return (options,)
    return options, replace(options, max_transitions=0)


@dataclass(frozen=True, eq=False)
class PlacementQuery:
    """The arguments of ``place``: a network, its verdicts, a board and the user's options."""

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
        on_bound: Callable[[float, float], None] | None = None,
    ) -> Plan:
        """Places the layers, with ``options`` instead of the query's if given.

        Raises:
            UsageError, GateError: As ``place``, without the conflicting constraints.
        """
        return place(
            self.network,
            self.judgement,
            self.target,
            precision=self.precision,
            power_mode=self.power_mode,
            options=options or self.options,
            progress=progress,
            on_bound=on_bound,
            explains=False,
        )

    def prepared(self, concurrent: str = "") -> Prepared:
        """Returns the problem for the solver; ``concurrent`` as in ``prepare``.

        Raises:
            UsageError, GateError: As ``place``.
        """
        return prepare(
            self.network,
            self.judgement,
            self.target,
            precision=self.precision,
            power_mode=self.power_mode,
            options=self.options,
            concurrent=concurrent,
        )

    def compared(self, plan: Plan) -> Plan:
        """Returns a plan of this network's rewritten form, compared with this network's baselines.

        The rewritten network's baselines become the plan's ``baselines_rewritten``.

        Raises:
            DataError: The profile belongs to another model.
        """
        free = replace(self, options=replace(self.options, gpu=True, pins=()))
        prepared = free.prepared(energy_sums(self.options)[0])
        keep = dict[str, bool | None]()
        if self.options.gpu and not self.options.pins:  # pins name layers of the rewritten network
            keep = check_baselines(prepared.request, prepared.problem, prepared.baselines)
        untimed = (*plan.unknown_cost, *(layer.name for layer in plan.left))
        return replace(
            plan,
            baselines=baseline_costs(prepared.request, prepared.baselines, untimed),
            baselines_keep=keep,
            baselines_rewritten=plan.baselines,
        )

    def allow_on_dla(self, layer: str) -> PlacementQuery:
        """Returns the query with a layer allowed on a DLA core, whatever its verdict."""
        verdicts = dict(self.judgement.verdicts)
        verdicts[layer] = replace(verdicts[layer], ok=True)
        return replace(self, judgement=replace(self.judgement, verdicts=verdicts))


@dataclass(frozen=True, slots=True)
class UserConstraint:
    """One constraint, as the user wrote it.

    Attributes:
        kind: pin, bound, cores, gpu, max_loadables, pool, max_transitions, min_loadable_layers.
        key: The pin's index in the list, or the name of the bound or the pool.
        text: The constraint for messages.
        default: True if the user did not set it.
        why: The obstacle: the layer that cannot have the pin's device, and the rule.
        rule: The rule's text alone.
        layers: Names of the layers that a pin holds.
    """

    kind: str
    key: int | str
    text: str
    default: bool = False
    why: str = ""
    rule: str = ""
    layers: tuple[str, ...] = ()


class UserConstraints:
    """The constraints of a request; each can be dropped."""

    def __init__(self, query: PlacementQuery) -> None:
        self.query = query
        self.all = (*self._pin_constraints, *self._other_constraints())

    @cached_property
    def _held_layers(self) -> list[list[str] | None]:
        """By pin, the layers that no later pin takes; None if all that it names."""
        pins = self.query.options.pins
        held: list[list[str] | None] = []
        taken: set[str] = set()
        for pin in reversed(pins):
            named = layers_matching(self.query.network, pin.layers)
            retained = [name for name in named if name not in taken]
            held.append(None if len(retained) == len(named) else retained)
            taken.update(named)
        return held[::-1]

    @cached_property
    def _pin_constraints(self) -> tuple[UserConstraint, ...]:
        verdicts = self.query.judgement.verdicts
        found = []
        for number, pin in enumerate(self.query.options.pins):
            held = self._held_layers[number]
            # later pins hold all its layers
            if held == []:
                continue
            layers = tuple(held or layers_matching(self.query.network, pin.layers))
            refused = [
                (name, verdict.reasons[0].message)
                for name, verdict in verdicts.items()
                if pin.device != "GPU"
                and not verdict.placeable
                and verdict.reasons
                and name in layers
            ]
            text = f"pin {pin.layers}={pin.device}"
            name, rule = refused[0] if refused else ("", "")
            why = f"{name}: {rule}" if rule else ""
            found.append(UserConstraint("pin", number, text, why=why, rule=rule, layers=layers))
        return tuple(found)

    def _other_constraints(self) -> list[UserConstraint]:
        options = self.query.options
        period = None if options.rate_hz is None else 1e6 / options.rate_hz
        found = [
            UserConstraint("bound", name, f"rate_hz {options.rate_hz:.10g}")
            # a rate is a bound on the period, which the user did not write
            if name == "period_us" and limit == period
            else UserConstraint("bound", name, f"bound {name}={limit:.10g}")
            for name, limit in options.bounds.items()
        ]
        if not options.gpu:
            found.append(UserConstraint("gpu", "", "no GPU (--no-gpu, or build.mode standalone)"))
        for name, limit in (options.pools or {}).items():
            found.append(UserConstraint("pool", name, f"pool {name}={_byte_text(limit)}"))
        if options.max_transitions is not None:
            found.append(
                UserConstraint("max_transitions", "", f"max_transitions {options.max_transitions}")
            )
        if options.min_loadable_layers > 1:
            text = f"min_loadable_layers {options.min_loadable_layers}"
            found.append(UserConstraint("min_loadable_layers", "", text))
        if self.query.precision != "fp32":
            found += self._core_constraints()
        return found

    def _core_constraints(self) -> list[UserConstraint]:
        options, count = self.query.options, self.query.target.dla.cores
        found = []
        if count and len(set(options.dla_cores)) < count:
            usual = options.dla_cores == (0,) and not options.cores_why
            text = f"dla_cores {','.join(map(str, options.dla_cores)) or 'none'}"
            if usual:
                text = "one DLA core (the default)"
            elif options.cores_why:
                text = "one DLA core"
            found.append(UserConstraint("cores", "", text, default=usual, why=options.cores_why))
        if count and options.dla_cores:
            slots = options.max_loadables
            # the core's own limit is no wish of the user's
            usual = slots >= min(loadables_per_core(), self.query.judgement.slots)
            text = f"{slots} loadables a core" if usual else f"max_loadables {slots}"
            found.append(UserConstraint("max_loadables", "", text, default=usual))
        return found

    def keep_only(self, retained: Set[UserConstraint]) -> Options:
        """Returns the options with only these constraints."""
        return self.without(frozenset(self.all) - retained)

    def without(self, dropped: Set[UserConstraint]) -> Options:
        """Returns the options without some constraints."""
        options = self.query.options
        gone = {(constraint.kind, constraint.key) for constraint in dropped}
        pins: list[Pin] = []
        for number, pin in enumerate(options.pins):
            if ("pin", number) in gone:
                continue
            held = self._held_layers[number]
            # without a later pin, an earlier one must not get the layers that the later one held
            exact = [Pin(glob.escape(name), pin.device) for name in held or ()]
            pins += [pin] if held is None else exact
        bounds = {k: v for k, v in options.bounds.items() if ("bound", k) not in gone}
        options = replace(options, pins=tuple(pins), bounds=bounds)
        if options.pools:
            pools = {k: v for k, v in options.pools.items() if ("pool", k) not in gone}
            options = replace(options, pools=pools)
        kinds = {constraint.kind for constraint in dropped}
        if "gpu" in kinds:
            options = replace(options, gpu=True)
        if "cores" in kinds:
            cores = tuple(range(self.query.target.dla.cores))
            options = replace(options, dla_cores=cores, cores_why="")
        if "max_loadables" in kinds:
            most = max(1, len(self.query.network.layers))
            # each layer can have a loadable, so this is no limit
            options = replace(options, max_loadables=most)
        if "max_transitions" in kinds:
            options = replace(options, max_transitions=None)
        if "min_loadable_layers" in kinds:
            options = replace(options, min_loadable_layers=1)
        return options


@dataclass(frozen=True, slots=True)
class Conflict:
    """Constraints that cannot hold together.

    Attributes:
        constraints: The conflicting constraints; if any is dropped, the others can hold.
        smallest: True if no smaller set conflicts; False if trying all sets took too long.
        best: By bound in the conflict, the best value that the other constraints allow.
    """

    constraints: tuple[UserConstraint, ...]
    smallest: bool
    best: dict[str, float]

    @property
    def speed_helps(self) -> bool:
        """True if more speed could resolve the conflict: it has no bound on energy."""
        kinds = {constraint.kind for constraint in self.constraints}
        return "bound" in kinds and not any(
            constraint.key == "energy_uj" for constraint in self.constraints
        )

    def text(self, known: str = "") -> str:
        """Returns a sentence for messages, without reasons that ``known`` already contains."""
        listing = " and ".join(
            f"{constraint.text} ({constraint.why})"
            if constraint.why and not (constraint.rule and constraint.rule in known)
            else constraint.text
            for constraint in self.constraints
        )
        if len(self.constraints) == 1:
            sentence = f"{listing} cannot be met"
        else:
            few = "the conflicting constraints" if self.smallest else "constraints"
            sentence = f"{listing} cannot be met together ({few})"
        for name, value in self.best.items():
            rest = " with the others" if len(self.constraints) > 1 else ""
            sentence += f"; {name} is {value:,.6g} at best{rest} (predicted)"
        return sentence

    def is_about(self, error: GateError) -> bool:
        """Returns True if an error already names one of these constraints in more detail."""
        if error.code == "plan.impossible":
            return any(constraint.kind == "gpu" for constraint in self.constraints)
        return any(
            constraint.kind == "pin" and error.where in constraint.layers
            for constraint in self.constraints
        )


def find_conflict(
    query: PlacementQuery, progress: Callable[[int, int], None] | None = None
) -> Conflict | None:
    """Returns the smallest set of constraints that cannot hold together; None if all can.

    Also None if board and network have no placement even without constraints.
    """
    constraints = UserConstraints(query)
    report = progress or (lambda done, total: None)
    count, steps = 0, len(constraints.all) + 2

    def fails(retained: Iterable[UserConstraint]) -> bool:
        nonlocal count
        count += 1
        report(min(count, steps), steps)
        try:
            # without slack: only the existence of a plan counts
            query.plan(replace(constraints.keep_only(frozenset(retained)), slack=0.0))
        except GateError as error:
            if error.code == _UNDECIDED:
                raise
            return True
        return False

    # defaults are dropped first, so that the user's own settings remain
    ordered = sorted(constraints.all, key=lambda constraint: not constraint.default)
    try:
        # without constraints the board or the network itself is the reason
        if not fails(ordered) or fails(()):
            return None
        core, smallest = smallest_conflict(ordered, fails)
    except GateError:  # the solver's limits ended the search: conflicts are undecided
        return None
    found = [constraint for constraint in constraints.all if constraint in core]
    return Conflict(tuple(found), smallest, _best_bounds(constraints, found))


def _byte_text(size: int) -> str:
    """Returns bytes in the notation of a configuration."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _best_bounds(constraints: UserConstraints, found: list[UserConstraint]) -> dict[str, float]:
    """Returns, by bound, its smallest possible value if the other conflicting constraints hold."""
    best = {}
    for constraint in found:
        if constraint.kind != "bound" or str(constraint.key) not in OBJECTIVE_OF_METRIC:
            continue
        retained = constraints.keep_only(frozenset(found) - {constraint})
        objective = OBJECTIVE_OF_METRIC[str(constraint.key)]
        options = replace(retained, objective=objective, slack=0.0)
        try:
            best[str(constraint.key)] = plan_value(constraints.query.plan(options))
        except GateError:
            continue
    return best


def explain_conflict(
    query: PlacementQuery, error: GateError, progress: Callable[[int, int], None] | None = None
) -> None:
    """Adds the conflicting constraints to an error of ``place``: in its text and as "conflict".

    The conflict replaces the error's message, unless the message already names a constraint.
    """
    if error.code == _UNDECIDED:
        return
    conflict = find_conflict(query, progress)
    if conflict is None:
        return
    error.extra["conflict"] = [
        write(StatedConstraint(constraint.kind, constraint.text, constraint.why))
        for constraint in conflict.constraints
    ]
    kinds = [constraint.kind for constraint in conflict.constraints]
    if kinds == ["gpu"] and conflict.is_about(error):
        return  # its message has the hint
    ease = "relax it" if len(kinds) == 1 else "relax one constraint"
    if conflict.speed_helps:
        ease += ", or choose a faster power mode"
    if conflict.is_about(error):
        error.hint = f"{conflict.text(error.message)}; {ease}"
        return
    bounds = [constraint for constraint in conflict.constraints if constraint.kind == "bound"]
    error.code = "plan.infeasible"
    error.where = f"bounds.{bounds[0].key}" if len(bounds) == 1 else ""
    error.message = conflict.text()
    # str() of an exception shows its arguments
    error.args = (error.message,)
    error.hint = ease


class PlanProof(Document):
    """The proof of a plan's optimality.

    Attributes:
        loadables: Number of loadables.
        transitions: Changes between devices along the running order.
    """

    optimal: bool = Field(description="proved, for predicted times")
    bound: Figure = Field(description="proved bound: no plan has a better value")
    gap: Figure = Field(description="distance from the bound, as a share of the value")
    extrapolated: list[str] = Field(description="predicted without a published time of its kind")
    unknown_cost: list[str] = Field(description="layers in no time")
    loadables: Count
    transitions: Count


class ParetoPlan(PlanProof):
    """A plan of the front; figures are null if no layer has a known time.

    Attributes:
        dla_layers: Number of layers on a DLA.
    """

    latency_us: Figure | None
    throughput_qps: Figure | None = Field(description="frames a second")
    energy_uj: Figure | None
    gpu_us: Figure | None
    period_us: Figure | None = omitted()
    dla_layers: Count
    layers: dict[str, Device] = Field(description="device, by layer")

    def figures(self) -> dict[str, float | None]:
        """Returns the point's figures, by key."""
        keys = ("latency_us", "throughput_qps", "energy_uj", "gpu_us", "period_us")
        return {key: getattr(self, key) for key in keys if key in self.model_fields_set}


class Pareto(Document):
    """The Pareto front of two metrics; all values are predicted.

    Attributes:
        bounds: Maximum of each figure, in its unit.
    """

    schema_: Literal["edgekit.pareto/1"] = Field(alias="schema")
    clock: Literal["predicted"]
    target: TargetName
    power_mode: str
    precision: Precision
    metrics: list[str] = Field(description="the two")
    rate_hz: Figure | None = Field(description="that energies are of; null: back to back")
    bounds: dict[Annotated[str, Ruled(bounded)], Figure]
    complete: bool = Field(description="whether these are all")
    resolution: list[Figure] = Field(
        description="how far apart neighbours are at most, as shares of the metrics' ranges"
    )
    note: str
    points: list[ParetoPlan]


def pareto_front(
    query: PlacementQuery,
    first: str,
    second: str,
    progress: Callable[[int, int], None] | None = None,
) -> Pareto:
    """Returns the placements that no other placement beats in both metrics.

    Args:
        query: The request; its objective is ignored, its bounds hold for every point.
        first: "latency_us", "energy_uj", "gpu_us" or "period_us".
        second: Another of these metrics.
        progress: Called with the number of points found and of gaps left to search.

    Raises:
        UsageError: An unknown metric, or the same metric twice.
        GateError: No placement meets the request ("plan.infeasible").
    """
    objective = OBJECTIVE_OF_METRIC.get(first, query.options.objective)
    energy = "energy_uj" in (first, second)
    sums = energy_sums(replace(query.options, objective="energy" if energy else "latency"))
    period = "period" if "period_us" in (first, second) else objective
    kinds = engine_kinds(replace(query.options, objective=period), query.judgement)
    fronts = []
    counts = core_counts(replace(query.options, objective="energy" if energy else objective))
    for cores, engines, concurrent in product(counts, kinds, sums):
        options = replace(query.options, objective=objective)
        options = replace(options, max_transitions=engines.max_transitions)
        prepared = replace(query, options=options).prepared(concurrent)
        front = pareto(
            limit_cores(prepared.problem, cores),
            (first, second),
            bounds=solver_bounds(prepared.request, cores),
            limit=MOST_POINTS,
            progress=progress,
        )
        if front is not None:
            fronts.append((prepared, front, fixed_uj(prepared.request, cores)))
        if not prepared.request.cores:
            break
    if not fronts:
        raise GateError("no placement meets the bounds", code="plan.infeasible")
    # each front is of a number of cores and has its own idle energy
    if len(counts) > 1:
        fronts = _drop_dominated_fronts(fronts, (first, second))
    points = []
    for prepared, point, bound in _join_fronts(fronts, (first, second)):
        plan = prepared.plan(point.placing, bound)
        gap = max(0.0, point.first - bound) / point.first if point.first else 0.0
        known = has_known_time(plan)
        optimal = point.optimal and gap <= OPTIMAL_GAP and known
        figures = {**plan.predicted.to_json(), first: point.first, second: point.second}
        points.append(
            ParetoPlan(
                **(figures if known else dict.fromkeys(figures)),
                bound=bound,
                gap=gap,
                optimal=optimal,
                extrapolated=list(plan.extrapolated),
                unknown_cost=list(plan.unknown_cost),
                loadables=len(plan.loadables),
                transitions=plan.transitions,
                dla_layers=sum(layer.device != "GPU" for layer in plan.layers),
                layers={layer.name: layer.device for layer in plan.layers},
            )
        )
    complete = all(front.complete for _, front, _ in fronts)
    across, down = (max(front.resolution[i] for _, front, _ in fronts) for i in range(2))
    note = (
        ""
        if complete
        else (
            f"incomplete; neighbouring points are at most {100 * across:.3g} % of the range "
            f"of {first} and {100 * down:.3g} % of the range of {second} apart"
        )
    )
    return Pareto(
        schema="edgekit.pareto/1",
        clock="predicted",
        target=query.target.name,
        power_mode=query.target.mode(query.power_mode).name,
        precision=query.precision,
        metrics=[first, second],
        rate_hz=query.options.rate_hz,
        bounds=dict(query.options.bounds),
        complete=complete,
        resolution=[across, down],
        note=note,
        points=points,
    )


_Front = tuple[Prepared, ParetoFront, float]  # the energy that the solver does not include


def _drop_dominated_fronts(fronts: Sequence[_Front], names: tuple[str, str]) -> list[_Front]:
    """Returns the fronts without those in which a point of another front beats every point."""

    def values(front: _Front) -> list[tuple[float, float]]:
        more = [front[2] if name == "energy_uj" else 0.0 for name in names]
        return [(point.first + more[0], point.second + more[1]) for point in front[1].points]

    remaining = list(fronts)
    for front in fronts:
        own = values(front)
        best = [min(pair[side] for pair in own) for side in range(2)]
        others = (pair for other in remaining if other is not front for pair in values(other))
        if any(first <= best[0] and second <= best[1] for first, second in others):
            remaining = [other for other in remaining if other is not front]
    return remaining


def _join_fronts(
    fronts: Sequence[_Front], names: tuple[str, str]
) -> list[tuple[Prepared, ParetoPoint, float]]:
    """Returns the undominated points of all fronts, with the energy of a plan.

    A placement's energy is the smaller of two sums, and each front is exact for one sum. Each
    point comes with the bound on its first metric over all fronts. Each front comes with the
    energy of a frame that the solver does not include.
    """
    found = []
    for prepared, front, fixed in fronts:
        problem = prepared.problem
        for point in front.points:
            load_us = point.placing.load_us
            energy_uj, _ = prepared.request.model.energy(problem.devices, load_us)
            engines = with_engine_contention(prepared.request, problem, point.placing.modes)
            have = metrics(engines, load_us, energy_uj)
            unknown = fixed if names[0] == "energy_uj" else 0.0
            found.append(
                (
                    prepared,
                    replace(
                        point,
                        first=have[names[0]],
                        second=have[names[1]],
                        bound=point.bound + unknown,
                    ),
                )
            )
    # by the first metric: a point is beaten unless its second is less than all before
    found.sort(key=lambda row: (row[1].first, row[1].second))
    retained: list[tuple[Prepared, ParetoPoint, float]] = []
    for prepared, point in found:
        if retained and point.second >= retained[-1][1].second * (1 - APART):
            continue
        # another front can have a lower bound for the same limit of the second metric
        within = [other.bound for _, other in found if other.second <= point.second]
        retained.append((prepared, point, min(point.first, *within, point.bound)))
    return retained
