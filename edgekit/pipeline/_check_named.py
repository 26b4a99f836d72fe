"""The check of whatever the user names: an ONNX file at once, all else by its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.pipeline._check import check_model

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline._check import CheckResult

__all__ = ["check_named"]

# options that a check of an ONNX file takes; with any other one a configuration is made
_PLAIN = {"target", "precision", "tensorrt", "power_mode"}
_INNER = {"model": {"shapes", "outputs"}, "calibration": {"cache"}}


def check_named(
    config: str | Path | Config, *, jetpack: str | None = None, **options: Any
) -> CheckResult:
    """Checks an ONNX file, "builtin:NAME", a YAML file or a configuration.

    Args:
        config: What the user named.
        jetpack: A JetPack release, whose TensorRT's rules hold.
        options: The configuration's keys; None means not given.

    Raises:
        ConfigError: What the file or the options say is wrong.
        UsageError: A model without a board, or both ``jetpack`` and ``tensorrt``.
    """
    if jetpack is not None and options.get("tensorrt") is not None:
        raise UsageError("give a JetPack or a TensorRT release, not both", code="check.release")
    if _is_file(config) and _is_plain(options):
        return _file(str(config), jetpack, options)
    from edgekit.config import open_config
    from edgekit.pipeline._pipeline import Pipeline

    opened = open_config(config, **options)
    if jetpack is not None:
        from edgekit.targets import tensorrt_of_jetpack

        release = tensorrt_of_jetpack(opened.file.target, jetpack)
        opened = open_config(opened, tensorrt=release)
    with Pipeline(opened) as pipeline:
        return pipeline.check_result()


def _is_file(config: object) -> bool:
    if not isinstance(config, str | Path):
        return False
    return not str(config).startswith("builtin:") and Path(config).suffix.lower() not in (
        ".yaml", ".yml",
    )  # fmt: skip


def _is_plain(options: Mapping[str, Any]) -> bool:
    for key, value in options.items():
        if value is None or key in _PLAIN:
            continue
        if key not in _INNER or not isinstance(value, Mapping):
            return False
        if any(inner not in _INNER[key] for inner, given in value.items() if given is not None):
            return False
    return True


def _file(path: str, jetpack: str | None, options: Mapping[str, Any]) -> CheckResult:
    from edgekit.targets import get, tensorrt_of_jetpack

    if options.get("target") is None:
        raise UsageError(
            "a model needs --target", where=path, hint="edgekit targets lists the boards"
        )
    board = get(options["target"])
    release = options.get("tensorrt")
    if jetpack is not None:
        release = tensorrt_of_jetpack(board, jetpack)
    model = options.get("model") or {}
    calibration = options.get("calibration") or {}
    return check_model(
        path,
        target=board,
        precision=options.get("precision") or "int8",
        tensorrt=release,
        power_mode=options.get("power_mode"),
        shapes=model.get("shapes"),
        outputs=model.get("outputs"),
        scales=calibration.get("cache"),
    )
