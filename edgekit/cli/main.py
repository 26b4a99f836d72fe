"""The program: runs a command and converts every failure to a message and an exit status."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import NoReturn

import click

from edgekit.cli.commands import write_examples
from edgekit.cli.completion import VARIABLE, complete
from edgekit.cli.output import Interrupted, print_json
from edgekit.errors import ConfigError, EdgekitError, EnvironmentLack, UsageError
from edgekit.expansion import forget
from edgekit.text import printable_output
from edgekit.version import __version__

# 128 + SIGINT, as shells report it
INTERRUPTED = 130

# read-only commands: an interrupted command has no steps to keep
_WITHOUT_STEPS = {
    "compare",
    "completion",
    "doctor",
    "explain",
    "explain-log",
    "history",
    "status",
    "targets",
    "top",
}
INTERNAL = 70  # EX_SOFTWARE: a fault of edgekit itself, outside the contract's list

# by group and name: the module of edgekit.cli, the command in it and its summary
GROUPS = {
    "Model": {
        "init": ("model", "init_command", "Write a commented YAML configuration."),
        "targets": (
            "model",
            "targets_command",
            "List the boards with their DLA cores and power modes.",
        ),
        "check": (
            "check",
            "check_command",
            "Show which layers can run on a DLA, and which rule each other layer breaks.",
        ),
        "explain": ("check", "explain_command", "Show a DLA rule with its limit, source and fix."),
        "explain-log": (
            "check",
            "explain_log_command",
            "Explain a TensorRT build log: layers, rules, errors, fixes.",
        ),
        "rewrite": (
            "model",
            "rewrite_command",
            "Apply every rewrite that lets more run on the DLA, each verified on random inputs.",
        ),
        "calibrate": (
            "calibration",
            "calibrate_command",
            "Measure INT8 scales with ONNX Runtime and save them as a TensorRT calibration cache.",
        ),
    },
    "Plan and build": {
        "plan": (
            "planning",
            "plan_command",
            "Place layers on GPU and DLA and predict latency, throughput and energy.",
        ),
        "tune": (
            "planning",
            "tune_command",
            "Plan, build and measure until no remaining plan can be better.",
        ),
        "build": (
            "steps",
            "build_command",
            "Build the engines of a configuration and compare them with FP32.",
        ),
        "bundle": (
            "steps",
            "bundle_command",
            "Pack the engines, without their weights, into one signed file.",
        ),
        "run": (
            "steps",
            "run_command",
            "Run all steps: check, rewrite, calibrate, plan, build, bundle, deploy, bench, report.",
        ),
        "report": ("steps", "report_command", "Run missing steps and write the report."),
    },
    "Board": {
        "doctor": (
            "boards",
            "doctor_command",
            "Check the software and hardware of a board or this machine; --setup prepares a board.",
        ),
        "deploy": (
            "steps",
            "deploy_command",
            "Install a release on boards: send, refit, self-test, switch. The old one is kept.",
        ),
        "refit": (
            "steps",
            "refit_command",
            "Send only the changed tensors and refit the engines on the board.",
        ),
        "rollback": ("boards", "rollback_command", "Switch boards back to the previous release."),
        "remove": ("boards", "remove_command", "Remove a release or an application from boards."),
        "trust": (
            "boards",
            "trust_command",
            "Show which signing keys a board trusts; add, remove and revoke keys.",
        ),
        "status": ("boards", "status_command", "Show which releases boards run, install and keep."),
        "top": (
            "monitor",
            "top_command",
            "Show a board live: GPU, DLA, memory, power, temperatures, releases.",
        ),
        "releases": ("boards", "releases_command", "List the releases on boards."),
        "serve": (
            "steps",
            "serve_command",
            "Keep a release loaded on a board behind a socket: start, query or stop its server.",
        ),
        "infer": ("steps", "infer_command", "Run one inference on the board."),
        "detect": (
            "steps",
            "detect_command",
            "Find the objects of pictures with a detector on the board, and draw them.",
        ),
        "jobs": (
            "jobs",
            "jobs_command",
            "List, follow and cancel background jobs on boards, and read their logs.",
        ),
    },
    "Fleet": {
        "fleet": (
            "fleet",
            "fleet_command",
            "Deploy a release to many boards in waves; pause, resume, roll back.",
        ),
    },
    "Measure": {
        "bench": (
            "measurements",
            "bench_command",
            "Measure latency and throughput as trtexec does, and write a trace.",
        ),
        "trace": (
            "measurements",
            "trace_command",
            "Merge files of bench, Nsight Systems, trtexec and tegrastats into one timeline.",
        ),
        "history": (
            "measurements",
            "history_command",
            "List measurements with commit, bundle and board; show, mark, export, prune.",
        ),
        "compare": (
            "measurements",
            "compare_command",
            "Test whether two measurements really differ; exit code 1 for a regression.",
        ),
    },
    "Shell": {
        "completion": (
            "completion",
            "completion_command",
            "Print the script that completes edgekit in a shell.",
        ),
    },
}
COMMANDS = {name: row for group in GROUPS.values() for name, row in group.items()}
_signals: list[int] = []
# edgekit.config's words for a value that did not come from the file
_KEY = re.compile(r"option ([\w.]+)$")
# the option of errors that name no place
_KEY_OF = {"precision.unknown": "option precision", "usage.pareto": "option pareto"}


class Commands(click.Group):
    """A group that imports a command only when it is called, for a fast start."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands' names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Imports a command.

        Raises:
            UsageError: There is no command of that name.
        """
        if cmd_name not in COMMANDS:
            from difflib import get_close_matches

            near = " or ".join(map(repr, get_close_matches(cmd_name, COMMANDS)))
            raise UsageError(
                f"No such command {cmd_name!r}." + (f" Did you mean {near}?" if near else ""),
                hint="edgekit --help",
            )
        module, attribute, summary = COMMANDS[cmd_name]
        found: click.Command = getattr(import_module(f"edgekit.cli.{module}"), attribute)
        found.help = summary
        return found

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Returns the commands with this prefix, without importing them."""
        from click.shell_completion import CompletionItem

        named = [
            CompletionItem(name, help=text)
            for name, (_, _, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return named or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes names and summaries by group."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), text) for name, (_, _, text) in group.items()]
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the example."""
        write_examples(formatter, self.epilog)


@click.group(
    "edgekit",
    cls=Commands,
    help="Run ONNX networks well on NVIDIA Jetson boards: show which layers the DLA can "
    "run and why not, place layers on GPU and DLA, build engines, deploy signed "
    "bundles over SSH and measure them.",
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
    """Runs a command; raises every error."""
    for word in arguments:
        if "\0" in word:  # system calls do not accept it
            raise UsageError(f"an argument holds a NUL character: {word!r}", hint="remove it")
    # not click's own main(), which handles interrupts, closed pipes and statuses differently
    try:
        with _root.make_context("edgekit", list(arguments)) as context:
            try:
                _root.invoke(context)
            except EdgekitError as error:
                command = context.command
                if isinstance(command, click.Group) and context.invoked_subcommand:
                    found = command.get_command(context, context.invoked_subcommand)
                    if found is not None:
                        name_options(error, found)
                raise
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits with the contract's status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # a shell's completion script calls the program with this variable
    if asked := os.environ.get(VARIABLE):
        sys.exit(complete(_root, asked))
    # SIGTERM cleans up like an interrupt: boards stop, temporary files are removed
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    sys.exit(_status(arguments))


def _terminate(number: int, frame: object) -> NoReturn:
    _signals.append(number)
    raise KeyboardInterrupt


def _status(arguments: list[str]) -> int:
    try:
        _reopen_streams()
    except EnvironmentLack as error:
        return _report_failure(error, False)
    # a test or a program may run several commands in one process
    forget()
    with printable_output():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        status = app(arguments)
        sys.stdout.flush()
        # a library may have swallowed the interrupt and ended the command as if all were done
        return _report_failure(_InterruptedError(arguments), as_json) if _signals else status
    except KeyboardInterrupt as interrupt:
        printed = isinstance(interrupt, Interrupted)
        return _report_failure(
            _InterruptedError(arguments, _interrupt_message(interrupt)), as_json and not printed
        )
    except BrokenPipeError:
        return _discard_output(0)
    except Exception as error:
        if _signals:  # libraries convert an interrupt to their own errors
            return _report_failure(_InterruptedError(arguments, _interrupt_message(error)), as_json)
        if "--debug" in arguments:
            import traceback

            traceback.print_exc()
        return _report_failure(_as_edgekit_error(error), as_json)


def _reopen_streams() -> None:
    """Replaces streams that the caller has closed: the next opened file would take their
    descriptor.

    Raises:
        EnvironmentLack: There is no stdout to print to.
    """
    closed = sys.stdout is None
    if closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if closed:
        raise EnvironmentLack(
            "stdout is closed", code="os.stdout", hint="redirect it to a file or to /dev/null"
        )


def _interrupt_message(error: BaseException | None) -> str:
    """Returns the message of an interrupt, also if a library wrapped it in its own error."""
    while error is not None and not (isinstance(error, KeyboardInterrupt) and error.args):
        error = error.__cause__ or error.__context__
    return str(error or "")


class _InterruptedError(EdgekitError):
    exit_code = INTERRUPTED

    def __init__(self, arguments: list[str], more: str = "") -> None:
        steps = not _WITHOUT_STEPS & set(arguments[:1])
        resumable = "finished steps are kept; run the command again to continue" if steps else ""
        text = "; ".join(part for part in ("interrupted", resumable, more) if part)
        super().__init__(text, code="interrupted")


def _as_edgekit_error(error: Exception) -> EdgekitError:
    """Converts errors of the command line, the system, and internal faults to edgekit's errors."""
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
    if isinstance(error, RuntimeError) and os.path.expanduser("~") == "~":
        # raised by pathlib if a path begins with ~
        return EnvironmentLack(
            "this account has no home folder", code="os.home", hint="set HOME to a folder"
        )
    fault = EdgekitError(
        f"internal error: {type(error).__name__}: {error}",
        code="internal",
        hint="this is a bug in edgekit; run again with --debug and report the output",
    )
    fault.exit_code = INTERNAL
    return fault


def _report_failure(error: EdgekitError, as_json: bool) -> int:
    try:
        # stdout first: with --json the document is the result, and stderr is for people
        with _ignore_full_disk():
            if as_json and not error.printed:
                print_json(error.to_json())
            sys.stdout.flush()
        print(f"edgekit: {error}", file=sys.stderr)
    except BrokenPipeError:
        return _discard_output(error.exit_code)
    return error.exit_code


@contextlib.contextmanager
def _ignore_full_disk() -> Iterator[None]:
    """Ignores a failed write to stdout, so that stderr still gets the error; not a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _discard_output(status: int) -> int:
    # it cannot be reported, and Python must not report it at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


# Replaces configuration keys in an error by the options that the user typed.


def name_options(error: EdgekitError, command: click.Command) -> None:
    """Replaces ``option bench.streams`` by ``--streams``, for options of this command, and adds the
    remedy's own options to the hint.
    """
    error.where = _option_of_key(error.where or _KEY_OF.get(error.code, ""), command)
    known = {option for item in command.params for option in item.opts}
    if error.options and error.options.split()[0] in known:
        error.hint += f"; on the command line: {error.options}"
    if isinstance(error, ConfigError):
        error.problems = tuple(
            problem._replace(where=_option_of_key(problem.where, command))
            for problem in error.problems
        )


def _option_of_key(where: str, command: click.Command) -> str:
    match = _KEY.match(where)
    if match is None:
        return where
    options = {item.name: item for item in command.params if isinstance(item, click.Option)}
    # "model.shapes.x" belongs to --shape, which can be given several times
    for part in reversed(match[1].split(".")):
        found = options.get(part) or options.get(part.removesuffix("s"))
        if found is not None:
            return max(found.opts, key=len)
    return "" if where in _KEY_OF.values() else where
