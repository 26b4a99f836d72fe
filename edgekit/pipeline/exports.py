"""Outputs for other programs: a timeline of all measurements (`edgekit trace`), and the ONNX file
annotated with each node's device, precision and time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgekit.benchmark.document import read_bench
from edgekit.benchmark.measurement import BOARD_MEASURED
from edgekit.benchmark.trace.chrome import TracedProcess
from edgekit.benchmark.trace.layers import (
    Linked,
    linked_layers,
    profile_process,
    with_modules,
)
from edgekit.benchmark.trace.monitor import monitor_process, monitor_wall
from edgekit.benchmark.trace.nsys import NsysSource
from edgekit.benchmark.trace.nsys_export import open_export
from edgekit.benchmark.trace.run import trace_document
from edgekit.benchmark.trace.sources import (
    MOST_EVENTS,
    PreparedSource,
    RunTrace,
    TraceSource,
    read_trace,
    read_trace_or_bench,
    times_process,
    write_trace,
)
from edgekit.benchmark.trace.tegrastats import FIRST_LOAD, compare_with_target, read_tegrastats
from edgekit.benchmark.trtexec import read_times
from edgekit.documents import Coded, Count, Document, Figure, omitted
from edgekit.errors import DataError, UsageError
from edgekit.network.lowering.places import places
from edgekit.network.module_tree import ModuleTotals
from edgekit.network.writing import annotate_file, save_annotated
from edgekit.pipeline.context import Context
from edgekit.pipeline.steps.load import cut_outputs
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.rewrite import judgement, model, network, used_rewrites
from edgekit.placement.module_reasons import planned_modules
from edgekit.placement.plan import Plan, booked_layers
from edgekit.placement.profiles.reader import read_profile
from edgekit.reports.layers import layer_times, measured_modules, measured_parts
from edgekit.reports.node_notes import frame_time, node_notes
from edgekit.reports.schema import Report
from edgekit.text import counted

# notes of a file that are shown
_NOTED = 8


@dataclass(frozen=True)
class TraceFiles:
    """Files that are shown in a timeline, by the program that wrote them.

    Attributes:
        bench: ``edgekit bench``'s document or trace.
        nsys: Nsight Systems' SQLite exports.
        profiles: Layer times that ``read_profile`` reads.
        layer_info: trtexec's --exportLayerInfo of the profiles' engine.
        times: trtexec's --exportTimes.
        tegrastats: A tegrastats log.
        core: DLA core for profiled layers that the plan does not place.
    """

    bench: Path | None = None
    nsys: tuple[Path, ...] = ()
    profiles: tuple[Path, ...] = ()
    layer_info: Path | None = None
    times: Path | None = None
    tegrastats: Path | None = None
    core: int = 0

    def __bool__(self) -> bool:
        return any((self.bench, self.nsys, self.profiles, self.times, self.tegrastats))

    def check(self) -> None:
        """Refuses files that need another file.

        Raises:
            UsageError: Layer information without a profile.
        """
        if self.layer_info is not None and not self.profiles:
            raise UsageError("--layer-info needs --profile", hint="add --profile FILE")


class Traced(Document):
    """The contents of a trace that was written."""

    schema_: Literal["edgekit.trace-summary/1"] = Field(alias="schema")
    file: str
    events: dict[str, Count] = Field(description="number by category")
    seconds: Figure = Field(description="when the last event ends")
    processes: list[TracedProcess]
    left_out: Count = Field(description="events that are not in it")
    notes: list[str]
    modules: list[Annotated[ModuleTotals, Coded()]] = omitted(
        [],
        description="PyTorch's modules of the configuration's plan, each before those inside it; "
        "measured where the trace is of a board that timed all of a module",
    )


def trace(
    files: TraceFiles, out: Path, *, context: Context | None = None, folder: Path | None = None
) -> Traced:
    """Writes the trace and returns its contents.

    Args:
        files: The measurements.
        out: Output file of the trace.
        context: The context with the plan, which names layers and predicts times.
        folder: Folder of the run with the measurement of the bench step.

    Raises:
        UsageError: Neither files nor a configuration is given.
        DataError: A file is damaged or of another kind; an existing trace is kept.
    """
    if not files and context is None:
        raise UsageError(
            "there are no measurements for the timeline",
            hint="give a configuration, a bench.json, or an option such as --nsys FILE",
        )
    files.check()
    placed = plan(context) if context is not None else None
    notes: list[str] = []
    with ExitStack() as stack:
        sources: list[TraceSource] = []
        about = {"name": out.stem}
        sources += _edgekit_sources(files, context, folder, about, notes)
        linked = _layer_lookup(context, placed)
        profiled = [
            NsysSource(stack.enter_context(closing(open_export(path))), path.name, linked)
            for path in files.nsys
        ]
        sources += profiled
        # tegrastats writes local time without its zone, which an nsys export of the same board
        # knows
        offsets = (source.export.local_offset_s for source in profiled)
        offset = next((seconds for seconds in offsets if seconds is not None), None)
        sources += _foreign_sources(files, context, placed, notes, offset)
        written = write_trace(out, sources, name=about["name"], target=about.get("target", ""))
        for source in profiled:
            notes += _nsys_notes(source, placed)
        wrong = sum(source.export.wrong.total() for source in profiled)
    if written.left_out:
        notes.append(f"{written.left_out} events beyond the first {MOST_EVENTS:,} were left out")
    return Traced(
        schema="edgekit.trace-summary/1",
        file=str(out),
        events=written.events,
        seconds=written.last_us / 1e6,
        processes=written.processes,
        left_out=written.left_out + wrong,
        notes=notes,
        modules=[]
        if placed is None or context is None
        else _module_totals(context, placed, sources),
    )


def _layer_lookup(context: Context | None, placed: Plan | None) -> Linked:
    """Returns the function that maps a measured name to its layer and module."""
    linked = linked_layers(placed)
    return linked if context is None else with_modules(linked, network(context))


def _module_totals(
    context: Context, placed: Plan, sources: Sequence[TraceSource]
) -> list[ModuleTotals]:
    net = network(context)
    traces = [source.trace for source in sources if isinstance(source, RunTrace)]
    measured: dict[str, float] = {}
    if net.modules and traces and BOARD_MEASURED in traces[0].about.clocks.values():
        booked = booked_layers(placed.plans[0], net)
        measured = measured_modules(
            net,
            layer_times(traces[0]),
            measured_parts(traces[0], BOARD_MEASURED),
            {layer.name for layer in booked if not layer.predicted_us},
        )
    return list(planned_modules(placed, net, judgement(context), context.target, measured))


def _edgekit_sources(
    files: TraceFiles,
    context: Context | None,
    folder: Path | None,
    about: dict[str, str],
    notes: list[str],
) -> list[TraceSource]:
    """Returns the trace sources of edgekit's own measurements and predictions."""
    # a file that the user names wins over the run's own measurement
    if files.bench is not None:
        found, name = read_trace_or_bench(files.bench)
        about["name"] = name or about["name"]
        return [found]
    if context is None:
        return []
    placed, name = plan(context), context.file.name
    about |= {"name": name, "target": placed.target}
    if folder is not None and (folder / "trace.json").is_file():
        return [read_trace(folder / "trace.json")]
    notes.append("this configuration was not measured yet; only the prediction is shown")
    document = trace_document(
        placed,
        None,
        dla_cores=context.target.dla.cores,
        network=network(context),
        name=name,
    )
    return [RunTrace("prediction", document)]


def _foreign_sources(
    files: TraceFiles,
    context: Context | None,
    placed: Plan | None,
    notes: list[str],
    utc_offset_s: float | None,
) -> list[TraceSource]:
    cores = context.target.dla.cores if context is not None else 0
    linked = _layer_lookup(context, placed) if placed is not None else None
    found: list[TraceSource] = []
    for path in files.profiles:
        profile = read_profile(path, layer_info=files.layer_info, documents=read_bench)
        notes += [f"{path.name}: {note}" for note in profile.notes[:_NOTED]]
        with _naming_file(path):
            process = profile_process(
                profile, pid=1, dla_cores=cores, core=files.core, linked=linked
            )
        found.append(PreparedSource(path.name, [process]))
    if files.times is not None:
        with _naming_file(files.times):
            process = times_process(read_times(files.times), pid=1)
        found.append(PreparedSource(files.times.name, [process]))
    if files.tegrastats is not None:
        rails = context.target.rails if context is not None else None
        monitor = read_tegrastats(files.tegrastats, rails=rails, utc_offset_s=utc_offset_s)
        warnings = (warning for warning in monitor.warnings if warning != FIRST_LOAD)
        notes += [f"{files.tegrastats.name}: {warning}" for warning in warnings]
        if context is not None:
            reason, differences = compare_with_target(monitor, context.target)
            reasons = [f"from another board: {reason}"] if reason else differences
            notes += [f"{files.tegrastats.name}: {reason}" for reason in reasons]
        processes = monitor_process(monitor, pid=1, what=f"monitors ({files.tegrastats.name})")
        wall = monitor_wall(monitor)
        start = min((sample.t_s for sample in monitor.samples), default=0.0)
        # the process starts at its first sample
        at = None if wall is None else wall + start
        found.append(PreparedSource(files.tegrastats.name, processes, wall=at))
    return found


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Adds the file's name to the error of an invalid time."""
    try:
        yield
    except DataError as error:
        error.where = error.where or str(path)
        raise


def _nsys_notes(source: NsysSource, placed: Plan | None) -> list[str]:
    notes: list[str] = []
    wrong = source.export.wrong
    if wrong:
        words = ", ".join(f"{n} of {table} {why}" for (table, why), n in wrong.most_common(_NOTED))
        notes.append(f"{source.name}: {counted(wrong.total(), 'event')} left out: {words}")
    if placed is not None and not source.matched:
        notes.append(
            f"{source.name}: no range has the name of a layer of the plan; build with "
            "profiling verbosity layer_names_only or detailed, and profile with "
            "--trace=cuda,nvtx"
        )
    return notes


def write_annotated(context: Context, path: Path, report: Report | None = None) -> None:
    """Writes the model with the plan and the measured times in its nodes' metadata.

    Without rewrites and cuts this is the user's file, otherwise unchanged; else the placed model.

    Args:
        context: The configuration, with its plan.
        path: The ONNX file to write.
        report: The run's report with measured times; without it the plan's predictions are used.

    Raises:
        UsageError: ``path`` is the model's own file.
        ModelError: The file cannot be written.
    """
    section, placed = context.file.model, plan(context)
    net = network(context)
    layers = booked_layers(placed.plans[0], net)
    notes = node_notes(layers, places(model(context), net), report.layers if report else ())
    about = {
        "target": placed.target,
        "mode": placed.power_mode,
        "precision": placed.precision,
        "tensorrt": placed.tensorrt,
        "objective": placed.objective,
        "time": frame_time(placed, report.bench if report else None),
    }
    if len(placed.plans) > 1:
        about["plan"] = (
            f"the first of {len(placed.plans)}, {100 * placed.plans[0].share:.0f} % of the frames"
        )
    source = context.config.resolve(section.onnx) if section.onnx else None
    if source is not None and path.exists() and path.samefile(source):
        raise UsageError(
            "this is the model file itself", where=str(path), hint="give --annotate another file"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    # the placed nodes are then not those of the file
    if source is None or used_rewrites(context).applied or cut_outputs(context):
        save_annotated(model(context), path, notes, about)
    else:
        annotate_file(source, path, notes, about)
