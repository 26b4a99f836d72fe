"""A configuration from whatever the user names: a YAML file, a model, options over either."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.config._load import Config, from_model, load_config, parse_config
from edgekit.errors import UsageError

__all__ = ["open_config"]


def open_config(path: str | Path, **options: Any) -> Config:
    """Returns the configuration of a YAML file, or of a model with options.

    ``options`` are the configuration's keys as a nested mapping; None means "not given". For a
    YAML file they override the file's values.
    """
    import yaml

    path = str(path)
    given = _without_none(options)
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        config = load_config(path)
        if not given:
            return config
        merged = _merge(config.values, given)
        return parse_config(yaml.safe_dump(merged, sort_keys=False), path, config.folder)
    if "target" not in given:
        raise UsageError(
            "a model needs --target", where=path, hint="edgekit targets lists the boards"
        )
    return from_model(path, _merge({"name": _name_of(path), "model": _model_of(path)}, given))


def _model_of(path: str) -> dict[str, Any]:
    if path.startswith("builtin:"):
        name, _, seed = path.removeprefix("builtin:").partition("?seed=")
        return {"builtin": name, "seed": int(seed) if seed.isdigit() else 0}
    return {"onnx": path}


def _name_of(path: str) -> str:
    stem = Path(path.removeprefix("builtin:").partition("?")[0]).stem.lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("._-")[:64] or "model"


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for key, value in options.items():
        inner = _without_none(value) if isinstance(value, dict) else value
        if inner is not None and inner != {}:
            kept[key] = inner
    return kept


def _merge(base: Mapping[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        deeper = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = _merge(dict(old or {}), value) if deeper else value
    return merged
