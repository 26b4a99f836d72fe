"""Questions about a plan: the reasons for a layer's place, the effect of changes (`--what-if`), a
table of boards and power modes, trade-offs, and the layers that lose most accuracy in INT8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.config.changes import read_changes
from edgekit.config.loader import rebased, yaml_with_fp16
from edgekit.errors import GateError, UsageError
from edgekit.files import write_atomically
from edgekit.pipeline.context import Context, variant
from edgekit.pipeline.outputs import check_config_outputs
from edgekit.pipeline.steps.accuracy import accuracy_notes, measured_sensitivity, proposed_layers
from edgekit.pipeline.steps.buckets import with_planned_buckets
from edgekit.pipeline.steps.calibrate import inputs_text
from edgekit.pipeline.steps.load import source
from edgekit.pipeline.steps.method import plan_scales, scales
from edgekit.pipeline.steps.plan import plan, proposed_cuts, query
from edgekit.pipeline.steps.rewrite import judgement, network, used_rewrites
from edgekit.placement.inputs import check_objective
from edgekit.placement.plan import compare_plans
from edgekit.reference.gate import METRICS, impossible
from edgekit.reference.search_bounds import bounds_of_question
from edgekit.targets.board import Target
from edgekit.targets.loader import get, names
from edgekit.text import counted
from edgekit_device.protocol.manifest import BOXES

if TYPE_CHECKING:
    from edgekit.config.schema import ConfigFile
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.placement.explanation import Why
    from edgekit.placement.module_reasons import WhyModules
    from edgekit.placement.placing import Pareto
    from edgekit.placement.plan import WhatIf
    from edgekit.placement.table import PlanTable
    from edgekit.reference.sensitivity import Proposal, Sensitivity, SensitivityRanking


def plan_table(
    pipeline: Pipeline,
    *,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    objective: str | None = None,
    power_mode: str | None = None,
) -> PlanTable:
    """Returns latency, throughput and energy by board and power mode.

    Args:
        pipeline: The configuration's pipeline; its board and mode are the defaults.
        modes: Power modes, or "all".
        targets: Boards, or "all".
        objective: Objective of the plans; None: a row for each of latency, throughput and energy.
        power_mode: The mode of the boards that have it, if no modes are named; None: the
            configuration's mode.

    Raises:
        UsageError: An unknown board or objective, or a mode that none of the boards has.
        GateError: No row has a plan. A row without a plan has an ``error``.
    """
    if objective is not None:
        check_objective(objective)

    def ask(context: Context) -> tuple[PlanTable, str]:
        every = list(targets) == ["all"]
        board_names = list(names()) if every else list(dict.fromkeys(targets))
        boards = [get(name) for name in board_names or (context.file.target,)]
        found = _make_table(
            context, boards, modes, objective, power_mode or context.file.power_mode
        )
        return found, counted(len(found.rows), "row")

    # which has its own plans
    return pipeline.answer("table", ask, "check", "rewrite")


def _make_table(
    context: Context,
    boards: Sequence[Target],
    modes: Sequence[str],
    objective: str | None,
    power_mode: str | None,
) -> PlanTable:
    from edgekit.placement.table import (
        OBJECTIVES,
        PlanTable,
        TableRow,
        table_modes,
        with_error,
        with_plan,
        without_plan,
    )

    pairs = list(table_modes(boards, modes, power_mode))
    objectives = [objective] if objective else list(OBJECTIVES)
    rows: list[TableRow] = []
    failures = []
    for number, (board, mode, note) in enumerate(pairs):
        for step, aim in enumerate(objectives):
            row = without_plan(board, mode, context.file.precision, aim, note)
            done = number * len(objectives) + step
            context.update(done, len(pairs) * len(objectives), f"{board.name} {mode}, {aim}")
            try:
                row = row.model_copy(update={"power_mode": board.mode(mode).name})
                other, cores = _row_context(context, board, row.power_mode, aim)
                row = row.model_copy(update={"dla_cores": cores, "tensorrt": other.tensorrt})
                rows.append(with_plan(row, plan(other)))
            except (GateError, UsageError) as error:
                # a mode that another board has is a row with an error; other mistakes are the
                # user's
                if isinstance(error, UsageError) and error.code != "target.mode":
                    raise
                failures.append(error)
                # each objective has the same constraints: one row for the board and mode is enough
                rows.append(with_error(row, error))
                break
    if failures and all(row.error for row in rows):
        raise failures[0]
    return PlanTable(
        schema="edgekit.plan-table/1",
        clock="predicted",
        model=source(context).source,
        objective=objective,
        rate_hz=context.file.placement.rate_hz,
        rows=rows,
    )


def _row_context(
    context: Context, board: Target, mode: str, objective: str
) -> tuple[Context, list[int]]:
    """Returns the context of a row's plan, and the DLA cores that it may use."""
    placement = context.file.placement
    # boards of a table differ in their cores
    cores = [core for core in placement.dla_cores if core < board.dla.cores]
    other = variant(
        replace(context, explains=False),
        target=board.name,
        power_mode=mode,
        placement={"objective": objective, "dla_cores": cores},
    )
    return other, cores


def why(pipeline: Pipeline, layer: str) -> Why | WhyModules:
    """Returns the reasons for a layer's place, or for those of all layers that a glob names.

    Raises:
        UsageError: "layer.unknown": there is no layer, ONNX node or module of that name;
            "layer.several": a glob names several layers of a file that names no modules.
    """
    from edgekit.placement.explanation import explain_layer, resolve_layer

    context = pipeline.context
    # refused before any placement
    try:
        name = resolve_layer(network(context), source(context), layer)
    except UsageError as error:
        if error.code != "layer.several" or network(context).modules is None:
            raise
        return _why_modules(pipeline, layer)

    def ask(context: Context) -> tuple[Why, str]:
        for left in plan(context).left:
            if left.name == name:
                raise UsageError(
                    f"the module {left.module!r} is left out of the network, and has no place",
                    code="layer.left",
                    where=layer,
                    hint="ask for a layer, or give leave without it",
                )
        found = explain_layer(
            query(context),
            plan(context),
            name,
            lambda done, total: context.update(done, total, "planning with changes"),
        )
        return found, f"{found.layer} runs on {found.device}"

    return pipeline.answer("why", ask, "check", "plan")


def _why_modules(pipeline: Pipeline, glob: str) -> WhyModules:
    from edgekit.placement.module_reasons import explain_modules

    def ask(context: Context) -> tuple[WhyModules, str]:
        found = explain_modules(query(context), plan(context), glob)
        return found, f"{glob} is on {' and '.join(found.modules[0].devices)}"

    return pipeline.answer("why", ask, "check", "plan")


def what_if(pipeline: Pipeline, changes: str) -> WhatIf:
    """Returns the plan compared with the plan after changes.

    Args:
        pipeline: The configuration's.
        changes: Such as "pin conv* GPU; mode 30W".

    Raises:
        UsageError: "plan.what-if": a change is unknown.
        GateError: No placement meets the request with the changes.
    """
    read = read_changes(changes, pipeline.config)
    # changes that no configuration can have are refused before any step
    other = variant(pipeline.context, **read.options())

    def ask(context: Context) -> tuple[WhatIf, str]:
        found = compare_plans(plan(context), plan(other), read.texts)
        return found, f"{counted(len(found.moved), 'layer')} moved"

    return pipeline.answer("what-if", ask, "check", "plan")


def pareto(pipeline: Pipeline, first: str, second: str) -> Pareto:
    """Returns the Pareto front of two metrics of a plan.

    Args:
        pipeline: The configuration's.
        first: "latency_us", "energy_uj", "gpu_us" or "period_us", or the objective for it.
        second: Another of these metrics.

    Raises:
        UsageError: "usage.pareto": an unknown metric, or the same one twice.
    """
    from edgekit.placement.placing import pareto_front
    from edgekit.solver.optimiser import two_metrics

    first, second = two_metrics(first, second)

    def ask(context: Context) -> tuple[Pareto, str]:
        found = pareto_front(
            query(context),
            first,
            second,
            lambda done, total: context.update(done, total, "the next point"),
        )
        return found, counted(len(found.points), "point")

    return pipeline.answer("pareto", ask, "check", "plan")


def write_plan_page(pipeline: Pipeline, path: Path) -> None:
    """Writes the plan as an HTML page, without the results of a build or a board."""
    from edgekit.reports.document import report_document
    from edgekit.reports.facts import RunFacts
    from edgekit.reports.html.page import write_report
    from edgekit.reports.schema import ReportedRewrite

    context = pipeline.context
    file, placed, notes = context.file, with_planned_buckets(context), context.session.notes
    rewrites = used_rewrites(context).applied
    facts = RunFacts(
        name=file.name,
        model=source(context).source,
        target=context.target,
        plan=placed,
        network=network(context),
        judgement=judgement(context),
        mode=file.build.mode,
        rewrites=tuple(map(ReportedRewrite.of, rewrites)),
        cuts=proposed_cuts(context),
        steps=tuple(pipeline.log.done),
        files={"report": str(path)},
        config_text=context.config.text,
        notes=(*notes, *placed.notes),
        note_groups={"run": notes},
    )
    write_report(report_document(facts), path)


def sensitivity(
    pipeline: Pipeline,
    metric: str | None = None,
    minimum: float | None = None,
    write_config: Path | None = None,
) -> SensitivityRanking:
    """Returns the accuracy cost of INT8 by kernel; with a minimum also the layers for FP16.

    Args:
        pipeline: The configuration's pipeline.
        metric: A metric of ``gate.METRICS``; the configuration's if None.
        minimum: The accuracy that the build must reach; the configuration's ``accuracy.min`` if
            None.
        write_config: The file for a configuration with the proposal. It is only written if there
            is a proposal.

    Raises:
        UsageError: The precision is not INT8, there is no proposal for ``write_config``, or the
            paths of the configuration do not exist relative to it.
    """
    gate = pipeline.file.accuracy
    measure = metric or gate.metric
    least = gate.min if minimum is None else minimum
    check_sensitivity(pipeline.file, measure, least, write_config)
    check_config_outputs(pipeline.config, {"the new configuration": write_config})
    if write_config is not None:
        rebased(pipeline.config, write_config.parent)  # refused before any measurement

    found, proposal = pipeline.answer(
        "sensitivity",
        lambda context: sensitivity_with_proposal(context, measure, least),
        "calibrate",
        "plan",
        reuses=True,
    )
    return sensitivity_answer(pipeline.context, found, proposal, write_config)


def check_sensitivity(
    file: ConfigFile, metric: str, minimum: float | None, write_config: Path | None
) -> None:
    """Refuses a question of sensitivity that has no answer; arguments as in :func:`sensitivity`.

    Raises:
        UsageError: "calibration.precision", "sensitivity.metric", "sensitivity.accuracy".
    """
    if file.precision != "int8":
        raise UsageError(
            f"precision {file.precision} quantises nothing",
            code="calibration.precision",
            hint="measure the sensitivity with precision int8",
        )
    if metric not in METRICS:
        raise UsageError(
            f"there is no metric {metric!r}",
            code="sensitivity.metric",
            where="metric",
            hint=f"one of {', '.join(METRICS)}",
        )
    if metric == BOXES and file.model.head is None:
        raise UsageError(
            "no head decodes the network's outputs, so there are no boxes to compare",
            code="sensitivity.metric",
            where="metric",
            hint="add model.head: auto",
        )
    fault = "" if minimum is None else impossible(metric, minimum)
    if fault:
        raise UsageError(
            fault, code="sensitivity.accuracy", where="minimum", hint="lower the limit"
        )
    if write_config is not None and minimum is None:
        raise UsageError(
            "no accuracy limit is set, so no layers can be proposed",
            code="sensitivity.accuracy",
            hint="set one with --accuracy cosine=0.999",
        )


def sensitivity_with_proposal(
    context: Context, metric: str, minimum: float | None
) -> tuple[tuple[Sensitivity, Proposal | None], str]:
    """Returns the accuracy cost of INT8 by kernel, with a minimum the layers for FP16, and a short
    text on the number of measurements.
    """
    found = measured_sensitivity(context)
    impacts = counted(len(found.impacts), "INT8 kernel")
    words = f"{impacts} on {counted(found.samples, 'input')}"
    if minimum is None:
        return (found, None), words
    # a question may take longer than the step of a run, so it has other limits
    bounds = bounds_of_question(minimum, thorough=context.file.accuracy.thorough)
    return (found, proposed_layers(context, metric, minimum, bounds)), words


def sensitivity_answer(
    context: Context, found: Sensitivity, proposal: Proposal | None, write_config: Path | None
) -> SensitivityRanking:
    """Returns the document of the results of ``sensitivity_with_proposal``.

    Args:
        context: The configuration.
        found: The accuracy cost of INT8 by kernel.
        proposal: The layers for FP16; None if no minimum was given.
        write_config: The file for a configuration with the proposal, if there is a proposal.
    """
    from edgekit.reference.proposal import shortfall
    from edgekit.reference.sensitivity import (
        SensitivityRanking,
        float_layers,
        module_impacts,
        proposal_document,
        ranked_kernels,
    )

    built, calibrated = plan_scales(context), scales(context)
    warnings = built.warnings if built else ()
    notes = (*context.session.notes, *warnings, *plan(context).notes, *accuracy_notes(context))
    answer = SensitivityRanking(
        samples=found.samples,
        kernels=ranked_kernels(found, network(context)),
        floats=float_layers(found, network(context), judgement(context)),
        proposal=None if proposal is None else proposal_document(proposal),
        model=source(context).source,
        target=context.file.target,
        data=inputs_text(context),
        method=calibrated.method if calibrated else "",
        notes=notes,
        modules=module_impacts(found, network(context)),
    )
    if proposal is None:
        return answer
    if proposal.layers is None:
        return replace(answer, shortfall=shortfall(proposal))
    # the proposal adds to the layers that the user keeps in FP16
    own = context.file.calibration.fp16_layers
    layers = list(dict.fromkeys((*own, *proposal.layers)))
    gate = proposal.metric, proposal.minimum
    text = yaml_with_fp16({}, layers, *gate)
    if write_config is not None:
        value = rebased(context.config, write_config.parent)
        with write_atomically(write_config) as temporary:
            temporary.write_text(yaml_with_fp16(value, layers, *gate), encoding="utf-8")
    return replace(answer, config=text, file=None if write_config is None else str(write_config))
