"""Questions about a plan: why a layer is where it is, what changes would do (`--what-if`), a
table of boards and power modes, trade-offs, and which layers INT8 costs most accuracy. And
plans without a network: of a placement problem's document, and of a profile alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from edgekit.config.loader import Config, rebased
from edgekit.errors import GateError, UsageError
from edgekit.files import write_atomically
from edgekit.pipeline.outputs import may_write_for
from edgekit.pipeline.progress import Progress, Quiet, StepLog, StepRecord, describe_bound
from edgekit.pipeline.steps.accuracy import (
    Work,
    accuracy_notes,
    measured_sensitivity,
    proposed_layers,
)
from edgekit.pipeline.steps.host import HostSteps
from edgekit.reference.gate import impossible
from edgekit.targets.board import Target
from edgekit.targets.loader import get
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan
    from edgekit.reference.sensitivity import Proposal


SOLVE_SECONDS = 60.0  # of search; what is not proved by then carries its gap


def solve_problem(
    problem: Path | Mapping[str, Any],
    progress: Progress | None = None,
    *,
    seconds: float = SOLVE_SECONDS,
) -> dict[str, Any]:
    """Returns the ``edgekit.solution/1`` of an ``edgekit.problem/1``, a file or a document.

    Raises:
        DataError: The file is none.
        GateError: No placement keeps its constraints.
    """
    from edgekit.solver.document import read_document, solve_document

    steps = StepLog(["solve"], progress or Quiet())
    with steps.step("solve") as step:

        def report(value: float, bound: float) -> None:
            steps.progress.update(0, 0, describe_bound(value, bound))

        read = read_document(problem) if isinstance(problem, Path) else problem
        document = solve_document(read, seconds=seconds, progress=report)
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
    from edgekit.placement.profiles.log_plan import plan_of_log
    from edgekit.placement.profiles.reader import read_profile

    steps = StepLog(["profile", "plan"], progress or Quiet())
    with steps.step("profile") as step:
        profile = read_profile(path, layer_info=layer_info)
        step.detail = counted(len(profile.rows), "row")
    with steps.step("plan") as step:
        plan = plan_of_log(profile, seconds=SOLVE_SECONDS)
        step.detail = "optimal under the model" if plan.optimal else f"gap {plan.gap:.2%}"
    return plan.to_json()


_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_FORMS = {
    "pin": "pin GLOB DEVICE",
    "unpin": "unpin GLOB",
    "bound": "bound latency_us 2000",
    "mode": "mode 30W",
    "objective": "objective energy",
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


@dataclass(frozen=True)
class Changes:
    """Changes in the user's words, and the configuration's keys that make them."""

    texts: tuple[str, ...]
    keys: Mapping[str, Any]


def read_changes(text: str, config: Config) -> Changes:
    """Reads changes that semicolons separate, such as "pin conv* GPU; mode 30W".

    Raises:
        UsageError: "plan.what-if": a change that is none, with the form that it should have.
    """
    parts = [" ".join(part.split()) for part in text.split(";")]
    texts = tuple(part for part in parts if part)
    if not texts:
        raise UsageError("--what-if changes nothing", code="plan.what-if", hint=_known())
    keys: dict[str, Any] = {}
    section = config.file.placement
    pins = [pin.model_dump() for pin in section.pin]
    for change in texts:
        word, _, rest = change.partition(" ")
        if word not in _FORMS:
            near = difflib.get_close_matches(word, _FORMS, 1)
            hint = f"did you mean '{_FORMS[near[0]]}'?" if near else _known()
            raise UsageError(f"{change!r} is no change", code="plan.what-if", hint=hint)
        if word == "pin":
            glob, _, device = rest.rpartition(" ")
            if not glob:
                raise _malformed(change, word)
            pins.append({"layers": glob, "device": device})
        elif word == "unpin":
            remaining = [pin for pin in pins if pin["layers"] != rest]
            if len(remaining) == len(pins):
                written = ", ".join(pin["layers"] for pin in pins) or "there are none"
                raise UsageError(
                    f"no pin is {rest!r}", code="plan.what-if", hint=f"pins: {written}"
                )
            pins = remaining
        else:
            _merge(keys, _read(change, word, rest))
    if any(change.partition(" ")[0] in ("pin", "unpin") for change in texts):
        _merge(keys, {"placement": {"pin": pins}})
    return Changes(texts, keys)


def _read(change: str, word: str, rest: str) -> dict[str, Any]:
    if not rest:
        raise _malformed(change, word)
    if word == "mode":
        return {"power_mode": rest}
    if word in ("precision", "target"):
        return {word: rest}
    if word == "objective":
        return {"placement": {"objective": rest}}
    if word == "gpu":
        if rest not in ("yes", "no"):
            raise _malformed(change, word)
        mode = {"build": {"mode": "standalone"}} if rest == "no" else {}
        return {"placement": {"gpu": rest == "yes"}, **mode}
    try:
        if word == "cores":
            cores = [] if rest == "none" else [int(core) for core in rest.split(",")]
            return {"placement": {"dla_cores": cores}}
        if word in _NUMBERS:
            return {"placement": {_NUMBERS[word]: int(rest)}}
        name, _, value = rest.partition(" ")
        if word == "bound":
            return {"placement": {"bounds": {name: float(value)}}}
    except ValueError:
        raise _malformed(change, word) from None
    return {"placement": {"pools": {name: read_size(value)}}}


def read_size(text: str) -> int:
    """Returns bytes of "64MiB", "4096" or "1 GiB".

    Raises:
        UsageError: It is none of these.
    """
    number = text.strip().lower().rstrip("bikmg ")
    unit = text.strip().lower()[len(number) :].strip()
    try:
        size = float(number) * _UNITS[unit]
        if not size.is_integer():
            raise ValueError
    except (ValueError, KeyError, OverflowError):
        raise UsageError(f"{text!r} is no size", hint="64MiB, 512KiB or bytes") from None
    return int(size)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _malformed(change: str, word: str) -> UsageError:
    return UsageError(f"{change!r} is no change", code="plan.what-if", hint=f"as in {_FORMS[word]}")


def _known() -> str:
    return "as in " + "; ".join(_FORMS.values())


TABLE_SCHEMA = "edgekit.plan-table/1"
OBJECTIVES = ("latency", "throughput", "energy")
METRICS = ("latency_us", "throughput_qps", "energy_uj", "gpu_us")


def plan_table(
    work: Work,
    *,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    objective: str | None = None,
    power_mode: str | None = None,
) -> dict[str, Any]:
    """Returns an ``edgekit.plan-table/1``: latency, throughput and energy by board and mode.

    Args:
        work: The configuration; its board and mode hold where none are named.
        modes: Power modes, or "all".
        targets: Boards.
        objective: Of the plans; None: a row for each of latency, throughput and energy.
        power_mode: The mode of the boards that have it, where no modes are named; None: the
            configuration's.

    Raises:
        UsageError: An unknown board, or a mode that none of the boards has.
        GateError: No row has a plan. A row without one has an ``error``.
    """
    pairs = list(_pairs(work, modes, targets, power_mode or work.file.power_mode))
    objectives = [objective] if objective else list(OBJECTIVES)
    rows, failures = [], []
    for number, (board, mode, note) in enumerate(pairs):
        for step, aim in enumerate(objectives):
            row: dict[str, Any] = {
                "target": board.name, "power_mode": mode, "precision": work.file.precision,
                "objective": aim, "dla_cores": [], **dict.fromkeys(METRICS),
                "bands": {}, "plans": {}, "notes": [note] if note else [], "error": None,
            }  # fmt: skip
            rows.append(row)
            done = number * len(objectives) + step
            work.update(done, len(pairs) * len(objectives), f"{board.name} {mode}, {aim}")
            try:
                row["power_mode"] = board.mode(mode).name
                plan = _plan_row(work, board, row["power_mode"], aim, row)
            except (GateError, UsageError) as error:
                if isinstance(error, UsageError) and error.code != "target.mode":
                    raise
                failures.append(error)
                row["error"] = error.to_json()["error"]
                break
            values = plan.predicted.to_json()
            for metric in METRICS:
                row[metric] = values[metric]
                row["bands"][metric] = plan.bands.get(metric)
            row["plans"][aim] = _proof(plan)
    if failures and all(row["error"] for row in rows):
        raise failures[0]
    return {
        "schema": TABLE_SCHEMA,
        "clock": "predicted",
        "model": work.source.source,
        "objective": objective,
        "rows": rows,
    }


def _pairs(
    work: Work, modes: Sequence[str], targets: Sequence[str], requested: str | None
) -> Iterator[tuple[Target, str, str]]:
    """Yields board, mode and a note on the mode."""
    found_on = [get(name) for name in dict.fromkeys(targets) or (work.file.target,)]
    lacking = [error for board in found_on if (error := _lack(board, requested))]
    if lacking and not modes and len(lacking) == len(found_on):
        raise lacking[0]
    for board in found_on:
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
        yield board, mode, f"{name} has no power mode {requested}: {mode} instead" if lacks else ""


def _lack(board: Target, mode: str | None) -> UsageError | None:
    """Returns the error where a board does not have a mode."""
    try:
        board.mode(mode)
    except UsageError as error:
        return error
    return None


def _plan_row(work: Work, board: Target, mode: str, objective: str, row: dict[str, Any]) -> Plan:
    placement = work.file.placement
    cores = [core for core in placement.dla_cores if core < board.dla.cores]
    other = work.variant(
        target=board.name, power_mode=mode,
        placement={"objective": objective, "dla_cores": cores},
    )  # fmt: skip
    other.explains = False
    row["dla_cores"] = cores
    row["tensorrt"] = other.tensorrt
    return other.plan


def _proof(plan: Plan) -> dict[str, Any]:
    from edgekit.placement.plan import frame_times, plan_summary

    keys = ("value", "unit", "optimal", "bound", "gap", "extrapolated", "layers", "loadables",
            "transitions")  # fmt: skip
    summary = plan_summary(plan)
    busy = frame_times(plan)["busy_us"]
    total = sum(busy.values())
    share = busy.get("GPU", 0.0) / total if total else 1.0
    return {**{key: summary[key] for key in keys}, "gpu_share": share, "dla_share": 1.0 - share}


_REASONS_WITHOUT_LAYER = {
    "constant": "it is computed from constants", "identity": "it passes its input on",
    "branch": "it is a branch of known condition", "function": "it is a call that was inlined",
    "given": "its values are given", "unused": "no output needs it",
}  # fmt: skip


class PlanQuestions(HostSteps):
    """What ``edgekit plan`` answers in addition to the plan, and what INT8 costs layer by layer."""

    @contextmanager
    def _answering(self, name: str) -> Iterator[StepRecord]:
        """The plan, and then the step that answers."""
        self._only("check", "rewrite", *([] if name == "table" else ["plan"]))
        self._steps.names.append(name)
        self._check()
        self._rewrite()
        if name != "table":  # which has plans of its own
            self._plan()
        with self._steps.step(name) as step:
            yield step

    def why(self, layer: str) -> dict[str, Any]:
        """Returns an ``edgekit.why/1``: the reasons for a layer's place.

        Raises:
            UsageError: "layer.unknown": there is no layer or ONNX node of that name.
        """
        from edgekit.placement.explanation import explain_layer

        layer = self._layer_of(layer)  # refused before anything is placed
        with self._answering("why") as step:
            work = self.work
            document = explain_layer(
                work.query, work.plan, layer, lambda a, b: work.update(a, b, "placing with changes")
            )
            step.detail = f"{document['layer']} runs on {document['device']}"
        return document

    def _layer_of(self, name: str) -> str:
        """Returns the layer that a name stands for, also an ONNX node's that loading removed."""
        from edgekit.placement.explanation import find_layer

        network, gone = self.work.network, self.work.source.folded.get(name)
        try:
            if gone is None:
                return find_layer(network, name).name
            writers = [x.name for x in network.layers if set(x.outputs) & set(gone.outputs)]
            return writers[0] if writers else find_layer(network, gone.after).name
        except UsageError as error:
            error.where = self.work.source.source
            if gone is not None:
                error.message = (
                    f"no layer stands for the node {name!r}: {_REASONS_WITHOUT_LAYER[gone.reason]}"
                )
                error.hint = "`edgekit check --by-layer` lists the layers"
            raise

    def what_if(self, changes: str) -> dict[str, Any]:
        """Returns an ``edgekit.whatif/1``: the plan, and the plan with changes.

        Args:
            changes: Such as "pin conv* GPU; mode 30W".

        Raises:
            UsageError: "plan.what-if": no such change.
            GateError: No placement meets the request with the changes.
        """
        from edgekit.placement.plan import compare_plans

        read = read_changes(changes, self.config)
        other = self.work.variant(**read.keys)
        with self._answering("what-if") as step:
            document = compare_plans(self.work.plan, other.plan, read.texts)
            step.detail = f"{counted(len(document['moved']), 'layer')} moved"
        return document

    def table(
        self,
        *,
        modes: Sequence[str] = (),
        targets: Sequence[str] = (),
        objective: str | None = None,
        power_mode: str | None = None,
    ) -> dict[str, Any]:
        """Returns an ``edgekit.plan-table/1``: see ``plan_table``."""
        with self._answering("table") as step:
            document = plan_table(
                self.work, modes=modes, targets=targets, objective=objective, power_mode=power_mode
            )
            step.detail = counted(len(document["rows"]), "row")
        return document

    def pareto(self, first: str, second: str) -> dict[str, Any]:
        """Returns an ``edgekit.pareto/1``: the front of two metrics of a plan.

        Args:
            first: "latency_us", "energy_uj", "gpu_us" or "period_us".
            second: Another one of them.
        """
        from edgekit.placement.placing import pareto_front

        with self._answering("pareto") as step:
            work = self.work
            document: dict[str, Any] = pareto_front(
                work.query, first, second, lambda a, b: work.update(a, b, "the next point")
            )
            step.detail = f"{len(document['points'])} points"
        return document

    def plan_report(self, path: Path) -> None:
        """Writes the plan as an HTML page; what only a build or a board can show is left out."""
        from edgekit.reports.document import report_document
        from edgekit.reports.facts import RunFacts
        from edgekit.reports.html.page import write_report

        work = self.work
        facts = RunFacts(
            name=self.file.name, model=work.source.source, target=work.target, plan=work.plan,
            network=work.network, judgement=work.judgement, mode=self.file.build.mode,
            rewrites=tuple({"name": item["rewrite"], **item} for item in work.rewrites),
            steps=tuple(self._step_list()), files={"report": str(path)},
            config_text=self.config.text, notes=(*work.notes, *work.plan.notes),
            note_groups={"run": work.notes},
        )  # fmt: skip
        write_report(report_document(facts), path)

    def sensitivity(
        self,
        metric: str | None = None,
        minimum: float | None = None,
        write_config: Path | None = None,
    ) -> dict[str, Any]:
        """Returns an ``edgekit.sensitivity/1``; with a minimum it holds a proposal.

        Args:
            metric: "cosine", "snr_db" or "top1_agreement"; the configuration's when None.
            minimum: What the build must reach; the configuration's ``accuracy.min`` when None.
            write_config: Where to write a configuration with the proposal. It is written only
                where there is one.

        Raises:
            UsageError: The precision is not INT8, ``write_config`` has nothing to write, or what
                the configuration names is not found from there.
        """
        from edgekit.reference.proposal import shortfall
        from edgekit.reference.sensitivity import sensitivity_document

        work, gate = self.work, self.file.accuracy
        metric = metric or gate.metric
        minimum = gate.min if minimum is None else minimum
        if self.file.precision != "int8":
            raise UsageError(
                f"{self.file.precision} quantises nothing",
                code="calibration.precision",
                hint="measure the sensitivity with precision int8",
            )
        fault = "" if minimum is None else impossible(metric, minimum)
        if fault:
            raise UsageError(fault, code="sensitivity.accuracy", hint="ask for less")
        if write_config is not None and minimum is None:
            raise UsageError(
                "no accuracy is wanted, so there is nothing to propose",
                code="sensitivity.accuracy",
                hint="say which: --accuracy cosine=0.999",
            )
        may_write_for(self.config, {"the new configuration": write_config})
        if write_config is not None:
            rebased(self.config, write_config.parent)  # refused before anything is measured
        self._only("rewrite", "calibrate", "plan", "sensitivity")
        self._steps.names.append("sensitivity")
        self._rewrite()
        self._calibrate()
        self._plan()
        proposal: Proposal | None = None
        with self._step("sensitivity") as step:
            found = measured_sensitivity(work)
            if minimum is not None:
                proposal = proposed_layers(work, metric, minimum)
            step.detail = (
                f"{counted(len(found.impacts), 'INT8 kernel')} on {counted(found.samples, 'input')}"
            )
        warnings = work.plan_scales.warnings if work.plan_scales else ()
        document = {
            **sensitivity_document(found, work.network, work.judgement, proposal),
            "model": work.source.source,
            "target": self.file.target,
            "data": work.inputs_text,
            "method": work.scales.method if work.scales else "",
            "notes": [*work.notes, *warnings, *work.plan.notes, *accuracy_notes(work)],
            "config": "",
            "file": None,
        }
        if proposal is not None and proposal.layers is not None:
            document["config"] = _lines(self._fp16_with(proposal), proposal)
            if write_config is not None:
                self._write_config(write_config, proposal)
                document["file"] = str(write_config)
        elif proposal is not None:
            document["shortfall"] = shortfall(proposal)
        return document

    def _fp16_with(self, proposal: Proposal) -> list[str]:
        own = self.file.calibration.fp16_layers
        return list(dict.fromkeys((*own, *(proposal.layers or ()))))

    def _write_config(self, path: Path, proposal: Proposal) -> None:
        value = rebased(self.config, path.parent)
        value.setdefault("calibration", {})["fp16_layers"] = self._fp16_with(proposal)
        gate = {"metric": proposal.metric, "min": proposal.minimum}
        value["accuracy"] = {**value.get("accuracy", {}), **gate}
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        with write_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _lines(layers: list[str], proposal: Proposal) -> str:
    """Returns the YAML lines that keep these layers in FP16."""
    gate = {"metric": proposal.metric, "min": proposal.minimum}
    text: str = yaml.safe_dump(
        {"calibration": {"fp16_layers": layers}, "accuracy": gate},
        sort_keys=False, allow_unicode=True,
    )  # fmt: skip
    return text
