"""How a benchmark measures, as options: keys of the configuration's section ``bench``."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import click

from edgekit.cli._options import all_of
from edgekit.errors import UsageError

__all__ = ["bench_options"]

_RATE_MS = click.IntRange(10, 60_000)
_OPTIONS = all_of(
    click.option("--duration", "duration_s", type=float, metavar="S",
                 help="Measure at least this long, s."),
    click.option("--iterations", type=int, help="Measure at least this often, in each stream."),
    click.option("--warmup", "warmup_ms", type=float, metavar="MS", help="Warm-up, ms."),
    click.option("--streams", type=int, help="Frames in flight at once."),
    click.option("--graph", is_flag=True, default=None,
                 help="Replay frames as a CUDA graph; not with a DLA."),
    click.option("--spin/--blocking", default=None,
                 help="Wait for the GPU spinning, or blocked; as CUDA chooses otherwise."),
    click.option("--no-transfers", "transfers", flag_value=False, default=None,
                 help="Copy neither inputs nor outputs for each frame."),
    click.option("--sleep", "sleep_ms", type=float, metavar="MS", help="Pause after each frame."),
    click.option("--inputs", type=click.Path(path_type=Path, exists=True),
                 help="Frames to measure with (.npz, .npy, images) instead of the bundle's."),
    click.option("--lock-clocks", is_flag=True, default=None,
                 help="Hold all clocks at their highest (jetson_clocks) meanwhile."),
    click.option("--power-mode", metavar="MODE",
                 help="Power mode (nvpmodel) to measure in and to come back from."),
    click.option("--with-trtexec", is_flag=True, default=None,
                 help="Measure the same plans with trtexec, too, and compare."),
    click.option("--monitor", "monitor_ms", type=_RATE_MS, metavar="MS",
                 help="Look at clocks, power and load this often."),
    click.option("--no-monitor", is_flag=True, help="Do not look at them."),
    click.option("--idle", "idle_s", type=float, metavar="S",
                 help="Watch the board idle this long first, for the power's baseline."),
)  # fmt: skip


def bench_options(function: Any) -> Any:
    """Gives a command these options as ``bench``; None is what was not given."""
    names = (
        "duration_s", "iterations", "warmup_ms", "streams", "graph", "spin", "transfers",
        "sleep_ms", "inputs", "lock_clocks", "power_mode", "with_trtexec", "monitor_ms", "idle_s",
    )  # fmt: skip

    @wraps(function)
    def with_bench(**given: Any) -> Any:
        bench = {name: given.pop(name) for name in names}
        # not two options of one name: each would be held to the other's range
        if given.pop("no_monitor"):
            if bench["monitor_ms"] is not None:
                raise UsageError("--monitor and --no-monitor are given at once", hint="give one")
            bench["monitor_ms"] = 0
        if bench["inputs"] is not None:
            bench["inputs"] = str(bench["inputs"].absolute())
        return function(bench=bench, **given)

    return _OPTIONS(with_bench)
