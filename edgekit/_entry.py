"""The program's entry: an interrupt ends it quietly also while it starts and while it ends."""

from __future__ import annotations

import os
import sys

# import as little as possible before main() handles interrupts
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the command line."""
    status: object = INTERRUPTED
    try:
        import gc

        # a start makes up to 150,000 objects that stay: to look through them for cycles each time
        # there are 700 more takes a tenth of a short command
        gc.set_threshold(200_000, *gc.get_threshold()[1:])
        from edgekit.cli.main import main as run

        run()
    except KeyboardInterrupt:
        pass
    except SystemExit as end:
        status = end.code
    # all output is written: only the interpreter's own shutdown is left
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watched = sys.gettrace() is not None or sys.getprofile() is not None
    if watched or not isinstance(status, int):
        sys.exit(status)  # type: ignore[arg-type]
    _leave(status)


def _leave(status: int) -> NoReturn:
    """Ends the process without taking its modules apart.

    The interpreter needs longer to free onnx than edgekit to judge a network. It would also end
    the process by SIGINT, whatever its status, after an interrupt in an extension's own exec.
    """
    import atexit
    import contextlib

    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()  # waits for threads that are not daemons, as the interpreter does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)
