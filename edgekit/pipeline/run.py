"""`STEPS`: the steps of a run in order, each a function from a run to the run with its result.
`required_steps` picks those that a command needs, `run_step` runs a single step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundles.files import PackedBundle
from edgekit.pipeline.boards.changes import taken_back_note
from edgekit.pipeline.boards.requests import describe_board
from edgekit.pipeline.context import Context
from edgekit.pipeline.found import StepResults, require_result
from edgekit.pipeline.outputs import check_output_folder
from edgekit.pipeline.progress import StepLog, StepRecord
from edgekit.pipeline.steps.accuracy import accuracy, pass_accuracy_gate
from edgekit.pipeline.steps.beforehand import (
    OtherWeights,
    check_boards,
    check_layers,
    check_not_taken_back,
    check_parse,
    check_weights,
    remember_bundles,
)
from edgekit.pipeline.steps.buckets import calibrate_buckets, gpu_profiles
from edgekit.pipeline.steps.build import BuiltPlan, build_for, every_build
from edgekit.pipeline.steps.build_request import (
    check_build_options,
    check_bundled,
    check_cuda_graph,
    check_names,
    check_opaque,
    check_planned,
)
from edgekit.pipeline.steps.bundle import pack_bundle, write_bundle, write_typed
from edgekit.pipeline.steps.calibrate import (
    check_data_fits,
    compute_scales,
    ranges,
    with_measured_ranges,
)
from edgekit.pipeline.steps.deploy import (
    ConnectedBoards,
    InstalledRelease,
    InstallSteps,
    SigningKey,
)
from edgekit.pipeline.steps.judge import check
from edgekit.pipeline.steps.labelled import check_labelled_fits, labelled_result
from edgekit.pipeline.steps.load import needs_qdq_nodes, requested_shapes, require_parse
from edgekit.pipeline.steps.method import chooses_method, method, method_choice, scales
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.plugin_sections import check_plugins
from edgekit.pipeline.steps.rewrite import found_rewrites, model, other_weights, used_rewrites
from edgekit.pipeline.steps.variants import built_buckets, gpu_range_context
from edgekit.placement.buckets import shape_text
from edgekit.placement.plan import has_known_time, qualify_proof
from edgekit.quantize.given_scales import named_scales
from edgekit.reference.accuracy import accuracy_text
from edgekit.reference.method import methods_are_equal
from edgekit.text import counted, listed, percent

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.steps.detect import Pictures
    from edgekit.placement.check_document import Verdict
    from edgekit.placement.plan import Plan
    from edgekit_device.protocol.detection import Options


# steps that also run for a model that the board cannot parse; all others refuse it
_JUDGES = frozenset({"check", "rewrite"})
#: Name of the Q/DQ model in a run's folder.
TYPED_NAME = "qdq.onnx"


@dataclass(frozen=True)
class Run:
    """The steps of a command and their results.

    Attributes:
        context: The configuration and the decisions of the steps so far.
        boards: Its boards, connected when they are first needed.
        signing: The key that signs bundles.
        out: Folder for bundle, report and trace.
        log: The steps' times and states.
        weights: The weights of a refit.
        again: True if a release that a board rolled back is installed again.
        or_serving: True if the run continues with the release that a board serves, if the board
            rolled the bundle back.
        anew: True if it measures even if a result is cached.
        found: The results of the steps.
    """

    context: Context
    boards: ConnectedBoards
    signing: SigningKey
    out: Path
    log: StepLog
    weights: OtherWeights | None = None
    again: bool = False
    or_serving: bool = False
    anew: bool = False
    found: StepResults = field(default_factory=StepResults)

    @property
    def deploys(self) -> bool:
        """Returns True if the build is deployed to boards."""
        return "deploy" in self.log.names

    @property
    def builds(self) -> list[BuiltPlan]:
        """Returns the different builds, in the order of the boards."""
        return every_build(self.context, self.boards)

    def bundle_for(self, client: BoardClient) -> Bundle:
        """Returns a board's bundle: engines are not portable between kinds of boards."""
        built = build_for(self.context, self.boards, client)
        return pack_bundle(self.context, built, self.signing)


@dataclass(frozen=True)
class Step:
    """A step of a run.

    Its result has its cache key in the function that computes it: ``Context.stored``.

    Attributes:
        name: Its name, for people and documents.
        run: Returns the run with the step's result; sets the record's detail.
        needs: Steps that run before it.
        before: Called before the step begins, in a run that builds or deploys: they raise errors
            early and start work that takes long.
        others: Further steps that it runs; it then begins its records itself.
        reuses: True if the step counts as "reused" when it computed no result.
    """

    name: str
    run: Callable[[Run, StepRecord], Run]
    needs: tuple[str, ...] = ()
    before: tuple[Callable[[Run], None], ...] = ()
    others: tuple[str, ...] = ()
    reuses: bool = True


def run_step(run: Run, step: Step) -> Run:
    """Runs a step and returns the run with its result."""
    # these checks read weights and ask boards: `check` and `plan` alone stay quick
    if "build" in run.log.names or run.deploys:
        for call in step.before:
            call(run)
    if step.others:
        # it logs its parts as steps of their own: a step around them would be timed twice
        return step.run(run, StepRecord(step.name))
    judges = _JUDGES.issuperset(run.log.names)
    fresh = run.context.session.fresh
    # a step is "reused" if it computed nothing itself, whatever the steps before it computed
    fresh.clear()
    with run.log.step(step.name) as record:
        check_plugins(run.context)
        if not judges:
            require_parse(run.context)
        run = step.run(run, record)
        if step.reuses and not fresh:
            record.reuse()
    return run


# Refusals before any costly work.


def _check_request(run: Run) -> None:
    if "bundle" in run.log.names:
        check_output_folder(run.out)
        # a missing key would stop the run only after the build
        run.signing.check()
    check_output_folder(run.context.cache.folder)
    check_build_options(run.context)


def _check_run_boards(run: Run) -> None:
    if run.deploys:
        check_boards(run.context, run.boards, deploys=True)


def _check_run_weights(run: Run) -> None:
    check_opaque(run.context)
    if "bundle" in run.log.names:
        check_bundled(run.context)
    check_data_fits(run.context)
    check_labelled_fits(run.context)
    if run.deploys:
        check_parse(run.context, run.boards)
    if run.weights is not None:
        check_weights(run.context, run.weights)


def _check_taken_back(run: Run) -> None:
    # a board would refuse the bundle only after it is built and sent
    if run.deploys and not (run.again or run.or_serving or run.context.force):
        key, weights = run.signing.public_key, run.weights.digest if run.weights else ""
        check_not_taken_back(run.context, run.boards, key, weights)


def _check_network(run: Run) -> None:
    check_names(run.context)
    check_layers(run.context)
    if run.weights is not None:
        other_weights(run.context, run.weights.path)
    # a deployment asked its boards in the first steps
    if not run.deploys:
        check_boards(run.context, run.boards, deploys=False)
        check_parse(run.context, run.boards)
    if "bench" in run.log.names:
        from edgekit.pipeline.steps.bench import check_bench_frames, check_bench_shapes

        check_bench_shapes(run.context)
        # only `bench` itself always measures; `run` shows the newest measurement
        check_bench_frames(run.context, may_reuse="report" in run.log.names)


def _check_graph(run: Run) -> None:
    if "bench" in run.log.names:
        check_cuda_graph(run.context)


# The steps.


def _check(run: Run, record: StepRecord) -> Run:
    return record_check(run, record, check(run.context))


def record_check(run: Run, record: StepRecord, verdict: Verdict) -> Run:
    """Returns the run with its check, and sets the record's detail."""
    figures = verdict.figures
    known = "known " if verdict.uncounted else ""
    record.detail = f"{counted(figures.layers, 'layer')}, {figures.dla_layers} could run on the DLA"
    if verdict.multiplies:
        share = percent(figures.dla_macs_fraction)
        record.detail += f" ({share} of the {known}MACs)"
    return replace(run, found=replace(run.found, check=figures))


def _rewrite(run: Run, record: StepRecord) -> Run:
    applied = used_rewrites(run.context).applied
    names = Counter(item.rewrite for item in applied)
    left = len(found_rewrites(run.context).applied) - len(applied)
    record.detail = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in names.items()) or (
        f"{counted(left, 'rewrite')} not used: the plan is better without"
        if left
        else "nothing to rewrite"
    )
    return run


def _calibrate(run: Run, record: StepRecord) -> Run:
    context = with_measured_ranges(run.context)
    shapes = calibrate_buckets(context)
    of = f"; the same of {counted(shapes - 1, 'other shape')}" if shapes > 1 else ""
    if not chooses_method(context):
        run = calibrate_by_method(run, record)
        record.detail += of
        return run
    # the method is chosen after the plan
    found = ranges(context)
    # any method will do: only the number of tensors is reported
    named = named_scales(compute_scales(context, found, "minmax"), model(context))
    record.detail = (
        f"ranges of {counted(len(named.scales) + len(named.missing), 'tensor')}, by "
        f"{len(found.amax)} methods, {found.data}{of}"
    )
    return replace(run, context=context)


def calibrate_by_method(run: Run, record: StepRecord) -> Run:
    """Returns the run with the scales of its method, which is chosen here if it is open."""
    context = with_measured_ranges(run.context)
    found = scales(context)
    if found is None:
        record.detail = f"{context.file.precision} needs no scales"
    else:
        named = named_scales(found, model(context))
        none = f", {counted(len(named.missing), 'tensor')} without" if named.missing else ""
        record.detail = f"{counted(len(named.scales), 'scale')}{none}, {found.method}, {found.data}"
    return replace(run, context=context)


def _plan(run: Run, record: StepRecord) -> Run:
    found = plan(run.context)
    check_planned(run.context)
    # the engine of a range has its own plan, and options of builds with profiles
    if (rest := gpu_range_context(run.context)) is not None:
        check_planned(rest, gpu_profiles(run.context))
    proof = qualify_proof(found.optimal, found.extrapolated, found.unknown_cost)
    proof = proof or (f"gap {percent(found.gap, 2)}" if has_known_time(found) else "cost unknown")
    loadables = counted(len(found.loadables), "loadable")
    record.detail = f"{_dla_text(found)}, {loadables}, {found.objective}, {proof}"
    return replace(run, found=replace(run.found, plan=found))


def _dla_text(found: Plan) -> str:
    on_dla = sum(layer.device != "GPU" for layer in found.layers)
    return f"{on_dla} of {len(found.layers)} layers on the DLA"


def _build(run: Run, record: StepRecord) -> Run:
    from edgekit.reports.text import clean

    run = replace(run, context=pass_accuracy_gate(run.context))
    context, builds = run.context, run.builds
    error, built = accuracy(context), builds[0].artefacts
    on = f"{clean(error.data)}, emulated on this CPU"
    boxes = "" if error.boxes is None else f", boxes {error.boxes:.3f} ({error.objects})"
    figures = f"cosine {error.cosine:.5f} against FP32{boxes}"
    gate = context.file.accuracy
    record.detail = (
        f"{counted(sum(len(s) for _, s in built.lanes), 'segment')}, {built.backend} backend; "
        f"{accuracy_text(error, figures, gate.metric, gate.min)} ({on})"
    )
    if builds[0].board:
        record.detail += "; built on " + ", ".join(build.board for build in builds)
    if chosen := method_choice(context):
        record.detail += f"; INT8 by {method(context)}"
        if context.method_by_gate:
            record.detail += ", taken by the accuracy gate"
        elif methods_are_equal(chosen):
            record.detail += ", because the methods give equal results here"
    if (labelled := labelled_result(context)) is not None:
        record.detail += f"; {labelled.words}"
        context.note(labelled.words)
    if context.fp16_by_gate:
        record.detail += f"; kept in FP16: {listed(context.fp16_by_gate)}"
    own = [bucket.bucket for bucket in built_buckets(context) if bucket.bucket.accuracy is not None]
    if own[1:]:
        worst = min(own, key=lambda bucket: bucket.accuracy.cosine if bucket.accuracy else 1.0)
        figure = worst.accuracy.cosine if worst.accuracy else 1.0
        record.detail += (
            f"; worst of {counted(len(own), 'shape')}: cosine {figure:.5f} "
            f"({shape_text(worst.shapes)})"
        )
    # the accuracy gate may have planned anew, with layers in FP16
    places = [
        {x.name: x.device for x in placed.layers}
        for placed in (require_result(run.found.plan), plan(context))
    ]
    if places[0] != places[1]:
        record.detail += f"; placement is now {_dla_text(plan(context))}"
    return run


def _bundle(run: Run, record: StepRecord) -> Run:
    context, path = run.context, run.out / "bundle.ekb"
    # engines are not portable: each kind of board has its own file, the first the usual name
    first, *more = run.builds
    bundle = pack_bundle(context, first, run.signing)
    write_bundle(context, bundle, path)
    others = []
    for built in more:
        other = path.with_name(f"bundle-{built.board}.ekb")
        write_bundle(context, pack_bundle(context, built, run.signing), other)
        others.append(str(other))
    if others:
        record.detail = f"{1 + len(others)} kinds of boards; "
    record.detail += (
        f"{bundle.full_bytes:,} bytes, {bundle.stripped_bytes:,} without weights, signed"
    )
    typed = write_typed(context, run.out / TYPED_NAME)
    if typed is not None:
        record.detail += f"; TensorRT builds from {typed.name}"
    packed = PackedBundle(
        path=str(path),
        bytes=bundle.full_bytes,
        stripped_bytes=bundle.stripped_bytes,
        digest=bundle.digest,
        others=tuple(others),
        qdq=None if typed is None else str(typed),
    )
    return replace(run, found=replace(run.found, bundle=packed))


def store_bundles(run: Run, bundle_for: Callable[[BoardClient], Bundle]) -> None:
    """Stores each board's bundle, so that the next run can use it in its first seconds."""
    bundles = ((client, bundle_for(client).digest) for client in run.boards.clients())
    weights = run.weights.digest if run.weights else ""
    remember_bundles(run.context, run.boards, run.signing.public_key, bundles, weights)


def _deploy(run: Run, record: StepRecord) -> Run:
    store_bundles(run, run.bundle_for)
    releases = run.boards.install(
        run.bundle_for,
        run.log,
        always=run.context.force,
        put_back=run.again,
        or_serving=run.or_serving,
    )
    return replace(run, found=replace(run.found, deploy=tuple(releases)))


def update_first_board(run: Run, record: StepRecord) -> Run:
    """Brings the first board to the bundle, unless the board serves it or its refit.

    If the board rolled the bundle back, the run uses the release that the board serves.
    """
    context, client = run.context, run.boards.clients()[0]
    run.boards.trust_signer()
    bundle = run.bundle_for(client)
    key = context.cache.key("refitted", bundle.digest)
    state = client.app_releases(bundle.name)
    serving = state.current_release
    # releases that `edgekit refit` made of this bundle stay; any other release is replaced
    if not serving or serving.digest not in (context.cache.get("refitted", key) or []):
        releases = run.boards.install(
            run.bundle_for, run.log, put_back=run.again, or_serving=run.or_serving
        )
        return replace(run, found=replace(run.found, deploy=tuple(releases)))
    back = state.taken_back
    # a release's name ends in its bundle's digest: another bundle's rollback does not count
    if back is not None and not back.release.endswith(bundle.digest[:12]):
        back = None
    with InstallSteps(client, bundle, run.log) as shown:
        shown.reused(serving.id, other=back is not None)
    release = InstalledRelease(
        board=describe_board(client),
        release=serving.id,
        digest=serving.digest,
        bytes_sent=0,
        previous=state.previous,
        reused=True,
        notes=()
        if back is None
        else (taken_back_note(client.name, serving.id, back, context.config.path),),
        taken_back=back,
        refitted=True,
    )
    return replace(run, found=replace(run.found, deploy=(release,)))


def _infer(run: Run, record: StepRecord) -> Run:
    return infer_on(run, record, None, None)


def infer_on(
    run: Run,
    record: StepRecord,
    source: Path | None,
    output: Path | None,
    draw: Path | None = None,
) -> Run:
    """Returns the run with an inference of these inputs, or of the first calibration input.

    A detector's boxes are drawn in the folder ``draw``.
    """
    from edgekit.pipeline.steps.bench import infer

    path = output or run.out / "outputs.npz"
    release, backend = run.found.deploy[0], run.builds[0].artefacts.backend
    manifest = None
    # after a rollback the board serves another bundle, which this manifest does not describe
    if not requested_shapes(run.context).is_static and release.taken_back is None:
        manifest = run.bundle_for(run.boards.clients()[0]).manifest
    found = infer(run.context, run.boards, release, backend, source, path, record, draw, manifest)
    return replace(run, found=replace(run.found, infer=found))


def detect_step(pictures: Pictures, options: Options) -> Step:
    """Returns the step that runs a detector on pictures and keeps objects by ``options``."""

    def detected(run: Run, record: StepRecord) -> Run:
        from edgekit.pipeline.steps.detect import detect_on

        release, backend = run.found.deploy[0], run.builds[0].artefacts.backend
        found = detect_on(run.context, run.boards, release, backend, pictures, options, record)
        return replace(run, found=replace(run.found, detections=found))

    return Step("detect", detected, ("deploy",))


def _bench(run: Run, record: StepRecord) -> Run:
    from edgekit.pipeline.steps.bench import bench

    release, backend = run.found.deploy[0], run.builds[0].artefacts.backend
    found = bench(run.context, run.boards, release, backend, run.out, record, again=run.anew)
    return replace(run, found=replace(run.found, bench=found))


def run_files(out: Path, *, typed: bool) -> dict[str, str]:
    """Returns the files that a run leaves in its folder; ``typed``: with a Q/DQ model."""
    names = {
        "report": "report.html",
        "trace": "trace.json",
        "bundle": "bundle.ekb",
        "bench": "bench.json",
        "plan": "plan.json",
        "outputs": "outputs.npz",
    }
    if typed:
        names["qdq"] = TYPED_NAME
    return {key: str(out / name) for key, name in names.items()}


def _report(run: Run, record: StepRecord) -> Run:
    from edgekit.pipeline.report import report_facts, write_report
    from edgekit.reports.schema import RefitAnswer

    found, files = run.found, run_files(run.out, typed=needs_qdq_nodes(run.context))
    record.detail = files["report"]
    release = found.deploy[0]
    refit = RefitAnswer(
        # this machine can compare another inference, unless TensorRT's engines gave it
        bit_equal=bool(release.bit_equal and require_result(found.infer).bit_equal is not False),
        tensors=len(pack_bundle(run.context, run.builds[0], run.signing).manifest.weights),
    )
    facts = report_facts(
        run.context,
        run.builds,
        require_result(found.bundle),
        release,
        refit,
        require_result(found.bench),
        files,
        run.log.done,
    )
    report = write_report(run.context, facts, run.out)
    return replace(run, found=replace(found, refit=refit, report=report))


STEPS: tuple[Step, ...] = (
    Step("check", _check, before=(_check_request, _check_run_boards)),
    Step("rewrite", _rewrite, before=(_check_run_weights, _check_taken_back)),
    Step("calibrate", _calibrate, ("rewrite",), before=(_check_network,)),
    Step("plan", _plan, ("rewrite",)),
    Step("build", _build, ("check", "calibrate", "plan"), before=(_check_graph,)),
    Step("bundle", _bundle, ("build",)),
    Step("deploy", _deploy, ("bundle",), others=("refit", "self-test")),
    Step("infer", _infer, ("deploy",)),
    Step("bench", _bench, ("deploy",)),
    Step("report", _report, ("infer", "bench")),
)


#: Names of all steps, and of those without a board.
STEP_NAMES = tuple(name for step in STEPS for name in (step.name, *step.others))
HOST_STEPS = STEP_NAMES[: STEP_NAMES.index("bundle")]


def step_names(steps: Iterable[Step]) -> list[str]:
    """Returns the names of the steps, including those that a step runs."""
    return [name for step in steps for name in (step.name, *step.others)]


def required_steps(*names: str, **instead: Callable[[Run, StepRecord], Run]) -> list[Step]:
    """Returns these steps and all that they need, in order.

    Args:
        names: Names of steps.
        instead: A replacement for the step of the same name in ``run``.
    """
    wanted = set(names)
    # a step comes after all that it needs, so one pass backwards also finds the needs of needs
    for step in reversed(STEPS):
        if step.name in wanted:
            wanted.update(step.needs)
    return [
        replace(step, run=instead.get(step.name, step.run)) for step in STEPS if step.name in wanted
    ]
