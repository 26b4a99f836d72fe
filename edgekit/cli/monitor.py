"""``edgekit top``: a live page of a board, 80 columns wide; handles keys, resizes and Ctrl-Z."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from edgekit import api
from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli.boards import host_options
from edgekit.cli.commands import argument
from edgekit.cli.output import console, print_json

_FASTEST_S, _SLOWEST_S = 0.1, 60.0


@commands.command(
    "top",
    "edgekit top nvidia@10.0.0.7\nedgekit top configs/resnet50-orin.yaml --once\n"
    "edgekit top lab-1 --json",
)
@argument("where", "A host, an alias of ~/.ssh/config or a YAML configuration.")
@click.option("--board", help="Board to show, if the configuration has several.")
@click.option(
    "--every",
    type=click.FloatRange(_FASTEST_S, _SLOWEST_S),
    default=1.0,
    show_default=True,
    help="Seconds between updates.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Show once and exit, as with --json, a pipe or TERM=dumb. Otherwise q or Ctrl-C exits.",
)
@host_options
@o.output_options
def top_command(
    where: str,
    every: float,
    once: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    from edgekit.reports.terminal.top import page

    if not (json or once) and sys.stdout.isatty() and not console().is_dumb_terminal:
        _live(where, round(every * 1e3), **options)
        return
    document = api.top(where, **options)
    if json:
        print_json(document)
        return
    screen = console()
    screen.print(page(document, screen.width))


def _live(where: str, interval_ms: int, **options: Any) -> None:
    from rich.live import Live

    from edgekit.reports.terminal.top import page

    screen = console()
    last: list[Any] = []

    def draw() -> None:
        if last:
            live.update(page(last[0], screen.width), refresh=True)

    def show(document: Any) -> bool:
        last[:] = [document]
        with resized.waits():
            draw()
        return True

    def leave() -> None:
        live.stop()
        keys.rest()

    def back() -> None:
        keys.resume()
        live.start()
        draw()

    resized = Resized(draw)
    # the terminal is always restored
    with (
        suppress(Pressed),
        Keys("q") as keys,
        Live(console=screen, screen=True, auto_refresh=False) as live,
        resized,
        Stopped(resized.soon, leave, back),
    ):
        api.watch_board(where, show, interval_ms=interval_ms, **options)


# Terminal events of a live page: the key that ends it successfully, and resizes.


class Pressed(BaseException):
    """The key was pressed; a BaseException, so that no library's ``except Exception`` catches
    it.
    """


class Keys:
    """Within the block, a press of ``key`` raises ``Pressed`` in the main thread, once.

    Without a terminal on stdin, or without termios, keys are ignored.
    """

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")
        self._before: list[Any] | None = None
        self._handler: Any = None
        self._end, self._wake = -1, -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Keys:
        try:
            import termios
            import tty

            descriptor = sys.stdin.fileno()
            if not os.isatty(descriptor):
                return self
            self._before = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor)  # Ctrl-C is still a signal
        except (ImportError, OSError, ValueError):
            return self
        # a signal interrupts the main thread also while it waits for the board
        self._handler = signal.signal(signal.SIGUSR1, _raise)
        self._end, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._wait, args=(descriptor,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is None:
            return
        if self._thread is not None:
            os.close(self._wake)
            self._thread.join()
            os.close(self._end)
        signal.signal(signal.SIGUSR1, self._handler)
        self.rest()

    def rest(self) -> None:
        """Restores the terminal's settings from before the block."""
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def resume(self) -> None:
        """Undoes ``rest``."""
        if self._before is not None:
            import tty

            tty.setcbreak(sys.stdin.fileno())

    def _wait(self, descriptor: int) -> None:
        while True:
            # the pipe's end ends the thread, which would otherwise read keys of the next program
            ready = select.select([descriptor, self._end], [], [])[0]
            if self._end in ready:
                return
            typed = os.read(descriptor, 64)
            if not typed:
                return
            if self._key in typed:
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGUSR1)
                return


class Resized:
    """Within the block, a resize of the terminal calls ``draw`` in the main thread.

    Args:
        draw: Redraws the page. It is not called within a ``waits()`` block.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._handler: Any = None
        self._busy = False
        self._pending: list[Callable[[], None]] = []

    def __enter__(self) -> Resized:
        if hasattr(signal, "SIGWINCH"):
            self._handler = signal.signal(signal.SIGWINCH, self._changed)
        return self

    def __exit__(self, *exc: object) -> None:
        if hasattr(signal, "SIGWINCH"):
            signal.signal(signal.SIGWINCH, self._handler)

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Defers resizes to the end of the block, since drawing is not reentrant."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        # drawing may itself be interrupted by another resize
        pending, self._pending = self._pending, []
        for call in pending:
            self.soon(call)

    def soon(self, call: Callable[[], None]) -> None:
        """Calls a drawing function, now or after the current drawing."""
        if not self._busy:
            with self.waits():
                call()
        elif call not in self._pending:
            self._pending.append(call)

    def _changed(self, number: int, frame: object) -> None:
        self.soon(self._draw)


def _raise(number: int, frame: object) -> None:
    raise Pressed


# Ctrl-Z on a live page: the terminal is restored, and set up again when the program continues.


class Stopped:
    """Within the block, Ctrl-Z suspends the program as usual.

    Args:
        soon: Calls a function when no drawing is in progress.
        leave: Restores the terminal.
        back: Sets the terminal up again and draws.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], None],
        leave: Callable[[], object],
        back: Callable[[], object],
    ) -> None:
        self._soon = soon
        self._leave = leave
        self._back = back
        self._handler: Any = None

    def __enter__(self) -> Stopped:
        # ignored without job control: the program could not be resumed
        if hasattr(signal, "SIGTSTP") and signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
            self._handler = signal.signal(signal.SIGTSTP, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGTSTP, self._handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self._soon(self._stop)

    def _stop(self) -> None:
        self._leave()
        # unlike SIGTSTP's default, it also stops a program without a shell
        os.kill(os.getpid(), signal.SIGSTOP)
        self._back()
