"""A configuration's steps in order; each command runs those it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import UsageError
from edgekit.pipeline._host_steps import HOST_STEPS, file_stamps
from edgekit.pipeline._outputs import may_write_for
from edgekit.pipeline._rewriting import approximations, brief, verdict
from edgekit.pipeline._serving import Serving
from edgekit.pipeline._steps import Step
from edgekit.pipeline._typed_file import TYPED_NAME

if TYPE_CHECKING:
    from edgekit.pipeline._check import CheckResult
    from edgekit.placement import Plan

__all__ = ["Pipeline", "RunResult"]


@dataclass(frozen=True)
class RunResult:
    """What ``run`` gives: the ``edgekit.run/1`` document and the ``edgekit.report/1`` document."""

    document: dict[str, Any]
    report: dict[str, Any]


class Pipeline(Serving):
    """The steps of one configuration. Use it as a context manager: boards are closed at its end."""

    def check(self) -> dict[str, Any]:
        """Returns the ``edgekit.check/1`` document."""
        self._only("check")
        return self._check()

    def check_result(self, tell: Callable[[str], object] = str) -> CheckResult:
        """Returns the check with layers and verdicts, computed anew; tells what it is at."""
        self._only("check")
        return self.work.checked(tell)

    def rewrite(self, save: Path | None = None, record: Path | None = None) -> dict[str, Any]:
        """Rewrites the model and returns an ``edgekit.rewrite/1``.

        Args:
            save: Where to write the rewritten model; nowhere when None.
            record: Where to write the ``edgekit.rewrites/1`` document; nowhere when None.
        """
        from edgekit.network import save as save_model
        from edgekit.rewrite import chosen

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
            "before": verdict(before),
            "after": verdict(brief(work, work.model.source, work.network, work.judgement)),
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
        from edgekit.pipeline._known_scales import cache_for_both, named_scales
        from edgekit.quantize import change_rows, write_cache

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
        from edgekit.quantize import IMAGE_OPTIONS

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
        from edgekit.pipeline._to_qdq import to_qdq_document

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
        from edgekit.pipeline._result import board_document, segments_of

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
        from edgekit.bundle import write
        from edgekit.bundle._needs import check_valid_until

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
        from edgekit.pipeline._result import report_facts, run_document

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
            "tensors": len(self.packing.bundle.manifest["weights"]),
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

    def _write_report(self, facts: Any, step: Step) -> dict[str, Any]:
        from edgekit.report import report_document, with_kept_comparison, write_report

        plan = self.work.plan.to_json()
        report = report_document(facts)
        shown = with_kept_comparison(report, self.out / "report.json")
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
        from edgekit.bench import write_json

        write_json(path, document)
