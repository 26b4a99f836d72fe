"""One timeline of everything that was measured: ``edgekit trace``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import DataError, UsageError

if TYPE_CHECKING:
    from edgekit.bench import NsysSource, Source
    from edgekit.pipeline._pipeline import Pipeline
    from edgekit.placement import Plan

__all__ = ["TraceFiles", "trace"]

SCHEMA = "edgekit.trace-summary/1"
_NOTED = 8


@dataclass(frozen=True)
class TraceFiles:
    """What is laid on one timeline, by who wrote it.

    Attributes:
        bench: ``edgekit bench``'s document or trace.
        nsys: Nsight Systems' exports or reports.
        profiles: What ``read_profile`` reads.
        layer_info: trtexec's --exportLayerInfo of the profiles' engine.
        times: trtexec's --exportTimes.
        tegrastats: Its log.
        statistics: cuDLA's statistics of tasks, as CSV.
        core: DLA core of profiles and statistics whose layers no plan places.
    """

    bench: Path | None = None
    nsys: tuple[Path, ...] = ()
    profiles: tuple[Path, ...] = ()
    layer_info: Path | None = None
    times: Path | None = None
    tegrastats: Path | None = None
    statistics: tuple[Path, ...] = ()
    core: int = 0

    def __bool__(self) -> bool:
        given = (self.bench, self.nsys, self.profiles, self.times, self.tegrastats)
        return any(given) or bool(self.statistics)


def trace(files: TraceFiles, out: Path, *, pipeline: Pipeline | None = None) -> dict[str, Any]:
    """Writes the trace and returns what is in it, an ``edgekit.trace-summary/1`` document.

    Args:
        files: What was measured.
        out: Gets the trace.
        pipeline: The configuration's: gives the plan, which names layers and predicts, and the
            measurement that the bench step left in its folder.

    Raises:
        UsageError: There is nothing to show.
        DataError: A file is damaged or none of its kind; the trace is as it was before.
    """
    from edgekit.bench import linked_layers, write_trace

    if not files and pipeline is None:
        raise UsageError(
            "there is nothing to put on a timeline",
            hint="give a configuration, a bench.json, or an option such as --nsys FILE",
        )
    if files.layer_info is not None and not files.profiles:
        raise UsageError("--layer-info goes with --profile", hint="add --profile FILE")
    plan = pipeline.plan() if pipeline is not None else None
    notes: list[str] = []
    with ExitStack() as stack:
        sources: list[Source] = []
        about: dict[str, Any] = {"name": out.stem}
        sources += _own(files, pipeline, about, notes)
        linked = linked_layers(plan)
        profiled = [_nsys(path, linked, stack) for path in files.nsys]
        sources += profiled
        offsets = (source.export.local_offset_s for source in profiled)
        offset = next((seconds for seconds in offsets if seconds is not None), None)
        sources += _others(files, pipeline, plan, notes, offset)
        written = write_trace(out, sources, about)
        for source in profiled:
            notes += _notes_of(source, plan)
        wrong = sum(source.export.wrong.total() for source in profiled)
    if written.left_out:
        notes.append(f"{written.left_out} events beyond the first 5,000,000 were left out")
    return {
        "schema": SCHEMA, "file": str(out), "events": written.events,
        "seconds": written.last_us / 1e6, "processes": written.processes,
        "left_out": written.left_out + wrong, "notes": notes,
    }  # fmt: skip


def _own(
    files: TraceFiles, pipeline: Pipeline | None, about: dict[str, Any], notes: list[str]
) -> list[Source]:
    """What edgekit itself measured and predicted."""
    from edgekit.bench import KeptTrace, read_bench, read_trace, trace_document

    if files.bench is not None:
        if files.bench.name.endswith("trace.json"):
            found: Source = read_trace(files.bench)
        else:
            found, document = read_bench(files.bench)
            about["name"] = str(document.get("name") or about["name"])
        return [found]
    if pipeline is None:
        return []
    about |= {"name": pipeline.file.name, "target": pipeline.work.plan.target}
    kept = pipeline.out / "trace.json"
    if kept.is_file():
        return [read_trace(kept)]
    notes.append("nothing of this configuration was measured yet: only the prediction is shown")
    document = trace_document(
        pipeline.work.plan, None, dla_cores=pipeline.work.target.dla.cores,
        network=pipeline.work.network, name=pipeline.file.name,
    )  # fmt: skip
    return [KeptTrace("prediction", document)]


def _nsys(path: Path, linked: Any, stack: ExitStack) -> NsysSource:
    from edgekit.bench import NsysSource, exported

    return NsysSource(stack.enter_context(exported(path)), path.name, linked)


def _others(
    files: TraceFiles,
    pipeline: Pipeline | None,
    plan: Plan | None,
    notes: list[str],
    utc_offset_s: float | None,
) -> list[Source]:
    from edgekit.bench import (
        FIRST_LOAD,
        Prepared,
        linked_layers,
        monitor_process,
        monitor_wall,
        other_board,
        profile_process,
        read_statistics,
        read_tegrastats,
        read_times,
        statistics_process,
        times_process,
    )
    from edgekit.placement import read_profile

    cores = pipeline.work.target.dla.cores if pipeline is not None else 0
    linked = linked_layers(plan) if plan is not None else None
    found: list[Source] = []
    for path in files.profiles:
        profile = read_profile(path, layer_info=files.layer_info)
        notes += [f"{path.name}: {note}" for note in profile.notes[:_NOTED]]
        with _told_of(path):
            process = profile_process(
                profile, pid=1, dla_cores=cores, core=files.core, linked=linked
            )
        found.append(Prepared(path.name, [process]))
    for path in files.statistics:
        process = statistics_process(
            read_statistics(path), pid=1, core=files.core, dla_cores=cores, linked=linked
        )
        found.append(Prepared(path.name, [process]))
    if files.times is not None:
        with _told_of(files.times):
            process = times_process(read_times(files.times), pid=1)
        found.append(Prepared(files.times.name, [process]))
    if files.tegrastats is not None:
        rails = pipeline.work.target.rails if pipeline is not None else None
        monitor: Mapping[str, Any] = read_tegrastats(
            files.tegrastats, rails=rails, utc_offset_s=utc_offset_s
        )
        with _told_of(files.tegrastats):
            notes += [
                f"{files.tegrastats.name}: {one}"
                for one in monitor["warnings"]
                if one != FIRST_LOAD
            ]
        if pipeline is not None:
            reason, differences = other_board(monitor, pipeline.work.target)
            reasons = [f"of another board: {reason}"] if reason else differences
            notes += [f"{files.tegrastats.name}: {one}" for one in reasons]
        processes = monitor_process(
            {"monitor": monitor}, pid=1, what=f"monitors ({files.tegrastats.name})"
        )
        wall = monitor_wall(monitor)
        start = min((s["t_s"] for s in monitor["samples"]), default=0.0)
        # the process begins with its first sample
        at = None if wall is None else wall + start
        found.append(Prepared(files.tegrastats.name, processes, wall=at))
    return found


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Names the file of a time that is none."""
    try:
        yield
    except DataError as error:
        error.where = error.where or str(path)
        raise


def _notes_of(source: NsysSource, plan: Plan | None) -> list[str]:
    notes: list[str] = []
    wrong = source.export.wrong
    if wrong:
        words = ", ".join(f"{n} of {table} {why}" for (table, why), n in wrong.most_common(_NOTED))
        notes.append(f"{source.name}: {counted(wrong.total(), 'event')} left out: {words}")
    unknown: Sequence[tuple[str, int]] = source.generic.unknown.most_common(_NOTED)
    if unknown:
        words = ", ".join(f"{name} ({count})" for name, count in unknown)
        notes.append(f"{source.name}: generic events that are no DLA's and no metrics: {words}")
    if plan is not None and not source.matched:
        notes.append(
            f"{source.name}: no range is called like a layer of the plan; build with profiling "
            "verbosity layer_names_only or detailed, and profile with --trace=cuda,nvtx"
        )
    return notes
