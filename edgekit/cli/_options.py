"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli._commands import argument, command
from edgekit.cli._talk import (
    Interrupted,
    console,
    figures,
    paper,
    print_json,
    printed,
    progress,
    say,
    say_accuracy,
    say_more,
    say_notes,
    say_page,
    say_rows,
)
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import Pipeline

__all__ = [
    "FILE",
    "Interrupted",
    "accept_host_key",
    "all_of",
    "batch",
    "boards",
    "command",
    "config",
    "config_or_report",
    "console",
    "cut",
    "debug",
    "figures",
    "force",
    "json",
    "missing",
    "model",
    "open_pipeline",
    "optional_model",
    "out",
    "paper",
    "precision",
    "print_json",
    "printed",
    "progress",
    "quiet",
    "say",
    "say_accuracy",
    "say_more",
    "say_notes",
    "say_page",
    "say_rows",
    "shapes_of",
    "strict",
    "talk",
    "target",
    "tensorrt",
]

Decorator = Callable[[Any], Any]


class _File(click.Path):
    """A path; an empty text is none, and not the folder that the caller happens to be in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)


def all_of(*decorators: Decorator) -> Decorator:
    """Returns several decorators as one."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def shapes_of(options: Iterable[str]) -> dict[str, list[int]]:
    """Parses ``--shape NAME:1x3x224x224``; a name may itself have colons.

    Raises:
        UsageError: An option is something else.
    """
    shapes = {}
    for option in options:
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


def _no_model(context: click.Context, _argument: click.Parameter, config: str) -> str:
    """Tells a model from a configuration: it has no board, and nothing says how to reach one."""
    if config.startswith("builtin:") or Path(config).suffix.lower() == ".onnx":
        raise UsageError(
            f"{context.info_name} takes a configuration, not a model",
            where=config,
            hint=f"edgekit init {config} --target BOARD writes one",
        )
    path = Path(config)
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        from edgekit.network import refuse_foreign

        refuse_foreign(path)
    return config


config = argument("config", "YAML configuration.", callback=_no_model)
#: For a command that takes a report document, too.
config_or_report = argument(
    "config", "YAML configuration, or the report.json of a run.", callback=_no_model
)
_MODEL = "ONNX file, builtin:NAME or YAML configuration."
model = argument("model", _MODEL)
#: For a command that can do without one.
optional_model = argument("model", _MODEL, required=False)

target = click.option("-t", "--target", help="Board; see edgekit targets.")
precision = click.option("--precision", help="int8 (the default), fp16 or fp32.")
tensorrt = click.option("--tensorrt", help="TensorRT release, e.g. 10.3.")
#: What a tensor without a scale in the calibration cache means.
missing = click.option(
    "--missing",
    metavar="WHAT",
    help="Tensors without a scale in the calibration cache: error (the default), or fp16 for the "
    "layers that need one.",
)
_outputs = click.option(
    "--outputs",
    multiple=True,
    callback=lambda _context, _option, names: list(names) or None,
    help="Cut the network at this tensor; repeatable.",
)
_shape = click.option(
    "--shape",
    multiple=True,
    callback=lambda _context, _option, values: shapes_of(values) or None,
    help="NAME:1x3x224x224, for inputs with open sizes and for tensors whose shape a plugin or "
    "the data decide; repeatable.",
)


#: The batch of a model.
batch = click.option(
    "--batch", type=click.IntRange(min=1), help="The batch where the file leaves it open (1)."
)


def cut(function: Any) -> Any:
    """Gives a command what is meant of the model, as ``part``: keys of "model".

    For every command that reads a model, by itself or by a configuration.
    """

    @wraps(function)
    def with_part(*, shape: Any, batch: Any, outputs: Any, **others: Any) -> Any:
        return function(part={"shapes": shape, "batch": batch, "outputs": outputs}, **others)

    return all_of(_shape, batch, _outputs)(with_part)


out = click.option("-o", "--out", type=FILE, help="Folder for results (edgekit-out/NAME).")
strict = click.option(
    "--strict", is_flag=True, default=None, help="Fail where a build is not as planned."
)
again = click.option(
    "--again", is_flag=True, help="Put back what was taken back on a board; nothing else does."
)
force = click.option("--force", is_flag=True, help="Do everything again, reuse nothing.")
accept_host_key = click.option(
    "--accept-host-key", is_flag=True, help="Accept the board's unknown host key this once."
)
#: What a board is allowed to trust, as ``accept_host_key`` and ``trust_key``.
boards = all_of(
    accept_host_key,
    click.option(
        "--trust-key", is_flag=True, help="Let the board trust the key that signs this bundle."
    ),
)

json = click.option("--json", is_flag=True, help="One JSON document on stdout, nothing else.")
quiet = click.option("-q", "--quiet", is_flag=True, help="No progress.")
# main() reads it from the arguments: it must hold also where parsing them fails
debug = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
#: How a command talks, as ``json``, ``quiet`` and ``verbose``.
talk = all_of(
    json,
    quiet,
    click.option("-v", "--verbose", is_flag=True, help="Tell what a step is doing, line by line."),
    debug,
)


def open_pipeline(
    config: str | Config,
    options: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    **settings: Any,
) -> Pipeline:
    """Returns the pipeline of a YAML file or of a model, with progress on stderr.

    Args:
        config: What the user named, or a configuration.
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
