"""The board's commands and their options. Only the called command's parser is made, and its module
is imported when it is called: each import from a zip is a compilation, and hosts send many small
commands.
"""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Iterable,
    NoReturn,
    Optional,
    Union,
    cast,
)

from edgekit_device.errors import DeviceError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from edgekit_device.files import Buffer
    from edgekit_device.store.root import Root


Answer = Union["DataclassInstance", bytes, "Iterable[Buffer]"]
"""A document's class, which is written as JSON, or bytes as they are."""

_Command = Callable[["Root", argparse.Namespace, BinaryIO], Answer]

_STORE, _RUN = "release.commands.", "runtime.refit."


class Parser(argparse.ArgumentParser):
    """A parser that raises errors of a command line as DeviceError "usage"."""

    def error(self, message: str) -> NoReturn:
        """Raises DeviceError "usage"."""
        raise DeviceError(message, code="usage", where=self.prog, hint=self.format_usage().strip())


class CommandAdder:
    """Adds commands to a parser, each with the options of its kind.

    Args:
        parser: The parser that gets the commands.
        only: The single command to add; None for all.
    """

    def __init__(self, parser: argparse.ArgumentParser, only: Optional[str]) -> None:
        self._all = parser.add_subparsers(dest="command", parser_class=Parser)
        self._all.required = True
        self._only = only

    @property
    def any(self) -> bool:
        """Returns True if a command was added."""
        return bool(self._all.choices)

    def add(self, name: str, command: str, help: str, app: str = "") -> argparse.ArgumentParser:
        """Adds a command without a run; ``command`` is its "package.module.function"."""
        if self._only not in (None, name):
            return cast(argparse.ArgumentParser, _UnusedParser())
        parser = self._all.add_parser(name, help=help, description=help)
        parser.set_defaults(call=_import_and_call(command))
        parser.add_argument("--root", type=folder, default=None, help="default: ~/.edgekit")
        parser.add_argument("--debug", action="store_true", help="show tracebacks on stderr")
        if app:
            parser.add_argument("--app", required=app == "required", default=None)
        return parser

    def add_run(self, name: str, command: str, help: str) -> argparse.ArgumentParser:
        """Adds a command that runs a release."""
        parser = self.add(name, command, help, "required")
        parser.add_argument("--release", default=None, help="default: the current one")
        parser.add_argument(
            "--threads", type=count, default=0, help="threads of each engine; 0: all cores"
        )
        parser.add_argument(
            "--watch-stdin",
            type=count,
            default=None,
            metavar="BYTES",
            help="length of the input; stop when stdin ends after it",
        )
        return parser

    def add_job(self, name: str, command: str, help: str) -> argparse.ArgumentParser:
        """Adds a command about a job."""
        parser = self.add(name, command, help)
        parser.add_argument("--job", required=True, help="id of the job")
        return parser


class _UnusedParser:
    """Replaces the parser of a command that is not run: any method may be called and returns this
    object."""

    def __getattr__(self, name: str) -> Any:
        return lambda *names, **options: self


def _import_and_call(home: str) -> _Command:
    """Returns a function that imports "package.module.name" of this package and calls it."""
    module, _, name = home.rpartition(".")

    def call(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Answer:
        command: _Command = getattr(import_module("." + module, __package__), name)
        return command(root, arguments, stdin)

    return call


def count(text: str) -> int:
    """Parses a count: a whole number."""
    value = int(text)
    if not 0 <= value <= 1 << 30:
        raise ValueError(text)
    return value


def folder(text: str) -> Path:
    """Parses a folder; refuses an empty text, which would mean the current folder."""
    if not text:
        raise ValueError(text)
    return Path(os.path.expanduser(text))


def offset(text: str) -> int:
    """Parses an offset in a file."""
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def positive(text: str) -> float:
    """Parses a positive time."""
    value = float(text)
    if not 0 <= value <= 1e9:
        raise ValueError(text)
    return value


def make_parser(command: Optional[str] = None) -> argparse.ArgumentParser:
    """Returns the parser; the attribute ``call`` of its result is the command's function.

    Its errors are DeviceErrors, code "usage".

    Args:
        command: The command that is run, if known: making the parsers of all commands takes a
            third of a small command's time.
    """
    parser = Parser(prog="edgekit_device", description="edgekit_device on a board.")
    commands = CommandAdder(parser, command)
    for add in (_add_moving, _add_running, _add_keeping, _add_deploying, _add_jobs, _add_serving):
        add(commands)
    # an unknown command: the whole parser's error lists the known ones
    return parser if commands.any else make_parser()


def _add_moving(commands: CommandAdder) -> None:
    commands.add("hello", "board.identity.do_hello", "describe this board")
    parser = commands.add(
        "probe", "board.probe.do_probe", "show everything about this board that a build needs"
    )
    parser.add_argument("--remember", action="store_true", help="for containers on this board")
    parser = commands.add(
        "sample", "board.monitor.do_sample", "sample this board, one JSON document per line"
    )
    parser.set_defaults(live=True)
    parser.add_argument("--interval-ms", type=count, default=1000, metavar="N")
    parser.add_argument(
        "--count", type=count, default=0, help="number of samples; 0: until stopped"
    )
    parser.add_argument(
        "--watch-stdin", type=count, default=None, metavar="BYTES", help="as of bench"
    )
    parser = commands.add(
        "setup", "board.setup.do_setup", "show the changes that need root, or make them"
    )
    parser.add_argument("--apply", action="store_true", help="set it up")
    parser.add_argument("--undo", action="store_true", help="undo it")
    commands.add("trust", "trust.keys.do_trust", "show and change who may sign, JSON on stdin")
    parser = commands.add(
        "missing", _STORE + "do_missing", "show which blobs are missing, JSON on stdin"
    )
    parser.add_argument("--verify", action="store_true", help="verify the hashes of present blobs")
    parser = commands.add(
        "verify", _STORE + "do_verify", "check a manifest and its signature, JSON on stdin"
    )
    parser.add_argument("--trust-unsigned", action="store_true")
    parser = commands.add("offer", "release.offer.do_offer", "announce a bundle, JSON on stdin")
    parser.add_argument("--trust-unsigned", action="store_true")
    parser.add_argument("--hello", action="store_true", help="also describe this board")
    commands.add("receive", "store.transfer.do_receive", "receive blobs on stdin")
    commands.add("fetch", "store.transfer.do_fetch", "send blobs, JSON list of digests on stdin")
    parser = commands.add("stage", _STORE + "do_stage", "make a release, JSON on stdin", "optional")
    parser.add_argument("--trust-unsigned", action="store_true")


def _add_running(commands: CommandAdder) -> None:
    parser = commands.add_run(
        "refit", _RUN + "do_refit", "fill a release's engines with their weights"
    )
    parser.add_argument(
        "--onnx", type=Path, default=None, help="ONNX file on the board to take weights from"
    )
    commands.add_run("selftest", _RUN + "do_selftest", "run the golden vectors")
    parser = commands.add(
        "switch", _STORE + "do_switch", "make a release the current one", "required"
    )
    parser.add_argument("--release", required=True)
    parser.add_argument(
        "--again", action="store_true", help="allow a release that was rolled back here"
    )
    parser = commands.add(
        "rollback", "deployment.job.do_rollback", "go back to the previous release", "required"
    )
    parser.add_argument("--reason", default=None, help="reason, kept in the history")
    parser.add_argument(
        "--release", default=None, help="release to go back to (default: the one before)"
    )
    parser.add_argument(
        "--others-failed", action="store_true", help="other boards failed: it may come again"
    )
    parser = commands.add_run("infer", _RUN + "do_infer", "run a model, .npz on stdin and stdout")
    parser.add_argument("--frames", action="store_true", help="arrays have a leading frame axis")
    parser = commands.add_run(
        "bench", "benchmark.command.do_bench", "measure a model on this board"
    )
    parser.add_argument("--settings", default=None, metavar="JSON", help="how to measure")
    parser.add_argument("--inputs", action="store_true", help="frames are an .npz on stdin")
    parser.add_argument("--progress", action="store_true", help="print each stage when it starts")
    parser = commands.add(
        "memory",
        "runtime.need.do_memory",
        "show the memory that a bundle needs, without loading it",
    )
    parser.add_argument(
        "--from", required=True, metavar="PATH", help="bundle, .ekb file, release or app folder"
    )
    parser.add_argument("--trust-unsigned", action="store_true")


def _add_keeping(commands: CommandAdder) -> None:
    commands.add("releases", _STORE + "do_releases", "list releases", "optional")
    parser = commands.add("remove", _STORE + "do_remove", "remove a release or an app", "required")
    parser.add_argument("--release", default=None)
    parser.add_argument(
        "--reason", default=None, help="roll back the current release, for this reason"
    )
    parser = commands.add(
        "gc", _STORE + "do_gc", "remove old releases and unused blobs", "optional"
    )
    parser.add_argument("--keep", type=count, default=None, help="releases of each app to keep")
    parser.add_argument(
        "--grace-s", type=positive, default=3600.0, help="keep blobs younger than this"
    )


def _add_deploying(commands: CommandAdder) -> None:
    start = "install."
    parser = commands.add(
        "install", start + "do_install", "install a bundle that is on the board", "optional"
    )
    parser.add_argument("--from", required=True, metavar="PATH", help="bundle folder or .ekb file")
    parser.add_argument("--policy", default=None, help="JSON, as deploy.health of a configuration")
    parser.add_argument("--operator", default=None, help="operator, for others to read")
    other = commands.add(
        "rehearse",
        start + "do_rehearse",
        "show the changes that trust and install would make, JSON on stdin",
        "optional",
    )
    for each in (parser, other):
        each.add_argument("--trust-unsigned", action="store_true")
        each.add_argument(
            "--allow-older",
            default=None,
            metavar="REASON",
            help="allow a bundle that its counter or its times forbid; REASON is recorded",
        )
        each.add_argument(
            "--again", action="store_true", help="allow a bundle that was rolled back here"
        )
    parser = commands.add(
        "resume", start + "do_resume", "continue interrupted deployments", "optional"
    )
    parser.add_argument("--wait", action="store_true", help="wait until they have ended")
    parser.add_argument("--no-run", action="store_true", help="only prepare jobs for job-run")
    commands.add(
        "status",
        "deployment.status.do_status",
        "show the current releases and deployments",
        "optional",
    )


def _add_jobs(commands: CommandAdder) -> None:
    parser = commands.add(
        "job-start", "job_runner.do_job_start", "start, join or reuse a job, JSON on stdin"
    )
    parser.add_argument("--no-run", action="store_true", help="only prepare it for job-run")
    parser = commands.add_job("job-run", "job_runner.do_job_run", "run a prepared job")
    parser.add_argument("--foreground", action="store_true", help="stay in the foreground")
    parser.add_argument("--ready", type=count, default=None, help="descriptor to close at start")
    commands.add("job-list", "jobs.commands.do_job_list", "list jobs")
    parser = commands.add_job("job-watch", "jobs.commands.do_job_watch", "wait for news of a job")
    parser.add_argument("--after", type=count, default=0, help="number of the last known event")
    parser.add_argument("--wait-s", type=positive, default=20.0)
    parser.add_argument(
        "--gather-s", type=positive, default=0.0, help="how long to collect more news"
    )
    parser = commands.add_job("job-log", "jobs.commands.do_job_log", "send part of a job's log")
    parser.add_argument("--from", type=offset, default=0, metavar="BYTES")
    parser.add_argument("--most", type=count, default=1 << 20, metavar="BYTES")
    parser = commands.add_job("job-cancel", "jobs.commands.do_job_cancel", "cancel a job")
    parser.add_argument("--grace-s", type=positive, default=10.0, help="time until it is killed")
    commands.add_job("job-result", "jobs.commands.do_job_result", "show the result of a job")
    commands.add_job("job-remove", "jobs.commands.do_job_remove", "delete a job that has ended")


def _add_serving(commands: CommandAdder) -> None:
    home = "serve.commands."
    parser = commands.add(
        "serve", home + "do_serve", "keep a release loaded behind a Unix socket", "required"
    )
    parser.add_argument("--socket", type=Path, default=None, help="default: serve.sock of the app")
    parser.add_argument("--background", action="store_true", help="answer once it is ready")
    parser.add_argument("--workers", type=count, default=1, help="number of worker processes")
    parser.add_argument("--queue", type=count, default=64, help="number of requests that may wait")
    parser.add_argument(
        "--timeout-s", type=positive, default=30.0, help="time limits for waiting, then for running"
    )
    parser.add_argument(
        "--threads", type=count, default=0, help="threads of each engine; 0: all cores"
    )
    parser = commands.add(
        "serve-status", home + "do_serve_status", "show the state of a server", "required"
    )
    parser.add_argument("--reload", action="store_true", help="load the current release first")
    commands.add("serve-stop", home + "do_serve_stop", "stop a server", "required")
