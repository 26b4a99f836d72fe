"""``sample``: what a board does now, one sample a line, until the host has seen enough."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import BinaryIO, Iterator, Optional

from ._monitor import LEAST_MS, monitor_facts
from ._monitor_process import find_commands
from ._monitor_stream import Stream
from ._probe_files import default_system
from ._root import Root

__all__ = ["do_sample"]

_MODE_EVERY_S = 10.0


def do_sample(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Iterator[bytes]:
    """Lines of JSON, samples of ``edgekit.monitor/1`` with "t_s" from the first one on.

    The first has "facts" beside, and it and one every ten seconds "power_mode"; what warns or is
    not understood stands in "warnings" and "unknown" of the sample after which it is new.
    """
    system = default_system()
    real = system == Path("/")
    interval_ms = max(arguments.interval_ms, LEAST_MS)
    commands = find_commands(interval_ms, root.folder) if real else []
    stream = Stream(interval_ms, system, commands)
    first, told, mode_due = None, (0, 0), 0.0
    for number, sample in enumerate(stream, 1):
        at = sample.pop("at")
        first = at if first is None else first
        line = {"t_s": round(at - first, 6), **sample}
        if number == 1:
            line.update(interval_ms=interval_ms, facts=monitor_facts(system))
        if real and at >= mode_due:
            mode_due = at + _MODE_EVERY_S
            line["power_mode"] = _power_mode()
        news = (len(stream.warnings), len(stream.unknown.counts))
        if news != told:
            told = news
            line.update(warnings=stream.warnings, unknown=stream.unknown.counts)
        line["sources"] = stream.sources
        yield (json.dumps(line) + "\n").encode("ascii")
        if number == arguments.count:
            return


def _power_mode() -> Optional[str]:
    from ._errors import DeviceError
    from ._power_tools import Tools

    try:
        mode = Tools().mode()
    except DeviceError:
        return None
    return None if mode is None else str(mode["name"])
