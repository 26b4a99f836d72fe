"""What the frames' own times say: long enough, steady, without outliers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._listed import counted
from edgekit.bench._stats import coefficient_of_variation, median

if TYPE_CHECKING:
    from edgekit.bench._verdict import Judged, Measured

__all__ = ["judge"]

_CALM = (
    "stop other work on the machine, {}or measure for longer: edgekit bench CONFIG --duration 10"
)
_LOCK = "hold its clocks (edgekit bench CONFIG --lock-clocks), "


def judge(measured: Measured, judged: Judged) -> None:
    """Judges number, length, variation and outliers."""
    _length(measured, judged)
    samples = measured.facts.get("samples_ms") or []
    if len(samples) < 2:
        judged.unseen("coefficient of variation and outliers: there are no single times")
        return
    variation, most = coefficient_of_variation(samples), measured.limit("variation")
    if variation > most:
        judged.no(
            "bench.unstable",
            f"times vary by {variation:.1%} (standard deviation over mean), more than {most:.0%}",
            variation, most, _calmer(measured), by="variation"
        )  # fmt: skip
    times, share = measured.limit("outlier_times"), measured.limit("outlier_share")
    bound = times * median(samples)
    found = sum(value > bound for value in samples) / len(samples)
    if found > share:
        judged.no(
            "bench.outliers",
            f"{found:.1%} of the frames take more than {times:g} medians, more than {share:.0%}",
            found, share,
            "look for what wakes up beside it (desktop, updates, swap), then edgekit bench CONFIG",
            by="outlier_share",
        )  # fmt: skip


def _calmer(measured: Measured) -> str:
    power = measured.facts.get("power") or {}
    # a PC has no jetson_clocks, and clocks that were held are held
    free = (power or measured.on_board) and not power.get("locked")
    return _CALM.format(_LOCK if free else "")


def _length(measured: Measured, judged: Judged) -> None:
    facts, limits = measured.facts, measured.limits
    iterations, duration, warmup = (
        facts["iterations"], facts.get("duration_s"), facts.get("warmup_ms"),
    )  # fmt: skip
    if iterations < limits.iterations:
        judged.no(
            "bench.iterations",
            f"{counted(iterations, 'iteration')}, fewer than {limits.iterations}",
            iterations, limits.iterations,
            f"edgekit bench CONFIG --iterations {limits.iterations}, or bench.iterations in the "
            "configuration", by="iterations", option=f"--iterations {limits.iterations}"
        )  # fmt: skip
    if duration is not None and duration < limits.duration_s:
        judged.no(
            "bench.duration", f"{duration:.2f} s measured, less than {limits.duration_s:g} s",
            duration, limits.duration_s,
            f"edgekit bench CONFIG --duration {limits.duration_s:g}, or bench.duration_s in the "
            "configuration", by="duration_s", option=f"--duration {limits.duration_s:g}"
        )  # fmt: skip
    if warmup is not None and warmup < limits.warmup_ms:
        judged.no(
            "bench.warmup", f"{warmup:g} ms warm-up, less than {limits.warmup_ms:g} ms",
            warmup, limits.warmup_ms,
            f"edgekit bench CONFIG --warmup {limits.warmup_ms:g}, or bench.warmup_ms in the "
            "configuration", by="warmup_ms", option=f"--warmup {limits.warmup_ms:g}"
        )  # fmt: skip
