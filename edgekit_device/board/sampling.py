"""Samples of a board, one after the other: lines of tegrastats completed from /sys and /proc.
``main`` is the child process that samples while something is measured.

If tegrastats is missing or goes silent, only sysfs and /proc are read, at the same rate. A PC has
only /proc. Unreadable values are left out; "warnings" has the reason.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sized, Tuple, TypeVar

from edgekit_device.board.samples import EngineLoad, OtherFacts, Sample
from edgekit_device.board.sysfs import (
    Cooling,
    DlaCores,
    GpuReader,
    ProcessLoad,
    ProcessorLoad,
    RailReader,
    SystemMemory,
    Temperatures,
)
from edgekit_device.board.tegrastats import Tegrastats, TegrastatsCommand, UnknownFields, read_line
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    amount,
    array,
    document,
    dump,
    mapping,
    member,
    record,
    text,
)

_SILENT_S = 3.0
_Seen = TypeVar("_Seen", bound=Sized)


@document(frozen=True)
class SamplingEnd:
    """The sampling process's last report; times in seconds."""

    sources: Tuple[str, ...] = member(array(text()))
    unknown: Mapping[str, int] = member(mapping(fields.count))
    warnings: Tuple[str, ...] = member(array(text(most=1 << 16)))
    seconds: float = member(amount)
    cpu_s: float = member(amount)
    tegrastats_cpu_s: float = member(amount)

    def percent(self) -> Optional[float]:
        """Returns the load of the sampler and tegrastats in percent of a core."""
        if not self.seconds:
            return None
        return round(100 * (self.cpu_s + self.tegrastats_cpu_s) / self.seconds, 2)


@document(frozen=True)
class SamplingLine:
    """A line of the sampling process: an empty first line, then samples, then the report."""

    sample: Optional[Sample] = member(record(Sample), absent=None)
    end: Optional[SamplingEnd] = member(record(SamplingEnd), absent=None)


class SampleStream:
    """An iterable of samples, for a single use; ``t_s`` is a time of ``time.perf_counter``."""

    def __init__(
        self,
        interval_ms: int,
        system: Path,
        commands: List[TegrastatsCommand],
        stop: Optional[int] = None,
        process: Optional[int] = None,
    ) -> None:
        """Opens the board's files.

        Args:
            interval_ms: Milliseconds between two samples.
            system: The root of the file system.
            commands: Commands that start tegrastats, tried in turn; may be empty.
            stop: A descriptor; the samples end when it becomes readable (its other end closed).
            process: Id of the process whose load is reported separately.
        """
        self.warnings: List[str] = []
        self.unknown = UnknownFields()
        self._seen: Dict[str, bool] = {}
        self._interval = interval_ms / 1e3
        self._commands = list(commands)
        self._stop = stop
        self._parent = os.getppid()
        self._tegrastats: Optional[Tegrastats] = None
        self._memory, self._cores = SystemMemory(system), ProcessorLoad(system)
        self._rails, self._zones = RailReader(system), Temperatures(system)
        self._gpu, self._dla, self._cooling = GpuReader(system), DlaCores(system), Cooling(system)
        self._process = None if process is None else ProcessLoad(process, system)

    @property
    def sources(self) -> List[str]:
        """The samples' sources, the richest first: tegrastats, sysfs, proc."""
        return [name for name in ("tegrastats", "sysfs", "proc") if self._seen.get(name)]

    def __iter__(self) -> Iterator[Sample]:
        try:
            self._next_command()
            yield from self._samples()
        finally:
            self.close()

    def close(self) -> None:
        """Ends tegrastats if it runs."""
        if self._tegrastats is not None:
            self._tegrastats.close()
            self._tegrastats = None

    def _samples(self) -> Iterator[Sample]:
        last_line = time.perf_counter()
        # a load covers the time between two samples, so the first sample comes after an interval
        due, last = last_line + self._interval, last_line - self._interval
        # without ``stop`` (the command ``sample``) only this shows that the parent has ended
        while os.getppid() == self._parent:
            running = self._tegrastats
            now = time.perf_counter()
            silent = max(_SILENT_S, 3 * self._interval)
            # tegrastats sets the rate itself; here only its silence is noticed
            until = last_line + silent if running else due
            descriptors = [] if self._stop is None else [self._stop]
            if running is not None:
                descriptors.append(running.descriptor)
            ready = select.select(descriptors, [], [], max(until - now, 0.0))[0]
            if self._stop is not None and self._stop in ready:
                return
            now = time.perf_counter()
            if running is None:
                if now >= due:
                    yield self._read_sysfs(now)
                    # a late sample does not delay later samples
                    due += self._interval * max(1, int((now - due) / self._interval) + 1)
                continue
            lines = running.lines() if ready else None
            if lines is None:
                # the next command, or else sysfs, continues without a gap
                self._give_up(running, silent=not ready)
                last_line = due = time.perf_counter()
                continue
            last_line = now
            for line in lines:
                # tegrastats prints more often than requested: skip lines
                if now - last < self._interval - running.command.interval_ms / 2e3:
                    continue
                sample = self._parse_line(line, now)
                if sample is not None:
                    last = now
                    yield sample

    def _next_command(self) -> None:
        while self._commands and self._tegrastats is None:
            command = self._commands.pop(0)
            try:
                self._tegrastats = Tegrastats(command)
            except OSError as error:
                self._warn("cannot start tegrastats: {}".format(error.strerror))

    def _give_up(self, running: Tegrastats, silent: bool) -> None:
        how = " ".join(running.command.words[:3])
        if silent:
            self._warn("tegrastats printed nothing for {:g} s: {}".format(_SILENT_S, how))
        else:
            self._warn("tegrastats ended: {}".format(how))
        self.close()
        self._next_command()

    def _warn(self, text: str) -> None:
        # a board that repeats or varies a warning must not fill the document
        if text not in self.warnings and len(self.warnings) < 20:
            self.warnings.append(text)

    def _parse_line(self, line: str, now: float) -> Optional[Sample]:
        said, unknown = read_line(line)
        if said is None:
            self._warn("not a line of tegrastats: {}".format(line[:80]))
            return None
        self.unknown.add(unknown)
        self._seen["tegrastats"] = True
        sample = said.sample
        gpu = sample.engines.get("GR3D")
        # Thor prints no load, other lines may lack the clock
        if gpu is None or not gpu.mhz or gpu.percent is None:
            gpu = self._complete_gpu(gpu)
        return self._finish(
            replace(
                sample,
                rails_mw=sample.rails_mw or self._note_sysfs(self._rails.power()),
                temperatures_c=sample.temperatures_c or self._note_sysfs(self._zones.celsius()),
                engines=sample.engines if gpu is None else dict(sample.engines, GR3D=gpu),
            ),
            now,
        )

    def _complete_gpu(self, said: Optional[EngineLoad]) -> Optional[EngineLoad]:
        """Returns the GPU's load from tegrastats, with missing values from sysfs."""
        own = self._gpu.load()
        if own is None:
            return said
        self._seen["sysfs"] = True
        if said is None:
            return own
        return EngineLoad(
            on=said.on if said.mhz else own.on,
            percent=own.percent if said.percent is None else said.percent,
            mhz=said.mhz or own.mhz,
        )

    def _read_sysfs(self, now: float) -> Sample:
        ram, swap = self._memory.use()
        self._seen["proc"] = True
        gpu = self._complete_gpu(None)
        sample = Sample(
            t_s=now,
            rails_mw=self._note_sysfs(self._rails.power()),
            temperatures_c=self._note_sysfs(self._zones.celsius()),
            engines={} if gpu is None else {"GR3D": gpu},
            cpu=self._cores.cores(),
            ram=ram,
            swap=swap,
        )
        return self._finish(sample, now)

    def _finish(self, sample: Sample, now: float) -> Sample:
        other = replace(
            sample.other or OtherFacts(),
            cooling=self._cooling.states(),
            overcurrent_events=self._cooling.events(),
            process_percent=None if self._process is None else self._process.percent(now),
        )
        return replace(
            sample,
            t_s=now,
            wall=time.time(),
            clocks_hz=self._note_sysfs(self._dla.clocks_hz()),
            runtime_status=self._note_sysfs(self._dla.states()),
            other=None if other == OtherFacts() else other,
        )

    def _note_sysfs(self, found: _Seen) -> _Seen:
        if found:
            self._seen["sysfs"] = True
        return found


def main(options: str) -> None:
    """Samples until standard input ends; ``options`` is JSON, see ``Sampler.start``.

    Sampling runs in its own process: a thread would take the interpreter's lock from the measuring
    thread at each sample. Its output is an unlinked file, which the measuring process reads at the
    end. It ends with its standard input, so it cannot outlive its parent.
    """
    # Ctrl-C is for the measuring process, which then closes this process's input
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(options)
    began = time.perf_counter()
    stream = SampleStream(
        settings["interval_ms"],
        Path(settings["system"]),
        [TegrastatsCommand(*command) for command in settings["commands"]],
        sys.stdin.fileno(),
        settings["process"],
    )
    # imports and opening files do not count as the sampler's load
    spent = time.process_time()
    _write(SamplingLine())  # it begins
    try:
        for sample in stream:
            _write(SamplingLine(sample))
    finally:
        seconds = time.perf_counter() - began
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        end = SamplingEnd(
            sources=tuple(stream.sources),
            unknown=stream.unknown.counts,
            warnings=tuple(stream.warnings),
            seconds=seconds,
            cpu_s=time.process_time() - spent,
            tegrastats_cpu_s=children.ru_utime + children.ru_stime,
        )
        _write(SamplingLine(end=end))


def _write(line: SamplingLine) -> None:
    os.write(sys.stdout.fileno(), dump(line))
