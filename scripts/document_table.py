"""Every document that edgekit writes for people or programs, with its class."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: By schema and version: the pydantic model of the host, or the codec dataclass.
DOCUMENTS = {
    "edgekit.bench/1": "edgekit.benchmark.document.Bench",
    "edgekit.board-status/1": "edgekit_device.deployment.status.BoardStatus",
    "edgekit.build.request/1": "edgekit_device.build.request.BuildJobRequest",
    "edgekit.build.result/1": "edgekit_device.build.request.BuildResult",
    "edgekit.build/1": "edgekit.pipeline.steps.build.Build",
    "edgekit.buildlog/1": "edgekit.buildlog.facts.BuildLog",
    "edgekit.built/1": "edgekit.tensorrt.comparison.BuiltComparison",
    "edgekit.cache-diff/1": "edgekit.pipeline.scale_documents.CacheDifference",
    "edgekit.cache-merge/1": "edgekit.pipeline.scale_documents.MergedCache",
    "edgekit.cache/1": "edgekit.pipeline.scale_documents.ReadCache",
    "edgekit.check/1": "edgekit.placement.compared_check.ComparedCheck",
    "edgekit.checks/1": "edgekit.placement.checks_document.Checks",
    "edgekit.compare-log/1": "edgekit.buildlog.comparison.LogComparison",
    "edgekit.compare/1": "edgekit.results.comparison.Comparison",
    "edgekit.compiled/1": "edgekit.compiled.document.Compiled",
    "edgekit.deploy/1": "edgekit.pipeline.steps.deploy.Deployed",
    "edgekit.deployment/1": "edgekit_device.release.journal.DeploymentResult",
    "edgekit.device.bench/1": "edgekit.benchmark.measurement.Measurement",
    "edgekit.device/1": "edgekit_device.board.identity.Hello",
    "edgekit.doctor/1": "edgekit.pipeline.boards.doctor.Doctor",
    "edgekit.error/1": "edgekit.error_document.ErrorDocument",
    "edgekit.export/1": "edgekit.pytorch.document.Exported",
    "edgekit.family/1": "edgekit.dla.explanation.ExplainedFamily",
    "edgekit.fleet.ansible-run/1": "edgekit.fleet.ansible.run.AnsibleRun",
    "edgekit.fleet.ansible/1": "edgekit.fleet.ansible.export.Exported",
    "edgekit.fleet.rehearsal/1": "edgekit.fleet.store.Rehearsal",
    "edgekit.fleet/1": "edgekit.fleet.store.FleetRollout",
    "edgekit.fleets/1": "edgekit.fleet.store.FleetListing",
    "edgekit.from-qdq/1": "edgekit.pipeline.scale_documents.SplitModel",
    "edgekit.health/1": "edgekit_device.release.changed.Health",
    "edgekit.history.mark/1": "edgekit.results.pruning.Marked",
    "edgekit.history.prune/1": "edgekit.results.pruning.Pruned",
    "edgekit.history/1": "edgekit.results.store.History",
    "edgekit.infer/1": "edgekit.benchmark.inference.Inference",
    "edgekit.init/1": "edgekit.config.template.Initial",
    "edgekit.job/1": "edgekit.pipeline.boards.jobs.JobAnswer",
    "edgekit.jobs/1": "edgekit.pipeline.boards.jobs.Jobs",
    "edgekit.layer/1": "edgekit.placement.check_document.LayerCheck",
    "edgekit.log/1": "edgekit.buildlog.log_document.ExplainedLog",
    "edgekit.monitor/1": "edgekit_device.board.samples.Monitor",
    "edgekit.operator/1": "edgekit.dla.explanation.ExplainedOperator",
    "edgekit.packed/1": "edgekit.pipeline.steps.bundle.Packed",
    "edgekit.pareto/1": "edgekit.placement.placing.Pareto",
    "edgekit.plan-table/1": "edgekit.placement.table.PlanTable",
    "edgekit.plan/1": "edgekit.placement.plan.Plan",
    "edgekit.plans/1": "edgekit.schedule.plans.Plans",
    "edgekit.probe/1": "edgekit_device.board.probe.Probe",
    "edgekit.profile/1": "edgekit.placement.profiles.profile.ProfileTable",
    "edgekit.refit/1": "edgekit.pipeline.steps.deploy.Refitted",
    "edgekit.releases/1": "edgekit.pipeline.boards.status.Releases",
    "edgekit.remove/1": "edgekit.pipeline.boards.changes.Removal",
    "edgekit.report/1": "edgekit.reports.schema.Report",
    "edgekit.rewrite-list/1": "edgekit.rewriting.catalogue.RewriteList",
    "edgekit.rewrite/1": "edgekit.placement.rewrite_document.Rewriting",
    "edgekit.rewrites/1": "edgekit.rewriting.provenance.record.AppliedRewrites",
    "edgekit.rollback/1": "edgekit.pipeline.boards.changes.Rollback",
    "edgekit.rule/1": "edgekit.dla.explanation.ExplainedRule",
    "edgekit.run/1": "edgekit.pipeline.report.RunDocument",
    "edgekit.scales/1": "edgekit.pipeline.scale_documents.MeasuredScales",
    "edgekit.selftest/1": "edgekit.pipeline.boards.selftest.Selftest",
    "edgekit.sensitivity/1": "edgekit.reference.sensitivity.SensitivityRanking",
    "edgekit.serve/1": "edgekit.pipeline.boards.changes.Serving",
    "edgekit.serving/1": "edgekit_device.protocol.serving.ServingStatus",
    "edgekit.setup/1": "edgekit.pipeline.boards.checkup.Setup",
    "edgekit.sparsity/1": "edgekit.placement.check_document.SparsityCheck",
    "edgekit.status/1": "edgekit.pipeline.boards.status.Status",
    "edgekit.targets/1": "edgekit.targets.listing.Targets",
    "edgekit.to-qdq/1": "edgekit.pipeline.scale_documents.LoweredModel",
    "edgekit.top/1": "edgekit.benchmark.monitor.Top",
    "edgekit.trace-summary/1": "edgekit.pipeline.exports.Traced",
    "edgekit.trace/1": "edgekit.benchmark.trace.chrome.Trace",
    "edgekit.trust/1": "edgekit.pipeline.boards.trust.Trust",
    "edgekit.tune/1": "edgekit.tuning.document.Tuned",
    "edgekit.verified/1": "edgekit.rewriting.provenance.verification.Verified",
    "edgekit.whatif/1": "edgekit.placement.plan.WhatIf",
    "edgekit.why-modules/1": "edgekit.placement.module_reasons.WhyModules",
    "edgekit.why/1": "edgekit.placement.explanation.Why",
}


def document_class(name: str) -> type[Any]:
    """Returns a document's class by its schema and version."""
    module, _, attribute = DOCUMENTS[name].rpartition(".")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def schema_file(name: str) -> str:
    """Returns the name of a document's JSON Schema in docs/schemas."""
    return name.partition(".")[2].partition("/")[0] + ".schema.json"
