"""Runs trtexec on the measured plans; the host compares its output with the measurement.

The host sends the arguments, which differ by release; only paths are inserted here. For a plan that
was shipped without its weights, the full plan that the refit stored in the release is used. DLA
loadables are skipped: trtexec cannot deserialise them, only cuDLA runs them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

from edgekit_device.benchmark.measurement import PlanRun, TrtexecRun, TrtexecRuns
from edgekit_device.benchmark.settings import TrtexecOptions
from edgekit_device.board.inventory import find_trtexec
from edgekit_device.errors import DeviceError
from edgekit_device.files import Buffer, workspace
from edgekit_device.processes import end_with_parent
from edgekit_device.protocol.codec import load
from edgekit_device.protocol.manifest import CPU, IoEntry, SegmentEntry
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.plugins import ENTRY_POINTS
from edgekit_device.tensorrt.refit import RefittedPlan, read_full_plan
from edgekit_device.trust.bundle import Checked, read_checked
from edgekit_device.versions import Version, parse_version

_MOST_TEXT = 32 << 10
_MOST_TIMES = 16 << 20
_ON_CPU = "ONNX Runtime runs it on the CPU"
_LOADABLE = "trtexec cannot run a DLA loadable"


def cross_check(
    root: Root,
    release: Path,
    checked: Checked,
    options: TrtexecOptions,
    sizes: Optional[Mapping[str, Sequence[int]]] = None,
) -> TrtexecRuns:
    """Runs trtexec on each engine of the release, one after the other.

    Args:
        root: The board's folder.
        release: The release's folder.
        checked: Its manifest.
        options: trtexec's arguments.
        sizes: Shapes of the network's inputs, for engines with open sizes.
    """
    program = find_trtexec()
    if checked.manifest.backend != "tensorrt":
        return TrtexecRuns(why="the reference backend has no TensorRT plan to run")
    # trtexec would load them as code, which trust_unsigned never allows
    if checked.signer is None and _library_digests(checked):
        return TrtexecRuns(why="no trusted signature covers the libraries of its plugins")
    if program is None:
        return TrtexecRuns(why="trtexec is not on this board (package libnvinfer-bin)")
    runs = []
    for place, lane in enumerate(checked.manifest.lanes):
        for segment in lane.segments:
            run = _run_segment(root, release, checked, options, program, segment, sizes or {})
            runs.append(
                TrtexecRun(lane=place, index=segment.index, device=segment.device, **vars(run))
            )
    return TrtexecRuns(program=str(program), engines=tuple(runs))


def _run_segment(
    root: Root,
    release: Path,
    checked: Checked,
    options: TrtexecOptions,
    program: Path,
    segment: SegmentEntry,
    sizes: Mapping[str, Sequence[int]],
) -> PlanRun:
    if segment.device == CPU:
        return PlanRun(why=_ON_CPU)
    entry = checked.manifest.engines[segment.engine]
    if entry.kind != "plan":
        return PlanRun(why=_LOADABLE)
    try:
        plan = _read_plan(release, checked, segment.engine, entry.stripped)
        if plan is None:
            return PlanRun(why="no plan with its weights is stored here: refit it again")
        arguments = list(options.always)
        arguments += options.gpu if segment.core is None else options.dla
        # TensorRT runs code in a plan only if the caller allows host code
        carries = entry.lean_embedded or entry.plugins_embedded
        arguments += options.version_compatible if carries else ()
        arguments += _shape_options(entry.inputs, sizes)
        with workspace(root.folder) as work:
            (work / "plan").write_bytes(plan)
            # before trtexec loads its own copy: a Jetson's GPU has no memory of its own
            del plan
            arguments += _plugin_options(checked, work, parse_version(entry.tensorrt))
            return run_plan(program, arguments, work, segment.core, options.timeout_s)
    except DeviceError as error:
        return PlanRun(why=error.message)
    except OSError as error:
        return PlanRun(why="{}".format(error.strerror or error))


def _shape_options(inputs: Sequence[IoEntry], sizes: Mapping[str, Sequence[int]]) -> List[str]:
    """Returns trtexec's option for the inputs with open sizes in the plan."""
    given = []
    for io in inputs:
        if -1 in io.shape and io.name in sizes:
            plain = not set(io.name) & set(":,")
            name = io.name if plain else "'{}'".format(io.name)  # see trtexec --help
            given.append("{}:{}".format(name, "x".join(map(str, sizes[io.name]))))
    return ["--shapes=" + ",".join(given)] if given else []


def _library_digests(checked: Checked) -> List[str]:
    """Returns the digests of the plugins' libraries."""
    found = (plugin.library for plugin in checked.manifest.plugins)
    return list(dict.fromkeys(digest for digest in found if digest is not None))


def _plugin_options(checked: Checked, work: Path, tensorrt: Version) -> List[str]:
    """Writes the plugins' libraries to ``work`` and returns trtexec's options for these."""
    options = []
    for number, digest in enumerate(_library_digests(checked)):
        data, path = bytes(read_checked(checked, digest)), work / "plugin{}.so".format(number)
        path.write_bytes(data)
        # a library without an entry point registers its creators when it is opened
        dynamic = any(name.encode("ascii") in data for name in ENTRY_POINTS)
        # trtexec has both options since TensorRT 8.6
        option = "--dynamicPlugins" if dynamic else "--staticPlugins"
        options.append("{}={}".format(option if tensorrt >= (8, 6) else "--plugins", path))
    return options


def _read_plan(release: Path, checked: Checked, engine: str, stripped: bool) -> Optional[Buffer]:
    if not stripped:
        return read_checked(checked, engine)
    # a plan for each runtime that has loaded it; any will do, also the full runtime, as in trtexec
    for path in sorted((release / "refitted").glob(engine + ".*.json")):
        record = load(RefittedPlan, path)
        plan = None if record is None else read_full_plan(release, engine, record.tensorrt)
        if plan is not None:
            return plan
    return None


def run_plan(
    program: Path, arguments: Sequence[str], work: Path, core: Optional[int], timeout_s: float
) -> PlanRun:
    """Runs trtexec on ``work``/plan."""
    places = {"engine": work / "plan", "times": work / "times.json", "core": core}
    command: List[str] = [str(program), *arguments]
    for name, value in places.items():
        command = [argument.replace("{" + name + "}", str(value)) for argument in command]
    log = work / "console"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=str(work),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # trtexec would otherwise keep the device busy until its end
            preexec_fn=end_with_parent(),  # noqa: PLW1509
        )
        try:
            status = process.wait(timeout_s)
            why = None if status == 0 else "trtexec failed with exit status {}".format(status)
        except subprocess.TimeoutExpired:
            status, why = None, "trtexec took longer than {:.0f} s".format(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                # its whole session: after a timeout a child could keep the device
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    times = work / "times.json"
    text = None
    if why is None and times.is_file() and times.stat().st_size <= _MOST_TIMES:
        text = times.read_text(encoding="utf-8", errors="replace")
    return PlanRun(
        command=" ".join([program.name, *arguments]),
        status=status,
        console=log.read_bytes()[-_MOST_TEXT:].decode("utf-8", "replace"),
        times=text,
        why=why,
    )
