"""A run's documents: the facts of its report, the report's files, and the ``edgekit.run/1``."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from edgekit.benchmark.document import Bench
from edgekit.benchmark.inference import Inference
from edgekit.benchmark.measurement import Times
from edgekit.benchmark.trace.chrome import Trace
from edgekit.benchmark.validity import Verdict
from edgekit.bundles.files import PackedBundle
from edgekit.deployment.board import DescribedBoard
from edgekit.documents import (
    Coded,
    Count,
    Document,
    Figure,
    Precision,
    TargetName,
    omitted,
)
from edgekit.error_document import FinishedStep
from edgekit.files import regular_file, write_json
from edgekit.parsing.nvidia import ParserResult
from edgekit.pipeline.cache import file_stamps, library_versions
from edgekit.pipeline.context import Context
from edgekit.pipeline.found import StepResults, require_result
from edgekit.pipeline.steps.accuracy import accuracy
from edgekit.pipeline.steps.build import (
    BuiltPlan,
    board_builds,
    build_notes,
    note_groups,
)
from edgekit.pipeline.steps.deploy import ServedRelease, board_name
from edgekit.pipeline.steps.load import nvidia_parser_result, source
from edgekit.pipeline.steps.method import method_choice, plan_scales
from edgekit.pipeline.steps.plan import proposed_cuts
from edgekit.pipeline.steps.rewrite import judgement, model, network, used_rewrites
from edgekit.pipeline.steps.variants import with_built_buckets
from edgekit.placement.check_document import CheckCounts
from edgekit.placement.plan import Plan
from edgekit.quantize.given_scales import named_scales
from edgekit.quantize.scales import ChangedScale, change_rows
from edgekit.reference.accuracy import Accuracy
from edgekit.reference.method import MethodChoice
from edgekit.reports.schema import (
    Accuracy as ReportedAccuracy,
)
from edgekit.reports.schema import (
    RefitAnswer,
    Report,
    ReportedRewrite,
)
from edgekit.rewriting.graph import Applied
from edgekit.tensorrt.built import BoardBuild
from edgekit.version import __version__
from edgekit_device.protocol.codec import document, member, nullable, record
from edgekit_device.protocol.fields import Clock
from edgekit_device.release.journal import TakenBack

if TYPE_CHECKING:
    from edgekit.pipeline.steps.deploy import InstalledRelease
    from edgekit.reports.facts import RunFacts


class RunCalibration(Document):
    """The source of the INT8 scales; ``choice`` is how the method was chosen."""

    method: str
    choice: Annotated[MethodChoice, Coded()] | None
    data: str
    changes: list[Annotated[ChangedScale, Coded()]]


class BriefBench(Document):
    """The summary of a measurement; bench.json has the whole measurement.

    Attributes:
        iterations: Frames of all streams.
    """

    clock: Clock | None
    backend: str | None
    latency_ms: Times | None
    throughput_qps: Figure | None
    iterations: Count | None
    verdict: Verdict | None


@document(frozen=True)
class RunRelease(ServedRelease):
    """The release that a board serves after a run.

    Attributes:
        taken_back: The bundle's own release, if the board rolled it back and serves another
            release.
    """

    taken_back: TakenBack | None = member(nullable(record(TakenBack)))


class RunDocument(Document):
    """The results of a run and the paths of its files."""

    schema_: Literal["edgekit.run/1"] = Field(alias="schema")
    name: str
    target: TargetName
    precision: Precision
    backend: str
    steps: list[Annotated[FinishedStep, Coded()]]
    check: Annotated[CheckCounts, Coded()]
    rewrites: list[Annotated[Applied, Coded()]]
    calibration: RunCalibration | None
    plan: Annotated[Plan, Coded()]
    built: list[Annotated[BoardBuild, Coded()]]
    bundle: Annotated[PackedBundle, Coded()]
    accuracy: Annotated[Accuracy, Coded()]
    refit: RefitAnswer
    infer: Inference
    bench: BriefBench
    board: Annotated[DescribedBoard, Coded()]
    releases: list[Annotated[RunRelease, Coded()]]
    files: dict[str, str]
    notes: list[str]
    parser: Annotated[ParserResult, Coded()] | None = omitted()


def run_document(
    context: Context,
    builds: Sequence[BuiltPlan],
    found: StepResults,
    files: Mapping[str, str],
    steps: Sequence[FinishedStep],
) -> RunDocument:
    """Returns the document of a run from the results of its steps."""
    scales, rewrites = plan_scales(context), used_rewrites(context)
    check, bench = require_result(found.check), require_result(found.bench)
    releases = [
        RunRelease(
            board=release.board,
            release=release.release,
            digest=release.digest,
            bytes_sent=release.bytes_sent,
            previous=release.previous,
            taken_back=release.taken_back,
            notes=release.notes,
        )
        for release in found.deploy
    ]
    return RunDocument(
        schema="edgekit.run/1",
        name=context.file.name,
        target=context.file.target,
        precision=context.file.precision,
        backend=builds[0].artefacts.backend,
        steps=list(steps),
        check=CheckCounts(
            layers=check.layers,
            dla_layers=check.dla_layers,
            gpu_layers=check.gpu_layers,
            dla_macs_fraction=check.dla_macs_fraction,
            candidates=check.candidates,
            loadables=check.loadables,
        ),
        rewrites=list(rewrites.applied),
        calibration=RunCalibration(
            method=scales.method,
            choice=method_choice(context),
            data=scales.data,
            changes=list(change_rows(scales.changes)),
        )
        if scales
        else None,
        plan=with_built_buckets(context),
        built=list(board_builds(builds)),
        bundle=require_result(found.bundle),
        accuracy=accuracy(context),
        refit=require_result(found.refit),
        infer=require_result(found.infer),
        bench=BriefBench(
            clock=bench.clock,
            backend=bench.backend,
            latency_ms=bench.latency_ms,
            throughput_qps=bench.throughput_qps,
            iterations=bench.iterations,
            verdict=bench.verdict,
        ),
        # inference and benchmark run on the first board
        board=releases[0].board,
        releases=releases,
        files=dict(files),
        notes=build_notes(context, builds),
        parser=nvidia_parser_result(context),
    )


def report_facts(
    context: Context,
    builds: Sequence[BuiltPlan],
    bundle: PackedBundle,
    release: InstalledRelease,
    refit: RefitAnswer,
    bench: Bench,
    files: Mapping[str, str],
    steps: Sequence[FinishedStep],
) -> RunFacts:
    """Returns the facts that the report is made from."""
    from edgekit.reports.facts import RunFacts

    scales, placed, applied = (
        plan_scales(context),
        with_built_buckets(context),
        used_rewrites(context).applied,
    )
    gate, back = context.file.accuracy, bench.taken_back
    error = accuracy(context)
    # the parts of the accuracy comparison that are not the user's
    random = "random weights" if context.file.model.builtin is not None else ""
    synthetic = "synthetic inputs" if context.file.calibration.data is None else ""
    stand_in = " and ".join(filter(None, (random, synthetic)))
    figures = ReportedAccuracy(
        cosine=error.cosine,
        snr_db=error.snr_db,
        max_abs=error.max_abs,
        top1_agreement=error.top1_agreement,
        boxes=error.boxes,
        groups=list(error.groups),
        scores=list(error.scores),
        failures=list(error.failures),
        data=error.data,
        stand_in=stand_in,
        inputs=error.count,
        metric=gate.metric,
        min=gate.min,
        # a run that misses its gate ends before the report
        passed=None if gate.min is None else True,
        computed="emulated on a CPU",  # also if a board built its own engines
        nonfinite=list(error.nonfinite),
        constant=list(error.constant),
        segments=list(error.per_segment),
    )
    return RunFacts(
        name=context.file.name,
        model=source(context).source,
        target=context.target,
        plan=placed,
        network=network(context),
        judgement=judgement(context),
        mode=context.file.build.mode,
        backend=builds[0].artefacts.backend,
        scales=None if scales is None else named_scales(scales, model(context)),
        accuracy=figures,
        bundle=bundle,
        # of the release that serves: after a rollback it has no layers of this plan
        refit=None if back else refit,
        built=board_builds(builds),
        bench=bench,
        trace=None if back else _read_trace(files["trace"]),
        board=board_name(release.board),
        rewrites=tuple(map(ReportedRewrite.of, applied)),
        cuts=proposed_cuts(context),
        steps=tuple(steps),
        files=files,
        config_text=context.config.text,
        environment={
            "edgekit": __version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            **library_versions(),
        },
        notes=tuple(build_notes(context, builds)),
        note_groups=note_groups(context, builds),
    )


def write_report(context: Context, facts: RunFacts, out: Path) -> Report:
    """Writes the report's page and documents unless they are there; returns the report."""
    from edgekit.reports.document import report_document
    from edgekit.reports.html.page import write_report
    from edgekit.reports.html.verdict import with_earlier_comparison

    report = report_document(facts)
    # a comparison by `edgekit report --baseline` outlives a run that only reuses its measurement
    shown = with_earlier_comparison(report, out / "report.json")
    document = shown.to_json()
    # all but the steps' times and whether they were reused
    parts = {k: v for k, v in document.items() if k != "steps"}
    key = context.cache.key("report", parts, str(out.absolute()))
    paths = [out / name for name in ("report.html", "report.json", "plan.json")]
    written = context.cache.get("report", key)
    if written is None or written != file_stamps(paths) or context.force:
        context.session.fresh.add("report")
        write_report(shown, paths[0])
        write_json(paths[1], document)
        write_json(paths[2], with_built_buckets(context).to_json())
        context.cache.put("report", key, file_stamps(paths))
    return report


def _read_trace(path: str) -> Trace | None:
    """Returns the trace that the bench step wrote."""
    with contextlib.suppress(OSError, ValueError):
        return Trace.model_validate_json(regular_file(Path(path)).read_bytes())
    return None
