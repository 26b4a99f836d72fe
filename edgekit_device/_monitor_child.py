"""The process that samples beside a measurement: it writes, and disturbs nobody.

It is a process of its own because a thread would take the interpreter's lock from the measured one
at each sample. Its output is an unlinked file, which the measuring process reads when it has done.
It ends when its standard input does, so it cannot outlive its parent.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict

from ._monitor_process import Command
from ._monitor_stream import Stream

__all__ = ["main"]


def main(options: str) -> None:
    """Samples until standard input ends; ``options`` is JSON, see ``Sampler.start``."""
    # a Ctrl-C is for the measuring process, which closes our input then
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wish = json.loads(options)
    began = time.perf_counter()
    stream = Stream(
        wish["interval_ms"],
        Path(wish["system"]),
        [Command(*command) for command in wish["commands"]],
        sys.stdin.fileno(),
        wish["process"],
    )
    # imports and the opening of files come before what costs at each sample
    spent = time.process_time()
    _write({})  # it begins
    try:
        for sample in stream:
            _write(sample)
    finally:
        seconds = time.perf_counter() - began
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        _write(
            {
                "sources": stream.sources,
                "unknown": stream.unknown.counts,
                "warnings": stream.warnings,
                "seconds": seconds,
                "cpu_s": time.process_time() - spent,
                "tegrastats_cpu_s": children.ru_utime + children.ru_stime,
            }
        )


def _write(document: Dict[str, Any]) -> None:
    os.write(sys.stdout.fileno(), (json.dumps(document) + "\n").encode("ascii"))
