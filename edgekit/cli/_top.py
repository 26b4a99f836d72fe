"""``edgekit top``: one board, live."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli._boards import reach
from edgekit.cli._commands import argument

if TYPE_CHECKING:
    from edgekit.deploy import Board

__all__ = ["command"]

_FASTEST_S, _SLOWEST_S = 0.1, 60.0


@o.command(
    "top",
    "edgekit top nvidia@10.0.0.7\nedgekit top configs/resnet50-orin.yaml --once\n"
    "edgekit top lab-1 --json",
)
@argument("where", "A host, an alias of ~/.ssh/config or a YAML configuration.")
@click.option("--board", help="Which board of a configuration that names several.")
@click.option(
    "--every",
    type=click.FloatRange(_FASTEST_S, _SLOWEST_S),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Look once; so do --json, a pipe and TERM=dumb. Otherwise q or Ctrl-C ends it.",
)
@reach
@o.talk
def command(
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
    from edgekit.pipeline._top import board_of, look

    chosen = board_of(where, board, **options)
    if not (json or once) and sys.stdout.isatty() and not o.console().is_dumb_terminal:
        _live(chosen, where, round(every * 1e3), accept_host_key)
        return
    document = look(chosen, where, accept_host_key=accept_host_key)
    if json:
        o.print_json(document)
        return
    from edgekit.cli._top_view import page

    screen = o.console()
    screen.print(page(document, screen.width))


def _live(board: Board, where: str, interval_ms: int, accept_host_key: bool) -> None:
    from rich.live import Live

    from edgekit.cli._top_keys import Keys, Pressed, Resized
    from edgekit.cli._top_stop import Stopped
    from edgekit.cli._top_view import page
    from edgekit.pipeline._top import watch_board

    screen = o.console()
    last: list[dict[str, Any]] = []

    def draw() -> None:
        if last:
            live.update(page(last[0], screen.width), refresh=True)

    def told(document: dict[str, Any]) -> bool:
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
        watch_board(board, where, told, interval_ms=interval_ms, accept_host_key=accept_host_key)
