"""What the actions of ``edgekit fleet`` share: options, and the driver's signals."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument

if TYPE_CHECKING:
    from edgekit.fleet import Fleet, Told

__all__ = [
    "Stops",
    "inventory",
    "open_fleet",
    "optional_rollout",
    "rollout",
    "select",
    "state",
    "stops",
]

inventory = click.option(
    "-i", "--inventory", required=True, type=o.FILE, help="YAML of boards, or Ansible's inventory."
)
select = click.option(
    "--select", "selector", help="Boards by label: 'site=a,kind!=xavier,!spare', or name=cam-*."
)
state = click.option(
    "--state", type=o.FILE, help="Folder of the rollouts' state (fleet/ in edgekit's cache)."
)
rollout = argument("rollout", "The rollout's name; edgekit fleet status lists them.")
optional_rollout = argument("rollout", "The rollout's name.", required=False)


@contextlib.contextmanager
def open_fleet(
    folder: Path | None,
    *,
    quiet: bool = True,
    verbose: bool = False,
    accept_host_key: bool = False,
) -> Iterator[Fleet]:
    """Opens a state folder, telling on stderr unless ``quiet``."""
    from edgekit.fleet import Fleet, Lines, Silent

    told: Told = Silent() if quiet else Lines(o.console(stderr=True), verbose=verbose)
    builds = o.progress(quiet, verbose)
    with Fleet(folder, told=told, progress=builds, accept_host_key=accept_host_key) as fleet:
        yield fleet


class Stops:
    """Whether Ctrl-C (or SIGTERM at a shutdown) was met: the first pauses, the second leaves."""

    def __init__(self) -> None:
        self.met = False

    def __call__(self) -> bool:
        """Whether it was."""
        return self.met


@contextlib.contextmanager
def stops(say: Callable[[str], None]) -> Iterator[Stops]:
    """Takes signals while a rollout is driven, so that boards under way are waited for."""
    asked = Stops()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in numbers}

    def met(number: int, frame: object) -> None:
        asked.met = True
        for one, handler in before.items():
            signal.signal(one, handler)
        say("pausing: boards that are under way are waited for; Ctrl-C again leaves at once")

    for number in numbers:
        signal.signal(number, met)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
