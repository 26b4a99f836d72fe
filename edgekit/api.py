"""Everything the command line does, as functions: `edgekit.check`, `edgekit.plan`, `edgekit.run`
and so on are these. Each takes a configuration file, a model, or an open configuration, and
returns a typed object or the document that the command prints with `--json`.

`config` is a YAML file, an ONNX file, "builtin:NAME" or a `Config`; a model needs `target`. Other
keyword arguments are the configuration's keys (`precision="fp16"`,
`placement={"objective": "latency"}`) and win over the file's. Failures raise
`edgekit.errors.EdgekitError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.pipeline.exports import TraceFiles
    from edgekit.pipeline.pipeline import Pipeline, RunResult
    from edgekit.placement.plan import Plan
    from edgekit.pytorch.document import Exported
    from edgekit.schedule.plans import Plans
    from edgekit.tuning.trials import TuningRequest


def check(config: str | Path | Config, **options: Any) -> dict[str, Any]:
    """Returns the ``edgekit.check/1`` document: which layers can run on a DLA, and why not.

    ``jetpack="6.2"`` picks the rules of the TensorRT that a JetPack brings.
    """
    from edgekit.pipeline.named_check import check_named

    return check_named(config, **options).document


def explain_log(
    log: str | Path, *, model: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Returns the ``edgekit.log/1`` of a build log: layers, broken rules, errors with remedies.

    With a model it has the model's verdicts beside the builder's placement; ``options`` are those
    of ``check`` (``target="jetson-agx-orin-64gb"``), and what the log says is the default.
    """
    from edgekit.pipeline.log_explanation import explain_log as explained

    return explained(log, model=None if model is None else str(model), **options).document


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
) -> Exported:
    """Exports a PyTorch network to an ONNX file with names: an ``edgekit.export/1``.

    It needs the extra ``edgekit[torch]``.

    ``source`` is a module, a program of ``torch.export``, the path of a .pt2 or TorchScript file,
    or "package.module:factory", whose function returns a module (or module and args); ``args`` and
    ``kwargs`` are an example of its inputs, or ``inputs`` are sizes
    (``{"x": "1x3x224x224:float32"}``). A copy is exported, in evaluation mode: the module is not
    changed. The target's TensorRT (or ``tensorrt``, ``jetpack``) chooses exporter and opset, unless
    ``exporter`` is "dynamo" or "legacy". The file is compared with PyTorch on the example and on
    random inputs. ``save`` is where it is written; otherwise it stays in the cache.

    Paths and factories are loaded in a process of their own; nothing is unpickled without
    ``trust``, the file's SHA-256.

    Raises:
        ModelError: ``torch.control_flow``, ``torch.operator``, ``torch.export``: what cannot be
            exported, by module path, class and source line.
        GateError: ``torch.differs``: the file computes something else than PyTorch.
    """
    from edgekit.pytorch.export import export as exported
    from edgekit.targets.jetpack import tensorrt_of_jetpack
    from edgekit.targets.loader import get
    from edgekit.targets.releases import check_release

    board = get(target)
    release = tensorrt or board.tensorrt
    if jetpack is not None:
        release = tensorrt_of_jetpack(board, jetpack)
    check_release(board, release)
    return exported(
        source, args, kwargs, release=release, inputs=inputs, exporter=exporter,
        save=path_of(save), trust=trust, dynamic_shapes=dynamic_shapes,
    )  # fmt: skip


def rewrite(
    config: str | Path | Config,
    save: str | Path | None = None,
    record: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Rewrites a model and returns an ``edgekit.rewrite/1``.

    ``save`` is where the rewritten model is written, ``record`` where the proofs are
    (``edgekit.rewrites/1``).
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.rewrite(path_of(save), path_of(record))


def verify_rewrites(model: str | Path, record: str | Path, **options: Any) -> dict[str, Any]:
    """Repeats a rewriting with its proofs and returns an ``edgekit.verified/1``.

    ``record`` is what ``rewrite`` wrote (a record, the rewritten model) or a bundle; ``shapes`` and
    ``outputs`` are those of the rewriting.

    Raises:
        DataError: ``record`` is none, or of another model.
        GateError: A recorded step does not apply any more.
    """
    from edgekit.pipeline.rewrite_proofs import verify_rewrites

    return verify_rewrites(model, record, **options)


def calibrate(
    config: str | Path | Config, save: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Measures INT8 scales, writes a cache to ``save``, and returns an ``edgekit.scales/1``."""
    with open_pipeline(config, options) as pipeline:
        return pipeline.calibrate(path_of(save))


def sensitivity(
    config: str | Path | Config,
    metric: str | None = None,
    minimum: float | None = None,
    *,
    write_config: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Ranks the layers by what their INT8 costs and returns an ``edgekit.sensitivity/1``.

    With a ``minimum`` of ``metric`` ("cosine", "snr_db", "top1_agreement") it proposes the fewest
    layers to keep in FP16; ``write_config`` is where a configuration with them is written.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.sensitivity(metric, minimum, path_of(write_config))


def build(config: str | Path | Config, *, force: bool = False, **options: Any) -> dict[str, Any]:
    """Builds the engines and returns an ``edgekit.build/1``."""
    with open_pipeline(config, options, force=force) as pipeline:
        return pipeline.build()


def bundle(
    config: str | Path | Config,
    *,
    out: str | Path | None = None,
    full: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Packs and signs, and returns an ``edgekit.packed/1``."""
    with open_pipeline(config, options, out=path_of(out), force=force) as pipeline:
        return pipeline.bundle(full=path_of(full))


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
    **options: Any,
) -> dict[str, Any]:
    """Installs on every board and returns an ``edgekit.deploy/1``.

    What was taken back on a board is put back with ``again`` alone ("install.taken-back"), and what
    the release counter or the times of bundles forbid is installed with a reason in ``allow_older``
    alone ("install.older", "install.expired", "install.clock").
    With ``dry_run`` nothing changes on a board, and the releases are what would be done there.
    """
    settings = {"out": path_of(out), "force": force, "accept_host_key": accept_host_key,
                "trust_key": trust_key, "allow_older": allow_older, "again": again}  # fmt: skip
    with open_pipeline(config, options, **settings) as pipeline:
        return pipeline.deploy(path_of(file), dry_run=dry_run)


def rollback(
    config: str | Path | Config,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    accept_host_key: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Takes every board back to its previous release; returns an ``edgekit.rollback/1``.

    With ``dry_run`` nothing changes, and the answer is what would.
    """
    with open_pipeline(config, options, accept_host_key=accept_host_key) as pipeline:
        return pipeline.rollback(reason, dry_run=dry_run)


def refit(
    config: str | Path | Config,
    weights: str | Path,
    *,
    out: str | Path | None = None,
    again: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Deploys the same engines with other weights and returns an ``edgekit.refit/1``.

    ``again`` is as for ``deploy``.
    """
    with open_pipeline(config, options, out=path_of(out), again=again) as pipeline:
        return pipeline.refit(Path(weights))


def infer(
    config: str | Path | Config,
    source: str | Path | None = None,
    output: str | Path | None = None,
    *,
    out: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Runs one inference on the first board and returns an ``edgekit.infer/1``."""
    with open_pipeline(config, options, out=path_of(out)) as pipeline:
        return pipeline.infer(path_of(source), path_of(output))


def bench(
    config: str | Path | Config, *, out: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Measures on the first board and returns an ``edgekit.bench/1``."""
    with open_pipeline(config, options, out=path_of(out)) as pipeline:
        return pipeline.bench()


def run(
    config: str | Path | Config,
    *,
    out: str | Path | None = None,
    force: bool = False,
    again: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Any,
) -> RunResult:
    """Runs every step; ``again`` as for ``deploy``."""
    settings = {"out": path_of(out), "force": force, "accept_host_key": accept_host_key,
                "trust_key": trust_key, "again": again}  # fmt: skip
    with open_pipeline(config, options, **settings) as pipeline:
        return pipeline.run()


def plan(config: str | Path | Config, **options: Any) -> Plan:
    """Places every layer on GPU and DLA, as the configuration's ``placement`` says.

    For example ``placement={"objective": "energy", "bounds": {"latency_us": 2000.0},
    "pin": [{"layers": "conv1", "device": "GPU"}], "profile": "profile.json"}``.

    Raises:
        GateError: No placement meets the request; ``extra["conflict"]`` lists the smallest set
            of constraints that cannot hold together.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.plan()


def plan_networks(config: str | Path | Config, *, force: bool = False, **options: Any) -> Plans:
    """Places and schedules the networks of a configuration that has several (``model.networks``).

    Raises:
        UsageError: The configuration has one network; options that make no sense.
        GateError: Rates or deadlines that cannot be kept; ``extra["binding"]`` says by what.
    """
    from edgekit.config.loader import open_config
    from edgekit.schedule.networks import plan_networks

    return plan_networks(open_config(config, **options), force=force)


def why(config: str | Path | Config, layer: str, **options: Any) -> dict[str, Any]:
    """Returns an ``edgekit.why/1``: why a layer (or an ONNX node) is where the plan has it."""
    with open_pipeline(config, options) as pipeline:
        return pipeline.why(layer)


def what_if(config: str | Path | Config, changes: str, **options: Any) -> dict[str, Any]:
    """Returns an ``edgekit.whatif/1``: the plan compared with one with ``changes``.

    Changes are words such as "pin conv* GPU; mode 30W".
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.what_if(changes)


def pareto(
    config: str | Path | Config,
    first: str = "latency_us",
    second: str = "energy_uj",
    **options: Any,
) -> dict[str, Any]:
    """Returns an ``edgekit.pareto/1``: the front of two of latency_us, energy_uj, gpu_us and
    period_us.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.pareto(first, second)


def plan_table(
    config: str | Path | Config,
    *,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    objective: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Returns an ``edgekit.plan-table/1``: latency, throughput, energy by power mode and board.

    ``modes`` is a list of power modes or ["all"]. Each row is one plan: one for each of latency,
    throughput and energy, or one for ``objective``.
    """
    with open_pipeline(config, options) as pipeline:
        return pipeline.table(modes=modes, targets=targets, objective=objective)


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
    **options: Any,
) -> dict[str, Any]:
    """Plans, builds and measures until nothing that is left can be better: an ``edgekit.tune/1``.

    ``request`` is an ``edgekit.tuning.trials.TuningRequest`` (objective, budget, rounds, turns);
    ``tables`` are tuned.profile.json files of earlier tunings; ``on_note`` is called with what
    happens.
    """
    from edgekit.config.loader import open_config
    from edgekit.tuning.run import tune

    return tune(
        open_config(config, **options), request, out=None if out is None else Path(out),
        tables=[Path(table) for table in tables], keep=keep, anew=anew, on_note=on_note,
        accept_host_key=accept_host_key, trust_key=trust_key,
    )  # fmt: skip


def trace(
    files: TraceFiles, save: str | Path = "trace.json",
    config: str | Path | Config | None = None, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Lays measurements (``edgekit.pipeline.exports.TraceFiles``) on one timeline in ``save``.

    Returns an ``edgekit.trace-summary/1``. A configuration gives the plan, which names layers.
    """
    from edgekit.config.loader import open_config
    from edgekit.pipeline.exports import trace
    from edgekit.pipeline.pipeline import Pipeline

    if config is None:
        return trace(files, Path(save))
    with Pipeline(open_config(config, **options)) as pipeline:
        return pipeline.trace(files, Path(save))


def compare(
    a: str, b: str, *, name: str | None = None, board: str | None = None, **options: Any
) -> dict[str, Any]:
    """Returns an ``edgekit.compare/1``: whether B, the new one, really differs from A.

    Both are files, ids of the history, "last~1", "baseline:NAME" or git revisions; the options are
    those of ``edgekit.results.comparison.compare`` (metric, threshold, confidence, force).
    """
    from edgekit.results.comparison import compare
    from edgekit.results.selection import select

    return compare(*(select(words, name=name, board=board) for words in (a, b)), **options)


def history(
    name: str | None = None, *, board: str | None = None, limit: int = 20
) -> dict[str, Any]:
    """Returns an ``edgekit.history/1``: what was measured, the newest first."""
    from edgekit.results.selection import history_document
    from edgekit.results.store import ResultStore

    with ResultStore() as store:
        return history_document(store.results(name=name, board=board, limit=limit))


def top(
    where: str, board: str | None = None, *, accept_host_key: bool = False, **options: str
) -> dict[str, Any]:
    """Returns an ``edgekit.top/1``: a board as it is now.

    ``where`` is a host or a configuration; the options are a host's ``root`` and ``python``.
    """
    from edgekit.pipeline.boards.live import board_of, look

    return look(board_of(where, board, **options), where, accept_host_key=accept_host_key)


def open_pipeline(
    config: str | Path | Config, options: dict[str, Any], **settings: Any
) -> Pipeline:
    """Returns the pipeline of a configuration; ``options`` win over what its file says."""
    from edgekit.config.loader import open_config
    from edgekit.pipeline.pipeline import Pipeline

    return Pipeline(open_config(config, **options), **settings)


def path_of(path: str | Path | None) -> Path | None:
    """Returns a path that somebody may have given as text."""
    return None if path is None else Path(path)
