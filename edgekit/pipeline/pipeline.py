"""`Pipeline`: a configuration's steps in order; each command runs the steps that it needs. It
deploys to boards, measures there, and writes bundle, documents, trace and report.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, UsageError
from edgekit.files import regular
from edgekit.network.writing import save as save_model
from edgekit.pipeline.boards.status import serving_of, taken_back_note
from edgekit.pipeline.cache import file_stamps
from edgekit.pipeline.outputs import may_write_for
from edgekit.pipeline.progress import StepRecord
from edgekit.pipeline.questions import PlanQuestions
from edgekit.pipeline.steps.accuracy import Work
from edgekit.pipeline.steps.approximations import approximations
from edgekit.pipeline.steps.build import BuiltPlan
from edgekit.pipeline.steps.deploy import InstallSteps
from edgekit.pipeline.steps.host import HOST_STEPS, TYPED_NAME
from edgekit.pipeline.steps.rewrite import brief_check, brief_verdict
from edgekit.pipeline.steps.scales import cache_for_both, named_scales
from edgekit.quantize.caches import write_cache
from edgekit.quantize.scales import change_rows
from edgekit.text import counted
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.steps.check import CheckResult
    from edgekit.placement.plan import Plan
    from edgekit.reference.artefacts import Artefacts
    from edgekit.reports.facts import RunFacts


class Pipeline(PlanQuestions):
    """The steps of one configuration. Use it as a context manager: boards are closed at its end."""

    def deploy(self, file: Path | None = None) -> dict[str, Any]:
        """Installs the bundle on every board and returns an ``edgekit.deploy/1``.

        Args:
            file: A bundle to install instead of building one; weights that a stripped bundle
                lacks come from the cache or are on the board already.

        Raises:
            BoardError: Among others "install.taken-back", without ``again``.
        """
        if file is not None:
            self._only("deploy", "refit", "self-test")
            bundle = self.packing.read(file)
            for client in self.boards.clients():
                self.building.check_bundle(client, bundle.manifest)
            # its signature is the board's to judge, also when it serves that bundle already
            releases = self.boards.install(
                lambda client: bundle, self._steps, always=True, put_back=self._again
            )
        else:
            self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test")
            self._host()
            self._bundle()
            releases = self.boards.install(
                self.bundle_for, self._steps, always=self._force, put_back=self._again
            )
        return {"schema": "edgekit.deploy/1", "steps": self._step_list(),
                "releases": [_release_row(r) for r in releases]}  # fmt: skip

    def rollback(self, reason: str | None = None) -> dict[str, Any]:
        """Takes every board back to its previous release; ``reason`` is for their histories."""
        app = self.file.name
        boards = []
        for client in self.boards.clients():
            before = self.boards.serves(client, app)
            with self.boards.hinting(client):
                answer = client.rollback(app, reason)
            boards.append({**self.boards.describe(client), "from": before and before[0],
                           "to": answer["current"]})  # fmt: skip
        return {"schema": "edgekit.rollback/1", "app": app, "boards": boards}

    def refit(self, weights: Path) -> dict[str, Any]:
        """Deploys the same engines with the weights of another file."""
        self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test")
        self._steps.names.insert(self._steps.names.index("deploy"), "weights")
        self._host()
        self._bundle()
        work = self.work
        if work.network.opaque:
            raise UsageError(
                "what a board must answer with other weights is computed here, where "
                f"{work.network.opaque[0]!r} cannot run",
                code="refit.opaque",
                hint="edgekit deploy builds engines of the other file",
            )
        with self._steps.step("weights") as step:
            model = work.other_weights(weights)
            artefacts = self.packing.reweighed(model)
            bundles: dict[str, Bundle] = {}
            changed = tensors = 0
            for built in self.building.every():
                old = self.packing.bundle_of(built)
                bundle = self.packing.with_weights(built, model, artefacts)
                before = {name: entry.digest for name, entry in old.manifest.weights.items()}
                after = {name: entry.digest for name, entry in bundle.manifest.weights.items()}
                changed = max(
                    changed, sum(before[name] != digest for name, digest in after.items())
                )
                tensors = max(tensors, len(after))
                # nothing to ship where nothing changed
                bundles[built.key] = bundle if before != after else old
            error = work.measure(model, artefacts)
            step.detail = (
                f"{changed} of {counted(tensors, 'tensor')} changed, "
                f"cosine {error['cosine']:.5f} against FP32"
            )
            work.check_accuracy(error)
        try:
            releases = self.boards.install(
                lambda client: bundles[self.building.for_board(client).key],
                self._steps,
                always=self._force,
                put_back=self._again,
            )
        except BoardError as failed:
            if failed.code == "install.taken-back":
                again = shlex.join(
                    ["edgekit", "refit", self.config.path, "--weights", str(weights), "--again"]
                )
                failed.hint = f"{again} puts it back; nothing else does"
            if failed.code == "selftest.failed" and self.building.backend != "reference":
                failed.hint = _hint_for_other_weights(work, weights)
            raise
        for built in self.building.every():
            old, bundle = self.packing.bundle_of(built), bundles[built.key]
            if bundle is not old:
                # infer and bench must not take this release for an outdated one
                key = self.cache.key("refitted", old.digest)
                refitted = self.cache.get("refitted", key) or []
                self.cache.put("refitted", key, sorted({*refitted, bundle.digest}))
        return {
            "schema": "edgekit.refit/1",
            "steps": self._step_list(),
            "tensors": tensors,
            "changed": changed,
            "accuracy": error,
            "digest": next(iter(bundles.values())).digest,
            "releases": [_release_row(r) for r in releases],
        }

    def infer(self, source: Path | None = None, output: Path | None = None) -> dict[str, Any]:
        """Runs one inference on the first board and returns an ``edgekit.infer/1``."""
        from edgekit.pipeline.steps.bench import inputs_of

        self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test", "infer")
        may_write_for(
            self.config, {"the outputs": output}, {"the inputs": source}, makes_folders=True
        )
        if source is not None:
            inputs_of(self, source)  # wrong inputs are refused before anything is built
        release = self._deployed()
        return self._infer(release, source, output)

    def bench(self) -> dict[str, Any]:
        """Measures on the first board and returns an ``edgekit.bench/1``."""
        self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test", "bench")
        release = self._deployed()
        return self._bench(release, again=True)

    def bundle_for(self, client: BoardClient) -> Bundle:
        """Returns a board's bundle: engines are not portable between kinds of boards."""
        return self.packing.bundle_of(self.building.for_board(client))

    def _deployed(self) -> dict[str, Any]:
        """Brings the first board to the bundle, unless it serves it or a refit of it.

        Where the bundle was taken back it is what serves instead.
        """
        self._host()
        self._bundle()
        client = self.boards.clients()[0]
        bundle = self.bundle_for(client)
        refitted = self.cache.get("refitted", self.cache.key("refitted", bundle.digest)) or []
        state = client.releases(bundle.name)["apps"].get(bundle.name, {})
        serving = serving_of(state)
        if serving and serving["digest"] in refitted:
            release = {"board": self.boards.describe(client), "release": serving["id"],
                       "digest": serving["digest"], "refitted": True}  # fmt: skip
            back = state.get("taken_back")
            gone = back and back["release"].endswith(bundle.digest[:12])
            with InstallSteps(client, bundle, self._steps) as shown:
                shown.reused(serving["id"], other=bool(gone))
            if gone:
                path = self.config.path
                note = taken_back_note(client.name, serving["id"], back, path)
                release |= {"taken_back": back, "notes": [note]}
            return release
        return self.boards.install(
            self.bundle_for, self._steps, put_back=self._again, or_serving=True
        )[0]

    def _infer(
        self, release: Mapping[str, Any], source: Path | None = None, output: Path | None = None
    ) -> dict[str, Any]:
        from edgekit.pipeline.steps.bench import infer

        with self._step("infer") as step:
            return infer(self, release, source, output, step)

    def _bench(self, release: Mapping[str, Any], *, again: bool = False) -> dict[str, Any]:
        from edgekit.pipeline.steps.bench import bench

        with self._step("bench") as step:
            return bench(self, release, step, again=again)

    def check(self) -> dict[str, Any]:
        """Returns the ``edgekit.check/1`` document."""
        self._only("check")
        return self._check()

    def check_result(self, on_note: Callable[[str], object] = str) -> CheckResult:
        """Returns the check with layers and verdicts, computed anew, and reports its progress."""
        self._only("check")
        return self.work.checked(on_note)

    def rewrite(self, save: Path | None = None, record: Path | None = None) -> dict[str, Any]:
        """Rewrites the model and returns an ``edgekit.rewrite/1``.

        Args:
            save: Where to write the rewritten model; nowhere when None.
            record: Where to write the ``edgekit.rewrites/1`` document; nowhere when None.
        """
        from edgekit.rewriting.rewrite import chosen

        self._only("check", "rewrite")
        section = self.file.rewrite
        chosen(section.enable, section.disable, section.allow_approx)
        may_write_for(self.config, {"the rewritten model": save, "the record": record})
        self.work.weighs = False  # here it is about the DLA, not about a plan
        before = self._check(brief=True)
        self._rewrite()
        work = self.work
        document = {
            "schema": "edgekit.rewrite/1",
            "model": work.source.source,
            "target": self.file.target,
            "precision": self.file.precision,
            "rewrites": work.rewrites,
            "before": brief_verdict(before),
            "after": brief_verdict(
                brief_check(work, work.model.source, work.network, work.judgement)
            ),
            "approximations": approximations(work),
            "notes": work.notes,
            "record": work.record,
            "file": str(save) if save else None,
        }
        if save is not None:
            save_model(work.model, save)
        if record is not None:
            self._write_to(record, work.record)
        return document

    def calibrate(self, save: Path | None = None) -> dict[str, Any]:
        """Measures scales, writes a cache to ``save``, and returns an ``edgekit.scales/1``."""
        may_write_for(self.config, {"the calibration cache": save})
        self._only("rewrite", "calibrate")
        self._rewrite()
        self._calibrate(chosen=True)
        scales = self.work.scales
        if scales is None:
            raise UsageError(
                f"{self.file.precision} needs no scales",
                code="calibration.precision",
                hint="calibrate with precision int8",
            )
        work = self.work
        named = named_scales(scales, work.model)
        written = None
        if save is not None:
            cache = cache_for_both(scales, work.model, work.source, work.tensorrt)
            write_cache(cache, save)
            none = sum(not scale for scale in cache.scales.values())
            other = len(cache.scales.keys() - {*named.scales, *named.missing})
            written = {"tensors": len(cache.scales), "without": none, "original": other}
        return {
            "schema": "edgekit.scales/1",
            "model": self.work.source.source,
            "method": scales.method,
            "choice": self.work.choice,
            "data": scales.data,
            "digest": scales.digest,
            "scales": dict(named.scales),
            "without": list(named.missing),
            "changes": change_rows(scales.changes),
            "notes": [*self.work.notes, *scales.warnings, *self._in_vain()],
            "file": str(save) if save else None,
            "written": written,
        }

    def _in_vain(self) -> list[str]:
        """Says what was given that the scales do not depend on."""
        from edgekit.quantize.data.images import IMAGE_OPTIONS

        section = self.file.calibration
        if section.data is None:
            named = [
                place[-1]
                for place in self.config.document.given
                if place[:1] == ("calibration",) and place[1:2] and place[1] in IMAGE_OPTIONS
            ]
            return [
                f"{', '.join(sorted(map(str, named)))}: without effect, for no data are given and "
                "synthetic inputs are taken as they are"
            ] if named else []  # fmt: skip
        if self.work.known_scales is None:
            return []
        given = "the calibration cache" if section.cache else "the model's Q/DQ nodes"
        return [
            f"the scales are those of {given}: {section.data} is only what accuracy is compared on"
        ]

    def to_qdq(
        self, out: Path, *, weights: str = "per_channel", float16: bool = True
    ) -> dict[str, Any]:
        """Writes the network with Q/DQ nodes to ``out`` and returns an ``edgekit.to-qdq/1``."""
        from edgekit.pipeline.qdq import to_qdq_document

        self._only("calibrate")
        with self._step("calibrate") as step:
            document = to_qdq_document(self.work, out, weights=weights, float16=float16)
            step.detail = f"{counted(document['activations'], 'activation')}, {document['method']}"
        return document

    def plan(self) -> Plan:
        """Returns the placement, with all that a person should know in its notes."""
        self._only("check", "rewrite", "plan")
        self._check()
        self._rewrite()
        self._plan()
        plan = self.work.plan
        return replace(plan, notes=tuple(dict.fromkeys((*self.work.notes, *plan.notes))))

    def build(self) -> dict[str, Any]:
        """Builds the engines and returns an ``edgekit.build/1``."""
        self._only(*HOST_STEPS)
        self._host()
        work, built = self.work, self.building.every()
        return {
            "schema": "edgekit.build/1",
            "steps": self._step_list(),
            "backend": built[0].artefacts.backend,
            "segments": segments_of(built[0].artefacts),
            "weights": len(built[0].artefacts.weights),
            "accuracy": work.accuracy,
            "boards": [board_document(one) for one in built if one.board],
            "notes": self.notes(),
        }  # fmt: skip

    def bundle(self, *, full: Path | None = None) -> dict[str, Any]:
        """Packs and signs, and returns an ``edgekit.packed/1``."""
        from edgekit.bundles.files import write
        from edgekit.bundles.manifest import check_valid_until

        if (day := self.file.deploy.release.valid_until) is not None:
            check_valid_until(day)
        may_write_for(self.config, {"the bundle": full}, makes_folders=True)
        self._only(*HOST_STEPS, "bundle")
        self._host()
        document = self._bundle()
        if full is not None:
            write(self.packing.bundle, full, stripped=False)
        return {"schema": "edgekit.packed/1", "steps": self._step_list(), **document,
                "full": str(full) if full else None}  # fmt: skip

    def run(self) -> RunResult:
        """Runs every step and returns the ``edgekit.run/1`` and ``edgekit.report/1`` documents.

        Raises:
            EdgekitError: What fails; "install.taken-back" without ``again`` and ``or_serving``.
        """
        check = self._host()
        bundle = self._bundle()
        releases = self.boards.install(
            self.bundle_for,
            self._steps,
            always=self._force,
            put_back=self._again,
            or_serving=self._or_serving,
        )
        infer = self._infer(releases[0])
        bench = self._bench(releases[0])
        refit = {
            # this machine can compare one more inference, unless TensorRT's engines gave it
            "bit_equal": bool(
                releases[0]["selftest"].get("bit_equal") and infer["bit_equal"] is not False
            ),
            "tensors": len(self.packing.bundle.manifest.weights),
        }
        files = self._files()
        with self._steps.step("report") as step:
            step.detail = files["report"]
            steps = self._step_list()
            facts = report_facts(self, bundle, releases, refit, bench, files, steps)
            report = self._write_report(facts, step)
        document = run_document(
            self, check, bundle, releases, refit, infer, bench, files, self._step_list()
        )
        self._write_json("run.json", document)
        return RunResult(document, report)

    def _files(self) -> dict[str, str]:
        names = {"report": "report.html", "trace": "trace.json", "bundle": "bundle.ekb",
                 "bench": "bench.json", "plan": "plan.json", "outputs": "outputs.npz"}  # fmt: skip
        if self.work.lowers:
            names["qdq"] = TYPED_NAME
        return {key: str(self.out / name) for key, name in names.items()}

    def _write_report(self, facts: Any, step: StepRecord) -> dict[str, Any]:
        from edgekit.reports.document import report_document
        from edgekit.reports.html.page import write_report
        from edgekit.reports.html.verdict import with_earlier_comparison

        plan = self.work.plan.to_json()
        report = report_document(facts)
        shown = with_earlier_comparison(report, self.out / "report.json")
        # everything but how long the steps took, and whether they were done again
        parts = {k: v for k, v in shown.items() if k != "steps"}
        key = self.cache.key("report", parts, str(self.out.absolute()))
        paths = [self.out / name for name in ("report.html", "report.json", "plan.json")]
        written = self.cache.get("report", key)
        if written is not None and written == file_stamps(paths) and not self._force:
            step.reuse(step.detail)
            return report
        write_report(shown, paths[0])
        self._write_json("report.json", shown)
        self._write_json("plan.json", plan)
        self.cache.put("report", key, file_stamps(paths))
        return report

    def _write_json(self, name: str, document: Any) -> None:
        self._write_to(self.out / name, document)

    def _write_to(self, path: Path, document: Any) -> None:
        from edgekit.benchmark.document import write_json

        write_json(path, document)


def _hint_for_other_weights(work: Work, weights: Path) -> str:
    """Says why a board's engines may be off with other weights, and what to do about it."""
    built = f"build engines of {weights} itself: name it as the model, edgekit run"
    if work.scales is None:
        return f"these weights may need more than FP16's range or precision; {built}"
    return (
        "with these weights activations may leave the ranges that were calibrated, or use little "
        f"of them; calibrate again and {built}"
    )


def _release_row(result: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("board", "release", "digest", "bytes_sent", "previous", "reused")
    # a release kept by an older edgekit has no notes
    return {**{key: result.get(key) for key in keys}, "notes": result.get("notes", [])}


_ACCURACY = (
    "cosine", "snr_db", "max_abs", "top1_agreement", "groups", "scores", "failures",
)  # fmt: skip


def segments_of(artefacts: Artefacts) -> list[dict[str, Any]]:
    """Returns what was built, segment by segment."""
    return [
        {"lane": lane, "share": share, "index": s.index, "device": s.device,
         "engine": s.engine, "layers": list(s.layers), "inputs": list(s.inputs),
         "outputs": list(s.outputs)}
        for lane, (share, segments) in enumerate(artefacts.lanes)
        for s in segments
    ]  # fmt: skip


def board_document(built: BuiltPlan) -> dict[str, Any]:
    """Returns what a board built, compared with the plan."""
    assert built.result is not None, "asked for where a board built"
    result = built.result
    keys = ("key", "bytes", "full_bytes", "stripped", "version_compatible", "lean_embedded",
            "refit", "dla_core", "attempt", "attempts", "seconds", "timing_cache")  # fmt: skip
    return {
        "board": built.board,
        "job": built.job,
        "fingerprint": dict(result["fingerprint"]),
        "tensorrt": result["tensorrt"],
        "builder": result["builder"],
        "engines": [{key: one.get(key) for key in keys} for one in result["engines"]],
        "plan": built.comparison,
        "notes": list(result["notes"]),
    }


def run_document(
    pipeline: Pipeline,
    check: Mapping[str, Any],
    bundle: Mapping[str, Any],
    releases: Sequence[Mapping[str, Any]],
    refit: Mapping[str, Any],
    infer: Mapping[str, Any],
    bench: Mapping[str, Any],
    files: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns the ``edgekit.run/1`` document."""
    work = pipeline.work
    scales = work.plan_scales
    return {
        "schema": "edgekit.run/1",
        "name": pipeline.file.name,
        "target": pipeline.file.target,
        "precision": pipeline.file.precision,
        "backend": pipeline.building.first().artefacts.backend,
        "steps": list(steps),
        "check": {**check["summary"], "candidates": check["candidates"],
                  "loadables": check["loadables"]},
        "rewrites": work.rewrites,
        "calibration": {"method": scales.method, "choice": work.choice, "data": scales.data,
                        "changes": change_rows(scales.changes)} if scales else None,
        "plan": work.plan.to_json(),
        "built": [board_document(one) for one in pipeline.building.every() if one.board],
        "bundle": dict(bundle),
        "accuracy": work.accuracy,
        "refit": dict(refit),
        "infer": dict(infer),
        "bench": {key: bench.get(key) for key in
                  ("clock", "backend", "latency_ms", "throughput_qps", "iterations", "verdict")},
        "board": dict(releases[0]["board"]),
        "releases": [
            {key: r.get(key) for key in
             ("board", "release", "digest", "bytes_sent", "previous", "taken_back",
              "notes")}
            for r in releases
        ],
        "files": dict(files),
        "notes": pipeline.notes(),
    }  # fmt: skip


def report_facts(
    pipeline: Pipeline,
    bundle: Mapping[str, Any],
    releases: Sequence[Mapping[str, Any]],
    refit: Mapping[str, Any],
    bench: Mapping[str, Any],
    files: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]],
) -> RunFacts:
    """Returns what the report is made of."""
    from edgekit.reports.facts import RunFacts

    work = pipeline.work
    scales = work.plan_scales
    gate, back = pipeline.file.accuracy, bench.get("taken_back")
    error = work.accuracy
    accuracy = {
        **{key: error[key] for key in _ACCURACY},
        "data": error["data"],
        "inputs": error["count"],
        "metric": gate.metric,
        "min": gate.min,
        # a run that misses its gate ends before the report
        "passed": None if gate.min is None else True,
        "computed": "emulated on a CPU",  # also where a board built engines of its own
        "nonfinite": error.get("nonfinite") or [],
        "constant": error.get("constant") or [],
        "segments": error["per_segment"],
    }
    return RunFacts(
        name=pipeline.file.name,
        model=work.source.source,
        target=work.target,
        plan=work.plan,
        network=work.network,
        judgement=work.judgement,
        mode=pipeline.file.build.mode,
        backend=pipeline.building.first().artefacts.backend,
        scales=None if scales is None else named_scales(scales, work.model),
        accuracy=accuracy,
        bundle=bundle,
        # of what serves, where the bundle was taken back: nothing of this plan's layers
        refit=None if back else refit,
        built=tuple(board_document(one) for one in pipeline.building.every() if one.board),
        bench=bench,
        trace=None if back else _trace(files["trace"]),
        board=releases[0]["board"],
        rewrites=tuple({"name": item["rewrite"], **item} for item in work.rewrites),
        steps=tuple(steps),
        files=files,
        config_text=pipeline.config.text,
        environment=_environment(),
        notes=tuple(pipeline.notes()),
        note_groups=pipeline.note_groups(),
    )  # fmt: skip


def _trace(path: str) -> Any:
    """Returns the trace that the bench step wrote."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(regular(Path(path)).read_text(encoding="utf-8"))
    return None


def _environment() -> dict[str, str]:
    found = {"edgekit": __version__, "python": platform.python_version(),
             "machine": platform.machine()}  # fmt: skip
    for name in ("numpy", "onnx", "onnxruntime", "ortools"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@dataclass(frozen=True)
class RunResult:
    """What ``run`` gives: the ``edgekit.run/1`` document and the ``edgekit.report/1`` document."""

    document: dict[str, Any]
    report: dict[str, Any]
