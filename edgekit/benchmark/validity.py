"""Judges a measurement as VALID or INVALID, with reasons and remedies. The rules cover power mode,
clocks and throttling, other load, the frames' times, and trtexec's times. Facts that could not be
checked are listed in "unchecked".
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from edgekit.benchmark.measurement import BOARD_MEASURED, CPU_MEASURED
from edgekit.benchmark.statistics import MeasurementLimits, coefficient_of_variation, limit
from edgekit.benchmark.trtexec import TrtexecTimes
from edgekit.documents import Document
from edgekit.errors import UsageError
from edgekit.network.source import is_config_file
from edgekit.text import counted
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.benchmark.statistics import median
from edgekit_device.board.samples import Sample
from edgekit_device.protocol.fields import dla_core

if TYPE_CHECKING:
    from edgekit.targets.board import PowerMode, Target


RERUN_COMMAND = "edgekit bench CONFIG"
"""The command that measures again; in a verdict, CONFIG is the measured file."""
_LOCK_COMMAND = "edgekit bench CONFIG --lock-clocks"
_HELD = (
    "they were locked (--lock-clocks): check whether heat, current limits or "
    "another program changed them"
)
_COOL = (
    "cool the board (fan, heat sink, pause) or choose a lower power mode with "
    "--power-mode; for over-current use a stronger power supply"
)
_STOP = "stop other programs on the board (`top` lists them), then run edgekit bench CONFIG"
_CALM = (
    "stop other work on the machine, {}or measure for longer: edgekit bench CONFIG --duration 10"
)
_LOCK_ADVICE = "lock its clocks (edgekit bench CONFIG --lock-clocks), "
# the reason that compares names; former reasons have no code
_TEXTS = ("", "bench.power-mode")


class Reason(Document):
    """A reason why a measurement should not be quoted, and its remedy."""

    code: str = ""
    message: str
    found: int | float | str | None = Field(None, description="as it was measured, without a unit")
    limit: int | float | str | None = Field(None, description="what is allowed")
    remedy: str = ""

    @field_validator("found", "limit")
    @classmethod
    def _of_its_kind(cls, value: float | str | None, info: ValidationInfo) -> float | str | None:
        """Accepts text only for codes that compare texts."""
        if isinstance(value, str) and info.data.get("code") not in _TEXTS:
            raise PydanticCustomError("kind", "expected a number, found text")
        return value


class Verdict(Document):
    """The verdict on a measurement, and the facts that could not be checked.

    ``command`` repeats the measurement with all ``edgekit bench`` options that the reasons require;
    it is "" for VALID.
    """

    status: Literal["VALID", "INVALID"]
    reasons: list[Reason] = Field([])
    unchecked: list[str] = Field([])
    command: str = ""


@dataclass(frozen=True, slots=True)
class MeasurementFacts:
    """The input of the rules.

    Attributes:
        facts: The measurement.
        limits: The least length.
        trtexec: trtexec's times compared with ours; None if trtexec was not requested.
        target: The plan's board, if known.
        power_mode: The plan's power mode.
        config: Arguments for the remedies' commands, from ``config_words``; "" if unknown.
    """

    facts: Measurement
    limits: MeasurementLimits
    trtexec: TrtexecTimes | None = None
    target: Target | None = None
    power_mode: str = ""
    config: str = ""

    @property
    def clock(self) -> str:
        """The measurement's clock."""
        return self.facts.clock or CPU_MEASURED

    @property
    def on_board(self) -> bool:
        """True if a board was measured, not a CPU that imitates a board."""
        return self.clock == BOARD_MEASURED

    def limit(self, name: str) -> float:
        """Returns a limit for this clock."""
        return limit(name, self.clock)

    @property
    def devices(self) -> frozenset[str]:
        """The devices of the frames: "GPU", "DLA0", "DLA1"."""
        return frozenset(segment.device for segment in self.facts.segments)

    def watched(self) -> list[Sample]:
        """Returns the monitor's samples from the first to the last measured frame."""
        end = self.facts.duration_s
        samples = self.facts.monitor.samples if self.facts.monitor else ()
        return [
            sample for sample in samples if 0 <= sample.t_s <= (sample.t_s if end is None else end)
        ]

    def idle(self) -> Sequence[Sample]:
        """Returns the monitor's samples before our own load began."""
        return self.facts.monitor.idle if self.facts.monitor else ()


@dataclass(slots=True)
class Findings:
    """The results of the rules."""

    clock: str = ""
    config: str = ""
    reasons: list[Reason] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def reject(
        self,
        code: str,
        message: str,
        found: float | str,
        limit: float | str,
        remedy: str,
        *,
        option: str = "",
    ) -> None:
        """Adds a reason against the measurement.

        Args:
            code: Stable name.
            message: Description of the problem.
            found: The measured value, unrounded and without a unit.
            limit: The allowed value.
            remedy: The remedy.
            option: Option of ``edgekit bench`` that is added to ``command``.
        """
        if option and option not in self.options:
            self.options.append(option)
        remedy = _with_config(remedy, self.config)
        self.reasons.append(
            Reason(code=code, message=message, found=found, limit=limit, remedy=remedy)
        )

    def note_unchecked(self, text: str) -> None:
        """Adds a fact that could not be checked."""
        if text not in self.unchecked:
            self.unchecked.append(text)


def judge_measurement(measured: MeasurementFacts) -> Verdict:
    """Returns the verdict of a measurement."""
    findings = Findings(measured.clock, measured.config)
    judge_times(measured, findings)
    if measured.on_board:
        judge_clocks(measured, findings)
    else:
        note_unjudged_cpu(measured, findings)
    judge_load(measured, findings)
    judge_trtexec(measured, findings)
    again = " ".join((_with_config(RERUN_COMMAND, measured.config), *findings.options))
    return Verdict(
        status="INVALID" if findings.reasons else "VALID",
        reasons=findings.reasons,
        unchecked=findings.unchecked,
        command=again if findings.reasons else "",
    )


def config_words(config: str, target: str, precision: str) -> str:
    """Returns the arguments of ``edgekit bench`` to repeat the measurement; "" without a file.

    Args:
        config: File of the configuration or model.
        target: The board, required for a model.
        precision: The plan's precision, required for a model.
    """
    words = [config] if config else []
    if config and not is_config_file(config):
        words += ["--target", target, "--precision", precision]
    return shlex.join(words)


def _with_config(remedy: str, config: str) -> str:
    """Returns a remedy whose commands name the measured file."""
    return remedy.replace(RERUN_COMMAND, f"edgekit bench {config}") if config else remedy


def judge_clocks(measured: MeasurementFacts, findings: Findings) -> None:
    """Judges a board's power mode and clocks."""
    _judge_mode(measured, findings)
    _judge_dla_clock(measured, findings)
    _judge_clock_changes(measured, findings)
    _judge_throttling(measured, findings)


def note_unjudged_cpu(measured: MeasurementFacts, findings: Findings) -> None:
    """Notes that the reference backend ran on the board's CPU: mode and clocks do not matter."""
    if name := measured_mode(measured.facts):
        planned = f"; the plan is for {measured.power_mode}" if measured.power_mode else ""
        findings.note_unchecked(
            f"power mode and clocks: the reference backend ran on the board's CPU (in {name}"
            f"{planned})"
        )


def measured_mode(facts: Measurement) -> str | None:
    """Returns the power mode during the measurement, by nvpmodel's name; None if unknown."""
    return facts.power.mode_name("during") if facts.power else None


def _judge_mode(measured: MeasurementFacts, findings: Findings) -> None:
    """Checks that the mode is the plan's, whose predicted times are compared."""
    name = measured_mode(measured.facts)
    if name is None:
        findings.note_unchecked("power mode: not reported by nvpmodel")
        return
    found, planned = _find_mode(measured, name), _find_mode(measured, measured.power_mode)
    wanted = planned.name if planned else _normalise_mode(measured.power_mode)
    if not wanted or _normalise_mode(name) == _normalise_mode(wanted):
        return
    what = f"measured in power mode {_normalise_mode(name)}"
    if found is not None and found.default:
        what += ", the board's default"
    message = f"{what}, but the plan is for {wanted}"
    if found is not None and found.warning:
        message += f" ({found.warning})"
    findings.reject(
        "bench.power-mode",
        message,
        _normalise_mode(name),
        wanted,
        f"run edgekit bench CONFIG --power-mode {wanted}, or set power_mode: "
        f"{_normalise_mode(name)} in the configuration and plan again",
        option=f"--power-mode {wanted}",
    )


def _judge_dla_clock(measured: MeasurementFacts, findings: Findings) -> None:
    cores = sorted({core for core in map(dla_core, measured.devices) if core is not None})
    planned = _find_mode(measured, measured.power_mode)
    if not cores or planned is None or not planned.dla_mhz:
        return
    share = measured.limit("dla_clock_share")
    for number in cores:
        core = f"DLA{number}"
        # a mode with a single clock gives it to all cores
        wanted = planned.dla_mhz[min(number, len(planned.dla_mhz) - 1)]
        found = _dla_mhz(measured, number)
        if found is None:
            findings.note_unchecked(f"clock of {core}: reported by neither tegrastats nor sysfs")
        elif found < share * wanted:
            findings.reject(
                "bench.dla-clock",
                f"{core} ran at {found:.0f} MHz instead of {planned.name}'s {wanted:g} MHz",
                found,
                share * wanted,
                # jetson_clocks does not fix a DLA's clock
                _dla_clock_remedy(planned.name, measured),
            )


def _dla_clock_remedy(mode: str, measured: MeasurementFacts) -> str:
    """Returns the way to a mode's DLA clock: only the mode determines it."""
    name = measured_mode(measured.facts)
    if name is None or _normalise_mode(name) != _normalise_mode(mode):
        return f"run edgekit bench CONFIG --power-mode {mode}; the power mode sets the DLA clock"
    return (
        f"the board is in {name} as planned: check for throttling by heat or current, "
        "and the DLA limit in /etc/nvpmodel.conf"
    )


def _dla_mhz(measured: MeasurementFacts, core: int) -> float | None:
    """Returns the highest clock seen, otherwise the cap, otherwise the mode's; None if unknown."""
    seen = [mhz for sample in measured.watched() for mhz in _clocks(sample, f"DLA{core}")]
    if seen:
        return max(seen)
    monitor, power = measured.facts.monitor, measured.facts.power
    during = (power.clocks.during if power else None) or {}
    rates = during.get(f"dla{core}_core")
    caps = (monitor.facts.clock_caps_hz if monitor else None) or {}
    for hertz in (rates.current if rates else None, caps.get(f"dla{core}_core")):
        if hertz is not None and hertz > 0:
            return hertz / 1e6
    mode = _find_mode(measured, measured_mode(measured.facts) or "")
    return mode.dla_mhz[min(core, len(mode.dla_mhz) - 1)] if mode and mode.dla_mhz else None


def _judge_clock_changes(measured: MeasurementFacts, findings: Findings) -> None:
    samples, span = measured.watched(), measured.limit("clock_span")
    # a device that the frames do not use may sleep; on EMC, the memory's clock, all depend
    for device in (*sorted(measured.devices), "EMC"):
        seen = [min(clocks) for sample in samples if (clocks := _clocks(sample, device))]
        if len(seen) < 2:
            findings.note_unchecked(
                f"clock of {device} during the measurement: not reported by any monitor"
            )
            continue
        low, high = min(seen), max(seen)
        if low < (1 - span) * high:
            findings.reject(
                "bench.clocks-moved",
                f"the clock of {device} changed between {low:.0f} and {high:.0f} MHz during the "
                "measurement",
                low,
                (1 - span) * high,
                _clock_remedy(measured, device),
            )


def _clock_remedy(measured: MeasurementFacts, device: str) -> str:
    if dla_core(device) is not None:  # jetson_clocks does not change it
        return (
            "cool the board; the power mode sets the DLA clock, and jetson_clocks does not lock it"
        )
    return _HELD if measured.facts.power and measured.facts.power.locked else _LOCK_COMMAND


def _judge_throttling(measured: MeasurementFacts, findings: Findings) -> None:
    others = [sample.other for sample in measured.watched() if sample.other]
    states = [other.cooling for other in others if other.cooling is not None]
    counts = [other.overcurrent_events for other in others if other.overcurrent_events is not None]
    on = sorted({name for state in states for name, value in state.items() if value > 0})
    if on:
        findings.reject(
            "bench.throttled",
            f"thermal throttling: {', '.join(on)}",
            sum(any(value > 0 for value in state.values()) for state in states),
            0,
            _COOL,
        )
    # the counters run since the boot
    events = sum(
        max(counts[-1].get(name, before) - before, 0)
        for first in counts[:1]
        for name, before in first.items()
    )
    if events:
        findings.reject(
            "bench.throttled",
            f"over-current throttling, {counted(events, 'time')}",
            events,
            0,
            _COOL,
        )
    if not states and not counts:
        findings.note_unchecked(
            "throttling: the board reports neither cooling states nor over-current events"
        )


def _clocks(sample: Sample, device: str) -> list[float]:
    """Returns the clocks of a device in MHz in a sample; a device that is off has none."""
    # tegrastats' names: GR3D, NVDLA0, EMC; the keys below are sysfs'
    engine = sample.engines.get({"GPU": "GR3D", "EMC": "EMC"}.get(device, f"NV{device}"))
    found = list(engine.mhz) if engine else []
    key = "emc" if device == "EMC" else f"{device.lower()}_core"
    if not found and key in sample.clocks_hz:
        found = [sample.clocks_hz[key] / 1e6]
    return [float(mhz) for mhz in found if mhz > 0]


def _find_mode(measured: MeasurementFacts, name: str) -> PowerMode | None:
    if measured.target is None or not name:
        return None
    try:
        return measured.target.mode(name)
    except UsageError:
        return None  # a mode that the customer added to nvpmodel.conf


def _normalise_mode(name: str) -> str:
    # nvpmodel prints MODE_30W or 30W, a board's file 30W
    return name.strip().upper().replace(" ", "_").removeprefix("MODE_")


def judge_load(measured: MeasurementFacts, findings: Findings) -> None:
    """Judges other load and swap, on a board and on a PC."""
    _judge_cpu(measured, findings)
    if measured.on_board:
        _judge_gpu(measured, findings)
    _judge_swap(measured, findings)


def _judge_cpu(measured: MeasurementFacts, findings: Findings) -> None:
    """Judges the load of all cores less our own during the measurement; if unknown, the load
    before.
    """
    loads = []
    for sample in measured.watched():
        # the loader's own load, which enqueues the frames, is no other work
        own = sample.other.process_percent if sample.other else None
        every = _cpu_percent(sample)
        if own is not None and every is not None:
            loads.append(max(every - own, 0.0))
    when = "during the measurement"
    if not loads:
        loads = [load for sample in measured.idle() if (load := _cpu_percent(sample)) is not None]
        when = "before the measurement"
    if not loads:
        findings.note_unchecked("other CPU load: not reported by any monitor")
        return
    found, most = fmean(loads), measured.limit("other_cpu_percent")
    if found > most:
        findings.reject(
            "bench.other-load",
            f"other processes used {found:.0f} % of a core {when} (limit {most:g} %)",
            found,
            most,
            _STOP,
        )


def _judge_gpu(measured: MeasurementFacts, findings: Findings) -> None:
    # only before the measurement: during it the load is our own
    engines = [sample.engines.get("GR3D") for sample in measured.idle()]
    loads = [float(engine.percent) for engine in engines if engine and engine.percent is not None]
    if not loads:
        why = (
            "not reported by any monitor"
            if measured.idle()
            else "not sampled before the measurement (--idle)"
        )
        findings.note_unchecked(f"other GPU load: {why}")
        return
    found, most = fmean(loads), measured.limit("other_gpu_percent")
    if found > most:
        findings.reject(
            "bench.other-load",
            f"the GPU was {found:.0f} % busy before the measurement (limit {most:g} %)",
            found,
            most,
            _STOP,
        )


def _judge_swap(measured: MeasurementFacts, findings: Findings) -> None:
    used = [
        sample.swap.used_bytes
        for sample in measured.watched()
        if sample.swap and sample.swap.used_bytes is not None
    ]
    if len(used) < 2:
        findings.note_unchecked("swap: not reported by any monitor")
        return
    grown, most = max(used) - used[0], measured.limit("swap_bytes")
    if grown > most:
        findings.reject(
            "bench.swap",
            f"{grown / 1e6:.1f} MB went to swap during the measurement",
            grown,
            most,
            "free memory on the board, or use a smaller batch or fewer streams",
        )


def _cpu_percent(sample: Sample) -> float | None:
    """Returns the load in percent of a core; None if unknown."""
    known = [core.percent for core in sample.cpu if core and core.percent is not None]
    return sum(known) if known else None


def judge_times(measured: MeasurementFacts, findings: Findings) -> None:
    """Judges number, length, variation and outliers."""
    _judge_length(measured, findings)
    samples = measured.facts.samples_ms or ()
    if len(samples) < 2:
        findings.note_unchecked("coefficient of variation and outliers: single times are missing")
        return
    variation, most = coefficient_of_variation(samples), measured.limit("variation")
    if variation > most:
        power = measured.facts.power
        # not for a PC (no jetson_clocks) or clocks that are fixed already
        free = not power.locked if power else measured.on_board
        findings.reject(
            "bench.unstable",
            f"times vary by {100 * variation:.1f} % (standard deviation over mean, limit "
            f"{100 * most:.0f} %)",
            variation,
            most,
            _CALM.format(_LOCK_ADVICE if free else ""),
        )
    times, share = measured.limit("outlier_times"), measured.limit("outlier_share")
    # the median: outliers would move a mean, and so hide themselves
    bound = times * median(samples)
    found = sum(value > bound for value in samples) / len(samples)
    if found > share:
        findings.reject(
            "bench.outliers",
            f"{100 * found:.1f} % of frames exceed {times:g}x the median (limit "
            f"{100 * share:.0f} %)",
            found,
            share,
            "stop programs that run now and then (desktop, updates, swap), then run "
            "edgekit bench CONFIG",
        )


def _judge_length(measured: MeasurementFacts, findings: Findings) -> None:
    facts, limits = measured.facts, measured.limits
    iterations, duration, warmup = facts.iterations or 0, facts.duration_s, facts.warmup_ms
    if iterations < limits.iterations:
        findings.reject(
            "bench.iterations",
            f"only {counted(iterations, 'iteration')} (at least {limits.iterations})",
            iterations,
            limits.iterations,
            f"run edgekit bench CONFIG --iterations {limits.iterations}, or set "
            "bench.iterations in the configuration",
            option=f"--iterations {limits.iterations}",
        )
    if duration is not None and duration < limits.duration_s:
        findings.reject(
            "bench.duration",
            f"only {duration:.2f} s measured (at least {limits.duration_s:g} s)",
            duration,
            limits.duration_s,
            f"run edgekit bench CONFIG --duration {limits.duration_s:g}, or set "
            "bench.duration_s in the configuration",
            option=f"--duration {limits.duration_s:g}",
        )
    if warmup is not None and warmup < limits.warmup_ms:
        findings.reject(
            "bench.warmup",
            f"only {warmup:g} ms warm-up (at least {limits.warmup_ms:g} ms)",
            warmup,
            limits.warmup_ms,
            f"run edgekit bench CONFIG --warmup {limits.warmup_ms:g}, or set "
            "bench.warmup_ms in the configuration",
            option=f"--warmup {limits.warmup_ms:g}",
        )


def judge_trtexec(measured: MeasurementFacts, findings: Findings) -> None:
    """Judges the cross-check with trtexec, if there was one."""
    answer = measured.trtexec
    if answer is None:
        return
    if answer.why:
        findings.note_unchecked(f"trtexec's times: {answer.why}")
    most = measured.limit("trtexec_share")
    for engine in answer.engines:
        share, name = engine.difference, f"{engine.device} segment {engine.index}"
        if share is None:
            findings.note_unchecked(f"trtexec's times of {name}: {engine.why or 'it gave none'}")
        elif abs(share) > most:
            findings.reject(
                "bench.trtexec-differs",
                f"{name}: median {engine.ours_ms:.3f} ms, trtexec's {engine.trtexec_ms:.3f} ms "
                f"({100 * share:+.1f} %, limit {100 * most:.0f} %)",
                share,
                most,
                "run edgekit bench CONFIG --with-trtexec --lock-clocks --duration 10; if it "
                "happens again, report it with both logs",
            )
