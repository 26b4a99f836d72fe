"""What else ran on the machine: other processes, the GPU before the measurement, swap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.bench._verdict import Judged, Measured

__all__ = ["judge"]

_STOP = "stop what runs beside it (`top` on the board shows it), then edgekit bench CONFIG"


def judge(measured: Measured, judged: Judged) -> None:
    """Judges other load and swap, on a board and on a PC."""
    _cpu(measured, judged)
    if measured.on_board:
        _gpu(measured, judged)
    _swap(measured, judged)


def _cpu(measured: Measured, judged: Judged) -> None:
    """Load of all cores less our own while it was measured; else what there was before."""
    loads = []
    for sample in measured.watched():
        own = (sample.get("other") or {}).get("process_percent")
        every = _cpu_percent(sample)
        if isinstance(own, int | float) and every is not None:
            loads.append(max(every - own, 0.0))
    when = "while it was measured"
    if not loads:
        loads = [one for sample in measured.idle() if (one := _cpu_percent(sample)) is not None]
        when = "before it was measured"
    if not loads:
        judged.unseen("other load of the CPU: no monitor told it")
        return
    found, most = fmean(loads), measured.limit("other_cpu_percent")
    if found > most:
        judged.no(
            "bench.other-load",
            f"other processes used {found:.0f} % of a core {when}, more than {most:g} %",
            found, most, _STOP, by="other_cpu_percent",
        )  # fmt: skip


def _gpu(measured: Measured, judged: Judged) -> None:
    loads = list(_percents(measured.idle(), "GR3D"))
    if not loads:
        why = "no monitor told it" if measured.idle() else "nothing watched it before (--idle)"
        judged.unseen(f"other load of the GPU: {why}")
        return
    found, most = fmean(loads), measured.limit("other_gpu_percent")
    if found > most:
        judged.no(
            "bench.other-load",
            f"the GPU was {found:.0f} % busy before it was measured, more than {most:g} %",
            found, most, _STOP, by="other_gpu_percent",
        )  # fmt: skip


def _swap(measured: Measured, judged: Judged) -> None:
    used = [
        value
        for sample in measured.watched()
        if isinstance(value := (sample.get("swap") or {}).get("used_bytes"), int | float)
    ]
    if len(used) < 2:
        judged.unseen("swap: no monitor told it")
        return
    grown, most = max(used) - used[0], measured.limit("swap_bytes")
    if grown > most:
        judged.no(
            "bench.swap", f"{grown / 1e6:.1f} MB went to swap while it was measured", grown, most,
            "free memory on the board, or use a smaller batch or fewer streams", by="swap_bytes"
        )  # fmt: skip


def _cpu_percent(sample: Mapping[str, Any]) -> float | None:
    """Load in percent of one core."""
    cores = [core.get("percent") for core in sample.get("cpu") or () if isinstance(core, Mapping)]
    known = [float(core) for core in cores if isinstance(core, int | float)]
    return sum(known) if known else None


def _percents(samples: Iterable[Mapping[str, Any]], engine: str) -> Iterable[float]:
    for sample in samples:
        found = ((sample.get("engines") or {}).get(engine) or {}).get("percent")
        if isinstance(found, int | float):
            yield float(found)
