"""A configuration from whatever the user names: a YAML file, a model, options over either."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.config._load import Config, check_config, load_config
from edgekit.config._yaml import Document
from edgekit.errors import UsageError
from edgekit.network import parse_builtin, refuse_foreign

__all__ = ["open_config"]


def open_config(source: str | Path | Config, **options: Any) -> Config:
    """Returns the configuration of a YAML file, or of a model with options.

    Args:
        source: A YAML file, an ONNX file, "builtin:NAME", or a configuration to change.
        options: The configuration's keys as a nested mapping; None means "not given". They win
            over the file's values.

    Raises:
        ConfigError: What the file or the options say is wrong.
        UsageError: A model without a target, or ``source`` is none of these.
    """
    given = _plain(options)
    if isinstance(source, Config):
        config = source
    elif not isinstance(source, str | os.PathLike):
        raise UsageError(
            f"{source!r} is no path", hint="give a YAML file, an ONNX file or builtin:NAME"
        )
    elif Path(source).suffix.lower() in (".yaml", ".yml"):
        config = load_config(source)
    else:
        return _of_model(str(source), given)
    return _changed(config.document, config.folder, given) if given else config


def _of_model(path: str, given: dict[str, Any]) -> Config:
    if parse_builtin(path) is None:
        refuse_foreign(Path(path))
    if "target" not in given:
        raise UsageError(
            "a model needs --target", where=path, hint="edgekit targets lists the boards"
        )
    base = {"version": 1, "name": _name_of(path), "model": _model_of(path)}
    return _changed(Document(path, base, {}, ()), Path(), given)


def _changed(document: Document, folder: Path, given: dict[str, Any]) -> Config:
    import yaml

    merged = _merge(document.value, given)
    paths = document.given | frozenset(_leaves(given))
    file = document.value if document.file is None else document.file
    changed = dataclasses.replace(document, value=merged, given=paths, file=file)
    # checked first: only what the schema knows can be written as YAML
    checked = check_config(changed, folder, "")
    return dataclasses.replace(checked, text=yaml.safe_dump(merged, sort_keys=False))


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def _model_of(path: str) -> dict[str, Any]:
    given = parse_builtin(path)
    if given is None:
        return {"onnx": path}
    name, seed = given
    return {"builtin": name, "seed": seed} if seed else {"builtin": name}


def _name_of(path: str) -> str:
    stem = Path(path.removeprefix("builtin:").partition("?")[0]).stem.lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("._-")[:64] or "model"


def _plain(options: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns options as YAML would give them, without those that are None."""
    kept = {}
    for key, value in options.items():
        inner = _plain(value) if isinstance(value, Mapping) else value
        if isinstance(inner, os.PathLike):
            inner = os.fspath(inner)
        if inner is not None and inner != {}:
            kept[str(key)] = list(inner) if isinstance(inner, tuple) else inner
    return kept


def _merge(base: Mapping[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        deeper = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = _merge(dict(old or {}), value) if deeper else value
    return merged
