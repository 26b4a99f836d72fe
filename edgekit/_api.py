"""Everything the command line does, as functions. ``edgekit.check`` and so on are these.

``config`` is a YAML file, an ONNX file, "builtin:NAME" or a ``Config``; a model needs ``target``.
Other keyword arguments are the configuration's keys (``precision="fp16"``,
``placement={"objective": "latency"}``) and win over the file's. Failures raise
``edgekit.errors.EdgekitError``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._api_measuring import compare, history, top, trace, tune
from edgekit._api_open import open_pipeline, path_of
from edgekit._api_planning import (
    pareto,
    plan,
    plan_networks,
    plan_of_log,
    plan_table,
    solve,
    what_if,
    why,
)

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import RunResult

__all__ = [
    "bench", "build", "bundle", "calibrate", "check", "compare", "deploy", "history", "infer",
    "pareto", "plan", "plan_networks", "plan_of_log", "plan_table", "refit", "rewrite", "rollback",
    "run", "sensitivity", "solve", "top", "trace", "tune", "verify_rewrites", "what_if", "why",
]  # fmt: skip


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
    from edgekit.pipeline import verify_rewrites

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
    out: str | Path | None = None,
    force: bool = False,
    again: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Installs on every board and returns an ``edgekit.deploy/1``.

    What was taken back on a board is put back with ``again`` alone ("install.taken-back").
    """
    settings = {"out": path_of(out), "force": force, "accept_host_key": accept_host_key,
                "trust_key": trust_key, "again": again}  # fmt: skip
    with open_pipeline(config, options, **settings) as pipeline:
        return pipeline.deploy(path_of(file))


def rollback(
    config: str | Path | Config,
    *,
    reason: str | None = None,
    accept_host_key: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Takes every board back to its previous release; returns an ``edgekit.rollback/1``."""
    with open_pipeline(config, options, accept_host_key=accept_host_key) as pipeline:
        return pipeline.rollback(reason)


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
