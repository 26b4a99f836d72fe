"""Everything the command line does, as functions. ``edgekit.check`` and so on are these.

``config`` is a YAML file, an ONNX file, "builtin:NAME" or a ``Config``; a model needs ``target``.
Other keyword arguments are the configuration's keys (``precision="fp16"``,
``placement={"objective": "latency"}``) and win over the file's. Failures raise
``edgekit.errors.EdgekitError``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import Pipeline, RunResult
    from edgekit.placement import Plan

__all__ = [
    "bench", "build", "bundle", "calibrate", "check", "deploy", "infer", "plan", "refit",
    "rewrite", "rollback", "run",
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
    config: str | Path | Config, save: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Rewrites a model, writes it to ``save``, and returns an ``edgekit.rewrite/1``."""
    with _open(config, options) as pipeline:
        return pipeline.rewrite(_path(save))


def calibrate(
    config: str | Path | Config, save: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Measures INT8 scales, writes a cache to ``save``, and returns an ``edgekit.scales/1``."""
    with _open(config, options) as pipeline:
        return pipeline.calibrate(_path(save))


def plan(config: str | Path | Config, **options: Any) -> Plan:
    """Places every layer on GPU and DLA."""
    with _open(config, options) as pipeline:
        return pipeline.plan()


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
