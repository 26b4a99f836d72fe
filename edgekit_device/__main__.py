"""The command line that the host speaks to: one command, one JSON document, exit 0 or 4."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, List, NoReturn, Optional

from . import _run_commands as run
from . import _store_commands as store
from ._errors import EXIT_FAILED, DeviceError
from ._hello import hello
from ._root import Root, default_root
from ._watch import watch

__all__ = ["main"]

_EXIT_INTERRUPTED = 130
_EXIT_TERMINATED = 143

_Command = Callable[[Root, argparse.Namespace, BinaryIO], Any]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise DeviceError(message, code="usage", where=self.prog, hint=self.format_usage().strip())


def _hello(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    return hello(root.folder)


def _parser() -> _Parser:
    parser = _Parser(prog="edgekit_device", description=__doc__)
    commands = parser.add_subparsers(dest="command", parser_class=_Parser)
    commands.required = True

    def add(name: str, command: _Command, help: str, app: str = "") -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=help, description=help)
        one.set_defaults(call=command)
        one.add_argument("--root", type=Path, default=None, help="default: ~/.edgekit")
        one.add_argument("--debug", action="store_true", help="tracebacks on stderr")
        if app:
            one.add_argument("--app", required=app == "required", default=None)
        return one

    def add_run(name: str, command: _Command, help: str) -> argparse.ArgumentParser:
        one = add(name, command, help, "required")
        one.add_argument("--release", default=None, help="default: the current one")
        one.add_argument("--threads", type=_count, default=0, help="of each engine; 0: all cores")
        one.add_argument(
            "--watch-stdin",
            type=_count,
            default=None,
            metavar="BYTES",
            help="input is this long; stop when stdin ends after it",
        )
        return one

    add("hello", _hello, "say what this board is")
    add("trust", store.do_trust, "add signers' keys, JSON on stdin")
    one = add("missing", store.do_missing, "say which blobs are missing, JSON on stdin")
    one.add_argument("--verify", action="store_true", help="hash those that are there again")
    one = add("verify", store.do_verify, "check a manifest and its signature, JSON on stdin")
    one.add_argument("--trust-unsigned", action="store_true")
    add("receive", store.do_receive, "receive blobs on stdin")
    one = add("stage", store.do_stage, "make a release, JSON on stdin", "optional")
    one.add_argument("--trust-unsigned", action="store_true")
    add_run("refit", run.do_refit, "fill a release's engines with their weights")
    add_run("selftest", run.do_selftest, "run the golden vectors")
    one = add("switch", store.do_switch, "make a release the current one", "required")
    one.add_argument("--release", required=True)
    add("rollback", store.do_rollback, "go back to the previous release", "required")
    one = add_run("infer", run.do_infer, "run a model, .npz on stdin and stdout")
    one.add_argument("--frames", action="store_true", help="arrays have a leading frame axis")
    one = add_run("bench", run.do_bench, "measure a model on this machine")
    one.add_argument("--warmup-ms", type=_positive, default=200.0)
    one.add_argument("--duration-s", type=_positive, default=3.0)
    one.add_argument("--iterations", type=_count, default=10)
    one.add_argument("--profile", action="store_true", help="times of single nodes too")
    add("releases", store.do_releases, "list releases", "optional")
    one = add("remove", store.do_remove, "remove a release or an app", "required")
    one.add_argument("--release", default=None)
    one = add("gc", store.do_gc, "remove old releases and blobs nobody names", "optional")
    one.add_argument("--keep", type=_count, default=None, help="releases of each app to keep")
    one.add_argument("--grace-s", type=_positive, default=3600.0, help="younger blobs stay")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 1 << 30:
        raise ValueError(text)
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1e9:
        raise ValueError(text)
    return value


def main(argv: Optional[List[str]] = None) -> int:
    """Runs one command; returns its exit status."""
    # so that a broken connection lets every "finally" clean up
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, frame: sys.exit(_EXIT_TERMINATED))
    debug = False
    try:
        arguments = _parser().parse_args(argv)
        debug = arguments.debug
        stdin: BinaryIO = sys.stdin.buffer
        if getattr(arguments, "watch_stdin", None) is not None:
            stdin = watch(stdin, arguments.watch_stdin)
        answer = arguments.call(Root(arguments.root or default_root()), arguments, stdin)
    except DeviceError as error:
        if debug:
            traceback.print_exc()
        return _fail(error)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except MemoryError:
        return _fail(DeviceError("out of memory", code="board.no-memory"))
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _fail(
            DeviceError(
                "the loader failed: {}: {}".format(type(error).__name__, error),
                code="loader.internal",
                hint="run it with --debug and report what it prints",
            )
        )
    data = answer if isinstance(answer, bytes) else (json.dumps(answer) + "\n").encode("utf-8")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


def _fail(error: DeviceError) -> int:
    print(json.dumps(error.to_json()), flush=True)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
