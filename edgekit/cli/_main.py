"""Entry point: runs a command and turns every failure into a message and an exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

import click

from edgekit import __version__
from edgekit._plain import printable_output
from edgekit.cli._commands import Commands
from edgekit.cli._talk import Interrupted
from edgekit.errors import EdgekitError, EnvironmentLack, UsageError

__all__ = ["main"]

INTERRUPTED = 130
# commands that look only: an interrupted one has nothing to keep
_WITHOUT_STEPS = {"compare", "doctor", "explain", "history", "status", "targets", "top"}
INTERNAL = 70  # EX_SOFTWARE: a fault of edgekit itself, outside the contract's list


@click.group(
    "edgekit",
    cls=Commands,
    help="Runs ONNX networks well on NVIDIA Jetson boards: says what fits the DLA and why not, "
    "places layers on GPU and DLA, builds, ships signed bundles over SSH, measures.",
    epilog="edgekit check MODEL.onnx --target jetson-agx-orin-64gb",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="edgekit %(version)s")
@click.pass_context
def _root(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        context.exit(UsageError.exit_code)


def app(arguments: list[str]) -> int:
    """Runs a command; whatever goes wrong is raised."""
    for word in arguments:
        if "\0" in word:  # no system call takes it
            raise UsageError(f"an argument holds a NUL character: {word!r}", hint="remove it")
    # not click's own main(), which has its own ideas of interrupts, closed pipes and statuses
    try:
        with _root.make_context("edgekit", list(arguments)) as context:
            try:
                _root.invoke(context)
            except EdgekitError as error:
                _name_options(error, context)
                raise
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def _name_options(error: EdgekitError, context: click.Context) -> None:
    from edgekit.cli._option_names import name_options

    command = context.command
    if isinstance(command, click.Group) and context.invoked_subcommand:
        found = command.get_command(context, context.invoked_subcommand)
        if found is not None:
            name_options(error, found)


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
    try:
        _need_streams()
    except EnvironmentLack as error:
        return _fail(error, False)
    with printable_output():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        status = app(arguments)
        sys.stdout.flush()
        return _fail(_Interrupted(arguments), as_json) if _signals else status
    except KeyboardInterrupt as interrupt:
        printed = isinstance(interrupt, Interrupted)
        return _fail(_Interrupted(arguments, _said(interrupt)), as_json and not printed)
    except BrokenPipeError:
        return _reader_is_gone(0)
    except Exception as error:
        if _signals:  # libraries turn an interrupt in the midst of them into errors of their own
            return _fail(_Interrupted(arguments, _said(error)), as_json)
        if "--debug" in arguments:
            import traceback

            traceback.print_exc()
        return _fail(_as_edgekit_error(error), as_json)


def _need_streams() -> None:
    """Replaces streams that the caller has closed: the next file opened would take their place.

    Raises:
        EnvironmentLack: There is no stdout, so nobody can read the answer.
    """
    closed = sys.stdout is None
    if closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if closed:
        raise EnvironmentLack(
            "stdout is closed", code="os.stdout", hint="to /dev/null it can go unread"
        )


def _said(error: BaseException | None) -> str:
    """What was said when it was interrupted; libraries wrap it in errors of their own."""
    while error is not None and not (isinstance(error, KeyboardInterrupt) and error.args):
        error = error.__cause__ or error.__context__
    return str(error or "")


class _Interrupted(EdgekitError):
    exit_code = INTERRUPTED

    def __init__(self, arguments: list[str], more: str = "") -> None:
        steps = not _WITHOUT_STEPS & set(arguments[:1])
        kept = "finished steps are kept and are not done again" if steps else ""
        told = "; ".join(part for part in ("interrupted", kept, more) if part)
        super().__init__(told, code="interrupted")


def _as_edgekit_error(error: Exception) -> EdgekitError:
    """Maps what no floor has mapped: the command line's own errors, the system's, and faults."""
    if isinstance(error, EdgekitError):
        return error
    if isinstance(error, click.ClickException):
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
        with _full_disk():
            if as_json and not error.printed:
                import json

                print(json.dumps(error.to_json()))
            sys.stdout.flush()
        print(f"edgekit: {error}", file=sys.stderr)
    except BrokenPipeError:
        return _reader_is_gone(error.exit_code)
    return error.exit_code


@contextlib.contextmanager
def _full_disk() -> Iterator[None]:
    """Lets stderr tell what stdout cannot take; a reader that is gone is another matter."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _reader_is_gone(status: int) -> int:
    # nothing is left to tell it, and Python must not complain at its end either
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
