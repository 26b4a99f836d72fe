"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.errors import EdgekitError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

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
    "Verbose",
    "open_pipeline",
    "print_json",
    "printed",
    "progress",
    "shapes_of",
    "stdout_console",
]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Tell what a step is doing, line by line.")
]
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


def open_pipeline(
    config: str,
    options: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    **settings: Any,
) -> Pipeline:
    """Returns the pipeline of a YAML file or of a model, with progress on stderr.

    Args:
        config: What the user named.
        options: The configuration's keys that options of the command set; None means not given.
        quiet: No progress.
        verbose: Progress line by line.
        settings: Further arguments of ``Pipeline``.
    """
    from edgekit.config import open_config
    from edgekit.pipeline import Pipeline

    return Pipeline(
        open_config(config, **(options or {})), progress=progress(quiet, verbose), **settings
    )


def progress(quiet: bool, verbose: bool = False) -> Progress:
    """Returns progress on stderr, or none."""
    from edgekit.pipeline import Quiet as Silent
    from edgekit.pipeline import Terminal

    if quiet:
        return Silent()
    from rich.console import Console

    return Terminal(Console(stderr=True, soft_wrap=True), verbose=verbose)
