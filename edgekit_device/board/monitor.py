"""Samples a board while something is measured: clocks, load, temperatures, power rails and the
DLA's state. Also the command ``sample``, one sample a line until the host has seen enough.

    sampler = Sampler(100)
    sampler.start()            # then leave the board idle for a while
    sampler.warming()          # the samples so far are the idle baseline
    ...warm up...
    sampler.mark()             # the first measured frame begins
    ...measure...
    document = sampler.stop()  # edgekit.monitor/1, docs/monitoring.md

Sampling never fails: a board without readable counters gives a document that records them missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, BinaryIO, Iterator, List, Optional, Sequence

from edgekit_device.board import inventory
from edgekit_device.board.inventory import default_system, read_text
from edgekit_device.board.power_tools import PowerTools
from edgekit_device.board.samples import LiveSample, Monitor, MonitorFacts, Sample
from edgekit_device.board.sampling import SampleStream, SamplingLine
from edgekit_device.board.sysfs import clock_caps
from edgekit_device.board.tegrastats import TegrastatsCommand, find_commands
from edgekit_device.errors import DeviceError
from edgekit_device.processes import child_argv
from edgekit_device.protocol.codec import dump, parse_json, read
from edgekit_device.store.root import Root, default_root

LEAST_MS = 10
_CHILD = "import sys\nfrom edgekit_device.board.sampling import main\nmain(sys.argv[1])\n"
_PATIENCE_S = 5.0
_MODE_EVERY_S = 10.0


class Sampler:
    """Samples in a child process from ``start`` until ``stop``, or until this process ends."""

    def __init__(
        self,
        interval_ms: int = 100,
        system: Optional[Path] = None,
        *,
        root: Optional[Path] = None,
        commands: Optional[Sequence[TegrastatsCommand]] = None,
    ) -> None:
        """Prepares the sampler without starting it.

        Args:
            interval_ms: Milliseconds between two samples, at least 10.
            system: The root of the file system; for a copy of a board's files no tegrastats runs.
            root: ROOT, which records the permissions from setup; default: ``default_root()``.
            commands: Commands that start tegrastats, instead of this account's.
        """
        self._interval_ms = max(int(interval_ms), LEAST_MS)
        self._system = default_system() if system is None else system
        if commands is None:
            # tegrastats shows this machine, not a copy of a board's files
            real = self._system == Path("/")
            commands = find_commands(self._interval_ms, root or default_root()) if real else []
        self._commands = list(commands)
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._output: Optional[IO[bytes]] = None
        self._warnings: List[str] = []
        self._started_at: Optional[float] = None
        self._begin: Optional[float] = None
        self._idle_end: Optional[float] = None
        self._first: Optional[float] = None

    def __enter__(self) -> "Sampler":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()  # unless ``stop`` has

    def start(self) -> None:
        """Starts sampling, and returns once it runs; the first sample comes an interval later."""
        self._started_at, self._begin = time.time(), time.perf_counter()
        options = {
            "interval_ms": self._interval_ms,
            "system": str(self._system),
            "commands": self._commands,
            "process": os.getpid(),
        }
        try:
            self._output = tempfile.TemporaryFile()  # noqa: SIM115 - stop() closes it
            self._process = subprocess.Popen(
                child_argv(_CHILD, json.dumps(options)),
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._warnings.append("the board cannot be sampled: {}".format(error.strerror))
            return
        # the pause for the idle baseline must not include the interpreter's start
        until = time.monotonic() + _PATIENCE_S
        # the child writes an empty line once it samples
        while not os.fstat(self._output.fileno()).st_size and time.monotonic() < until:
            if self._process.poll() is not None:
                break
            time.sleep(0.005)

    def warming(self) -> None:
        """Ends the idle phase: the samples so far are "idle"."""
        self._idle_end = time.perf_counter()

    def mark(self) -> None:
        """Marks the start of the first measured frame, where ``t_s`` is zero."""
        self._first = time.perf_counter()

    def stop(self) -> Monitor:
        """Stops sampling and returns the document ``edgekit.monitor/1``; call it once."""
        started = self._process is not None
        found = self._end()
        end = found[-1].end if found else None
        if started and end is None:
            self._warnings.append("the sampling process was killed")
        first = self._first if self._first is not None else self._begin or 0.0
        idle: List[Sample] = []
        samples: List[Sample] = []
        for sample in (line.sample for line in found):
            if sample is not None:
                # perf_counter is CLOCK_MONOTONIC: the child's times compare with this process's
                before = self._idle_end is not None and sample.t_s <= self._idle_end
                phase = idle if before else samples
                phase.append(replace(sample, t_s=round(sample.t_s - first, 6)))
        release_note = release_warning(self._system)
        percent = None if end is None else end.percent()
        return Monitor(
            interval_ms=self._interval_ms,
            sources=end.sources if end else (),
            started_at=self._started_at,
            busy_from_s=None if self._idle_end is None else self._idle_end - first,
            samples=tuple(samples),
            idle=tuple(idle),
            facts=replace(monitor_facts(self._system), sampler_percent=percent),
            unknown=end.unknown if end else {},
            warnings=(
                *self._warnings,
                *([release_note] if release_note else []),
                *(end.warnings if end else ()),
            ),
        )

    def _end(self) -> List[SamplingLine]:
        process, self._process = self._process, None
        output, self._output = self._output, None
        if process is not None:
            assert process.stdin is not None
            # end of input ends the child, which then writes its report
            process.stdin.close()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if output is None:
            return []
        found = []
        with output:
            output.seek(0)
            for line in output:
                # the last line is truncated if the process was killed
                with suppress(DeviceError):
                    found.append(read(SamplingLine, parse_json(line, "the sampling process")))
        return found


def monitor_facts(system: Path) -> MonitorFacts:
    """Returns module, L4T and the DLA clocks of the power mode, for readers of the samples."""
    return MonitorFacts(
        module=inventory.module(system),
        board_id=inventory.board_id(system),
        l4t=inventory.l4t(system),
        machine=platform.machine(),
        dla_cores=len(inventory.dla_devices(system)),
        clock_caps_hz=clock_caps(system),
    )


def release_warning(system: Path) -> str:
    """Returns a warning if the file exists but has an unknown format; else ""."""
    text = read_text(system / "etc/nv_tegra_release")
    if not text.strip() or inventory.l4t(system) is not None:
        return ""
    return "/etc/nv_tegra_release has an unknown form: {!r}".format(text[:80])


def do_sample(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Iterator[bytes]:
    """Yields lines of JSON: samples of ``edgekit.monitor/1``, "t_s" counted from the first.

    The first sample also has "facts". The first sample, and a sample every ten seconds, has
    "power_mode". New warnings and unknown values are in "warnings" and "unknown".
    """
    system = default_system()
    real = system == Path("/")
    interval_ms = max(arguments.interval_ms, LEAST_MS)
    commands = find_commands(interval_ms, root.folder) if real else []
    stream = SampleStream(interval_ms, system, commands)
    first, reported, mode_due = None, (0, 0), 0.0
    for number, sample in enumerate(stream, 1):
        at = sample.t_s
        first = at if first is None else first
        line = LiveSample.of(sample, t_s=round(at - first, 6), sources=tuple(stream.sources))
        if number == 1:
            line = replace(line, interval_ms=interval_ms, facts=monitor_facts(system))
        # reading the mode starts a program, so not for every sample
        if real and at >= mode_due:
            mode_due = at + _MODE_EVERY_S
            with suppress(DeviceError):
                mode = PowerTools().mode()
                line = replace(line, power_mode=None if mode is None else mode.name)
        counts = (len(stream.warnings), len(stream.unknown.counts))
        # both only grow, so their lengths show a change
        if counts != reported:
            reported = counts
            line = replace(
                line, warnings=tuple(stream.warnings), unknown=dict(stream.unknown.counts)
            )
        yield dump(line)
        if number == arguments.count:
            return
