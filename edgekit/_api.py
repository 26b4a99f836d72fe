"""Everything the command line does, as functions. ``edgekit.check`` and so on are these.

``config`` is a YAML file, an ONNX file, "builtin:NAME" or a ``Config``; a model needs ``target``.
Other keyword arguments are the configuration's keys (``precision="fp16"``,
``placement={"objective": "latency"}``) and win over the file's. Failures raise
``edgekit.errors.EdgekitError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._api_measuring import compare, history, top, trace, tune

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import Pipeline, RunResult
    from edgekit.placement import Plan, Plans

__all__ = [
    "bench", "build", "bundle", "calibrate", "check", "compare", "deploy", "history", "infer",
    "pareto", "plan", "plan_networks", "plan_of_log", "plan_table", "refit", "rewrite", "rollback",
    "run", "sensitivity", "solve", "top", "trace", "tune", "verify_rewrites", "what_if", "why",
]  # fmt: skip


def _open(config: str | Path | Config, options: dict[str, Any], **settings: Any) -> Pipeline:
    from edgekit.config import open_config
    from edgekit.pipeline import Pipeline

    return Pipeline(open_config(config, **options), **settings)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def check(config: str | Path | Config, **options: Any) -> dict[str, Any]:
    """Returns the ``edgekit.check/1`` document: which layers can run on a DLA, and why not.

    ``jetpack="6.2"`` picks the rules of the TensorRT that a JetPack brings.
    """
    from edgekit.pipeline import check_named

    return check_named(config, **options).document


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
    with _open(config, options) as pipeline:
        return pipeline.rewrite(_path(save), _path(record))


def verify_rewrites(model: str | Path, record: str | Path, **options: Any) -> dict[str, Any]:
    """Repeats a rewriting with its proofs and returns an ``edgekit.verified/1``.

    ``record`` is what ``rewrite`` wrote (a record, the rewritten model) or a bundle; ``shapes`` and
    ``outputs`` are those of the rewriting.

    Raises:
        DataError: ``record`` is none, or of another model.
        GateError: A recorded step does not apply any more.
    """
    from edgekit.pipeline import verify_rewrites

    return verify_rewrites(model, record, **options)


def calibrate(
    config: str | Path | Config, save: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Measures INT8 scales, writes a cache to ``save``, and returns an ``edgekit.scales/1``."""
    with _open(config, options) as pipeline:
        return pipeline.calibrate(_path(save))


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
    with _open(config, options) as pipeline:
        return pipeline.sensitivity(metric, minimum, _path(write_config))


def plan(config: str | Path | Config, **options: Any) -> Plan:
    """Places every layer on GPU and DLA, as the configuration's ``placement`` asks.

    For example ``placement={"objective": "energy", "bounds": {"latency_us": 2000.0},
    "pin": [{"layers": "conv1", "device": "GPU"}], "profile": "profile.json"}``.

    Raises:
        GateError: No placement keeps what is asked; ``extra["conflict"]`` lists the smallest set
            of constraints that cannot hold together.
    """
    with _open(config, options) as pipeline:
        return pipeline.plan()


def plan_networks(config: str | Path | Config, *, force: bool = False, **options: Any) -> Plans:
    """Places and schedules the networks of a configuration that has several (``model.networks``).

    Raises:
        UsageError: The configuration has one network; options that make no sense.
        GateError: Rates or deadlines that cannot be kept; ``extra["binding"]`` says by what.
    """
    from edgekit.config import open_config
    from edgekit.pipeline import plan_networks

    return plan_networks(open_config(config, **options), force=force)


def why(config: str | Path | Config, layer: str, **options: Any) -> dict[str, Any]:
    """Returns an ``edgekit.why/1``: why a layer (or an ONNX node) is where the plan has it."""
    with _open(config, options) as pipeline:
        return pipeline.why(layer)


def what_if(config: str | Path | Config, changes: str, **options: Any) -> dict[str, Any]:
    """Returns an ``edgekit.whatif/1``: the plan beside one with ``changes``.

    Changes are words such as "pin conv* GPU; mode 30W".
    """
    with _open(config, options) as pipeline:
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
    with _open(config, options) as pipeline:
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

    ``modes`` is a list of power modes or ["all"]. Each figure is of its own best plan, or all of
    them of the plan for ``objective``.
    """
    with _open(config, options) as pipeline:
        return pipeline.table(modes=modes, targets=targets, objective=objective)


def plan_of_log(path: str | Path) -> dict[str, Any]:
    """Returns an ``edgekit.logplan/1``: the best formats by a verbose build log's own timings."""
    from edgekit.pipeline import plan_of_profile

    return plan_of_profile(Path(path))


def solve(problem: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ``edgekit.solution/1`` of an ``edgekit.problem/1``, a file or a document."""
    from edgekit.pipeline import solve_problem

    return solve_problem(Path(problem) if isinstance(problem, str) else problem)


def build(config: str | Path | Config, *, force: bool = False, **options: Any) -> dict[str, Any]:
    """Builds the engines and returns an ``edgekit.build/1``."""
    with _open(config, options, force=force) as pipeline:
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
    with _open(config, options, out=_path(out), force=force) as pipeline:
        return pipeline.bundle(full=_path(full))


def deploy(
    config: str | Path | Config,
    *,
    file: str | Path | None = None,
    out: str | Path | None = None,
    force: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Installs on every board and returns an ``edgekit.deploy/1``."""
    settings = {"out": _path(out), "force": force, "accept_host_key": accept_host_key,
                "trust_key": trust_key}  # fmt: skip
    with _open(config, options, **settings) as pipeline:
        return pipeline.deploy(_path(file))


def rollback(
    config: str | Path | Config, *, accept_host_key: bool = False, **options: Any
) -> dict[str, Any]:
    """Takes every board back to its previous release; returns an ``edgekit.rollback/1``."""
    with _open(config, options, accept_host_key=accept_host_key) as pipeline:
        return pipeline.rollback()


def refit(
    config: str | Path | Config,
    weights: str | Path,
    *,
    out: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Deploys the same engines with other weights and returns an ``edgekit.refit/1``."""
    with _open(config, options, out=_path(out)) as pipeline:
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
    with _open(config, options, out=_path(out)) as pipeline:
        return pipeline.infer(_path(source), _path(output))


def bench(
    config: str | Path | Config, *, out: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Measures on the first board and returns an ``edgekit.bench/1``."""
    with _open(config, options, out=_path(out)) as pipeline:
        return pipeline.bench()


def run(
    config: str | Path | Config,
    *,
    out: str | Path | None = None,
    force: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Any,
) -> RunResult:
    """Runs every step."""
    settings = {"out": _path(out), "force": force, "accept_host_key": accept_host_key,
                "trust_key": trust_key}  # fmt: skip
    with _open(config, options, **settings) as pipeline:
        return pipeline.run()
