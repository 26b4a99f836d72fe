"""The command line that the host calls: each command answers a JSON document and exits 0 or 4."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Iterable, List, Optional

from edgekit_device.commands import make_parser
from edgekit_device.errors import EXIT_FAILED, DeviceError, map_os_errors
from edgekit_device.processes import read_watched
from edgekit_device.protocol.codec import write
from edgekit_device.store.root import Root, check_root, default_root, make_private

if TYPE_CHECKING:
    from edgekit_device.files import Buffer


_EXIT_INTERRUPTED = 130
_EXIT_TERMINATED = 143


def main(argv: Optional[List[str]] = None) -> int:
    """Runs a command; returns its exit status."""
    # so that after a broken connection every "finally" still runs
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, frame: sys.exit(_EXIT_TERMINATED))
    debug = False
    make_private()
    try:
        words = sys.argv[1:] if argv is None else argv
        arguments = make_parser(words[0] if words else None).parse_args(words)
        debug = arguments.debug
        stdin: BinaryIO = sys.stdin.buffer
        if getattr(arguments, "watch_stdin", None) is not None:
            stdin = read_watched(stdin, arguments.watch_stdin)
        root = Root(arguments.root or default_root())
        # before any command: whoever can write ROOT controls the releases
        check_root(root.folder)
        answer = arguments.call(root, arguments, stdin)
    except DeviceError as error:
        if debug:
            _print_trace()
        return _fail(error)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except MemoryError:
        return _fail(DeviceError("out of memory", code="board.no-memory"))
    except Exception as error:
        if debug:
            _print_trace()
        return _fail(
            DeviceError(
                "edgekit_device failed: {}: {}".format(type(error).__name__, error),
                code="loader.internal",
                hint="run it with --debug and report the output",
            )
        )
    if is_dataclass(answer) or isinstance(answer, dict):
        answer = (_to_text(write(answer)) + "\n").encode("ascii")
    return _write(
        [answer] if isinstance(answer, bytes) else answer, getattr(arguments, "live", False)
    )


def _write(answer: "Iterable[Buffer]", live: bool) -> int:
    """Writes the answer, with ``live`` each part at once; stops when the reader has ended.

    Errors of standard output, for example a full disk, are reported on standard error.
    """
    try:
        for data in answer:
            sys.stdout.buffer.write(data)
            if live:
                sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        _close_output()
        return _EXIT_INTERRUPTED
    except OSError as error:
        _close_output()
        try:
            with map_os_errors("standard output"):
                raise error
        except DeviceError as failed:
            with contextlib.suppress(OSError):
                print(_to_text(failed.to_json()), file=sys.stderr, flush=True)
        return EXIT_FAILED
    return 0


def _close_output() -> None:
    """Discards standard output's buffer, which Python would write again at its exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _print_trace() -> None:
    import traceback

    traceback.print_exc()


def _fail(error: DeviceError) -> int:
    _write([(_to_text(error.to_json()) + "\n").encode("ascii")], live=False)
    return EXIT_FAILED


def _to_text(document: Any) -> str:
    # DEL is the only control character that JSON does not escape
    return json.dumps(document).replace("\x7f", "\\u007f")


if __name__ == "__main__":
    sys.exit(main())
