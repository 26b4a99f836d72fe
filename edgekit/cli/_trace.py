"""``edgekit trace``: everything that was measured, on one timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.pipeline import Pipeline

__all__ = ["command"]


@o.command(
    "trace",
    "edgekit trace configs/resnet50-orin.yaml --nsys report.sqlite\n"
    "edgekit trace bench.json --tegrastats board.log -o both.json",
)
@click.argument("source", required=False)
@click.option(
    "--nsys", multiple=True, type=o.FILE,
    help="Nsight Systems: an SQLite export, or a report where nsys is installed; repeatable.",
)  # fmt: skip
@click.option(
    "--profile", multiple=True, type=o.FILE,
    help="Layer times: trtexec --exportProfile, an IProfiler's, a verbose build log; repeatable.",
)  # fmt: skip
@click.option("--layer-info", type=o.FILE, help="trtexec --exportLayerInfo of the same engine.")
@click.option("--times", type=o.FILE, help="trtexec --exportTimes.")
@click.option("--tegrastats", type=o.FILE, help="A tegrastats log: power, temperature, clocks.")
@click.option(
    "--dla-stats", multiple=True, type=o.FILE, help="cuDLA's statistics of a task, CSV; repeatable."
)
@click.option(
    "--dla-core", type=click.IntRange(0, 15), default=0,
    help="DLA core of --profile and --dla-stats, for layers that no plan places (0).",
)  # fmt: skip
@click.option("-o", "--output", type=o.FILE, help="The trace (trace.json).")
@o.cut
@o.talk
def command(
    source: str | None, output: Path | None, part: dict[str, Any], json: bool, **options: Any
) -> None:
    from edgekit._plain import plain
    from edgekit.pipeline import TraceFiles, trace

    config, bench = _which(source)
    files = TraceFiles(
        bench, options["nsys"], options["profile"], options["layer_info"], options["times"],
        options["tegrastats"], options["dla_stats"], options["dla_core"],
    )  # fmt: skip
    quiet, verbose = options["quiet"], options["verbose"]
    if config is None:
        if any(part.values()):
            raise UsageError("--shape, --batch and --outputs go with a configuration")
        document = trace(files, output or Path("trace.json"))
    else:
        with o.open_pipeline(config, {"model": part}, quiet=quiet, verbose=verbose) as pipeline:
            document = trace(files, output or _beside(pipeline), pipeline=pipeline)
    if json:
        o.print_json(document)
        return
    for line in _process_lines(document["processes"]):
        print(plain(line, 300))
    for note in document["notes"]:
        print(plain(f"note: {note}", 1000))
    print(f"trace: {document['file']}")


def _process_lines(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields each source with how it was placed, once for all its processes, and those."""
    for _, group in groupby(processes, lambda one: (one["source"], one["pid"] // 100)):
        own = list(group)
        together = f"; its {len(own)} processes share one time" if len(own) > 1 else ""
        yield f"{own[0]['source']}: {own[0]['alignment']}{together}"
        yield from (f"  {process['name']}: {process['clock']}" for process in own)


def _which(source: str | None) -> tuple[str | None, Path | None]:
    """A configuration, or what a bench wrote."""
    if source is not None and source.lower().endswith(".json"):
        return None, Path(source)
    return source, None


def _beside(pipeline: Pipeline) -> Path:
    """The bench step's own trace stays as it is: it is what this one is made of."""
    return pipeline.out / "timeline.json"
