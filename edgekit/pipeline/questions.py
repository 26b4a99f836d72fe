"""Questions about a plan: why a layer is where it is, what changes would do (`--what-if`), a
table of boards and power modes, trade-offs, and which layers INT8 costs most accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from edgekit.config.loader import Config, rebased
from edgekit.errors import GateError, UsageError
from edgekit.files import write_atomically
from edgekit.network.model import Model, Network
from edgekit.pipeline.context import Context, variant
from edgekit.pipeline.outputs import may_write_for
from edgekit.pipeline.steps.accuracy import accuracy_notes, measured_sensitivity, proposed_layers
from edgekit.pipeline.steps.calibrate import inputs_text
from edgekit.pipeline.steps.load import source
from edgekit.pipeline.steps.method import plan_scales, scales
from edgekit.pipeline.steps.plan import plan, query
from edgekit.pipeline.steps.rewrite import judgement, network, used_rewrites
from edgekit.placement.plan import compare_plans
from edgekit.reference.gate import impossible
from edgekit.reference.search_bounds import bounds_of_question
from edgekit.targets.board import Target
from edgekit.targets.loader import get, names
from edgekit.text import counted, read_size

if TYPE_CHECKING:
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.placement.explanation import Why
    from edgekit.placement.module_reasons import WhyModules
    from edgekit.placement.placing import Pareto
    from edgekit.placement.plan import WhatIf
    from edgekit.placement.table import PlanTable
    from edgekit.reference.sensitivity import Proposal, Sensitivity, SensitivityRanking


_FORMS = {
    "pin": "pin GLOB DEVICE",
    "unpin": "unpin GLOB",
    "bound": "bound latency_us 2000",
    "mode": "mode 30W",
    "objective": "objective energy",
    "rate": "rate 10",
    "cores": "cores none",
    "gpu": "gpu no",
    "max_loadables": "max_loadables 4",
    "max_transitions": "max_transitions 2",
    "min_loadable": "min_loadable 3",
    "pool": "pool global_dram 64MiB",
    "precision": "precision fp16",
    "target": "target BOARD",
}
_NUMBERS = {
    "max_loadables": "max_loadables", "max_transitions": "max_transitions",
    "min_loadable": "min_loadable_layers",
}  # fmt: skip


@dataclass
class ChangedPlacement:
    """Keys of the configuration's "placement" that changes set; None is as it was."""

    objective: str | None = None
    rate_hz: float | None = None
    dla_cores: list[int] | None = None
    gpu: bool | None = None
    max_loadables: int | None = None
    max_transitions: int | None = None
    min_loadable_layers: int | None = None
    bounds: dict[str, float] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)
    pin: list[dict[str, str]] | None = None


@dataclass
class Changes:
    """Changes in the user's words, and the configuration's keys that they set."""

    texts: tuple[str, ...]
    placement: ChangedPlacement = field(default_factory=ChangedPlacement)
    target: str | None = None
    power_mode: str | None = None
    precision: str | None = None
    standalone: bool = False

    def made(self, context: Context) -> Context:
        """Returns a context with the changes."""
        return variant(
            context, target=self.target, power_mode=self.power_mode, precision=self.precision,
            placement=self.placement, build={"mode": "standalone" if self.standalone else None},
        )  # fmt: skip


def read_changes(text: str, config: Config) -> Changes:
    """Reads changes that semicolons separate, such as "pin conv* GPU; mode 30W".

    Raises:
        UsageError: "plan.what-if": a change that is none, with the form that it should have.
    """
    parts = [" ".join(part.split()) for part in text.split(";")]
    changes = Changes(tuple(part for part in parts if part))
    if not changes.texts:
        raise UsageError("--what-if changes nothing", code="plan.what-if", hint=_known())
    before = [pin.model_dump() for pin in config.file.placement.pin]
    for change in changes.texts:
        word, _, rest = change.partition(" ")
        if word not in _FORMS:
            raise UsageError(
                f"{change!r} is not a valid change", code="plan.what-if", hint=_known()
            )
        try:
            _read(changes, word, rest, before)
        except ValueError:
            raise UsageError(
                f"{change!r} is not a valid change",
                code="plan.what-if",
                hint=f"as in {_FORMS[word]}",
            ) from None
    return changes


def _read(changes: Changes, word: str, rest: str, before: list[dict[str, str]]) -> None:
    """Adds one change to others; ``before`` are the configuration's pins.

    Raises:
        ValueError: It has another form.
        UsageError: "plan.what-if": no such pin.
    """
    placement = changes.placement
    first, _, last = rest.rpartition(" ")
    if not rest or (word == "pin" and not first) or (word == "gpu" and rest not in ("yes", "no")):
        raise ValueError(rest)
    if word in ("pin", "unpin"):
        pins = before if placement.pin is None else placement.pin
        placement.pin = _pinned(pins, first, last) if word == "pin" else _unpinned(pins, rest)
    elif word == "mode":
        changes.power_mode = rest
    elif word in ("precision", "target"):
        setattr(changes, word, rest)
    elif word == "gpu":
        placement.gpu = rest == "yes"
        changes.standalone = changes.standalone or rest == "no"
    elif word == "objective":
        placement.objective = rest
    elif word == "rate":
        placement.rate_hz = float(rest)
    elif word == "cores":
        placement.dla_cores = [] if rest == "none" else [int(core) for core in rest.split(",")]
    elif word in _NUMBERS:
        setattr(placement, _NUMBERS[word], int(rest))
    else:
        name, _, value = rest.partition(" ")
        if word == "bound":
            placement.bounds[name] = float(value)
        else:
            placement.pools[name] = read_size(value)


def _pinned(pins: list[dict[str, str]], layers: str, device: str) -> list[dict[str, str]]:
    return [*pins, {"layers": layers, "device": device}]


def _unpinned(pins: list[dict[str, str]], layers: str) -> list[dict[str, str]]:
    remaining = [pin for pin in pins if pin["layers"] != layers]
    if len(remaining) == len(pins):
        written = ", ".join(pin["layers"] for pin in pins) or "there are none"
        raise UsageError(
            f"there is no pin {layers!r}", code="plan.what-if", hint=f"pins: {written}"
        )
    return remaining


def _known() -> str:
    return "changes are: " + ", ".join(_FORMS.values())


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
        pipeline: The configuration's; its board and mode hold where none are named.
        modes: Power modes, or "all".
        targets: Boards, or "all".
        objective: Of the plans; None: a row for each of latency, throughput and energy.
        power_mode: The mode of the boards that have it, where no modes are named; None: the
            configuration's.

    Raises:
        UsageError: An unknown board, or a mode that none of the boards has.
        GateError: No row has a plan. A row without one has an ``error``.
    """

    def ask(context: Context) -> tuple[PlanTable, str]:
        boards = [get(name) for name in _board_names(targets) or (context.file.target,)]
        found = _table(context, boards, modes, objective, power_mode or context.file.power_mode)
        return found, counted(len(found.rows), "row")

    # which has plans of its own
    return pipeline.answer("table", ask, "check", "rewrite")


def _board_names(targets: Sequence[str]) -> list[str]:
    return list(names()) if list(targets) == ["all"] else list(dict.fromkeys(targets))


def _table(
    context: Context,
    boards: Sequence[Target],
    modes: Sequence[str],
    objective: str | None,
    power_mode: str | None,
) -> PlanTable:
    from edgekit.placement.table import OBJECTIVES, PlanTable, TableRow, with_error, with_plan

    pairs = list(_pairs(boards, modes, power_mode))
    objectives = [objective] if objective else list(OBJECTIVES)
    rows: list[TableRow] = []
    failures = []
    for number, (board, mode, note) in enumerate(pairs):
        for step, aim in enumerate(objectives):
            row = TableRow(
                target=board.name, power_mode=mode, precision=context.file.precision,
                objective=aim, dla_cores=[], latency_us=None, throughput_qps=None,
                energy_uj=None, gpu_us=None, bands={}, plans={},
                notes=[note] if note else [], error=None,
            )  # fmt: skip
            done = number * len(objectives) + step
            context.update(done, len(pairs) * len(objectives), f"{board.name} {mode}, {aim}")
            try:
                row = row.model_copy(update={"power_mode": board.mode(mode).name})
                other, cores = _of_row(context, board, row.power_mode, aim)
                row = row.model_copy(update={"dla_cores": cores, "tensorrt": other.tensorrt})
                rows.append(with_plan(row, plan(other)))
            except (GateError, UsageError) as error:
                if isinstance(error, UsageError) and error.code != "target.mode":
                    raise
                failures.append(error)
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


def _pairs(
    boards: Sequence[Target], modes: Sequence[str], requested: str | None
) -> Iterator[tuple[Target, str, str]]:
    """Yields board, mode and a note on the mode."""
    lacking = [error for board in boards if (error := _lack(board, requested))]
    if lacking and not modes and len(lacking) == len(boards):
        raise lacking[0]
    for board in boards:
        name = board.name
        if list(modes) == ["all"]:
            if not board.power_modes:
                raise UsageError("its power modes are not known", where=name, code="target.mode")
            found = list(board.power_modes)
        else:
            found = list(modes)
        if found:
            yield from ((board, mode, "") for mode in dict.fromkeys(found))
            continue
        lacks = _lack(board, requested) is not None
        mode = board.mode(None if lacks else requested).name
        yield board, mode, f"{name} has no power mode {requested}; {mode} is used" if lacks else ""


def _lack(board: Target, mode: str | None) -> UsageError | None:
    """Returns the error where a board does not have a mode."""
    try:
        board.mode(mode)
    except UsageError as error:
        return error
    return None


def _of_row(
    context: Context, board: Target, mode: str, objective: str
) -> tuple[Context, list[int]]:
    """Returns the context of a row's plan, and the DLA cores that it may use."""
    placement = context.file.placement
    cores = [core for core in placement.dla_cores if core < board.dla.cores]
    other = variant(
        replace(context, explains=False), target=board.name, power_mode=mode,
        placement={"objective": objective, "dla_cores": cores},
    )  # fmt: skip
    return other, cores


_REASONS_WITHOUT_LAYER = {
    "constant": "it is computed from constants",
    "identity": "it passes its input on",
    "branch": "it is a branch whose condition is known",
    "function": "it is a call that was inlined",
    "given": "its values were given",
    "unused": "no output needs it",
}


def layer_of(network: Network, model: Model, name: str) -> str:
    """Returns the layer that a name stands for, also an ONNX node's that loading removed.

    Args:
        network: The layers.
        model: The model as it came.
        name: A layer's or an ONNX node's.

    Raises:
        UsageError: "layer.unknown": there is none.
    """
    from edgekit.placement.explanation import find_layer

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


def why(pipeline: Pipeline, layer: str) -> Why | WhyModules:
    """Returns the reasons for a layer's place, or for those of all layers that a glob names.

    Raises:
        UsageError: "layer.unknown": there is no layer, ONNX node or module of that name;
            "layer.several": a glob names several layers of a file that names no modules.
    """
    from edgekit.placement.explanation import explain_layer

    context = pipeline.context
    # refused before anything is placed
    try:
        name = layer_of(network(context), source(context), layer)
    except UsageError as error:
        if error.code != "layer.several" or network(context).modules is None:
            raise
        return _why_modules(pipeline, layer)

    def ask(context: Context) -> tuple[Why, str]:
        found = explain_layer(
            query(context), plan(context), name,
            lambda done, total: context.update(done, total, "planning with changes"),
        )  # fmt: skip
        return found, f"{found.layer} runs on {found.device}"

    return pipeline.answer("why", ask, "check", "plan")


def _why_modules(pipeline: Pipeline, glob: str) -> WhyModules:
    from edgekit.placement.module_reasons import explain_modules

    def ask(context: Context) -> tuple[WhyModules, str]:
        found = explain_modules(query(context), plan(context), glob)
        return found, f"{glob} is on {' and '.join(found.modules[0].devices)}"

    return pipeline.answer("why", ask, "check", "plan")


def what_if(pipeline: Pipeline, changes: str) -> WhatIf:
    """Returns the plan compared with the plan that follows from changes.

    Args:
        pipeline: The configuration's.
        changes: Such as "pin conv* GPU; mode 30W".

    Raises:
        UsageError: "plan.what-if": no such change.
        GateError: No placement meets the request with the changes.
    """
    read = read_changes(changes, pipeline.config)
    other = read.made(pipeline.context)

    def ask(context: Context) -> tuple[WhatIf, str]:
        found = compare_plans(plan(context), plan(other), read.texts)
        return found, f"{counted(len(found.moved), 'layer')} moved"

    return pipeline.answer("what-if", ask, "check", "plan")


def pareto(pipeline: Pipeline, first: str, second: str) -> Pareto:
    """Returns the front of two metrics of a plan.

    Args:
        pipeline: The configuration's.
        first: "latency_us", "energy_uj", "gpu_us" or "period_us".
        second: Another one of them.
    """
    from edgekit.placement.placing import pareto_front

    def ask(context: Context) -> tuple[Pareto, str]:
        found = pareto_front(
            query(context), first, second,
            lambda done, total: context.update(done, total, "the next point"),
        )  # fmt: skip
        return found, counted(len(found.points), "point")

    return pipeline.answer("pareto", ask, "check", "plan")


def write_plan_page(pipeline: Pipeline, path: Path) -> None:
    """Writes the plan as an HTML page; what only a build or a board can show is left out."""
    from edgekit.reports.document import report_document
    from edgekit.reports.facts import RunFacts
    from edgekit.reports.html.page import write_report
    from edgekit.reports.schema import ReportedRewrite

    context = pipeline.context
    file, placed, notes = context.file, plan(context), context.session.notes
    rewrites = used_rewrites(context).applied
    facts = RunFacts(
        name=file.name, model=source(context).source, target=context.target, plan=placed,
        network=network(context), judgement=judgement(context), mode=file.build.mode,
        rewrites=tuple(map(ReportedRewrite.of, rewrites)),
        steps=tuple(pipeline.log.done),
        files={"report": str(path)},
        config_text=context.config.text, notes=(*notes, *placed.notes),
        note_groups={"run": notes},
    )  # fmt: skip
    write_report(report_document(facts), path)


def sensitivity(
    pipeline: Pipeline,
    metric: str | None = None,
    minimum: float | None = None,
    write_config: Path | None = None,
) -> SensitivityRanking:
    """Returns what INT8 of each kernel costs; with a minimum also what to keep in FP16.

    Args:
        pipeline: The configuration's.
        metric: "cosine", "snr_db" or "top1_agreement"; the configuration's when None.
        minimum: What the build must reach; the configuration's ``accuracy.min`` when None.
        write_config: Where to write a configuration with the proposal. It is written only
            where there is one.

    Raises:
        UsageError: The precision is not INT8, ``write_config`` has nothing to write, or what
            the configuration names is not found from there.
    """
    gate = pipeline.file.accuracy
    measure = metric or gate.metric
    least = gate.min if minimum is None else minimum
    check_sensitivity(pipeline.file.precision, measure, least, write_config)
    may_write_for(pipeline.config, {"the new configuration": write_config})
    if write_config is not None:
        rebased(pipeline.config, write_config.parent)  # refused before anything is measured

    found, proposal = pipeline.answer(
        "sensitivity",
        lambda context: sensitivity_of(context, measure, least),
        "calibrate", "plan", reuses=True,
    )  # fmt: skip
    return sensitivity_answer(pipeline.context, found, proposal, write_config)


def check_sensitivity(
    precision: str, metric: str, minimum: float | None, write_config: Path | None
) -> None:
    """Refuses a question of sensitivity that has no answer; arguments as of ``Pipeline``'s.

    Raises:
        UsageError: "calibration.precision", "sensitivity.accuracy".
    """
    if precision != "int8":
        raise UsageError(
            f"precision {precision} quantises nothing",
            code="calibration.precision",
            hint="measure the sensitivity with precision int8",
        )
    fault = "" if minimum is None else impossible(metric, minimum)
    if fault:
        raise UsageError(fault, code="sensitivity.accuracy", hint="lower the limit")
    if write_config is not None and minimum is None:
        raise UsageError(
            "no accuracy limit is set, so nothing can be proposed",
            code="sensitivity.accuracy",
            hint="set one with --accuracy cosine=0.999",
        )


def sensitivity_of(
    context: Context, metric: str, minimum: float | None
) -> tuple[tuple[Sensitivity, Proposal | None], str]:
    """Returns what INT8 of each kernel costs, and with a minimum what to keep in FP16; and a word
    on how much was measured.
    """
    found = measured_sensitivity(context)
    impacts = counted(len(found.impacts), "INT8 kernel")
    words = f"{impacts} on {counted(found.samples, 'input')}"
    if minimum is None:
        return (found, None), words
    bounds = bounds_of_question(minimum, thorough=context.file.accuracy.thorough)
    return (found, proposed_layers(context, metric, minimum, bounds)), words


def sensitivity_answer(
    context: Context, found: Sensitivity, proposal: Proposal | None, write_config: Path | None
) -> SensitivityRanking:
    """Returns the document of what ``sensitivity_of`` returned.

    Args:
        context: The configuration.
        found: What INT8 of each kernel costs.
        proposal: What to keep in FP16; None where nobody asked.
        write_config: Where to write a configuration with the proposal, where there is one.
    """
    from edgekit.reference.proposal import shortfall
    from edgekit.reference.sensitivity import (
        SensitivityRanking,
        float_layers,
        module_impacts,
        proposed,
        ranked_kernels,
    )

    built, calibrated = plan_scales(context), scales(context)
    warnings = built.warnings if built else ()
    notes = (*context.session.notes, *warnings, *plan(context).notes, *accuracy_notes(context))
    answer = SensitivityRanking(
        samples=found.samples,
        kernels=ranked_kernels(found, network(context)),
        floats=float_layers(found, network(context), judgement(context)),
        proposal=None if proposal is None else proposed(proposal),
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
    own = context.file.calibration.fp16_layers
    layers = list(dict.fromkeys((*own, *proposal.layers)))
    text = _proposed_keys({}, layers, proposal)
    if write_config is not None:
        value = rebased(context.config, write_config.parent)
        with write_atomically(write_config) as temporary:
            temporary.write_text(_proposed_keys(value, layers, proposal), encoding="utf-8")
    return replace(answer, config=text, file=None if write_config is None else str(write_config))


def _proposed_keys(given: Any, layers: list[str], proposal: Proposal) -> str:
    """Returns the YAML of a configuration's values with a proposal."""
    value = {
        **given,
        "calibration": {**given.get("calibration", {}), "fp16_layers": layers},
        "accuracy": {
            **given.get("accuracy", {}), "metric": proposal.metric, "min": proposal.minimum,
        },
    }  # fmt: skip
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
