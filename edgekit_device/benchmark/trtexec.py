"""Runs trtexec on the very plans that were measured; what it prints goes to the host to compare.

The host says with which arguments, as they differ by release; here only paths are put in. A plan
that was shipped without its weights is taken as the refit kept it in the release; a DLA loadable is
not for trtexec (it cannot deserialise one), only cuDLA runs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from edgekit_device.board.inventory import find_trtexec
from edgekit_device.errors import DeviceError
from edgekit_device.files import Buffer, workspace
from edgekit_device.protocol.codec import parse_json
from edgekit_device.protocol.manifest import SegmentEntry
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.refit import read_full_plan
from edgekit_device.trust.bundle import Checked, read_checked

_MOST_TEXT = 32 << 10
_MOST_TIMES = 16 << 20
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOADABLE = "trtexec cannot run a DLA loadable"


def parse_options(text: str) -> Dict[str, Any]:
    """Reads --trtexec: {"always", "gpu", "dla", "version_compatible": arguments, "timeout_s"}.

    Raises:
        DeviceError: "usage".
    """
    options = parse_json(text.encode("utf-8"), "--trtexec", "usage")
    lists = ("always", "gpu", "dla", "version_compatible")
    good = isinstance(options, dict) and isinstance(options.get("timeout_s"), (int, float))
    for name in lists:
        value = options.get(name) if good else None
        good = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not good:
            raise DeviceError("--trtexec is not what hosts send", code="usage", where="--trtexec")
    return dict(options)


def cross_check(
    root: Root, release: Path, checked: Checked, options: Mapping[str, Any]
) -> Dict[str, Any]:
    """Runs trtexec on each engine of the release, one after the other.

    Args:
        root: The board's folder.
        release: The release's folder.
        checked: Its manifest.
        options: As ``parse_options`` returns it.

    Returns:
        {"program" or None, "why", "engines": [{"lane", "index", "device", "command", "status",
        "console" (its end), "times" (what --exportTimes wrote, or None), "why"}]}; "why" says why
        there are no times, or is None.
    """
    program = find_trtexec()
    found: Dict[str, Any] = {"program": None, "why": None, "engines": []}
    if checked.manifest.backend != "tensorrt":
        return dict(found, why="the reference backend runs no TensorRT plan")
    if program is None:
        return dict(found, why="there is no trtexec on this board (package libnvinfer-bin)")
    found["program"] = str(program)
    for number, lane in enumerate(checked.manifest.lanes):
        for segment in lane.segments:
            result = _one(root, release, checked, options, program, segment)
            found["engines"].append(
                {"lane": number, "index": segment.index, "device": segment.device, **result}
            )
    return found


def _one(
    root: Root,
    release: Path,
    checked: Checked,
    options: Mapping[str, Any],
    program: Path,
    segment: SegmentEntry,
) -> Dict[str, Any]:
    nothing: Dict[str, Any] = {"command": None, "status": None, "console": "", "times": None}
    entry = checked.manifest.engines[segment.engine]
    if entry.kind != "plan":
        return dict(nothing, why=_LOADABLE)
    try:
        plan = _plan(release, checked, segment.engine, entry.stripped)
        if plan is None:
            return dict(nothing, why="no plan with its weights was kept here: refit it again")
        arguments = list(options["always"])
        arguments += options["gpu"] if segment.core is None else options["dla"]
        arguments += options["version_compatible"] if entry.lean_embedded else []
        with workspace(root.folder) as work:
            (work / "plan").write_bytes(plan)
            del plan
            return run_plan(program, arguments, work, segment.core, float(options["timeout_s"]))
    except DeviceError as error:
        return dict(nothing, why=error.message)
    except OSError as error:
        return dict(nothing, why="{}".format(error.strerror or error))


def _plan(release: Path, checked: Checked, engine: str, stripped: bool) -> Optional[Buffer]:
    if not stripped:
        return read_checked(checked, engine)
    # one for each runtime that has loaded it; trtexec's own, the full one, is as good as any
    for record in sorted((release / "refitted").glob(engine + ".*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            name = str(json.loads(record.read_text(encoding="utf-8"))["tensorrt"])
            plan = read_full_plan(release, engine, name)
            if plan is not None:
                return plan
    return None


def run_plan(
    program: Path, arguments: Sequence[str], work: Path, core: Optional[int], timeout_s: float
) -> Dict[str, Any]:
    """Runs trtexec on ``work``/plan; "command", "status", "console", "times" and "why"."""
    places = {"engine": work / "plan", "times": work / "times.json", "core": core}
    command: List[str] = [str(program), *arguments]
    for name, value in places.items():
        command = [one.replace("{" + name + "}", str(value)) for one in command]
    log = work / "console"
    prctl = ctypes.CDLL(None).prctl

    def ends_with_us() -> None:
        # also where this process is killed: trtexec would keep the device busy until it has done
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=str(work),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ends_with_us,  # noqa: PLW1509  (one system call, nothing else)
        )
        try:
            status = process.wait(timeout_s)
            why = None if status == 0 else "trtexec ended with status {}".format(status)
        except subprocess.TimeoutExpired:
            status, why = None, "trtexec did not end within {:.0f} s".format(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    times = work / "times.json"
    text = None
    if why is None and times.is_file() and times.stat().st_size <= _MOST_TIMES:
        text = times.read_text(encoding="utf-8", errors="replace")
    return {
        "command": " ".join([program.name, *arguments]),
        "status": status,
        "console": log.read_bytes()[-_MOST_TEXT:].decode("utf-8", "replace"),
        "times": text,
        "why": why,
    }
