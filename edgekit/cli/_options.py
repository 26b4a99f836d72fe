"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.errors import EdgekitError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from edgekit.config import Config
    from edgekit.pipeline import Pipeline, Progress

__all__ = [
    "AcceptHostKey",
    "Debug",
    "Force",
    "Json",
    "Out",
    "Outputs",
    "Precision",
    "Quiet",
    "Shape",
    "Target",
    "TensorRT",
    "TrustKey",
    "open_config",
    "open_pipeline",
    "print_json",
    "printed",
    "progress",
    "shapes_of",
    "stdout_console",
]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Force = Annotated[bool, typer.Option("--force", help="Do everything again, reuse nothing.")]
Target = Annotated[str | None, typer.Option("--target", "-t", help="Board; see edgekit targets.")]
Precision = Annotated[str | None, typer.Option("--precision", help="int8, fp16 or fp32.")]
TensorRT = Annotated[str | None, typer.Option("--tensorrt", help="TensorRT release, e.g. 10.3.")]
Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", help="NAME:1x3x224x224, for inputs with open sizes; repeatable."),
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for results (edgekit-out/NAME).")
]
Outputs = Annotated[
    list[str] | None, typer.Option("--outputs", help="Cut the network at this tensor; repeatable.")
]
TrustKey = Annotated[
    bool, typer.Option("--trust-key", help="Let the board trust the key that signs this bundle.")
]
AcceptHostKey = Annotated[
    bool,
    typer.Option("--accept-host-key", help="Accept the board's unknown host key this once."),
]


def print_json(document: Any) -> None:
    """Prints the one document of ``--json``."""
    import json

    print(json.dumps(document, allow_nan=False))


def printed(error: EdgekitError) -> EdgekitError:
    """Marks an error whose command has printed its JSON document already."""
    error.printed = True
    return error


def stdout_console() -> Console:
    """Returns a console on stdout: plain where it is no terminal."""
    from rich.console import Console

    return Console(soft_wrap=False)


def shapes_of(options: list[str] | None) -> dict[str, list[int]]:
    """Parses ``--shape NAME:1x3x224x224``; a name may itself have colons."""
    shapes = {}
    for option in options or []:
        name, _, sizes = option.rpartition(":")
        try:
            shapes[name] = [int(size) for size in sizes.lower().split("x")]
        except ValueError:
            shapes[name] = []
        if not name or not shapes[name] or min(shapes[name]) < 1:
            raise UsageError(
                f"--shape {option!r} is not NAME:SIZExSIZE", hint="--shape input:1x3x224x224"
            )
    return shapes


def open_config(path: str, **options: Any) -> Config:
    """Returns the configuration of a YAML file, or of a model with options.

    ``options`` are the configuration's keys as a nested mapping; None means "not given". For a
    YAML file they override the file's values.
    """
    import yaml

    from edgekit.config import from_model, load_config, parse_config

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


def open_pipeline(
    config: Config,
    *,
    out: Path | None = None,
    force: bool = False,
    quiet: bool = False,
    accept_host_key: bool = False,
    trust_key: bool = False,
) -> Pipeline:
    """Returns the pipeline of ``config`` with progress on stderr."""
    from edgekit.pipeline import Pipeline

    return Pipeline(
        config,
        out=out,
        force=force,
        progress=progress(quiet),
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    )


def progress(quiet: bool) -> Progress:
    """Returns progress on stderr, or none."""
    from edgekit.pipeline import Quiet as Silent
    from edgekit.pipeline import Terminal

    if quiet:
        return Silent()
    from rich.console import Console

    return Terminal(Console(stderr=True, soft_wrap=True))


def _model_of(path: str) -> dict[str, Any]:
    if path.startswith("builtin:"):
        name, _, seed = path.removeprefix("builtin:").partition("?seed=")
        return {"builtin": name, "seed": int(seed) if seed.isdigit() else 0}
    return {"onnx": path}


def _name_of(path: str) -> str:
    import re

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
