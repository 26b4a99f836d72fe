"""`Pipeline`: the commands on a configuration. It runs the steps that the command needs
(`run.STEPS`) and returns the command's document.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import Self

from edgekit.bundles.files import write as write_file
from edgekit.bundles.manifest import Bundle, check_valid_until
from edgekit.config.error_places import set_place
from edgekit.config.loader import Config
from edgekit.errors import BoardError, EdgekitError, UsageError
from edgekit.files import write_json
from edgekit.network.writing import save as save_model
from edgekit.parsing.nvidia import module_folder
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context, Session
from edgekit.pipeline.found import require_result
from edgekit.pipeline.measured_scales import MeasuredScales, measured_scales
from edgekit.pipeline.outputs import check_config_outputs, check_output_folder
from edgekit.pipeline.progress import Progress, SilentProgress, StepLog, StepRecord
from edgekit.pipeline.run import (
    Run,
    Step,
    calibrate_by_method,
    detect_step,
    infer_on,
    record_check,
    required_steps,
    run_files,
    run_step,
    step_names,
    store_bundles,
    update_first_board,
)
from edgekit.pipeline.steps.accuracy import (
    accuracy,
    approximations,
    check_accuracy,
    refit_accuracy,
)
from edgekit.pipeline.steps.beforehand import (
    OtherWeights,
    check_configuration,
    known_bundle,
    read_weights,
)
from edgekit.pipeline.steps.buckets import with_checked_buckets, with_planned_buckets
from edgekit.pipeline.steps.build import (
    Build,
    backend_for,
    board_builds,
    build_for,
    build_notes,
    built_segments,
    check_bundle,
    every_build,
)
from edgekit.pipeline.steps.build_request import check_requested, functions_only
from edgekit.pipeline.steps.bundle import (
    Packed,
    bundle_with_weights,
    pack_bundle,
    read_bundle,
    with_weights_from,
)
from edgekit.pipeline.steps.deploy import ConnectedBoards, Deployed, Refitted
from edgekit.pipeline.steps.judge import brief_check, check_original, verdict
from edgekit.pipeline.steps.load import (
    needs_qdq_nodes,
    note_parse,
    nvidia_parser_result,
    options_from_section,
    source,
)
from edgekit.pipeline.steps.method import scales
from edgekit.pipeline.steps.plan import proposed_cuts
from edgekit.pipeline.steps.plugin_sections import missing_plugins
from edgekit.pipeline.steps.rewrite import (
    model,
    other_weights,
    rewritten_model,
    used_rewrites,
)
from edgekit.placement.rewrite_document import Rewriting
from edgekit.reference.weights import hint_for_other_weights
from edgekit.text import counted
from edgekit_device.protocol.codec import document
from edgekit_device.protocol.codec import write as write_document

if TYPE_CHECKING:
    from edgekit.benchmark.document import Bench
    from edgekit.benchmark.inference import Inference
    from edgekit.config.schema import DetectionSection
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.exports import Traced, TraceFiles
    from edgekit.pipeline.report import RunDocument
    from edgekit.pipeline.steps.detect import Detections
    from edgekit.placement.check import CheckResult
    from edgekit.placement.plan import Plan
    from edgekit.quantize.qdq.documents import LoweredModel
    from edgekit.reference.accuracy import Accuracy
    from edgekit.reports.schema import Report


T = TypeVar("T")


class Pipeline:
    """The steps of one configuration. Use it as a context manager: boards are closed at its end.

    Args:
        config: The configuration.
        out: Folder for bundle, report and trace; ``edgekit-out/NAME`` if None.
        force: Do everything again.
        progress: Called with the steps' progress; not used if None.
        cache: Holds the results; the user's cache folder if None.
        accept_host_key: Accept unknown host keys of boards this once.
        trust_key: Let boards trust the signing key from now on.
        allow_older: The reason to install a bundle that the counters or times of bundles forbid;
            without a reason boards refuse it.
        again: ``deploy`` and ``run`` also install releases again that a board rolled back.
        or_serving: ``run`` continues with the release that a board serves, if the board rolled the
            bundle back.
        backend: The backend that the caller chose; empty if the boards decide.
        boards: The configuration's boards if the caller has begun to connect to them; cache,
            progress and consents are then theirs.

    Attributes:
        context: The inputs of the results, after the steps that were run.
        boards: The configuration's boards.
        signing: The key that signs bundles.
    """

    def __init__(
        self,
        config: Config,
        *,
        out: Path | None = None,
        force: bool = False,
        progress: Progress | None = None,
        cache: Cache | None = None,
        accept_host_key: bool = False,
        trust_key: bool = False,
        allow_older: str | None = None,
        again: bool = False,
        or_serving: bool = False,
        backend: str = "",
        boards: ConnectedBoards | None = None,
    ) -> None:
        self.config = config
        self.file = config.file
        if self.file.model.networks:
            raise UsageError(
                "this configuration has several networks, but this command supports only one",
                code="config.networks",
                where=config.document.where(("model", "networks")),
                hint="edgekit plan and edgekit report support several; for other commands write "
                "one configuration per network",
            )
        self.out = out or Path("edgekit-out") / self.file.name
        if boards is None:
            boards = ConnectedBoards(
                config,
                cache or Cache(),
                Session(progress or SilentProgress()),
                accept_host_key=accept_host_key,
                trust_key=trust_key,
                allow_older=allow_older,
            )
        self.boards, self.signing, self.cache = boards, boards.signing, boards.cache
        self.log = StepLog((), boards.session.progress)
        self.context = Context(config, self.cache, boards.session, force=force, backend=backend)
        self._again, self._or_serving = again, or_serving

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EdgekitError):
            # the steps done before the failure, and the accuracy if it misses the gate
            error.extra.setdefault("steps", write_document(self.log.done))
            set_place(error, self.config)
        self.boards.close()

    def _run(
        self,
        *steps: Step,
        anew: bool = False,
        or_serving: bool = False,
        weights: OtherWeights | None = None,
    ) -> Run:
        """Runs steps and returns their results; sets the context that follows from them."""
        self._look_for_parser()
        self.log.names = step_names(steps)
        if "deploy" in self.log.names:
            self.boards.begin()  # a board's error is raised when the board is used
        if "plan" in self.log.names:
            # wrong options are refused before the model is loaded
            check_requested(self.context)
        if "calibrate" in self.log.names:
            check_configuration(self.context)
        run = Run(
            self.context,
            self.boards,
            self.signing,
            self.out,
            self.log,
            again=self._again,
            or_serving=or_serving or self._or_serving,
            anew=anew,
            weights=weights,
        )
        for step in steps:
            run = run_step(run, step)
            self.context = run.context
        return run

    def _look_for_parser(self) -> None:
        """Refuses to begin if NVIDIA's parser is requested and not installed."""
        if self.file.parser:
            module_folder()

    def packed(self) -> Bundle:
        """Returns the bundle of the first board, or of this machine's build."""
        built = every_build(self.context, self.boards)[0]
        return pack_bundle(self.context, built, self.signing)

    def check_result(self, on_note: Callable[[str], object] = str) -> CheckResult:
        """Returns the check with layers and verdicts, computed anew; reports its progress."""
        self._look_for_parser()
        result = check_original(self.context, on_note)
        document = with_checked_buckets(self.context, result.document)
        return result if document is result.document else replace(result, document=document)

    def rewrite(self, save: Path | None = None, record: Path | None = None) -> Rewriting:
        """Rewrites the model and returns an ``edgekit.rewrite/1``.

        Args:
            save: The file for the rewritten model; not written if None.
            record: The file for the ``edgekit.rewrites/1`` document; not written if None.
        """
        from edgekit.rewriting.rewrite import choose_rewrites

        section = self.file.rewrite
        choose_rewrites(section.enable, section.disable, section.allow_approx)
        # unwritable files are refused before the search
        check_config_outputs(self.config, {"the rewritten model": save, "the record": record})
        # here the DLA counts, not a plan
        self.context = replace(self.context, weighs=False)
        run = self._run(
            *required_steps(
                "check",
                "rewrite",
                # without a check's suggestions, which need the same search as the next step
                check=lambda run, record: record_check(run, record, verdict(run.context)),
            )
        )
        context, used = self.context, used_rewrites(self.context)
        note_parse(context)
        document = Rewriting(
            model=source(context).source,
            target=self.file.target,
            precision=self.file.precision,
            rewrites=used.applied,
            before=require_result(run.found.check),
            after=brief_check(context, rewritten_model(context)).figures,
            approximations=approximations(context),
            notes=tuple(context.session.notes),
            record=used.record,
            file=str(save) if save else None,
        )
        if save is not None:
            save_model(model(context), save)
        if record is not None:
            write_json(record, used.record.to_json())
        return document

    def calibrate(self, save: Path | None = None) -> MeasuredScales:
        """Measures scales, writes a cache to ``save``, and returns an ``edgekit.scales/1``."""
        check_config_outputs(self.config, {"the calibration cache": save})
        self._run(*required_steps("calibrate", calibrate=calibrate_by_method))
        return measured_scales(self.context, save)

    def to_qdq(
        self, out: Path, *, weights: str = "per_channel", float16: bool = True
    ) -> LoweredModel:
        """Writes the network with Q/DQ nodes to ``out`` and returns an ``edgekit.to-qdq/1``."""
        from edgekit.pipeline.qdq import to_qdq_document

        def write(context: Context) -> tuple[LoweredModel, str]:
            document = to_qdq_document(context, out, weights=weights, float16=float16)
            count = counted(document.activations, "activation")
            return document, f"{count}, {document.method}"

        return self.answer("calibrate", write, reuses=True)

    def plan(self) -> Plan:
        """Returns the placement, with notes for the user."""
        self._run(*required_steps("check", "plan"))
        found = with_planned_buckets(self.context)
        notes = dict.fromkeys((*self.context.session.notes, *found.notes))
        return replace(
            found,
            notes=tuple(notes),
            parser=nvidia_parser_result(self.context),
            cuts=proposed_cuts(self.context),
        )

    def answer(
        self,
        name: str,
        ask: Callable[[Context], tuple[T, str]],
        *before: str,
        reuses: bool = False,
    ) -> T:
        """Runs the steps before a question, and then the question as its own step.

        Args:
            name: The step's.
            ask: Returns the answer and its detail in a few words.
            before: Names of the steps before it.
            reuses: As in ``Step``.
        """
        found: list[T] = []

        def answer(run: Run, record: StepRecord) -> Run:
            document, record.detail = ask(run.context)
            found.append(document)
            return run

        self._run(*required_steps(*before), Step(name, answer, reuses=reuses))
        return found[0]

    def trace(self, files: TraceFiles, out: Path | None) -> Traced:
        """Combines measurements in one timeline in ``out``, or in the run's folder if None."""
        from edgekit.pipeline.exports import trace

        files.check()
        self._run(*required_steps("check", "plan"))
        # the bench step's own trace is an input and is not replaced
        out = out or self.out / "timeline.json"
        return trace(files, out, context=self.context, folder=self.out)

    def build(self) -> Build:
        """Builds the engines."""
        builds = self._run(*required_steps("build")).builds
        built, error = builds[0].artefacts, accuracy(self.context)
        return Build(
            steps=tuple(self.log.done),
            backend=built.backend,
            segments=built_segments(built),
            weights=len(built.weights),
            accuracy=error,
            boards=board_builds(builds),
            notes=tuple(build_notes(self.context, builds)),
            parser=nvidia_parser_result(self.context),
            figures=self._figures(error),
        )

    def _figures(self, error: Accuracy) -> str:
        from edgekit.reports.terminal.quantization import accuracy_headline

        return accuracy_headline(error, self.file.accuracy.metric, self.file.accuracy.min)

    def bundle(self, *, full: Path | None = None) -> Packed:
        """Packs and signs."""

        # a day in the past is refused before the build
        if (day := self.file.deploy.release.valid_until) is not None:
            check_valid_until(day)
        check_config_outputs(self.config, {"the bundle": full}, makes_folders=True)
        packed = require_result(self._run(*required_steps("bundle")).found.bundle)
        if full is not None:
            write_file(self.packed(), full, stripped=False)
        return Packed(
            **vars(packed), steps=tuple(self.log.done), full=None if full is None else str(full)
        )

    def deploy(self, file: Path | None = None, *, dry_run: bool = False) -> Deployed:
        """Installs the bundle on every board.

        Args:
            file: A bundle to install instead of a build; weights that a stripped bundle lacks come
                from the cache or from the board.
            dry_run: Only return the changes that would be made on boards. Boards do not build: a
                release is then known only if they built it before.

        Raises:
            BoardError: Among others "install.taken-back", without ``again``, and "install.older",
                "install.expired" or "install.clock", without ``allow_older``.
        """
        if file is None:
            steps = self._dry_run_steps() if dry_run else required_steps("deploy")
        else:
            self.boards.begin()
            bundle = read_bundle(self.context, file)
            for client in self.boards.clients():
                # a bundle that one board cannot run is refused before any board is changed
                check_bundle(self.boards, client, bundle.manifest)

            def install(run: Run, record: StepRecord) -> Run:
                found = run.boards.install(
                    lambda client: bundle, run.log, always=run.context.force, put_back=run.again
                )
                return replace(run, found=replace(run.found, deploy=tuple(found)))

            offered = (bundle.digest, bundle)
            steps = [_dry_run_step(lambda *_: offered)] if dry_run else _deploy_step_with(install)
        releases = self._run(*steps).found.deploy
        return Deployed(dry_run, tuple(self.log.done), tuple(release.row() for release in releases))

    def _dry_run_steps(self) -> list[Step]:
        """Returns the steps of a deployment that does not change a board."""
        self.boards.begin()
        own = backend_for(self.context, self.boards) == "reference"

        def offered(run: Run, client: BoardClient) -> tuple[str | None, Bundle | None]:
            # a board would have to build first: only the reference's bundle is made without it
            if own:
                bundle = run.bundle_for(client)
                return bundle.digest, bundle
            return known_bundle(run.context, run.boards, client, run.signing.public_key), None

        return [*required_steps("bundle" if own else "plan"), _dry_run_step(offered)]

    def refit(self, weights: Path) -> Refitted:
        """Deploys the same engines with the weights of another file."""
        given = read_weights(weights)
        changed: list[_NewWeights] = []

        def install(run: Run, record: StepRecord) -> Run:
            def bundle_for(client: BoardClient) -> Bundle:
                return changed[0].bundles[build_for(run.context, run.boards, client).key]

            store_bundles(run, bundle_for)
            try:
                releases = run.boards.install(
                    bundle_for, run.log, always=run.context.force, put_back=run.again
                )
            except BoardError as failed:
                # a board's engines keep the scales and precisions that suited the old weights
                if failed.code == "selftest.failed" and run.builds[0].board:
                    calibrated = scales(run.context) is not None
                    failed.hint = hint_for_other_weights(weights, calibrated=calibrated)
                raise
            return replace(run, found=replace(run.found, deploy=tuple(releases)))

        step = _weights_step(weights, changed)
        try:
            run = self._run(
                *required_steps("bundle"), step, *_deploy_step_with(install), weights=given
            )
        except BoardError as failed:
            if failed.code == "install.taken-back":
                words = ["edgekit", "refit", self.config.path, "--weights", str(weights)]
                failed.hint = f"{shlex.join([*words, '--again'])} installs it again"
            raise
        (new,) = changed
        for built in run.builds:
            old, bundle = pack_bundle(run.context, built, self.signing), new.bundles[built.key]
            if bundle is not old:
                # infer and bench must not treat this release as outdated
                key = self.cache.key("refitted", old.digest)
                refitted = self.cache.get("refitted", key) or []
                self.cache.put("refitted", key, sorted({*refitted, bundle.digest}))
        return Refitted(
            steps=tuple(self.log.done),
            tensors=new.tensors,
            changed=new.changed,
            accuracy=new.accuracy,
            figures=self._figures(new.accuracy),
            digest=next(iter(new.bundles.values())).digest,
            releases=tuple(release.row() for release in run.found.deploy),
        )

    def refit_bundle(self, weights: Path) -> Bundle:
        """Returns the first board's bundle of the same engines with another file's weights.

        Raises:
            DataError: "refit.mismatch": names, shapes or types differ.
        """
        changed: list[_NewWeights] = []
        given = read_weights(weights)
        self._run(*required_steps("bundle"), _weights_step(weights, changed), weights=given)
        return next(iter(changed[0].bundles.values()))

    def infer(
        self,
        source: Path | None = None,
        output: Path | None = None,
        draw: Path | None = None,
    ) -> Inference:
        """Runs an inference on the first board; a detector's boxes are drawn in ``draw``."""
        from edgekit.pipeline.steps.bench import inference_inputs

        if draw is not None:
            from edgekit.pipeline.steps.detect import need_head

            check_output_folder(draw)
            need_head(self.context)
        check_config_outputs(
            self.config, {"the outputs": output}, {"the inputs": source}, makes_folders=True
        )
        if source is not None:
            inference_inputs(self.context, source)  # refuses wrong inputs before any build
        steps = required_steps(
            "infer",
            deploy=update_first_board,
            infer=lambda run, record: infer_on(run, record, source, output, draw),
        )
        return require_result(self._run(*steps, or_serving=True).found.infer)

    def detect(
        self,
        sources: Sequence[Path],
        draw: Path | None = None,
        kept: DetectionSection | None = None,
    ) -> Detections:
        """Finds the objects of pictures on the first board, and draws them.

        Args:
            sources: Pictures, and folders of pictures.
            draw: Folder for the drawn pictures; the run's folder if None.
            kept: Which objects are kept; None for the configuration's. The build does not depend
                on it, but the accuracy gate depends on the configuration's.

        Raises:
            DataError: A picture cannot be read, or there is none.
            UsageError: "detect.no-head": the configuration has no head.
        """
        from edgekit.pipeline.steps.detect import Pictures, check_pictures

        pictures = Pictures.of(sources, draw or self.out)
        check_pictures(self.context, pictures)
        options = options_from_section(kept or self.context.file.detection)
        steps = [
            *required_steps("deploy", deploy=update_first_board),
            detect_step(pictures, options),
        ]
        return require_result(self._run(*steps, or_serving=True).found.detections)

    def bench(self) -> Bench:
        """Measures on the first board."""
        steps = required_steps("bench", deploy=update_first_board)
        return require_result(self._run(*steps, anew=True, or_serving=True).found.bench)

    def run_as_far_as_possible(self, annotate: Path | None = None) -> RunResult | Build:
        """Runs every step; only builds, with the reason, if no bundle can hold the build.

        Arguments and errors are those of ``run``.
        """
        why = functions_only(self.context)
        if not why:
            return self.run(annotate)
        if annotate is not None:
            raise UsageError("--annotate needs the measured times of a board", hint=why)
        built = self.build()
        lacks = "; ".join(missing_plugins(self.context))
        then = lacks or "with a board under deploy.boards TensorRT runs it"
        return replace(built, notes=(*built.notes, f"The run ends here: {why}; {then}"))

    def run(self, annotate: Path | None = None) -> RunResult:
        """Runs every step.

        Args:
            annotate: The ONNX file that gets each node's place and time; not written if None.

        Raises:
            EdgekitError: A step failed; "install.taken-back" without ``again`` and ``or_serving``.
        """
        from edgekit.pipeline.exports import write_annotated
        from edgekit.pipeline.report import run_document

        run = self._run(*required_steps("report"))
        files = run_files(self.out, typed=needs_qdq_nodes(run.context))
        document = run_document(run.context, run.builds, run.found, files, self.log.done)
        write_json(self.out / "run.json", document.to_json())
        report = require_result(run.found.report)
        if annotate is not None:
            write_annotated(self.context, annotate, report)
        return RunResult(document, report)


@document(frozen=True)
class _NewWeights:
    """Bundles with other weights by build, the number of changed tensors, and their accuracy."""

    bundles: Mapping[str, Bundle]
    tensors: int
    changed: int
    accuracy: Accuracy


def _weights_step(weights: Path, changed: list[_NewWeights]) -> Step:
    """Returns the step that makes bundles with another file's weights, for ``changed``."""

    def change(run: Run, record: StepRecord) -> Run:
        context, other = run.context, other_weights(run.context, weights)
        made = with_weights_from(context, other)
        bundles: dict[str, Bundle] = {}
        count = tensors = 0
        for built in run.builds:
            old = pack_bundle(context, built, run.signing)
            bundle = bundle_with_weights(context, built, run.signing, other, made, weights)
            before = {name: entry.digest for name, entry in old.manifest.weights.items()}
            after = {name: entry.digest for name, entry in bundle.manifest.weights.items()}
            differ = sum(before[name] != digest for name, digest in after.items())
            # the builds share most weights: a sum would count them several times
            count, tensors = max(count, differ), max(tensors, len(after))
            # an unchanged bundle is not installed
            bundles[built.key] = bundle if before != after else old
        error = refit_accuracy(context, other, made)
        record.detail = (
            f"{count} of {counted(tensors, 'tensor')} changed, "
            f"cosine {error.cosine:.5f} against FP32"
        )
        check_accuracy(context, error)
        # a step returns only the run; the caller reads the bundles from this list
        changed.append(_NewWeights(bundles, tensors, count, error))
        return run

    return Step("weights", change)


def _dry_run_step(
    offered: Callable[[Run, BoardClient], tuple[str | None, Bundle | None]],
) -> Step:
    """Returns the deploy step of a dry run; ``offered`` has a board's digest and bundle."""

    def look(run: Run, record: StepRecord) -> Run:
        rows = [
            run.boards.would_install(
                client, *offered(run, client), always=run.context.force, put_back=run.again
            )
            for client in run.boards.clients()
        ]
        if all(row.reused for row in rows):
            record.reuse()
        return replace(run, found=replace(run.found, deploy=tuple(rows)))

    return Step("deploy", look, reuses=False)


def _deploy_step_with(install: Callable[[Run, StepRecord], Run]) -> list[Step]:
    """Returns the deploy step with another installation."""
    return [step for step in required_steps("deploy", deploy=install) if step.name == "deploy"]


@document(frozen=True)
class RunResult:
    """The result of ``run``: the steps' results and the report."""

    document: RunDocument
    report: Report
