"""Options that several commands share, and their conversion to a configuration; the files that
commands write in addition to their output (Markdown, the annotated ONNX file).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from edgekit import api
from edgekit.cli import completion
from edgekit.cli.commands import argument
from edgekit.cli.output import progress, say, warn
from edgekit.errors import ConfigError, Problem, UsageError

Decorator = Callable[[Any], Any]
_MODEL = "ONNX file, PyTorch file or package.module:factory, builtin:NAME, or YAML configuration."
model = argument("model", _MODEL, shell_complete=completion.models)
#: The argument of a command for which it is optional.
optional_model = argument("model", _MODEL, required=False, shell_complete=completion.models)
target = click.option(
    "-t", "--target", help="Board; see edgekit targets.", shell_complete=completion.targets
)
precision = click.option(
    "--precision", help="int8 (the default), fp16 or fp32.", shell_complete=completion.precisions
)
tensorrt = click.option("--tensorrt", help="TensorRT release, e.g. 10.3.")
#: The treatment of tensors without a scale in the calibration cache.
missing = click.option(
    "--missing",
    metavar="WHAT",
    help="If a scale is missing in the calibration cache: error (the default), or fp16 "
    "for the layers that need it.",
)
# callbacks return None if an option is not given: an empty list would replace the file's list
_outputs = click.option(
    "--outputs",
    multiple=True,
    callback=lambda _context, _option, names: list(names) or None,
    help="Cut the network at this tensor; repeatable.",
)
_cut = click.option(
    "--cut",
    type=click.Choice(["auto"]),
    help="Cut the network where it is proposed first: the first part runs on the DLA alone.",
)
_head = click.option(
    "--head",
    metavar="auto|FILE",
    help="Cut the network before its detection head, which decodes behind it: auto recognises the "
    "head, FILE is its document.",
)
_plugins = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="NAME",
    callback=lambda _context, _option, names: list(names) or None,
    help="The board has a plugin of this name for the model's operator of this name; repeatable.",
)
#: The batch of a model.
batch = click.option(
    "--batch", type=click.IntRange(min=1), help="Batch size where the model leaves it open (1)."
)
# flags have the default None: a flag that is not given leaves the file's value
#: The key "parser".
parser = click.option(
    "--parser",
    is_flag=True,
    default=None,
    help="Also let NVIDIA's own parser read the model; needs edgekit[parser].",
)
strict = click.option(
    "--strict", is_flag=True, default=None, help="Fail if a build differs from the plan."
)
#: The key "accuracy.thorough".
thorough = click.option(
    "--thorough",
    is_flag=True,
    default=None,
    help="Where INT8 misses the accuracy gate, search for the fewest FP16 layers without bounds "
    "(slow).",
)
again = click.option(
    "--again", is_flag=True, help="Install again a release that a board rolled back."
)
dry_run = click.option("--dry-run", is_flag=True, help="Only show the changes on the boards.")
force = click.option("--force", is_flag=True, help="Run every step again and reuse no results.")
accept_host_key = click.option(
    "--accept-host-key", is_flag=True, help="Accept the board's unknown host key, this time only."
)
json = click.option("--json", is_flag=True, help="Print only one JSON document on stdout.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
# main() reads it from the arguments: it must also apply if parsing fails
debug = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks of errors.")
_MARKDOWN_OPTION = click.option(
    "--markdown",
    metavar="FILE",
    help="Also write a Markdown table for a pull request; - prints it on stdout instead "
    "of the usual output.",
)


class _File(click.Path):
    """A path; an empty text is refused (it would mean the working directory)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)


def _has_option(ctx: click.Context | None, option: str) -> bool:
    """Returns True if the help of a command shows this option."""
    shown = [] if ctx is None else ctx.command.params
    return any(
        isinstance(item, click.Option) and not item.hidden and option in item.opts for item in shown
    )


class Output(_File):
    """A file that the command writes, with the given extension if set."""

    def __init__(self, ending: str = "") -> None:
        super().__init__(path_type=Path)
        self._ending = ending

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        wrong = ""
        if path.is_dir():
            wrong = "it is a folder, not a file"
        elif self._ending and not path.suffix:
            wrong = f"its name has no ending such as {self._ending}"
        if wrong:
            of_run = _has_option(ctx, "--out") and param is not None and "--out" not in param.opts
            raise UsageError(
                f"{param.opts[0] if param else '-o'} {path}: {wrong}",
                hint=f"give the name of a file, FILE{self._ending}"
                + ("; --out FOLDER is the folder for results" if of_run else ""),
            )
        return path


class _Folder(_File):
    """The folder for a run's files."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        of_file = _has_option(ctx, "-o")
        meant = of_file and path.suffix.lower() in (".ekb", ".html") and not path.is_dir()
        if meant or path.is_file():
            raise UsageError(
                f"--out {path}: it is a file, not a folder",
                hint="give a folder for results"
                + (f"; -o {path if meant else 'FILE'} names a file" if of_file else ""),
            )
        return path


#: Type of ``-o``, the file that a command writes.
OUTPUT = Output()


def combine(*decorators: Decorator) -> Decorator:
    """Combines several decorators."""

    def decorate(function: Any) -> Any:
        # decorators apply from the bottom up, and the help lists the options from the top down
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _refuse_model(context: click.Context, _argument: click.Parameter, config: str) -> str:
    """Refuses a model if a configuration is required: a model names no board."""
    if api.is_builtin(config) or Path(config).suffix.lower() == ".onnx":
        raise UsageError(
            f"{context.info_name} takes a configuration, not a model",
            where=config,
            hint=f"write one with: edgekit init {config} --target BOARD",
        )
    path = Path(config)
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        api.refuse_foreign(path)
        report = " or a report.json" if context.info_name == "report" else ""
        refuse_missing(config, f"a YAML configuration{report}")
    return config


def refuse_missing(file: str, kind: str) -> None:
    """Refuses a missing file; ``kind`` is the kind of file that the command reads.

    Raises:
        ConfigError: "config.missing".
    """
    if Path(file).exists():
        return
    near = api.near_builtins(file)
    model = f"builtin:{near[0]}" if near else "MODEL.onnx"
    hint = f"give the path of {kind}, or write a configuration with: edgekit init {model}"
    raise ConfigError([Problem("the file does not exist", file, hint)], code="config.missing")


config = argument("config", "YAML configuration.", callback=_refuse_model)

#: The argument of a command that also accepts a report document.
config_or_report = argument(
    "config", "YAML configuration, or the report.json of a run.", callback=_refuse_model
)


_shape = click.option(
    "--shape",
    multiple=True,
    callback=lambda _context, _option, values: api.read_shapes(values) or None,
    help="Shape as NAME:1x3x224x224, or with ranges as NAME:1x3x320..1280x640, for inputs with "
    "open sizes and tensors whose shape depends on a plugin or on data; repeatable.",
    shell_complete=completion.shapes,
)


def sizes(function: Any) -> Any:
    """Adds the options that select parts and sizes of the model to a command, as ``part``.

    For commands that read a model and have no board.
    """

    @wraps(function)
    def with_part(*, shape: Any, batch: Any, outputs: Any, **others: Any) -> Any:
        return function(part=api.ModelPart(shape, batch, outputs), **others)

    return combine(_shape, batch, _outputs)(with_part)


def parse_inputs(options: Iterable[str]) -> dict[str, str]:
    """Parses ``--input NAME=1x3x224x224:float32``.

    Raises:
        UsageError: An option has another form.
    """
    found = {}
    for option in options:
        name, is_given, size = option.partition("=")
        if not (name and is_given and size):
            raise UsageError(
                f"--input {option!r} is not NAME=SIZE", hint="--input x=1x3x224x224:float32"
            )
        found[name] = size
    return found


def _check_digest(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> str | None:
    if value is not None and not re.fullmatch("[0-9a-fA-F]{64}", value):
        raise UsageError(
            f"--trust {value!r} is no SHA-256, which has 64 hexadecimal digits",
            hint="the error without --trust has the file's digest; ask its author for it",
        )
    return value


_torch_options = combine(
    click.option(
        "--input",
        "torch_inputs",
        multiple=True,
        metavar="NAME=SIZE",
        callback=lambda _context, _option, values: parse_inputs(values) or None,
        help="Input of a PyTorch network, as x=1x3x224x224:float32; repeatable.",
    ),
    click.option(
        "--exporter",
        type=click.Choice(["dynamo", "legacy"]),
        help="PyTorch's exporter (default: the first that fits the board's TensorRT).",
    ),
    click.option(
        "--trust",
        metavar="SHA256",
        callback=_check_digest,
        help="Run the pickle in a PyTorch file with this SHA-256.",
    ),
)


def cut_or_torch(function: Any) -> Any:
    """Adds the options of ``cut`` to a command that accepts PyTorch networks."""

    @wraps(function)
    def with_torch(
        *, part: api.ModelPart, torch_inputs: Any, exporter: Any, trust: Any, **others: Any
    ) -> Any:
        part = part._replace(inputs=torch_inputs, exporter=exporter, trust=trust)
        return function(part=part, **others)

    return _torch_options(cut(with_torch))


def no_modules(model: str) -> UsageError:
    """Returns the error of ``--by-module`` for a file that names no modules."""
    return UsageError(
        "the file names no PyTorch modules",
        code="check.modules",
        where=model,
        hint="export it with torch.onnx.export, which names them; `edgekit check --by-layer` lists "
        "the layers",
    )


def leave(function: Any, *, hidden: bool = False) -> Any:
    """Adds the left-out modules to the ``part`` of a command, below ``cut_or_torch``.

    It is hidden if the API refuses it with a reason.
    """

    @wraps(function)
    def with_leave(*, part: api.ModelPart, leave: tuple[str, ...], **others: Any) -> Any:
        return function(part=part._replace(leave=leave or None), **others)

    option = click.option(
        "--leave",
        multiple=True,
        metavar="GLOB",
        hidden=hidden,
        help="Modules that are left out of the network and run beside it, such as head.*; "
        "repeatable.",
    )
    decorated: Any = option(with_leave)
    return decorated


def cut(function: Any) -> Any:
    """Adds the options of ``sizes`` and the board's plugins to a command that reads a model."""

    @wraps(function)
    def with_plugins(
        *, part: api.ModelPart, plugins: Any, cut: str | None, head: str | None, **others: Any
    ) -> Any:
        return function(part=part._replace(plugins=plugins, cut=cut, head=head), **others)

    return combine(_plugins, _cut, _head)(sizes(with_plugins))


#: A folder that the command fills.
FOLDER = _Folder(path_type=Path)
#: The option of a run's folder.
out = click.option(
    "--out",
    type=FOLDER,
    metavar="FOLDER",
    help="Folder for results (edgekit-out/NAME).",
)

# docs/api-stability.md: an option is removed after a minor release in which it works and warns
_FORMER_OUT = click.option("-o", "former_out", type=FOLDER, hidden=True)


def out_or_former(function: Any) -> Any:
    """Adds ``out`` to a command; ``-o FOLDER`` of earlier versions works and warns."""

    @wraps(function)
    def with_out(*, out: Path | None, former_out: Path | None, **others: Any) -> Any:
        if former_out is not None:
            warn(f"-o {former_out} is deprecated: use --out {former_out}; -o is for files")
        return function(out=out or former_out, **others)

    return combine(out, _FORMER_OUT)(with_out)


#: Options of consents to trust: ``accept_host_key`` and ``trust_key``.
board_options = combine(
    accept_host_key,
    click.option(
        "--trust-key", is_flag=True, help="Make the board trust the key that signs this bundle."
    ),
)


#: Options of a command's output: ``json``, ``quiet`` and ``verbose``.
output_options = combine(
    json,
    quiet,
    click.option("-v", "--verbose", is_flag=True, help="Show details of each step."),
    debug,
)


def reports(function: Any) -> Any:
    """Adds ``json`` to a command, and the ``progress`` that ``--quiet`` and ``--verbose``
    select.
    """

    @wraps(function)
    def with_progress(*, quiet: bool, verbose: bool, **others: Any) -> Any:
        return function(progress=progress(quiet, verbose), **others)

    return output_options(with_progress)


# Files that commands write in addition to their output: Markdown, and the annotated ONNX file.


def markdown(function: Any) -> Any:
    """Adds ``markdown`` to a command: a file, "-" or None."""

    @wraps(function)
    def checked(*, markdown: str | None, json: bool, **others: Any) -> Any:
        if markdown == "-" and json:
            raise UsageError("--markdown - and --json both write to stdout")
        # report errors before minutes of measuring
        if markdown not in (None, "-") and not (folder := Path(markdown).parent).is_dir():
            raise UsageError(
                f"--markdown: folder {folder} does not exist",
                where=markdown,
                hint="create it, or give a file in an existing folder",
            )
        return function(markdown=markdown, json=json, **others)

    return _MARKDOWN_OPTION(checked)


annotate = click.option(
    "--annotate",
    type=FILE,
    metavar="FILE",
    help="Write the ONNX file with devices and times as node metadata, for Netron.",
)


def write_markdown(document: Any, goal: str) -> None:
    """Writes a document as Markdown to a file, or to stdout for "-"."""
    from edgekit.reports.markdown import markdown as text_of
    from edgekit.reports.markdown import write_markdown as write

    if goal == "-":
        say(text_of(document).rstrip("\n"))
    else:
        write(document, Path(goal))
