"""Samples a board while something is measured: clocks, load, temperatures, power rails and the
DLA's state. Also the command ``sample``, one sample a line until the host has seen enough.

    sampler = Sampler(100)
    sampler.start()            # and leave the board idle a while
    sampler.warming()          # what was seen until now is the idle baseline
    ...warm up...
    sampler.mark()             # the first measured frame begins
    ...measure...
    document = sampler.stop()  # edgekit.monitor/1, docs/monitoring.md

Nothing here fails: a board that shows nothing gives a document that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any, BinaryIO, Dict, Iterator, List, Optional, Sequence

from edgekit_device.board import inventory
from edgekit_device.board.inventory import default_system, text_of
from edgekit_device.board.power_tools import PowerTools
from edgekit_device.board.sampling import SampleStream
from edgekit_device.board.sysfs import clock_caps
from edgekit_device.board.tegrastats import TegrastatsCommand, find_commands
from edgekit_device.errors import DeviceError
from edgekit_device.processes import child_argv
from edgekit_device.store.root import Root, default_root

SCHEMA = "edgekit.monitor/1"
LEAST_MS = 10
_CHILD = "import sys\nfrom edgekit_device.board.sampling import main\nmain(sys.argv[1])\n"
_PATIENCE_S = 5.0
_MODE_EVERY_S = 10.0


class Sampler:
    """Samples in a process of its own from ``start`` until ``stop``, or until this process ends."""

    def __init__(
        self,
        interval_ms: int = 100,
        system: Optional[Path] = None,
        *,
        root: Optional[Path] = None,
        commands: Optional[Sequence[TegrastatsCommand]] = None,
    ) -> None:
        """Prepares; nothing runs yet.

        Args:
            interval_ms: Between two samples, at least 10.
            system: The root of the file system; in a copy of a board's files no tegrastats runs.
            root: ROOT, which knows what setup allowed; default: ``default_root()``.
            commands: Ways to start tegrastats instead of those that this account has.
        """
        self._interval_ms = max(int(interval_ms), LEAST_MS)
        self._system = default_system() if system is None else system
        if commands is None:
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
        """Begins to sample, and returns when it has begun; the first comes an interval later."""
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
        # a pause for the idle baseline is not to be spent on an interpreter's start
        until = time.monotonic() + _PATIENCE_S
        while not os.fstat(self._output.fileno()).st_size and time.monotonic() < until:
            if self._process.poll() is not None:
                break
            time.sleep(0.005)

    def warming(self) -> None:
        """Says that the idle time is over: the samples until now are "idle"."""
        self._idle_end = time.perf_counter()

    def mark(self) -> None:
        """Says that the first measured frame begins: ``t_s`` is zero here."""
        self._first = time.perf_counter()

    def stop(self) -> Dict[str, Any]:
        """Ends the sampling and returns the document ``edgekit.monitor/1``; once."""
        started = self._process is not None
        found = self._end()
        summary = found.pop() if found and "sources" in found[-1] else {}
        if started and not summary:
            self._warnings.append("the sampling process was killed")
        first = self._first if self._first is not None else self._begin or 0.0
        idle: List[Dict[str, Any]] = []
        samples: List[Dict[str, Any]] = []
        for sample in found:
            at = sample.pop("at")
            ordered = {"t_s": round(at - first, 6), "wall": sample.pop("wall", None), **sample}
            before = self._idle_end is not None and at <= self._idle_end
            (idle if before else samples).append(ordered)
        facts, odd = monitor_facts(self._system), release_warning(self._system)
        if summary.get("seconds"):
            both = summary["cpu_s"] + summary["tegrastats_cpu_s"]
            facts["sampler_percent"] = round(100 * both / summary["seconds"], 2)
        return {
            "schema": SCHEMA,
            "interval_ms": self._interval_ms,
            "sources": summary.get("sources", []),
            "started_at": self._started_at,
            "busy_from_s": None if self._idle_end is None else self._idle_end - first,
            "samples": samples,
            "idle": idle,
            "facts": facts,
            "unknown": summary.get("unknown", {}),
            "warnings": [*self._warnings, *([odd] if odd else []), *summary.get("warnings", [])],
        }

    def _end(self) -> List[Dict[str, Any]]:
        process, self._process = self._process, None
        output, self._output = self._output, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if output is None:
            return []
        with output:
            output.seek(0)
            return [line for line in map(_line, output) if line is not None]


def monitor_facts(system: Path) -> Dict[str, Any]:
    """What a reader must know of the board: module, L4T, the DLA clocks that its mode allows."""
    return {
        "module": inventory.module(system),
        "board_id": inventory.board_id(system),
        "l4t": inventory.l4t(system),
        "machine": platform.machine(),
        "dla_cores": len(inventory.dla_devices(system)),
        "clock_caps_hz": clock_caps(system),
    }


def _line(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(line)
    except ValueError:
        return None  # cut off when the process was killed
    return found if isinstance(found, dict) and ("at" in found or "sources" in found) else None


def release_warning(system: Path) -> str:
    """Returns a warning if the file is there but has an unknown form; else ""."""
    text = text_of(system / "etc/nv_tegra_release")
    if not text.strip() or inventory.l4t(system) is not None:
        return ""
    return "/etc/nv_tegra_release has an unknown form: {!r}".format(text[:80])


def do_sample(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Iterator[bytes]:
    """Lines of JSON, samples of ``edgekit.monitor/1`` with "t_s" from the first one on.

    The first also has "facts", and it and one every ten seconds "power_mode"; what warns or is
    not understood stands in "warnings" and "unknown" of the sample after which it is new.
    """
    system = default_system()
    real = system == Path("/")
    interval_ms = max(arguments.interval_ms, LEAST_MS)
    commands = find_commands(interval_ms, root.folder) if real else []
    stream = SampleStream(interval_ms, system, commands)
    first, reported, mode_due = None, (0, 0), 0.0
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
        if news != reported:
            reported = news
            line.update(warnings=stream.warnings, unknown=stream.unknown.counts)
        line["sources"] = stream.sources
        yield (json.dumps(line) + "\n").encode("ascii")
        if number == arguments.count:
            return


def _power_mode() -> Optional[str]:
    try:
        mode = PowerTools().mode()
    except DeviceError:
        return None
    return None if mode is None else mode.name
