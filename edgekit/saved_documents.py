"""Every document that edgekit writes for people or programs: its class, its writer, and the reader
of saved documents. Start with ``read_document``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from edgekit.errors import DataError
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read

#: By schema and version: "module:class", a pydantic model of the host or a codec dataclass; and the
#: writer: a command, a function of the API, or a command on the board. Texts, since a program
#: imports only the classes of the documents that it reads.
DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "edgekit.bench/1": ("edgekit.results.store:RecordedBench", "edgekit bench"),
    "edgekit.board-status/1": (
        "edgekit_device.deployment.status:BoardStatus",
        "edgekit_device.pyz status",
    ),
    "edgekit.build.request/1": ("edgekit_device.build.request:BuildJobRequest", "edgekit build"),
    "edgekit.build.result/1": ("edgekit_device.build.request:BuildResult", "edgekit build"),
    "edgekit.build/1": ("edgekit.pipeline.steps.build:Build", "edgekit build"),
    "edgekit.buildlog/1": ("edgekit.buildlog.facts:BuildLog", "edgekit explain-log"),
    "edgekit.built/1": ("edgekit.tensorrt.comparison:BuiltComparison", "edgekit build"),
    "edgekit.bundle/1": ("edgekit_device.protocol.manifest:Manifest", "edgekit bundle"),
    "edgekit.bundle/2": ("edgekit_device.protocol.manifest:Manifest", "net.save"),
    "edgekit.bundle/3": ("edgekit_device.protocol.manifest:Manifest", "edgekit bundle"),
    "edgekit.cache-diff/1": (
        "edgekit.quantize.cache_files:CacheDifference",
        "edgekit calibrate diff",
    ),
    "edgekit.cache-merge/1": (
        "edgekit.quantize.cache_files:MergedCache",
        "edgekit calibrate merge",
    ),
    "edgekit.cache/1": ("edgekit.quantize.cache_files:ReadCache", "edgekit calibrate show"),
    "edgekit.check/1": ("edgekit.placement.compared_check:ComparedCheck", "edgekit check"),
    "edgekit.checks/1": ("edgekit.placement.checks_document:Checks", "edgekit check"),
    "edgekit.compare-log/1": (
        "edgekit.buildlog.comparison:LogComparison",
        "edgekit check --compare-log",
    ),
    "edgekit.compare/1": ("edgekit.results.comparison:Comparison", "edgekit compare"),
    "edgekit.compiled/1": ("edgekit.compiled.document:Compiled", "edgekit.compile"),
    "edgekit.deploy/1": ("edgekit.pipeline.steps.deploy:Deployed", "edgekit deploy"),
    "edgekit.deployment/1": (
        "edgekit_device.release.journal:DeploymentResult",
        "edgekit_device.pyz install",
    ),
    "edgekit.detections/1": ("edgekit.pipeline.steps.detect:Detections", "edgekit detect"),
    "edgekit.device.bench/1": (
        "edgekit_device.benchmark.measurement:Measurement",
        "edgekit_device.pyz bench",
    ),
    "edgekit.device/1": ("edgekit_device.board.identity:Hello", "edgekit_device.pyz hello"),
    "edgekit.doctor/1": ("edgekit.deployment.doctor:Doctor", "edgekit doctor"),
    "edgekit.doctors/1": ("edgekit.deployment.doctor:Doctors", "edgekit doctor"),
    "edgekit.error/1": ("edgekit.pipeline.failed_command:FailedCommand", ""),
    "edgekit.export/1": ("edgekit.pytorch.document:Exported", "edgekit.export"),
    "edgekit.family/1": ("edgekit.dla.explanation:ExplainedFamily", "edgekit explain"),
    "edgekit.fleet.ansible-run/1": (
        "edgekit.fleet.ansible.run:AnsibleRun",
        "edgekit fleet deploy --driver ansible",
    ),
    "edgekit.fleet.ansible/1": ("edgekit.fleet.ansible.export:Exported", "edgekit fleet export"),
    "edgekit.fleet.apply/1": ("edgekit.fleet.apply:Applied", "edgekit fleet apply"),
    "edgekit.fleet.boards/1": (
        "edgekit.fleet.boards:FleetBoards",
        "edgekit fleet status --inventory",
    ),
    "edgekit.fleet.rehearsal/1": (
        "edgekit.fleet.status:Rehearsal",
        "edgekit fleet deploy --dry-run",
    ),
    "edgekit.fleet/1": ("edgekit.fleet.status:FleetRollout", "edgekit fleet deploy"),
    "edgekit.fleets/1": ("edgekit.fleet.status:FleetListing", "edgekit fleet status"),
    "edgekit.from-qdq/1": (
        "edgekit.quantize.qdq.documents:SplitModel",
        "edgekit calibrate from-qdq",
    ),
    "edgekit.head/1": ("edgekit_device.detection.head:Head", "edgekit bundle"),
    "edgekit.health/1": ("edgekit_device.release.changed:Health", "edgekit deploy"),
    "edgekit.history.mark/1": ("edgekit.results.pruning:Marked", "edgekit history mark"),
    "edgekit.history.prune/1": ("edgekit.results.pruning:Pruned", "edgekit history prune"),
    "edgekit.history/1": ("edgekit.results.store:History", "edgekit history"),
    "edgekit.infer/1": ("edgekit.benchmark.inference:Inference", "edgekit infer"),
    "edgekit.init/1": ("edgekit.config.template:Initial", "edgekit init"),
    "edgekit.job/1": ("edgekit.pipeline.boards.jobs:JobAnswer", "edgekit jobs attach"),
    "edgekit.jobs/1": ("edgekit.pipeline.boards.jobs:Jobs", "edgekit jobs"),
    "edgekit.layer/1": ("edgekit.placement.check_document:LayerCheck", "edgekit check --layer"),
    "edgekit.log/1": ("edgekit.buildlog.log_document:ExplainedLog", "edgekit explain-log"),
    "edgekit.monitor/1": ("edgekit_device.board.samples:Monitor", "edgekit bench"),
    "edgekit.operator/1": ("edgekit.dla.explanation:ExplainedOperator", "edgekit explain"),
    "edgekit.packed/1": ("edgekit.pipeline.steps.bundle:Packed", "edgekit bundle"),
    "edgekit.pareto/1": ("edgekit.placement.placing:Pareto", "edgekit plan --pareto"),
    "edgekit.plan-table/1": ("edgekit.placement.table:PlanTable", "edgekit plan --targets all"),
    "edgekit.plan/1": ("edgekit.placement.plan:Plan", "edgekit plan"),
    "edgekit.plans/1": ("edgekit.schedule.plans:Plans", "edgekit plan"),
    "edgekit.plugin.request/1": (
        "edgekit_device.build.plugin_source:CompileRequest",
        "edgekit build",
    ),
    "edgekit.plugin.result/1": (
        "edgekit_device.build.plugin_source:CompiledPlugin",
        "edgekit build",
    ),
    "edgekit.probe/1": ("edgekit_device.board.probe:Probe", "edgekit_device.pyz probe"),
    "edgekit.profile/1": ("edgekit.placement.profiles.profile:ProfileTable", "edgekit tune"),
    "edgekit.python-part/1": ("edgekit_device.runtime.python_part:PythonPart", "net.save"),
    "edgekit.refit/1": ("edgekit.pipeline.steps.deploy:Refitted", "edgekit refit"),
    "edgekit.releases/1": ("edgekit.pipeline.boards.status:Releases", "edgekit releases"),
    "edgekit.remove/1": ("edgekit.pipeline.boards.changes:Removal", "edgekit remove"),
    "edgekit.report/1": ("edgekit.reports.schema:Report", "edgekit report"),
    "edgekit.rewrite-list/1": ("edgekit.rewriting.catalogue:RewriteList", "edgekit rewrite --list"),
    "edgekit.rewrite/1": ("edgekit.placement.rewrite_document:Rewriting", "edgekit rewrite"),
    "edgekit.rewrites/1": (
        "edgekit.rewriting.provenance.record:AppliedRewrites",
        "edgekit rewrite --record",
    ),
    "edgekit.rewritten/1": (
        "edgekit.rewriting.provenance.record:RewriteRecord",
        "edgekit rewrite --save",
    ),
    "edgekit.rollback/1": ("edgekit.pipeline.boards.changes:Rollback", "edgekit rollback"),
    "edgekit.rule/1": ("edgekit.dla.explanation:ExplainedRule", "edgekit explain"),
    "edgekit.run/1": ("edgekit.pipeline.report:RunDocument", "edgekit run"),
    "edgekit.scales/1": ("edgekit.pipeline.measured_scales:MeasuredScales", "edgekit calibrate"),
    "edgekit.selftest/1": (
        "edgekit.deployment.selftest:Selftest",
        "edgekit doctor --selftest",
    ),
    "edgekit.selftests/1": (
        "edgekit.deployment.selftest:Selftests",
        "edgekit doctor --selftest",
    ),
    "edgekit.sensitivity/1": (
        "edgekit.reference.sensitivity:SensitivityRanking",
        "edgekit calibrate --sensitivity",
    ),
    "edgekit.serve/1": ("edgekit.pipeline.boards.changes:Serving", "edgekit serve"),
    "edgekit.serving/1": (
        "edgekit_device.protocol.serving:ServingStatus",
        "edgekit_device.pyz serve-status",
    ),
    "edgekit.setup/1": ("edgekit.pipeline.boards.checkup:Setup", "edgekit doctor --setup"),
    "edgekit.setups/1": ("edgekit.pipeline.boards.checkup:Setups", "edgekit doctor --setup"),
    "edgekit.sparsity/1": (
        "edgekit.placement.check_document:SparsityCheck",
        "edgekit check --sparsity",
    ),
    "edgekit.status/1": ("edgekit.pipeline.boards.status:Status", "edgekit status"),
    "edgekit.targets/1": ("edgekit.targets.listing:Targets", "edgekit targets"),
    "edgekit.to-qdq/1": (
        "edgekit.quantize.qdq.documents:LoweredModel",
        "edgekit calibrate to-qdq",
    ),
    "edgekit.top/1": ("edgekit.benchmark.monitor:Top", "edgekit top --once"),
    "edgekit.trace-summary/1": ("edgekit.pipeline.exports:Traced", "edgekit trace"),
    "edgekit.trace/1": ("edgekit.benchmark.trace.chrome:Trace", "edgekit trace"),
    "edgekit.trust/1": ("edgekit.pipeline.boards.trust:Trust", "edgekit trust"),
    "edgekit.tune/1": ("edgekit.tuning.document:Tuned", "edgekit tune"),
    "edgekit.verified/1": (
        "edgekit.rewriting.provenance.verification:Verified",
        "edgekit rewrite --verify",
    ),
    "edgekit.whatif/1": ("edgekit.placement.plan:WhatIf", "edgekit plan --what-if"),
    "edgekit.why-modules/1": (
        "edgekit.placement.module_reasons:WhyModules",
        "edgekit plan --why",
    ),
    "edgekit.why/1": ("edgekit.placement.explanation:Why", "edgekit plan --why"),
}
#: Further classes of documents that are also written with fewer or other keys.
FORMS: Mapping[str, tuple[str, ...]] = {
    "edgekit.cache/1": ("edgekit.quantize.cache_files:ShownCache",),
    "edgekit.deployment/1": (
        "edgekit_device.release.journal:DeploymentEntry",
        "edgekit_device.release.journal:DeploymentFacts",
        "edgekit_device.deployment.status:ShownDeployment",
    ),
    "edgekit.rollback/1": ("edgekit_device.release.journal:HistoryEntry",),
    "edgekit.selftest/1": ("edgekit_device.selftest:SelftestResult",),
}
_ERROR = "edgekit.error/1"
_LARGEST = 512 << 20  # a trace
_SHOWN = 80


def document_classes(schema: str) -> tuple[type[Any], ...]:
    """Returns a document's classes by its schema and version: of several, that of ``DOCUMENTS`` is
    the last one.

    Raises:
        KeyError: There is no such document.
    """
    return tuple(map(_import_class, (*FORMS.get(schema, ()), DOCUMENTS[schema][0])))


def _import_class(text: str) -> type[Any]:
    module, _, name = text.partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found


def read_document(source: str | Path | Mapping[str, object]) -> Any:
    """Returns a document as an object of its class, which its ``schema`` chooses.

    Args:
        source: A JSON file, or the object that was parsed from JSON.

    Raises:
        DataError: "document.unreadable", "document.json", "document.schema" for a schema that this
            edgekit does not know, or "document.invalid" for a key or value that is wrong; ``where``
            is the file and the place in it: "plan.json: layers[3].device"; of a parsed object as a
            whole its schema.
    """
    if isinstance(source, Mapping):
        return _read_by_schema(dict(source), "")
    return _read_by_schema(_load_file(Path(source)), str(source))


def _load_file(path: Path) -> object:
    from edgekit.documents import load_json

    return load_json(
        path,
        _LARGEST,
        unreadable="document.unreadable",
        invalid="document.json",
        hint="give a whole document that edgekit wrote",
    )


def _read_by_schema(document: object, where: str) -> Any:
    schema = _schema_name(document)
    if schema not in DOCUMENTS:
        raise _unknown_schema(schema, where)
    kinds, made = document_classes(schema), DOCUMENTS[schema][1]
    # forms of one schema differ in their keys alone
    kind = (
        kinds[0] if len(kinds) == 1 else min(kinds, key=lambda form: _count_misfits(form, document))
    )
    try:
        if hasattr(kind, "model_validate_json"):
            return _validate_model(kind, document)
        return read(kind, document)
    except DeviceError as error:
        raise DataError(
            f"not a valid {schema}: {error.message}",
            code="document.invalid",
            where=": ".join(filter(None, (where, error.where))) or schema,
            hint=f"write it anew with {made}" * bool(made),
        ) from error


def _count_misfits(kind: type[Any], document: object) -> int:
    """Returns how many keys of a document a codec class lacks, or needs in vain."""
    rules = [field for field in dataclasses.fields(kind) if "rule" in field.metadata]
    needed = {field.metadata["key"] or field.name: field.metadata["needed"] for field in rules}
    given = document if isinstance(document, Mapping) else {}
    missing = [key for key, must in needed.items() if must and key not in given]
    return len(missing) + len([key for key in given if key not in needed])


def _validate_model(kind: Any, document: object) -> Any:
    """Returns a pydantic model's object; DeviceError as the codec raises it."""
    from pydantic import ValidationError

    from edgekit.documents import first_fault

    try:
        return kind.model_validate(document)
    except ValidationError as error:
        where, message = first_fault(error)
        raise DeviceError(message, code="", where=where) from error


def _schema_name(document: object) -> str:
    """Returns the schema that a document names; "" for none.

    The Trace Event Format has a place of its own for it, and a command that failed writes
    ``{"error": ...}``.
    """
    if not isinstance(document, Mapping):
        return ""
    about = document.get("otherData")
    named = document.get("schema", about.get("schema") if isinstance(about, Mapping) else None)
    if named is None and "error" in document:
        return _ERROR
    return named if isinstance(named, str) else ""


def _unknown_schema(schema: str, where: str) -> DataError:
    hint = "docs/documents.md lists the documents that edgekit reads"
    if not schema:
        message = "the document does not name its schema"
    else:
        message = f"this edgekit knows no document {schema[:_SHOWN]!r}"
        name = schema.rpartition("/")[0]
        known = [other for other in DOCUMENTS if other.rpartition("/")[0] == name]
        if known:
            made = " or ".join(DOCUMENTS[other][1] for other in known)
            message = f"{message}, but {' and '.join(known)}"
            hint = f"read it with the edgekit version that wrote it, or write it anew: {made}"
    return DataError(message, code="document.schema", where=where, hint=hint)
