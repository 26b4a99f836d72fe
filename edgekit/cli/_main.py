"""Entry point: runs a command and turns every failure into a message and an exit status."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import typer

from edgekit.cli import (
    _bench,
    _build,
    _bundle,
    _calibrate,
    _check,
    _deploy,
    _explain,
    _infer,
    _init,
    _plan,
    _refit,
    _report,
    _rewrite,
    _rollback,
    _run,
    _targets,
)
from edgekit.errors import EdgekitError, EnvironmentLack, UsageError

__all__ = ["main"]

INTERRUPTED = 130
INTERNAL = 70  # EX_SOFTWARE: a fault of edgekit itself, outside the contract's list

# Typer brings its own copy of click in some releases, so its base class is found from a public one
_COMMAND_ERROR: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

app = typer.Typer(
    name="edgekit",
    help="Runs ONNX networks well on NVIDIA Jetson boards: says what fits the DLA and why not, "
    "places layers on GPU and DLA, builds, ships signed bundles over SSH, measures.",
    epilog="Start with: edgekit check MODEL.onnx --target jetson-agx-orin-64gb",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from edgekit import __version__

        print(f"edgekit {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise UsageError("no command given", hint="edgekit --help lists them")


for _module in (_init, _targets, _check, _explain, _rewrite, _calibrate, _plan, _build, _bundle,
                _deploy, _rollback, _refit, _infer, _bench, _report, _run):  # fmt: skip
    _module.register(app)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits with the contract's status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # a terminated run cleans up like an interrupted one: boards stop, temporary files go
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    sys.exit(_status(arguments))


_signals: list[int] = []


def _terminate(number: int, frame: object) -> NoReturn:
    _signals.append(number)
    raise KeyboardInterrupt


def _status(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        result: Any = app(arguments, prog_name="edgekit", standalone_mode=False)
        sys.stdout.flush()
        # Typer turns an interrupt into this status by itself
        if result == INTERRUPTED or _signals:
            return _fail(_Interrupted(), as_json)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _fail(_Interrupted(), as_json)
    except BrokenPipeError:
        return _reader_is_gone(0)
    except Exception as error:
        if _signals:  # libraries turn an interrupt in the midst of them into errors of their own
            return _fail(_Interrupted(), as_json)
        if "--debug" in arguments:
            traceback.print_exc()
        return _fail(_as_edgekit_error(error), as_json)


class _Interrupted(EdgekitError):
    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__(
            "interrupted; finished steps are kept and are not done again", code="interrupted"
        )


def _as_edgekit_error(error: Exception) -> EdgekitError:
    """Maps what no floor has mapped: the command line's own errors, the system's, and faults."""
    if isinstance(error, EdgekitError):
        return error
    if isinstance(error, _COMMAND_ERROR):
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path if context else 'edgekit'} --help"
        return UsageError(error.format_message(), hint=hint)
    if isinstance(error, OSError):
        where = str(error.filename or "")
        return EnvironmentLack(error.strerror or str(error), code="os.error", where=where)
    if isinstance(error, MemoryError):
        return EnvironmentLack("out of memory", code="os.memory")
    fault = EdgekitError(
        f"internal error: {type(error).__name__}: {error}",
        code="internal",
        hint="this is a fault of edgekit; run again with --debug and report what it prints",
    )
    fault.exit_code = INTERNAL
    return fault


def _fail(error: EdgekitError, as_json: bool) -> int:
    try:
        if as_json and not error.printed:
            import json

            print(json.dumps(error.to_json()))
        sys.stdout.flush()
        print(f"edgekit: {error}", file=sys.stderr)
    except BrokenPipeError:
        return _reader_is_gone(error.exit_code)
    return error.exit_code


def _reader_is_gone(status: int) -> int:
    # nothing is left to tell it, and Python must not complain at its end either
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
