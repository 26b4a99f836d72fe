"""``edgekit top``: one board, live, within 80 columns; keys, a new size of the window and Ctrl-Z
while the page is live.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli.boards import host_options
from edgekit.cli.commands import argument
from edgekit.cli.output import console, print_json
from edgekit.text import plain, sentence

if TYPE_CHECKING:
    from rich.text import Text

    from edgekit.deployment.board import Board


_FASTEST_S, _SLOWEST_S = 0.1, 60.0
_GIB = 1 << 30
_BAR = 20
_NAME = 8
_MOST = 1e18
_ENGINES = ("GR3D", "NVDLA0", "NVDLA1", "EMC")
_WORDS = {"GR3D": "GPU", "NVDLA0": "DLA0", "NVDLA1": "DLA1"}
_STATE = {"NVDLA0": "dla0", "NVDLA1": "dla1"}
_CORES_A_LINE = 4


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
@o.talk
def top_command(
    where: str,
    board: str | None,
    every: float,
    once: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    accept_host_key: bool,
    **options: str,
) -> None:
    from edgekit.pipeline.boards.live import board_of, look

    chosen = board_of(where, board, **options)
    if not (json or once) and sys.stdout.isatty() and not console().is_dumb_terminal:
        _live(chosen, where, round(every * 1e3), accept_host_key)
        return
    document = look(chosen, where, accept_host_key=accept_host_key)
    if json:
        print_json(document)
        return
    screen = console()
    screen.print(page(document, screen.width))


def _live(board: Board, where: str, interval_ms: int, accept_host_key: bool) -> None:
    from rich.live import Live

    from edgekit.pipeline.boards.live import watch_board

    screen = console()
    last: list[dict[str, Any]] = []

    def draw() -> None:
        if last:
            live.update(page(last[0], screen.width), refresh=True)

    def show(document: dict[str, Any]) -> bool:
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
    # the terminal is given back as it was, however this ends
    with (
        suppress(Pressed),
        Keys("q") as keys,
        Live(console=screen, screen=True, auto_refresh=False) as live,
        resized,
        Stopped(resized.soon, leave, back),
    ):
        watch_board(board, where, show, interval_ms=interval_ms, accept_host_key=accept_host_key)


# How ``edgekit top`` shows a board: within 80 columns, from one ``edgekit.top/1``.


def page(document: Mapping[str, Any], width: int) -> Text:
    """Returns the page; a line that is longer than ``width`` is cut."""
    from rich.text import Text

    made = Text()
    for text, style in _lines(document, width):
        line = Text(plain(text, lines=False), style)
        line.truncate(width, overflow="ellipsis")
        made.append_text(line).append("\n")
    made.right_crop(1)
    return made


def _lines(document: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    sample, facts = _map(document.get("sample")), _map(document.get("facts"))
    release = f"L4T {facts['l4t']}" if facts.get("l4t") else None
    parts = (document.get("board"), facts.get("module"), release, document.get("power_mode"))
    yield "  ".join(str(part) for part in parts if part), "bold"
    if document.get("connection"):
        yield f"connection: {document['connection']}; retrying", "bold red"
    cooling = _map(_map(sample.get("other")).get("cooling"))
    if cooling:  # before what a small terminal cuts
        yield f"{'slowed':<{_NAME}}{', '.join(map(str, cooling))}", "bold red"
    yield from _engines(sample)
    yield from _cores(sample, width)
    yield from _memory(sample)
    yield from _wrapped("power", _power(document, sample), width)
    degrees = (f"{name} {value:.1f}" for name, value in _numbers(sample.get("temperatures_c")))
    yield from _wrapped("temp C", degrees, width)
    clocks = (f"{name} {hz / 1e6:.0f}" for name, hz in _numbers(sample.get("clocks_hz")))
    yield from _wrapped("MHz", clocks, width)
    yield from _apps(_map(document.get("apps")))
    for warning in _list(document.get("warnings"))[:3]:
        yield f"note: {sentence(str(warning))}", "dim"
    sources = ", ".join(map(str, _list(document.get("sources"))))
    yield f"from {sources or 'nothing'}", "dim"


def _engines(sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    engines = _map(sample.get("engines"))
    states = _map(sample.get("runtime_status"))
    for name in _ENGINES:
        one, state = _map(engines.get(name)), states.get(_STATE.get(name, ""))
        if not one and not state:
            continue
        # a DLA's load is never shown: tegrastats's number for it stays 0
        text = " " * (_BAR + 9)
        if name not in _STATE and (percent := dict(_numbers(one)).get("percent")) is not None:
            text = f"{_bar(percent)} {percent:4.0f} %"
        on = one.get("on") if name in _STATE else None
        power = "" if on is None else "on" if on else "off"
        mhz = [str(clock) for clock in _list(one.get("mhz"))]
        clock = f"{'/'.join(dict.fromkeys(mhz))} MHz" if mhz else ""
        rest = "  ".join(str(part) for part in (power, clock, state) if part)
        yield f"{_WORDS.get(name, name):<{_NAME}}{text}  {rest}".rstrip(), ""


def _cores(sample: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    cells = []
    for number, core in enumerate(_list(sample.get("cpu"))):
        known = dict(_numbers(core))
        text = f"{known['percent']:.0f} %" if "percent" in known else "-"
        mhz = f"{known['mhz']:.0f}" if "mhz" in known else ""
        cells.append(f"{number:>3} {'off' if core is None else text:>5} {mhz:>5}")
    wide = max(map(len, cells), default=0) + 2
    line = max(1, min(_CORES_A_LINE, (width - _NAME + 2) // wide)) if cells else 1
    for start in range(0, len(cells), line):
        word = "" if start else "CPU"
        yield f"{word:<{_NAME}}{'  '.join(cells[start : start + line])}".rstrip(), ""


def _memory(sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, word in (("ram", "memory"), ("swap", "swap")):
        size = dict(_numbers(sample.get(name)))
        used, total = size.get("used_bytes", 0), size.get("total_bytes", 0)
        if total <= 0:
            continue
        share = 100 * used / total
        text = f"{_bar(share)} {share:4.0f} %  {used / _GIB:.1f} of {total / _GIB:.1f} GiB"
        yield f"{word:<{_NAME}}{text}", ""


def _power(document: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[str]:
    total = document.get("total_mw")
    if isinstance(total, (int, float)):
        yield f"total {total / 1e3:.2f} W"
    for name, values in _map(sample.get("rails_mw")).items():
        now = dict(_numbers(values)).get("now")
        if now is not None:
            yield f"{name} {now / 1e3:.2f} W"


def _apps(apps: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, facts in apps.items():
        serving = _map(_map(facts).get("serving"))
        parts = [f"{name} serves {_map(facts).get('current') or 'nothing'}"]
        if serving and "error" not in serving:
            parts.append(f"{serving.get('requests')} requests, {serving.get('errors')} errors")
        state = _map(facts).get("deployment")
        if state not in (None, "committed"):
            parts.append(str(state))
        yield f"{'app':<{_NAME}}{'; '.join(parts)}", ""


def _wrapped(name: str, parts: Iterator[str], width: int) -> Iterator[tuple[str, str]]:
    line, word = "", name
    for part in parts:
        if line and len(line) + len(part) + 2 > width - _NAME:
            yield f"{word:<{_NAME}}{line}", ""
            line, word = "", ""
        line += ("  " if line else "") + part
    if line:
        yield f"{word:<{_NAME}}{line}", ""


def _bar(percent: float) -> str:
    filled = round(max(0.0, min(100.0, percent)) / 100 * _BAR)
    return f"[{'#' * filled}{'-' * (_BAR - filled)}]"


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbers(value: object) -> list[tuple[str, float]]:
    """The numbers of a mapping that are no larger than a board's can be."""
    return [
        (str(k), v) for k, v in _map(value).items() if type(v) in (int, float) and abs(v) < _MOST
    ]


# Events of a terminal while a page is live: the key that ends it with success, another size.


class Pressed(BaseException):
    """The key was pressed; no library's ``except Exception`` takes it for an error of its own."""


class Keys:
    """While the block lasts, a press of ``key`` raises ``Pressed`` in the main thread, once.

    Where stdin is no terminal, or the system has no termios, no key is looked for.
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
            tty.setcbreak(descriptor)  # Ctrl-C stays a signal
        except (ImportError, OSError, ValueError):
            return self
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
        """Makes the terminal again what it was before the block."""
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
    """While the block lasts, another size of the terminal calls ``draw`` in the main thread.

    Args:
        draw: Draws the page again. It is not called while another drawing ``waits()``.
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
        """Lets a change that comes within the block wait for its end: drawing is not reentrant."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        pending, self._pending = self._pending, []
        for call in pending:
            self.soon(call)

    def soon(self, call: Callable[[], None]) -> None:
        """Calls a function that draws, now or after what is being drawn."""
        if not self._busy:
            with self.waits():
                call()
        elif call not in self._pending:
            self._pending.append(call)

    def _changed(self, number: int, frame: object) -> None:
        self.soon(self._draw)


def _raise(number: int, frame: object) -> None:
    raise Pressed


# Ctrl-Z while a page is live: the terminal is given back, and taken again when it goes on.


class Stopped:
    """While the block lasts, Ctrl-Z stops the program as it stops others.

    Args:
        soon: Calls a function when nothing is being drawn.
        leave: Gives the terminal back.
        back: Takes it again and draws.
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
        # a shell without jobs ignores it: the program could not be brought back
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
        # unlike SIGTSTP's default, it also stops a program whose shell is gone
        os.kill(os.getpid(), signal.SIGSTOP)
        self._back()
