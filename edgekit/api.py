"""The command line as functions: `edgekit.check`, `edgekit.plan`, `edgekit.run` and so on. Each
takes a configuration file, a model, or an open configuration, and returns a typed object or the
document that the command prints with `--json`.

`config` is a YAML file, an ONNX file, "builtin:NAME" or a `Config`; a model needs `target`.
`**options` are the configuration's keys (`precision="fp16"`, `placement={"objective": "latency"}`)
and win over the file's. Failures raise `edgekit.errors.EdgekitError` with code, place and hint; an
argument of a wrong name or type is a `UsageError` of code `api.argument`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TextIO, overload

from edgekit.network.part import ModelPart as ModelPart
from edgekit.timeouts import ROLLOUT_RETRIES_S

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from typing_extensions import Unpack

    from edgekit.benchmark.document import Bench
    from edgekit.benchmark.inference import Inference
    from edgekit.benchmark.monitor import Top
    from edgekit.buildlog.log_document import ExplainedLog
    from edgekit.compiled.loaded import LoadedNetwork
    from edgekit.compiled.network import CompiledNetwork
    from edgekit.config.loader import Config as Config
    from edgekit.config.options import CompileOptions, ConfigOptions, TableOptions
    from edgekit.config.template import Initial
    from edgekit.deployment.doctor import Doctor as Doctor
    from edgekit.deployment.doctor import Doctors as Doctors
    from edgekit.deployment.selftest import Selftest as Selftest
    from edgekit.deployment.selftest import Selftests as Selftests
    from edgekit.dla.explanation import Explained
    from edgekit.fleet.ansible.export import Exported as ExportedRollout
    from edgekit.fleet.ansible.run import AnsibleBoard as AnsibleBoard
    from edgekit.fleet.ansible.run import AnsibleRun as AnsibleRun
    from edgekit.fleet.apply import Applied as AppliedReleases
    from edgekit.fleet.apply import AppliedBoard as AppliedBoard
    from edgekit.fleet.boards import FleetBoards as FleetBoards
    from edgekit.fleet.boards import InventoryBoard as InventoryBoard
    from edgekit.fleet.rollout import Fleet
    from edgekit.fleet.status import AnsibleHead as AnsibleHead
    from edgekit.fleet.status import FleetListing as FleetListing
    from edgekit.fleet.status import FleetRollout as FleetRollout
    from edgekit.fleet.status import Rehearsal as Rehearsal
    from edgekit.fleet.status import RolloutBoard as RolloutBoard
    from edgekit.fleet.status import RolloutHead as RolloutHead
    from edgekit.network.ranges import GivenShape
    from edgekit.pipeline.boards.changes import Removal as Removal
    from edgekit.pipeline.boards.changes import Rollback, Serving
    from edgekit.pipeline.boards.checkup import Setup as Setup
    from edgekit.pipeline.boards.checkup import Setups as Setups
    from edgekit.pipeline.boards.jobs import BoardJobs as BoardJobs
    from edgekit.pipeline.boards.jobs import JobAnswer as JobAnswer
    from edgekit.pipeline.boards.jobs import Jobs
    from edgekit.pipeline.boards.requests import BoardRow as BoardRow
    from edgekit.pipeline.boards.status import ListedApp as ListedApp
    from edgekit.pipeline.boards.status import ListedRelease as ListedRelease
    from edgekit.pipeline.boards.status import Releases
    from edgekit.pipeline.boards.status import Status as Status
    from edgekit.pipeline.boards.trust import Trust
    from edgekit.pipeline.boards.trust import TrustingBoard as TrustingBoard
    from edgekit.pipeline.exports import Traced, TraceFiles
    from edgekit.pipeline.measured_scales import MeasuredScales
    from edgekit.pipeline.measured_scales import WrittenScales as WrittenScales
    from edgekit.pipeline.named_check import CheckedModels
    from edgekit.pipeline.pipeline import Pipeline as Pipeline
    from edgekit.pipeline.pipeline import RunResult
    from edgekit.pipeline.progress import Progress as Progress
    from edgekit.pipeline.report_page import ReportPage
    from edgekit.pipeline.steps.build import Build as Build
    from edgekit.pipeline.steps.bundle import Packed
    from edgekit.pipeline.steps.deploy import Deployed, Refitted
    from edgekit.pipeline.steps.deploy import DeployedRelease as DeployedRelease
    from edgekit.pipeline.steps.detect import Detections
    from edgekit.placement.check import CheckResult as CheckResult
    from edgekit.placement.check_document import Check as Check
    from edgekit.placement.check_document import LayerCheck as LayerCheck
    from edgekit.placement.check_document import SparsityCheck as SparsityCheck
    from edgekit.placement.compared_check import ComparedCheck as ComparedCheck
    from edgekit.placement.explanation import Why
    from edgekit.placement.module_reasons import WhyModules
    from edgekit.placement.placing import Pareto
    from edgekit.placement.plan import Plan as Plan
    from edgekit.placement.plan import WhatIf
    from edgekit.placement.rewrite_document import Rewriting
    from edgekit.placement.table import PlanTable
    from edgekit.pytorch.document import Exported
    from edgekit.quantize.cache_files import CacheDifference as CacheDifference
    from edgekit.quantize.cache_files import MergedCache
    from edgekit.quantize.cache_files import ReadCache as ReadCache
    from edgekit.quantize.cache_files import ShownCache as ShownCache
    from edgekit.quantize.qdq.documents import LoweredModel, SplitModel
    from edgekit.reference.accuracy import Accuracy as Accuracy
    from edgekit.reference.sensitivity import SensitivityRanking as SensitivityRanking
    from edgekit.reports.schema import Report
    from edgekit.results.comparison import Comparison
    from edgekit.results.pruning import Marked, Pruned
    from edgekit.results.store import History, Result
    from edgekit.rewriting.catalogue import RewriteList
    from edgekit.rewriting.provenance.verification import Verified as Verified
    from edgekit.schedule.plans import Plans as Plans
    from edgekit.targets.listing import Targets
    from edgekit.tensorrt.built import BoardBuild as BoardBuild
    from edgekit.tuning.document import Tuned
    from edgekit.tuning.trials import TuningRequest
    from edgekit_device.deployment.status import AppStatus as AppStatus
    from edgekit_device.deployment.status import ShownDeployment as ShownDeployment
    from edgekit_device.jobs.job import JobRow as JobRow
    from edgekit_device.protocol.failure import Failed as Failed
    from edgekit_device.protocol.failure import Failure as Failure
    from edgekit_device.protocol.serving import LastError as LastError
    from edgekit_device.protocol.serving import ServingStatus as ServingStatus
    from edgekit_device.release.journal import HistoryEntry as HistoryEntry


# A function of a configuration opens it as a `Pipeline` (`open_pipeline`) and calls a method or a
# question; boards alone are queried by `pipeline.boards`; the rest are functions of the packages.


def check(
    config: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    leave: str | Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    jetpack: str | float | None = None,
    dynamic_shapes: object = None,
    on_note: Callable[[str], object] = str,
    **options: Unpack[ConfigOptions],
) -> Check:
    """Returns an ``edgekit.check/1``: the layers that can run on a DLA, and the reasons of the
    others; printed, it is the verdict with the tree of modules.

    ``config`` may be a PyTorch network, too, with an example of its inputs in ``args`` and
    ``kwargs``, or their sizes in ``inputs``, as for ``export``. Modules that match a glob of
    ``leave`` are left out of the network: the tree shows them as PyTorch's. ``jetpack="6.2"``
    selects the rules of the TensorRT in a JetPack. ``dynamic_shapes`` are axes of a module whose
    sizes vary, as ``torch.export.export`` takes them. ``on_note`` is called with a line of text
    when a part of the work begins.
    """
    from edgekit.pipeline.named_check import check_source
    from edgekit.pipeline.torch_source import with_model_keys

    given = with_model_keys(options, leave, inputs)
    return check_source(
        config,
        args,
        kwargs,
        jetpack=jetpack,
        dynamic_shapes=dynamic_shapes,
        on_note=on_note,
        **given,
    )


def check_models(
    models: Sequence[str | Path],
    *,
    fail_under: float | None = None,
    max_loadables: int | None = None,
    sarif: str | Path | None = None,
    markdown: str | Path | None = None,
    jetpack: str | float | None = None,
    on_note: Callable[[str], object] = str,
    **options: Unpack[ConfigOptions],
) -> CheckedModels:
    """Checks models as ``check`` does, and lists those that miss limits.

    Each of ``results`` has its ``document``; ``layer(name)``, ``sparsity()`` and ``compare(log)``
    give details. ``document`` is the ``edgekit.checks/1`` of all models.

    Args:
        models: ONNX files, "builtin:NAME" or configurations.
        fail_under: Least share of the multiply-accumulates on the DLA, in percent.
        max_loadables: Most loadables.
        sarif: Output file for the reasons as SARIF 2.1.0.
        markdown: Output file for the checks as Markdown.
        jetpack: As for ``check``, as are ``on_note`` and the others.
    """
    from edgekit.collector import collector_held

    with collector_held():  # the modules make many objects too
        from edgekit.pipeline.named_check import check_models

    return check_models(
        [str(model) for model in models],
        fail_under=fail_under,
        max_loadables=max_loadables,
        sarif=as_path(sarif),
        markdown=as_path(markdown),
        jetpack=jetpack,
        on_note=on_note,
        **options,
    )


def explain(name: str) -> Explained:
    """Explains a DLA rule ("convolution.kernel"), a family of rules or an ONNX operator.

    Returns an ``edgekit.rule/1``, ``edgekit.family/1`` or ``edgekit.operator/1``.

    Raises:
        UsageError: "rule.unknown", or "operator.unlisted": NVIDIA's matrix has no such row.
    """
    from edgekit.dla.explanation import explain

    return explain(name)


def explain_log(
    log: str | Path,
    *,
    model: str | Path | None = None,
    name: str | None = None,
    target: str | Path | None = None,
    precision: str | None = None,
    tensorrt: str | None = None,
    jetpack: str | float | None = None,
    power_mode: str | None = None,
    on_note: Callable[[str], object] = str,
) -> ExplainedLog:
    """Returns the ``edgekit.log/1`` of a build log: layers, broken rules, errors with remedies.

    With a model it has the model's verdicts beside the builder's placement; ``target``,
    ``precision``, ``tensorrt``, ``jetpack`` and ``power_mode`` are as for ``check``, by default the
    log's. ``name`` is the log's name in the answer, instead of its path; ``on_note`` is called with
    a line of text when a part of the work begins.
    """
    from edgekit.pipeline.log_explanation import explain_log

    model = None if model is None else str(model)
    return explain_log(
        log,
        name=name,
        model=model,
        on_note=on_note,
        target=target,
        precision=precision,
        tensorrt=tensorrt,
        jetpack=jetpack,
        power_mode=power_mode,
    )


def export(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str,
    tensorrt: str | None = None,
    jetpack: str | None = None,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    save: str | Path | None = None,
    trust: str | None = None,
    dynamic_shapes: object = None,
    leave: str | Sequence[str] = (),
) -> Exported:
    """Exports a PyTorch network to an ONNX file with names: an ``edgekit.export/1``.

    It needs the extra ``edgekit[torch]``.

    ``source`` is a module, a program of ``torch.export``, the path of a .pt2 or TorchScript file,
    or "package.module:factory", whose function returns a module (or module and args); ``args`` and
    ``kwargs`` are an example of its inputs, or ``inputs`` are sizes
    (``{"x": "1x3x224x224:float32"}``, ``{"x": "1x3x320..640x224"}``). Axes of ``dynamic_shapes``
    (``{"x": {0: torch.export.Dim("batch", min=1, max=8)}}``) and ranges are open in the file, and
    in ``dimensions`` of the answer. A copy is exported, in evaluation mode: the module is not
    changed. The target's TensorRT (or ``tensorrt``, ``jetpack``) chooses exporter and opset, unless
    ``exporter`` is "dynamo" or "legacy". The file is compared with PyTorch on the example and on
    random inputs. ``save`` is the output file; without it the file stays in the cache. Modules that
    match a glob of ``leave`` stay in PyTorch: their calls are nodes of the file.

    Paths and factories are loaded in a separate process; files are only unpickled with ``trust``,
    the file's SHA-256.

    Raises:
        ModelError: ``torch.control_flow``, ``torch.operator``, ``torch.export``: the parts that
            cannot be exported, by module path, class and source line.
        GateError: ``torch.differs``: the outputs of the file differ from PyTorch's.
    """
    from edgekit.pytorch.export import export, release_for

    return export(
        source,
        args,
        kwargs,
        release=release_for(target, tensorrt, jetpack),
        inputs=inputs,
        exporter=exporter,
        save=as_path(save),
        trust=trust,
        dynamic_shapes=dynamic_shapes,
        leave=leave,
    )


def compile(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str,
    leave: str | Sequence[str] = (),
    pin: Mapping[str, str] | None = None,
    calibration: Iterable[Any] | Mapping[str, Any] | None = None,
    board: str | None = None,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    trust: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    again: bool = False,
    dynamic_shapes: object = None,
    **options: Unpack[CompileOptions],
) -> CompiledNetwork:
    """Compiles a PyTorch network: ``export``, ``plan`` and ``bundle`` in turn; the result is called
    like the module.

    ``source``, ``args``, ``kwargs``, ``inputs``, ``exporter`` and ``trust`` are as for ``export``.
    ``source`` may be an ONNX file, too, which needs no PyTorch: its inputs, in order or by name,
    are NumPy arrays or tensors, the result is its output or a tuple of its outputs, and the example
    is only needed for sizes that the file leaves open. Its shapes are fixed: ``dynamic_shapes`` are
    refused.
    Modules that match a glob of ``leave`` stay in PyTorch; ``pin`` is a device by glob of modules
    or layers (``{"head.*": "gpu"}``). ``calibration`` are inputs for INT8 scales, each like a
    call: a tensor, a tuple of arguments or a dict of keyword arguments; at most 512 are read. With
    ``board`` ("USER@HOST") it is built and run there, as ``deploy`` and ``infer`` do; otherwise it
    runs on this machine's CPU, with the values of the target's precisions but not its times.
    ``options`` are the configuration's other keys (``precision="int8"``,
    ``placement={"dla_cores": [0, 1]}``).

    Raises:
        UsageError: "torch.leave", "plan.pin": a glob has no match.
    """
    from edgekit.compiled.network import compile_network

    consents = {"accept_host_key": accept_host_key, "trust_key": trust_key, "again": again}
    return compile_network(
        source,
        args,
        kwargs,
        target=target,
        leave=leave,
        pin=pin,
        calibration=calibration,
        board=board,
        inputs=inputs,
        exporter=exporter,
        trust=trust,
        out=as_path(out),
        progress=progress,
        consents=consents,
        dynamic_shapes=dynamic_shapes,
        **options,
    )


def load(
    path: str | Path,
    *,
    allowed_signers: str | Path | None = None,
    trust_unsigned: bool = False,
    board: str | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> LoadedNetwork:
    """Loads a compiled network that ``save`` wrote; the result is called like the module.

    Its signature is checked first: by default edgekit's own key, and those of the installation on
    this machine (``~/.edgekit/allowed_signers``), may have signed it. ``trust_unsigned`` accepts a
    bundle without a signature, or signed by an unknown key. With ``board`` ("USER@HOST") it is
    installed in the board's folder ``root``, and runs there with its ``python``; the connection
    stays open until ``close``.

    Without PyTorch on this machine arguments and results are NumPy arrays.

    Raises:
        BundleError: The file is not a bundle, damaged, or not signed by a known key.
        UsageError: "bundle.no-call": the bundle is not of a compiled network.
    """
    from edgekit.compiled.loaded import load_network

    return load_network(
        as_path(path),
        allowed_signers=as_path(allowed_signers),
        trust_unsigned=trust_unsigned,
        board=board,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
        root=root,
        python=python,
    )


def rewrite(
    config: str | Path | Config,
    save: str | Path | None = None,
    record: str | Path | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Rewriting:
    """Rewrites a model and returns an ``edgekit.rewrite/1``.

    ``save`` is the output file of the rewritten model, ``record`` that of the proofs
    (``edgekit.rewrites/1``).
    """
    from edgekit.collector import collector_held

    # judging before and after makes as many objects as rewriting does, the modules many too
    with collector_held(), open_pipeline(config, options, progress=progress) as pipeline:
        return pipeline.rewrite(as_path(save), as_path(record))


def list_rewrites() -> RewriteList:
    """Returns an ``edgekit.rewrite-list/1``: every rewrite with its reason."""
    from edgekit.rewriting.catalogue import rewrite_list

    return rewrite_list()


def list_targets() -> Targets:
    """Returns an ``edgekit.targets/1``: the boards that edgekit knows."""
    from edgekit.targets.listing import list_targets

    return list_targets()


def init(
    model: str | Path,
    target: str,
    output: str | Path | None = None,
    *,
    batch: int | None = None,
    overwrite: bool = False,
) -> Initial:
    """Writes a commented configuration for a model and returns an ``edgekit.init/1``.

    ``output`` is NAME.yaml in the current folder if None; ``batch`` is the batch of a model that
    leaves it open.

    Raises:
        UsageError: An unknown board, or the file exists.
        ModelError: The model cannot be read.
    """
    from edgekit.config.template import Initial, write_template

    path = write_template(str(model), target, as_path(output), batch=batch, overwrite=overwrite)
    return Initial(str(path))


def verify_rewrites(
    model: str | Path,
    record: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    trust_unsigned: bool = False,
    progress: Progress | None = None,
) -> Verified:
    """Repeats a rewriting with its proofs and returns an ``edgekit.verified/1``.

    ``record`` is an output of ``rewrite`` (a record, the rewritten model) or a bundle, without a
    signature only with ``trust_unsigned``; ``shapes``, ``batch`` and ``outputs`` are those of the
    rewriting.

    Raises:
        DataError: ``record`` is not a record, or is a record of another model.
        GateError: A recorded step no longer applies.
    """
    from edgekit.pipeline.rewrite_proofs import verify_rewrites

    return verify_rewrites(
        model,
        record,
        shapes=shapes,
        batch=batch,
        outputs=outputs,
        trust_unsigned=trust_unsigned,
        progress=progress,
    )


def calibrate(
    config: str | Path | Config,
    save: str | Path | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> MeasuredScales:
    """Measures INT8 scales, writes a cache to ``save``, and returns an ``edgekit.scales/1``."""
    with open_pipeline(config, options, force=force, progress=progress) as pipeline:
        return pipeline.calibrate(as_path(save))


def to_qdq(
    config: str | Path | Config,
    out: str | Path,
    *,
    weights: str = "per_channel",
    float16: bool = True,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> LoweredModel:
    """Writes a plain model with Q/DQ nodes to ``out`` and returns an ``edgekit.to-qdq/1``.

    ``weights`` is "per_channel" or "per_tensor"; ``float16``: layers outside of INT8 get FP16.
    By default the model is not rewritten, and it is for the configuration's TensorRT if that reads
    Q/DQ nodes for the DLA, otherwise for the first release that does.

    Raises:
        UsageError: "qdq.release": no DLA of the board reads Q/DQ nodes with the release.
        ModelError: "qdq.present", "qdq.opset", or the file cannot be written.
    """
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.pipeline.qdq import open_for_qdq

    with Pipeline(open_for_qdq(config, options), force=force, progress=progress) as pipeline:
        return pipeline.to_qdq(as_path(out), weights=weights, float16=float16)


def from_qdq(
    model: str | Path,
    *,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    precisions: Sequence[str | Path] = (),
    target: str | None = None,
    tensorrt: str | None = None,
    unequal: str = "refuse",
    tied: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
) -> SplitModel:
    """Splits a Q/DQ model and returns an ``edgekit.from-qdq/1``.

    ``out``, ``cache`` and ``precisions`` are the output files of the plain model, its scales and
    its FP16 layers; the others are the options of ``edgekit calibrate from-qdq``.
    """
    from edgekit.pipeline.qdq import from_qdq_document

    return from_qdq_document(
        model,
        out=as_path(out),
        cache=as_path(cache),
        precisions=[*map(as_path, precisions)],
        target=target,
        tensorrt=tensorrt,
        unequal=unequal,
        tied=tied,
        shapes=shapes,
        batch=batch,
        outputs=outputs,
    )


def show_cache(
    cache: str | Path,
    model: str | Path | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
) -> ShownCache | ReadCache:
    """Returns an ``edgekit.cache/1``: the scales of a calibration cache.

    With a model (and its ``shapes``, ``batch`` and ``outputs``) it has the layers that write and
    read them, and the missing scales.

    Raises:
        DataError: The file is not a cache, or is of another network.
    """
    from edgekit.quantize.cache_files import show_document

    named = None if model is None else str(model)
    return show_document(as_path(cache), named, shapes=shapes, batch=batch, outputs=outputs)


def diff_caches(
    first: str | Path, second: str | Path, *, tolerance: float = 0.0, headers: bool = True
) -> CacheDifference:
    """Compares two calibration caches and returns an ``edgekit.cache-diff/1``.

    Scales that differ by at most ``tolerance`` of the smaller are equal.

    Raises:
        DataError: A file is not a cache.
    """
    from edgekit.quantize.cache_files import diff_document

    return diff_document(as_path(first), as_path(second), tolerance=tolerance, headers=headers)


def merge_caches(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    policy: str = "last",
    amax: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Sequence[str] = (),
    tensorrt: str | None = None,
) -> MergedCache:
    """Merges calibration caches into ``out`` and returns an ``edgekit.cache-merge/1``.

    The arguments are the options of ``edgekit calibrate merge``.

    Raises:
        DataError: A file is not a cache, or ``out`` cannot be written.
        UsageError: An edit matches no tensor.
    """
    from edgekit.quantize.cache_files import merge_document

    return merge_document(
        [as_path(one) for one in sources],
        as_path(out),
        policy=policy,
        amax=amax,
        drop=drop,
        rename=rename,
        tensorrt=tensorrt,
    )


def sensitivity(
    config: str | Path | Config,
    metric: str | None = None,
    minimum: float | None = None,
    *,
    write_config: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> SensitivityRanking:
    """Ranks the layers by the accuracy cost of their INT8.

    With a ``minimum`` of ``metric`` ("cosine", "snr_db", "top1_agreement", "boxes") it proposes the
    fewest layers to keep in FP16; ``write_config`` is the output file for a configuration with
    them.
    """
    from edgekit.pipeline.questions import sensitivity

    with open_pipeline(config, options, force=force, progress=progress) as pipeline:
        return sensitivity(pipeline, metric, minimum, as_path(write_config))


def build(
    config: str | Path | Config,
    *,
    force: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Build:
    """Builds the engines."""
    with open_pipeline(
        config,
        options,
        progress=progress,
        force=force,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        return pipeline.build()


def bundle(
    config: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    inputs: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    full: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Packed:
    """Packs and signs a bundle; ``full`` is a file for it with its weights.

    ``config`` may be a PyTorch network, too, with an example of its inputs in ``args`` and
    ``kwargs``, or their sizes in ``inputs``, as for ``export``.
    """
    from edgekit.pipeline.torch_source import from_torch, with_model_keys

    given: Mapping[str, object] = with_model_keys(options, inputs=inputs)
    if (made := from_torch(config, args, kwargs, given)) is not None:
        config, given = made.exported.file, made.options
    with open_pipeline(config, given, progress=progress, out=as_path(out), force=force) as pipeline:
        return pipeline.bundle(full=as_path(full))


def deploy(
    config: str | Path | Config,
    *,
    file: str | Path | None = None,
    dry_run: bool = False,
    out: str | Path | None = None,
    force: bool = False,
    again: bool = False,
    allow_older: str = "",
    accept_host_key: bool = False,
    trust_key: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Deployed:
    """Installs on every board.

    A bundle that a board rolled back is only installed again with ``again``
    ("install.taken-back"). A bundle that the release counter or the times of bundles forbid is only
    installed with a reason in ``allow_older`` ("install.older", "install.expired",
    "install.clock"). With ``dry_run`` boards are not changed, and the releases are those that would
    be installed.
    """
    with open_pipeline(
        config,
        options,
        progress=progress,
        connects=True,
        out=as_path(out),
        force=force,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
        allow_older=allow_older,
        again=again,
    ) as pipeline:
        return pipeline.deploy(as_path(file), dry_run=dry_run)


def rollback(
    config: str | Path | Config,
    *,
    app: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    check: bool = True,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
    **options: Unpack[ConfigOptions],
) -> Rollback:
    """Rolls every board back to its previous release.

    ``config`` may be a host, too: it needs ``app``, and ``root`` and ``python`` are that host's.
    With ``dry_run`` boards are not changed, and the result has the changes that would be made. All
    boards are tried; then the first board's error is raised, or without ``check`` is only in that
    board's row.
    """
    from edgekit.config.loader import Config, open_config
    from edgekit.pipeline.boards.addresses import is_config
    from edgekit.pipeline.boards.changes import roll_back

    opened = None
    if isinstance(config, Config) or is_config(str(config)):
        opened = open_config(config, **options)
    where = str(config) if opened is None else opened.path
    name = app if opened is None or app is not None else opened.file.name
    found = roll_back(
        where,
        name,
        reason,
        dry_run=dry_run,
        config=opened,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )
    if check and (lost := [row.cause for row in found.boards if row.cause is not None]):
        raise lost[0]
    return found


def status(
    *wheres: str | Path,
    app: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Status:
    """Returns the status of boards, for an application ``app`` or all.

    ``wheres`` are configurations and hosts (USER@HOST:PORT, an alias of ~/.ssh/config). The
    connection is set by ``accept_host_key`` and, for a host, ``root`` and ``python``. A board that
    failed has ``error`` in its row.
    """
    from edgekit.pipeline.boards.status import status

    named = [str(where) for where in wheres]
    return status(named, app, accept_host_key=accept_host_key, root=root, python=python)


def releases(
    *wheres: str | Path,
    app: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Releases:
    """Returns the releases on boards; arguments as in ``status``."""
    from edgekit.pipeline.boards.status import releases

    named = [str(where) for where in wheres]
    return releases(named, app, accept_host_key=accept_host_key, root=root, python=python)


def remove(
    *wheres: str | Path,
    app: str | None = None,
    release: str | None = None,
    dry_run: bool = False,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Removal:
    """Removes a ``release`` from boards; without it the application and all its releases.

    ``app`` is a configuration's own by default. With ``dry_run`` boards are not changed, and the
    result has the releases that would be removed. The other arguments are those of ``status``.
    """
    from edgekit.pipeline.boards.changes import remove

    return remove(
        [str(where) for where in wheres],
        app,
        release,
        dry_run=dry_run,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def trust(
    where: str | Path,
    *,
    add: Sequence[str | Path] = (),
    identity: str | None = None,
    valid_after: str | None = None,
    valid_before: str | None = None,
    remove: Sequence[str] = (),
    force: bool = False,
    revoke: Sequence[str | Path] = (),
    signers: str | Path | None = None,
    revocations: str | Path | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Trust:
    """Changes the keys that boards trust, and lists them.

    ``add`` and ``revoke`` are files of public keys; ``identity``, ``valid_after`` and
    ``valid_before`` (YYYYMMDD[HHMM]) are of those added. ``remove`` are fingerprints, identities or
    key files; ``force`` permits removing the last key. ``signers`` (an allowed_signers file) and
    ``revocations`` (a KRL or a list of keys) replace the board's.
    """
    from edgekit.pipeline.boards.trust import KeyChanges, trust

    changes = KeyChanges(
        [*map(as_path, add)],
        identity,
        valid_after,
        valid_before,
        remove,
        force,
        [*map(as_path, revoke)],
        as_path(signers),
        as_path(revocations),
    )
    return trust(str(where), changes, accept_host_key=accept_host_key, root=root, python=python)


def serve(
    where: str | Path,
    action: Literal["start", "status", "reload", "stop"] = "status",
    *,
    app: str | None = None,
    workers: int | None = None,
    queue: int | None = None,
    timeout_s: float | None = None,
    threads: int | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Serving:
    """Starts, queries ("status"), reloads or stops the servers of boards (docs/serving.md).

    "start" takes ``workers`` (processes), ``queue`` (the longest queue of waiting requests),
    ``timeout_s`` (seconds that a request may wait, and then run) and ``threads`` (of an engine);
    None is the board's default. ``app`` is a configuration's own by default. The other arguments
    are those of ``status``.
    """
    from edgekit.pipeline.boards.changes import serve

    settings = {"workers": workers, "queue": queue, "timeout-s": timeout_s, "threads": threads}
    options = [f"--{name}={value}" for name, value in settings.items() if value is not None]
    return serve(
        str(where),
        action,
        app,
        options=options,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def jobs(
    where: str | Path,
    *,
    board: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Jobs:
    """Returns the jobs of boards, or of a configuration's board ``board``."""
    from edgekit.pipeline.boards.jobs import jobs

    return jobs(str(where), board, accept_host_key=accept_host_key, root=root, python=python)


def watch_job(
    job: str,
    where: str | Path,
    *,
    progress: Progress | None = None,
    on_note: Callable[[str], object] = lambda text: None,
    board: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> JobAnswer:
    """Follows a job to its end and returns its result.

    ``job`` is its id, or at least the first four characters; the other arguments are those of
    ``jobs``.
    ``on_note`` is called with notes for the user.

    Raises:
        EdgekitError: The job's own error, or the board's.
    """
    from edgekit.pipeline.boards.jobs import watch_job
    from edgekit.pipeline.progress import SilentProgress

    return watch_job(
        job,
        str(where),
        progress or SilentProgress(),
        on_note,
        board=board,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def job_log(
    job: str,
    where: str | Path,
    *,
    tail: int | None = None,
    on_text: Callable[[str], object] = lambda text: None,
    on_note: Callable[[str], object] = lambda text: None,
    board: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> JobAnswer:
    """Returns a job's log, or its last ``tail`` bytes; ``on_text`` gets each part as it arrives."""
    from edgekit.pipeline.boards.jobs import job_log

    return job_log(
        job,
        str(where),
        on_text,
        on_note,
        tail=tail,
        board=board,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def cancel_job(
    job: str,
    where: str | Path,
    *,
    on_note: Callable[[str], object] = lambda text: None,
    board: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> JobAnswer:
    """Cancels a job; arguments as in ``watch_job``."""
    from edgekit.pipeline.boards.jobs import cancel_job

    return cancel_job(
        job,
        str(where),
        on_note,
        board=board,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def remove_job(
    job: str,
    where: str | Path,
    *,
    on_note: Callable[[str], object] = lambda text: None,
    board: str | None = None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> JobAnswer:
    """Removes a job that has ended; arguments as in ``watch_job``."""
    from edgekit.pipeline.boards.jobs import remove_job

    return remove_job(
        job,
        str(where),
        on_note,
        board=board,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def doctor(
    where: str | Path | None = None,
    config: str | Path | None = None,
    *,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Doctors:
    """Returns the checks of each board, or of this machine, with remedies for missing parts.

    ``where`` is a configuration, a host or a board of ``config``; None for this machine. A single
    board raises its error; of several boards each has its error in its document.
    """
    from edgekit.pipeline.boards.checkup import doctor

    return doctor(
        _as_text(where), _as_text(config), accept_host_key=accept_host_key, root=root, python=python
    )


def set_up(
    where: str | Path,
    config: str | Path | None = None,
    *,
    undo: bool = False,
    agree: Callable[[str, str], bool] = lambda board, text: True,
    on_text: Callable[[str, str], object] = lambda board, text: None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Setups:
    """Permits the account to set power modes and read clocks of boards, or reverts this (``undo``).

    ``agree`` is called with a board and its planned changes, ``on_text`` with those made.
    """
    from edgekit.pipeline.boards.checkup import set_up

    return set_up(
        str(where),
        _as_text(config),
        undo=undo,
        agree=agree,
        on_text=on_text,
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def selftest(
    where: str | Path,
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    progress: Progress | None = None,
    on_note: Callable[[str], object] = lambda text: None,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Selftests:
    """Runs the self-test of boards and writes the results to ``out`` (edgekit-selftest.json)."""
    from edgekit.pipeline.boards.checkup import self_test
    from edgekit.pipeline.progress import SilentProgress

    return self_test(
        str(where),
        _as_text(config),
        progress=progress or SilentProgress(),
        on_note=on_note,
        out=as_path(out),
        accept_host_key=accept_host_key,
        root=root,
        python=python,
    )


def refit(
    config: str | Path | Config,
    weights: str | Path,
    *,
    out: str | Path | None = None,
    again: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Refitted:
    """Deploys the same engines with other weights.

    ``again`` is as for ``deploy``.
    """
    with open_pipeline(
        config,
        options,
        progress=progress,
        connects=True,
        out=as_path(out),
        again=again,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        return pipeline.refit(as_path(weights))


def infer(
    config: str | Path | Config,
    source: str | Path | None = None,
    output: str | Path | None = None,
    *,
    draw: str | Path | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Unpack[ConfigOptions],
) -> Inference:
    """Runs an inference on the first board.

    ``source`` is an .npz or .npy with its inputs, by default the first calibration input;
    ``output`` is the output file, by default outputs.npz of the run's folder; ``draw`` is a folder
    for pictures with a detector's objects on these inputs.
    """
    with open_pipeline(
        config,
        options,
        progress=progress,
        connects=True,
        out=as_path(out),
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        return pipeline.infer(as_path(source), as_path(output), as_path(draw))


def detect(
    config: str | Path | Config,
    images: str | Path | Sequence[str | Path],
    *,
    draw: str | Path | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Unpack[ConfigOptions],
) -> Detections:
    """Finds the objects of pictures with a detector on the first board, and draws them.

    ``images`` are files, or folders of files; ``draw`` is the folder for the drawn pictures, by
    default the run's. ``detection={"score": ...}`` filters the objects of this call only; the
    accuracy gate goes by the file's. Boxes are in pixels of the upright picture.

    Raises:
        DataError: "data.path", "data.empty", "data.image": a picture is missing or damaged.
        UsageError: "detect.no-head": the configuration has no ``model.head``.
    """
    from edgekit.config.loader import open_config

    sources = [images] if isinstance(images, str | os.PathLike) else images
    # a filter of this call must not change the accuracy gate, and with it the build
    kept = open_config(config, **options).file.detection
    given = options.get("detection")
    named = given.items() if isinstance(given, Mapping) else ()
    built = {**options, "detection": {key: keys for key, keys in named if key == "classes"}}
    with open_pipeline(
        config,
        built,
        progress=progress,
        connects=True,
        out=as_path(out),
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        return pipeline.detect([as_path(source) for source in sources], as_path(draw), kept)


def bench(
    config: str | Path | Config,
    *,
    out: str | Path | None = None,
    progress: Progress | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Unpack[ConfigOptions],
) -> Bench:
    """Measures on the first board; times are in milliseconds.

    For a range of shapes it measures the first shape, or that of ``bench={"shapes": ...}``; a
    static shape in ``model={"shapes": ...}`` has the same effect if the configuration has a range.

    Raises:
        UsageError: "bench.shape": the shape was not planned.
    """
    from edgekit.pipeline.steps.bench import shape_to_measure

    config, given = shape_to_measure(config, options)
    with open_pipeline(
        config,
        given,
        progress=progress,
        connects=True,
        out=as_path(out),
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        return pipeline.bench()


def add_power(bench: str | Path, tegrastats: str | Path) -> Bench:
    """Adds the power and energy of a tegrastats log to a ``bench.json``, which is rewritten.

    Raises:
        DataError: A file is of another kind, or the log is of another board.
        UsageError: The measurement sampled its power itself, or does not come from a board.
    """
    from edgekit.pipeline.tegrastats_log import with_tegrastats

    return with_tegrastats(as_path(bench), as_path(tegrastats))


def run(
    config: str | Path | Config,
    *,
    out: str | Path | None = None,
    annotate: str | Path | None = None,
    force: bool = False,
    again: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> RunResult | Build:
    """Runs every step; ``again`` as for ``deploy``.

    With plugins that are Python functions it ends after the build if no board builds: a bundle of
    the reference backend cannot contain the function. It then returns the result of ``build``.

    ``annotate`` is the ONNX file that gets each node's place and time as metadata.
    """
    with open_pipeline(
        config,
        options,
        progress=progress,
        connects=True,
        out=as_path(out),
        force=force,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
        again=again,
    ) as pipeline:
        return pipeline.run_as_far_as_possible(as_path(annotate))


def report(
    config: str | Path | Config,
    *,
    baseline: str | None = None,
    output: str | Path | None = None,
    out: str | Path | None = None,
    annotate: str | Path | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> ReportPage[Report] | ReportPage[Plans]:
    """Runs missing steps and writes the report's page, to ``output`` too.

    From a run's ``report.json`` instead of a configuration only the page is written again.
    ``baseline`` is a measurement to compare with: a bench.json, "last", an id of the history.

    Raises:
        DataError: The ``report.json`` is not a report; there is no such baseline.
    """
    from edgekit.config.loader import Config, open_config
    from edgekit.pipeline.report_page import page_of_file, page_of_run

    page, folder = as_path(output), as_path(out)
    if not isinstance(config, Config) and str(config).lower().endswith(".json"):
        return page_of_file(as_path(config), baseline=baseline, output=page, out=folder)
    opened = open_config(config, **options)
    if opened.file.model.networks:
        from edgekit.pipeline.networks import page_of_networks

        return page_of_networks(opened, output=page, out=folder, progress=progress)
    with open_pipeline(
        opened,
        {},
        progress=progress,
        out=folder,
        # a page of what serves is better than none: its notes name the release that was rolled back
        or_serving=True,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        return page_of_run(pipeline, baseline=baseline, output=page, annotate=as_path(annotate))


def plan(
    config: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    leave: str | Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    jetpack: str | None = None,
    dynamic_shapes: object = None,
    report: str | Path | None = None,
    annotate: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Plan:
    """Places every layer on GPU and DLA, by the configuration's ``placement``.

    ``config`` may be a PyTorch network, too, with an example of its inputs in ``args`` and
    ``kwargs``, or their sizes in ``inputs``, as for ``export``. Modules that match a glob of
    ``leave`` are in no figure, as for ``check``; ``edgekit.compile`` places each part around them.
    ``dynamic_shapes`` are as for ``check``.
    ``report`` is the output file of the plan as an HTML page, ``annotate`` that of the ONNX file
    with devices and times as metadata of its nodes.
    ``force`` computes everything again; ``progress`` receives each step.

    For example ``placement={"objective": "energy", "bounds": {"latency_us": 2000.0},
    "pin": [{"layers": "conv1", "device": "GPU"}], "profile": "profile.json"}``.

    Raises:
        GateError: No placement meets the request; ``extra["conflict"]`` lists the smallest set
            of constraints that cannot hold together.
    """
    from edgekit.pipeline.exports import write_annotated
    from edgekit.pipeline.outputs import check_config_outputs
    from edgekit.pipeline.questions import write_plan_page
    from edgekit.pipeline.torch_source import from_torch, with_model_keys

    given: Mapping[str, object] = with_model_keys(options, leave, inputs)
    made = from_torch(
        config, args, kwargs, {**given, "jetpack": jetpack, "dynamic_shapes": dynamic_shapes}
    )
    if made is not None:
        config, given = made.exported.file, made.options
    with open_pipeline(config, given, force=force, progress=progress) as pipeline:
        check_config_outputs(pipeline.config, {"the report": as_path(report)}, makes_folders=True)
        found = pipeline.plan()
        if made is not None:
            found = replace(found, notes=(*made.notes, *found.notes))
        if report is not None:
            write_plan_page(pipeline, as_path(report))
        if annotate is not None:
            write_annotated(pipeline.context, as_path(annotate))
        return found


def plan_networks(
    config: str | Path | Config,
    *,
    report: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Plans:
    """Places and schedules the networks of a configuration that has several (``model.networks``).

    The other arguments are those of ``plan``.

    Raises:
        UsageError: The configuration has only one network; options that exclude each other.
        GateError: Rates or deadlines cannot be met; ``extra["binding"]`` has the limit.
    """
    from edgekit.config.loader import open_config
    from edgekit.pipeline.networks import plan_networks, write_networks_report
    from edgekit.pipeline.outputs import check_config_outputs

    opened = open_config(config, **options)
    check_config_outputs(opened, {"the report": as_path(report)}, makes_folders=True)
    found = plan_networks(opened, force=force, progress=progress)
    if report is not None:
        write_networks_report(found, as_path(report), name=opened.file.name)
    return found


def why(
    config: str | Path | Config,
    layer: str,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Why | WhyModules:
    """Returns the reasons for a layer's (or an ONNX node's) place in the plan.

    For a glob or a PyTorch module with several layers it is an ``edgekit.why-modules/1``: the tree
    of the modules with the reasons of their layers.
    """
    from edgekit.pipeline.questions import why

    with open_pipeline(config, options, force=force, progress=progress) as pipeline:
        return why(pipeline, layer)


def what_if(
    config: str | Path | Config,
    changes: str,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> WhatIf:
    """Returns the plan compared with the plan after ``changes``.

    Changes are words such as "pin conv* GPU; mode 30W".
    """
    from edgekit.pipeline.questions import what_if

    with open_pipeline(config, options, force=force, progress=progress) as pipeline:
        return what_if(pipeline, changes)


def pareto(
    config: str | Path | Config,
    first: str = "latency_us",
    second: str = "energy_uj",
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Pareto:
    """Returns the Pareto front of two of latency_us, energy_uj, gpu_us and period_us.

    A metric may also have its objective's name: latency, energy, gpu_time, period.
    """
    from edgekit.pipeline.questions import pareto

    with open_pipeline(config, options, force=force, progress=progress) as pipeline:
        return pareto(pipeline, first, second)


def plan_table(
    config: str | Path | Config,
    *,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    objective: str | None = None,
    power_mode: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[TableOptions],
) -> PlanTable:
    """Returns latency, throughput and energy by power mode and board.

    ``modes`` is a list of power modes or ["all"], ``targets`` a list of boards or ["all"]. Each row
    is a plan: for each of latency, throughput and energy, or for ``objective``. If no modes are
    named, the boards that have ``power_mode`` are planned in it.
    """
    from edgekit.pipeline.questions import plan_table

    with open_pipeline(config, options, force=force, progress=progress) as pipeline:
        return plan_table(
            pipeline, modes=modes, targets=targets, objective=objective, power_mode=power_mode
        )


def answer_plan(
    config: str | Path,
    *,
    layer: str | None = None,
    changes: str | None = None,
    metrics: tuple[str, str] | None = None,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    pins: Sequence[Mapping[str, str]] = (),
    report: str | Path | None = None,
    annotate: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Plan | Plans | Why | WhyModules | WhatIf | Pareto | PlanTable:
    """Returns the answer to a question about a plan, or the plan without a question.

    ``layer`` is the argument of ``why``, ``changes`` that of ``what_if``, ``metrics`` those of
    ``pareto``, and ``modes`` and ``targets`` those of ``plan_table``. ``pins`` come after those of
    the file. For a configuration of several networks the answer is that of ``plan_networks``.

    Raises:
        UsageError: A question, or ``annotate``, for several networks.
    """
    from edgekit.errors import UsageError
    from edgekit.network.source import is_config_file

    if targets and not is_config_file(config):
        # any board can open the model
        first = target_names() if list(targets) == ["all"] else targets
        options["target"] = options.get("target") or first[0]
    power_mode = options.get("power_mode")
    if targets:
        # some boards may lack the power mode, as the table then shows
        options["power_mode"] = None
    opened = open_config(config, **options)
    if pins:
        before = [pin.model_dump() for pin in opened.file.placement.pin]
        # a list among the options replaces the file's, and --pin adds to it
        opened = open_config(opened, placement={"pin": [*before, *pins]})
    table = bool(modes or targets)
    asked = table or any(question is not None for question in (layer, changes, metrics))
    if opened.file.model.networks:
        if annotate is not None:
            raise UsageError("--annotate takes one network, and this configuration has several")
        if asked:
            raise UsageError(
                "a question takes one network, and this configuration has several",
                hint="give one network's file, or leave the option out",
            )
        return plan_networks(opened, report=report, force=force, progress=progress)
    if layer is not None:
        return why(opened, layer, force=force, progress=progress)
    if changes is not None:
        return what_if(opened, changes, force=force, progress=progress)
    if metrics is not None:
        return pareto(opened, *metrics, force=force, progress=progress)
    if table:
        placement = options.get("placement")
        objective = placement.get("objective") if isinstance(placement, Mapping) else None
        return plan_table(
            opened,
            modes=modes,
            targets=targets,
            objective=objective,
            power_mode=power_mode,
            force=force,
            progress=progress,
        )
    return plan(opened, report=report, annotate=annotate, force=force, progress=progress)


def tune(
    config: str | Path | Config,
    request: TuningRequest | None = None,
    *,
    out: str | Path | None = None,
    tables: Sequence[str | Path] = (),
    keep: bool = False,
    anew: bool = False,
    on_note: Callable[[str], None] = lambda text: None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConfigOptions],
) -> Tuned:
    """Plans, builds and measures until no remaining choice can be better.

    ``request`` is an ``edgekit.tuning.trials.TuningRequest`` (objective, budget, rounds, turns);
    ``tables`` are tuned.profile.json files of earlier tunings; ``on_note`` is called with a line of
    text on the progress.
    """
    from edgekit.config.loader import open_config
    from edgekit.tuning.run import tune

    return tune(
        open_config(config, **options),
        request,
        out=as_path(out),
        tables=[as_path(table) for table in tables],
        keep=keep,
        anew=anew,
        on_note=on_note,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
        progress=progress,
    )


def tune_lines(document: Tuned, *, verbose: bool = False) -> Iterator[str]:
    """Yields the results of a tuning, for people; ``verbose`` shows all layers by name."""
    from edgekit.tuning.text import tune_text

    yield from tune_text(document, verbose=verbose)


def accuracy_limit(accuracy: str) -> tuple[str, float]:
    """Returns metric and minimum of an option such as "cosine=0.999".

    Raises:
        UsageError: The text has another form, or the minimum is out of reach.
    """
    import math

    from edgekit.errors import UsageError
    from edgekit.reference.gate import METRICS, impossible

    metric, _, text = accuracy.partition("=")
    try:
        minimum = float(text)
    except ValueError:
        minimum = math.nan
    # a word is not a number, but "nan" is
    problem = metric in METRICS and not math.isnan(minimum) and impossible(metric, minimum)
    if problem:
        raise UsageError(problem, where=f"--accuracy {accuracy}", hint="lower the limit")
    if metric not in METRICS or math.isnan(minimum):
        raise UsageError(
            f"--accuracy {accuracy!r} is not METRIC=MIN",
            hint=f"--accuracy cosine=0.999; metrics: {', '.join(METRICS)}",
        )
    return metric, minimum


def is_function(data: str) -> bool:
    """Returns True if data are those of a Python function ("python:module:function")."""
    from edgekit.network import source

    return source.is_function(data)


def is_builtin(model: str) -> bool:
    """Returns True if a model is a built-in network ("builtin:NAME")."""
    from edgekit.network import source

    return source.is_builtin(model)


def tuning_request(
    objective: str | None, budget_s: float | None, rounds: int, turns: int, tolerance: float
) -> TuningRequest:
    """Returns the limits of ``tune``; without an objective for the configuration's."""
    from edgekit.tuning.trials import TuningRequest

    return TuningRequest(objective or "", budget_s, rounds, turns, tolerance)


def trace(
    files: TraceFiles | None = None,
    save: str | Path | None = "trace.json",
    config: str | Path | Config | None = None,
    *,
    bench: str | Path | None = None,
    nsys: Sequence[str | Path] = (),
    profiles: Sequence[str | Path] = (),
    layer_info: str | Path | None = None,
    times: str | Path | None = None,
    tegrastats: str | Path | None = None,
    dla_core: int = 0,
    target: str | Path | None = None,
    precision: str | None = None,
    tensorrt: str | None = None,
    power_mode: str | None = None,
    model: Mapping[str, object] | ModelPart | None = None,
    progress: Progress | None = None,
) -> Traced:
    """Combines measurements in a timeline in ``save``, a trace for Perfetto.

    ``bench`` is a bench.json or a trace.json of edgekit, ``nsys`` are SQLite exports of Nsight
    Systems, ``profiles`` layer times (trtexec --exportProfile, an IProfiler's output, a verbose
    build log), ``layer_info`` is trtexec's --exportLayerInfo of their engine, ``times`` its
    --exportTimes and ``tegrastats`` a log; ``files`` holds all of these in a single value.
    ``dla_core`` is the core of profiled layers that no plan places. A configuration gives the plan,
    which names layers; ``target``, ``precision``, ``tensorrt``, ``power_mode`` and ``model`` win
    over its keys. ``save`` None is timeline.json in the run's folder, or trace.json.
    """
    from edgekit.config.loader import open_config
    from edgekit.pipeline.exports import TraceFiles, trace
    from edgekit.pipeline.pipeline import Pipeline

    files = files or TraceFiles(
        as_path(bench),
        tuple(map(as_path, nsys)),
        tuple(map(as_path, profiles)),
        as_path(layer_info),
        as_path(times),
        as_path(tegrastats),
        dla_core,
    )
    if config is None:
        return trace(files, as_path(save or "trace.json"))
    opened = open_config(
        config,
        target=target,
        precision=precision,
        tensorrt=tensorrt,
        power_mode=power_mode,
        model=model,
    )
    with Pipeline(opened, progress=progress) as pipeline:
        return pipeline.trace(files, as_path(save))


def compare(
    a: str,
    b: str,
    *,
    name: str | None = None,
    board: str | None = None,
    metric: str = "latency.median",
    threshold: float = 0.05,
    confidence: float = 0.95,
    force: bool = False,
) -> Comparison:
    """Compares B, the new measurement, with A, and decides if they differ significantly.

    Both are files, ids of the history, "last~1", "baseline:NAME" or git revisions; ``name`` and
    ``board`` select results of the history. ``threshold`` is the fraction by which B may be worse;
    ``force`` also compares results that are INVALID or of another board, mode or clock. With a
    single run on each side the verdict is "cannot tell", unless the history has the spread of runs
    of the same release.
    """
    from edgekit.results.comparison import compare
    from edgekit.results.selection import past_results, select_results

    former, new = (select_results(words, name=name, board=board) for words in (a, b))
    return compare(
        former,
        new,
        metric=metric,
        threshold=threshold,
        confidence=confidence,
        force=force,
        past=past_results(former, new),
    )


def history(
    name: str | None = None, *, board: str | None = None, limit: int = 20, repair: bool = False
) -> History:
    """Returns the measurements of the history, the newest first.

    ``repair`` first moves a damaged history aside and keeps its readable part.
    """
    return history_with_times(name, board=board, limit=limit, repair=repair)[0]


def history_with_times(
    name: str | None = None, *, board: str | None = None, limit: int = 20, repair: bool = False
) -> tuple[History, list[Result]]:
    """Returns the result of ``history``, and the same measurements with their single times."""
    from edgekit.results.selection import history_document
    from edgekit.results.store import ResultStore
    from edgekit.results.store import repair as mend

    mended = mend() if repair else None
    with ResultStore() as store:
        found = store.results(name=name, board=board, limit=limit)
        return history_document(found, mended), found


def measurements(
    which: str | None = None,
    *,
    name: str | None = None,
    board: str | None = None,
    limit: int | None = None,
) -> list[Result]:
    """Returns measurements with their single times, the newest first.

    ``which`` is as for ``compare``; without it all results are returned.
    """
    from edgekit.results.selection import select_results
    from edgekit.results.store import ResultStore

    with ResultStore() as store:
        if which:
            return select_results(which, name=name, board=board, store=store)
        return store.results(name=name, board=board, limit=limit)


def export_history(
    output: str | Path | TextIO,
    which: str | None = None,
    *,
    form: Literal["json", "csv"] | None = None,
    name: str | None = None,
    board: str | None = None,
) -> History:
    """Writes measurements with their single times as JSON or CSV, and returns them.

    ``output`` is a file or an open text stream; without ``form`` a file whose name ends in .csv is
    CSV, any other JSON. ``which``, ``name`` and ``board`` are as for ``measurements``.
    """
    from edgekit.results.export import export

    found = measurements(which, name=name, board=board)
    file = as_path(output) if isinstance(output, str | os.PathLike) else output
    return export(found, file, form)


def mark_measurement(which: str, name: str) -> Marked:
    """Names a result of the history, for ``compare("baseline:NAME", ...)``."""
    from edgekit.results.pruning import mark

    return mark(which, name)


def prune_history(
    keep: int | None = None,
    older_than_days: int | None = None,
    *,
    dry_run: bool = False,
    on_all: Callable[[int], None] = lambda count: None,
) -> Pruned:
    """Deletes results beyond the newest ``keep`` of each name and board; with both limits, only
    those that are also older than ``older_than_days``.

    Marked results stay. ``on_all`` is called with the number of results before all others are
    deleted; if it raises, they are kept. With ``dry_run`` no results are deleted.
    """
    from edgekit.results.pruning import prune

    return prune(keep, older_than_days, dry_run=dry_run, on_all=on_all)


def top(
    where: str | Path,
    board: str | None = None,
    *,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> Top:
    """Returns the current state of a board.

    ``where`` is a host or a configuration, and ``board`` a board of the configuration; ``root`` and
    ``python`` are a host's.
    """
    from edgekit.pipeline.boards.live import look, select_board

    chosen = select_board(str(where), board, root=root, python=python)
    return look(chosen, str(where), accept_host_key=accept_host_key)


def watch_board(
    where: str | Path,
    on_document: Callable[[Top], bool],
    board: str | None = None,
    *,
    interval_ms: int = 1000,
    accept_host_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> None:
    """Calls ``on_document`` with a board's current state repeatedly, until it returns False.

    A lost connection is retried; meanwhile ``Top.connection`` has the reason. The other arguments
    are those of ``top``.
    """
    from edgekit.pipeline.boards.live import select_board, watch_board

    watch_board(
        select_board(str(where), board, root=root, python=python),
        str(where),
        on_document,
        interval_ms=interval_ms,
        accept_host_key=accept_host_key,
    )


def rollout(
    config: str | Path,
    inventory: str | Path,
    *,
    name: str | None = None,
    selector: str | None = None,
    canary: int = 0,
    waves: str = "10%,50%,100%",
    bundle: str | Path | None = None,
    trust_key: bool = False,
    dry_run: bool = False,
    ansible: bool = False,
    parallel: int = 8,
    budget: str = "0",
    soak_s: float = 0.0,
    deadline_s: float = ROLLOUT_RETRIES_S,
    offline: Literal["skip", "fail"] = "skip",
    min_reached: str = "80%",
    again: bool = False,
    on_text: Callable[[str], None] = lambda text: None,
    stopped: Callable[[], bool] = lambda: False,
    state: str | Path | None = None,
    console: Console | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
    accept_host_key: bool = False,
) -> FleetRollout | Rehearsal | AnsibleRun:
    """Deploys a release to the boards of an inventory, wave by wave.

    ``parallel`` boards are updated at a time, and ``budget`` boards of a wave may fail ("2",
    "10%"); ``soak_s``, ``deadline_s``, ``offline`` and ``min_reached`` are those of
    ``edgekit.fleet.waves.RolloutSettings``. With ``dry_run`` no board is contacted, and the result
    has the boards that would be changed. ``ansible`` runs ansible-playbook, whose lines ``on_text``
    gets; it has no soak, deadline, offline and min_reached. ``again`` is as for ``deploy``; the
    others are as for ``resume_rollout``. A rollout that stopped or failed has ``state`` and
    ``failure`` set.
    """
    from edgekit.fleet.waves import RolloutSettings

    file = as_path(bundle)
    settings = RolloutSettings(
        parallel=parallel,
        budget=budget,
        soak_s=soak_s,
        deadline_s=deadline_s,
        offline=offline,
        again=again,
        min_reached=min_reached,
    )
    if dry_run:
        with _fleet(
            state,
            console=console,
            verbose=verbose,
            progress=progress,
            accept_host_key=accept_host_key,
        ) as fleet:
            return fleet.dry_run_deploy(
                config,
                inventory,
                name=name,
                selector=selector,
                canary=canary,
                waves=waves,
                settings=settings,
            )
    if ansible:
        from edgekit.fleet.ansible.run import deploy_by_ansible

        return deploy_by_ansible(
            config,
            as_path(inventory),
            state=as_path(state),
            name=name,
            selector=selector,
            canary=canary,
            waves=waves,
            budget=budget,
            parallel=parallel,
            bundle=file,
            trust_key=trust_key,
            again=again,
            progress=progress,
            say=on_text,
        )
    with _fleet(
        state, console=console, verbose=verbose, progress=progress, accept_host_key=accept_host_key
    ) as fleet:
        made = fleet.begin(
            config,
            inventory,
            settings=settings,
            name=name,
            selector=selector,
            canary=canary,
            waves=waves,
            bundle=file,
            trust_key=trust_key,
        )
        return fleet.drive(made, stopped=stopped)


def resume_rollout(
    rollout: str,
    *,
    stopped: Callable[[], bool] = lambda: False,
    state: str | Path | None = None,
    console: Console | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
    accept_host_key: bool = False,
) -> FleetRollout:
    """Continues a rollout until its end or a pause.

    ``state`` is the folder of the rollouts, edgekit's own by default; ``progress`` receives the
    builds, and ``console`` (rich's) gets the rollout's lines, more lines with ``verbose``.
    ``stopped`` is called several times a second; once it is True the rollout
    pauses after the boards in progress.
    """
    with _fleet(
        state, console=console, verbose=verbose, progress=progress, accept_host_key=accept_host_key
    ) as fleet:
        return fleet.drive(rollout, stopped=stopped)


def roll_back_rollout(
    rollout: str,
    *,
    wave: int | None = None,
    dry_run: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    state: str | Path | None = None,
    console: Console | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
    accept_host_key: bool = False,
) -> FleetRollout | Rehearsal:
    """Rolls the boards of a rollout, or of a ``wave`` (from 1 on), back to their previous releases.

    The other arguments are those of ``rollout`` and ``resume_rollout``.
    """
    only = None if wave is None else wave - 1
    with _fleet(
        state, console=console, verbose=verbose, progress=progress, accept_host_key=accept_host_key
    ) as fleet:
        if dry_run:
            return fleet.dry_run_rollback(rollout, wave=only)
        return fleet.roll_back(rollout, wave=only, stopped=stopped)


def rollouts(*, state: str | Path | None = None) -> FleetListing:
    """Returns all rollouts, the newest first, and Ansible's runs."""
    with _fleet(state) as fleet:
        return fleet.listing()


def rollout_status(rollout: str, *, state: str | Path | None = None) -> FleetRollout | AnsibleRun:
    """Returns the current state of a rollout; for Ansible the result of its last run."""
    with _fleet(state) as fleet:
        return fleet.ansible_run(rollout) or fleet.document(rollout)


def fleet_boards(
    inventory: str | Path,
    *,
    selector: str | None = None,
    parallel: int = 16,
    state: str | Path | None = None,
    accept_host_key: bool = False,
) -> FleetBoards:
    """Returns the releases that each board of an inventory serves: its answer, or its last known.

    ``parallel`` boards are queried at a time, each once. An unreachable board has the answer of an
    earlier call or rollout, with its time in ``seen_at``.
    """
    from edgekit.fleet.boards import ask_boards

    with _fleet(state) as fleet:
        return ask_boards(
            fleet.store,
            inventory,
            selector=selector,
            parallel=parallel,
            accept_host_key=accept_host_key,
        )


def pause_rollout(rollout: str, *, state: str | Path | None = None) -> FleetRollout:
    """Stops a rollout after the boards in progress; ``requested`` is the state that it reaches."""
    with _fleet(state) as fleet:
        reached = fleet.request(rollout, "pause")
        return replace(fleet.document(rollout), requested=reached)


def abort_rollout(rollout: str, *, state: str | Path | None = None) -> FleetRollout:
    """Ends a rollout; boards that have the release keep it. ``requested`` is as for a pause."""
    with _fleet(state) as fleet:
        reached = fleet.request(rollout, "abort")
        return replace(fleet.document(rollout), requested=reached)


def apply_releases(
    inventory: str | Path,
    *,
    selector: str | None = None,
    parallel: int = 8,
    most_failed: int = 1,
    trust_key: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    state: str | Path | None = None,
    console: Console | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
    accept_host_key: bool = False,
) -> AppliedReleases:
    """Installs on the boards of an inventory the releases that the inventory assigns to them.

    Each board is tried once; unreachable boards are skipped, and so are boards of a rollout that
    has not ended. After more than ``most_failed`` failures no further board is started.
    ``trust_key`` is as for ``deploy``; the others are as for ``resume_rollout``.
    """
    from edgekit.fleet.apply import apply

    with _fleet(
        state, console=console, verbose=verbose, progress=progress, accept_host_key=accept_host_key
    ) as fleet:
        return apply(
            fleet.store,
            inventory,
            selector=selector,
            parallel=parallel,
            most_failed=most_failed,
            accept_host_key=accept_host_key,
            trust_key=trust_key,
            reporter=fleet.reporter,
            stopped=stopped,
        )


def export_rollout(
    folder: str | Path,
    config: str | Path,
    *,
    inventory: str | Path | None = None,
    bundle: str | Path | None = None,
    selector: str | None = None,
    canary: int = 0,
    waves: str = "10%,50%,100%",
    budget: str = "0",
    trust_key: bool = True,
    again: bool = False,
    private: bool = False,
    progress: Progress | None = None,
) -> ExportedRollout:
    """Writes a rollout for Ansible: inventory, playbooks and role.

    Without an ``inventory`` the boards are the configuration's own; the other arguments are the
    options of ``edgekit fleet export``.
    """
    from edgekit.fleet.ansible.export import export

    return export(
        as_path(folder),
        config,
        inventory=as_path(inventory),
        bundle=as_path(bundle),
        selector=selector,
        canary=canary,
        waves=waves,
        budget=budget,
        trust_key=trust_key,
        again=again,
        private=private,
        progress=progress,
    )


def _fleet(
    state: str | Path | None = None,
    *,
    console: Console | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
    accept_host_key: bool = False,
) -> Fleet:
    from edgekit.fleet.progress import RolloutReporter
    from edgekit.fleet.rollout import Fleet

    reporter = RolloutReporter(console, verbose=verbose)
    return Fleet(
        as_path(state), reporter=reporter, progress=progress, accept_host_key=accept_host_key
    )


def target_names() -> tuple[str, ...]:
    """Returns the names of the known boards, in alphabetical order."""
    from edgekit.targets.loader import names

    return names()


def read_document(source: str | Path | Mapping[str, object]) -> Any:
    """Returns a saved JSON document as an object of the class that its ``schema`` names.

    ``source`` is a file that ``--json`` or ``--out`` wrote, or the object parsed from JSON.
    docs/documents.md lists the classes.

    Raises:
        DataError: "document.unreadable", "document.json", "document.schema" if the schema is
            unknown to edgekit, or "document.invalid" with the place of the error.
    """
    from edgekit.saved_documents import read_document

    return read_document(source)


def open_config(config: str | Path | Config, **options: Unpack[ConfigOptions]) -> Config:
    """Returns the configuration for the other functions, opened once.

    Raises:
        ConfigError: All errors of the file at once.
        UsageError: A model without a target; an unknown option.
    """
    from edgekit.config.loader import open_config

    return open_config(config, **options)


def open_pipeline(
    config: str | Path | Config,
    options: Mapping[str, object],
    *,
    progress: Progress | None = None,
    connects: bool = False,
    **settings: Any,
) -> Pipeline:
    """Returns the pipeline of a configuration; ``options`` win over its file.

    With ``connects`` it starts to connect to the boards at once: an answer takes about as long as
    importing the pipeline's modules. ``settings`` are further arguments of ``Pipeline``.
    """
    from edgekit.config.loader import open_config

    opened = open_config(config, **options)
    if connects:
        from edgekit.pipeline.cache import Cache
        from edgekit.pipeline.context import Session
        from edgekit.pipeline.progress import SilentProgress
        from edgekit.pipeline.steps.deploy import ConnectedBoards

        names = {"accept_host_key", "trust_key", "allow_older"} & settings.keys()
        # `ConnectedBoards` has them; the pipeline would make boards of its own with them
        consents = {name: settings.pop(name) for name in names}
        session = Session(progress or SilentProgress())
        settings["boards"] = boards = ConnectedBoards(opened, Cache(), session, **consents)
        boards.begin()
    from edgekit.pipeline.pipeline import Pipeline

    return Pipeline(opened, progress=progress, **settings)


def device_named(name: str) -> object:
    """Returns edgekit's name of a command's device argument, such as DLA0 for "dla:0"."""
    from edgekit.targets.loader import parse_device as named

    return named(name)


def known_names(
    what: Literal["targets", "rules", "rewrites", "devices", "objectives", "metrics", "builtins"],
) -> list[str]:
    """Returns the names that a command takes: boards, rules with their families and operators,
    rewrites, devices to pin layers to, objectives of plans, metrics of measurements, built-in
    networks.
    """
    if what == "objectives":
        from edgekit.placement.plan import OBJECTIVES

        return [*OBJECTIVES, "makespan"]
    if what == "metrics":
        from edgekit.results.differences import METRICS

        return list(METRICS)
    if what == "builtins":
        from edgekit.network.source import BUILTIN_NAMES

        return list(BUILTIN_NAMES)
    if what == "devices":
        from edgekit.placement.inputs import DEVICES

        return list(DEVICES)
    if what == "targets":
        from edgekit.targets.loader import names

        return list(names())
    if what == "rules":
        from edgekit.dla.rules import load_rules

        known = load_rules()
        return [*known.titles, *known.rules, *known.operators]
    from edgekit.rewriting.rules.order import REWRITES

    return [rewrite.name for rewrite in REWRITES]


def refuse_foreign(path: Path) -> None:
    """Refuses a model in another format than ONNX; the error has the conversion.

    Raises:
        ModelError: The model is in such a format.
    """
    from edgekit.network.source import refuse_foreign

    refuse_foreign(path)


def near_builtins(name: str) -> list[str]:
    """Returns the builtin networks with similar names."""
    from edgekit.network.source import near_builtins

    return list(near_builtins(name))


def read_shapes(options: Iterable[str]) -> dict[str, GivenShape]:
    """Returns the shapes of options such as "x:1x3x320..640x224", by input.

    Raises:
        UsageError: An option has another form.
    """
    from edgekit.network.ranges import read_shapes

    return read_shapes(options)


def proposed_shapes(model: str) -> list[str]:
    """Returns arguments of ``read_shapes`` for the inputs that an ONNX file leaves open: a shape
    and a range for each.

    Raises:
        ModelError: The file cannot be read.
    """
    from edgekit.network.loading.load import proposed_sizes

    found = proposed_sizes(model)
    if found is None:
        return []
    options = [text.split() for text in (found.options(), found.options(ranged=True))]
    return [word for words in options for word in words if word != "--shape"]


def _as_text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


@overload
def as_path(path: str | Path) -> Path: ...
@overload
def as_path(path: str | Path | None) -> Path | None: ...
def as_path(path: str | Path | None) -> Path | None:
    """Returns a path that may be given as text."""
    # pathlib takes 7 ms of a start, which imports this module for the commands' annotations
    from pathlib import Path

    return None if path is None else Path(path)
