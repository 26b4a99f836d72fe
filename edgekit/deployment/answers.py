"""What a board says, read and checked: the form that its JSON documents must have, its failures as
edgekit's errors, lines of progress before an answer, and lines of a command that goes on.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from typing import Any

from edgekit.deployment.transport import MOST_OUT, Completed
from edgekit.errors import BoardError, BundleError
from edgekit.text import plain
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read, write
from edgekit_device.protocol.failure import Failed, Failure

_TIMES: Any = {"*": "number"}
_SEGMENT_EVENT: Any = {
    "frame": "count", "lane": "count", "index": "count", "device": "text", "start_us": "number",
    "duration_us": "number",
}  # fmt: skip
_MEMORY: Any = ({"used_bytes?": "number?", "total_bytes?": "number?"}, None)
_SAMPLE: Any = {
    "t_s": "number", "wall?": "number?", "ram?": _MEMORY, "swap?": _MEMORY,
    "cpu?": [({"percent?": "number?", "mhz?": "number?"}, None)],
    "engines?": {"*": {"percent?": "number?", "mhz?": ["number"]}},
    "temperatures_c?": {"*": "number"},
    "rails_mw?": {"*": {"now": "number", "average?": "number?", "peak?": "number?"}},
    "runtime_status?": {"*": "text"}, "clocks_hz?": {"*": "number"},
    "other?": {"process_percent?": "number?", "cooling?": ({"*": "number"}, None),
               "overcurrent_events?": ({"*": "number"}, None)},
}  # fmt: skip
_MONITOR: Any = {
    "schema": "text", "interval_ms": "number", "sources": ["text"], "started_at?": "number?",
    "samples": [_SAMPLE], "idle": [_SAMPLE], "busy_from_s?": "number?",
    "facts": {"module?": "text?", "l4t?": "text?", "clock_caps_hz?": ({"*": "number"}, None)},
    "unknown": {"*": "count"}, "warnings": ["text"],
}  # fmt: skip
SAMPLE_LINE: Any = {
    **_SAMPLE, "sources?": ["text"], "interval_ms?": "number", "facts?": _MONITOR["facts"],
    "power_mode?": "text?", "warnings?": ["text"], "unknown?": {"*": "count"},
}  # fmt: skip
"""A line of the command ``sample``."""
_POWER: Any = {
    "mode": {"*": ({"name": "text?", "id": "count?"}, None)},
    "clocks": {"*": ({"*": {"min?": "number?", "max?": "number?", "current?": "number?",
                            "locked?": "flag"}}, None)},
    "locked": "flag", "restored": "flag", "notes": ["text"],
}  # fmt: skip
_TRTEXEC: Any = {
    "program": "text?", "why": "text?",
    "engines": [{"lane": "count", "index": "count", "device": "text", "command": "text?",
                 "status": "count?", "console": "text", "times": "text?", "why": "text?"}],
}  # fmt: skip
BENCH: Any = {
    "release": "text", "backend": "text", "clock": "text", "segments_clock": "text",
    "iterations": "count", "warmup_ms": "number", "duration_s": "number",
    "latency_ms": {"median": "number", **_TIMES}, "samples_ms": ["number"],
    "throughput_qps": "number",
    "pipelined": ({"frames": "count", "throughput_qps": "number"}, None),
    "segments": [{"lane": "count", "index": "count", "device": "text", "layers": ["text"],
                  "latency_ms": {"median": "number", **_TIMES}}],
    "events": [_SEGMENT_EVENT], "pipelined_events": [_SEGMENT_EVENT], "events_start_s": "number?",
    "pipelined_start_s": "number?",
    "copies": [{"frame": "count", "phase": "text", "start_us": "number", "duration_us": "number"}],
    "nodes": ([{"lane": "count", "index": "count", "node": "text", "op?": "text?",
                "mean_us": "number", "median_us?": "number"}], None),
    "settings": {"streams?": "count", "data?": "text"},
    "phases_ms": {"*": (_TIMES, None)},
    "streams": ([{"stream": "count", "iterations": "count", "throughput_qps": "number"}], None),
    "cold": {"*": "number?"}, "memory": {"*": "count?"},
    "runtime": {"library?": "text?", "flags?": {"*": "any"}, "notes?": ["text"]},
    "environment": ({"*": "any"}, None),
    "monitor": (_MONITOR, None), "power": (_POWER, None), "trtexec": (_TRTEXEC, None),
}  # fmt: skip


# What the host relies on in a board's answers: the form of each, and the test of it.
#
# A form is a type ("text", "count", "number", "flag" or "any"; with a "?" after it also null), a
# list ``[form]``, a map by any name ``{"*": form}``, an object ``{field: form}``, or one of these
# or null ``(form, None)``. A field whose name ends in "?" may be absent; of the answer's own level
# each may be, since a later command reports one that is not there. Fields without a form are only
# shown.


_FLAVOURS: Any = {"full": "text?", "lean": "text?", "dispatch": "text?"}
_ERROR: Any = {"code": "text", "message": "text", "where?": "text?", "hint?": "text?"}
_FINGERPRINT: Any = {"*": "text?"}
_JOB: Any = {"job": "text", "state": "text", "reused": "flag", "joined": "flag"}
_JOB_ROW: Any = {
    "job": "text", "kind": "text?", "name": "text?", "state": "text", "queued_at": "number?",
    "started_at": "number?", "ended_at": "number?", "phase": "text", "done": "count",
    "total": "count", "error": ({"message?": "text?", "code?": "text?"}, None),
}  # fmt: skip
_EVENT: Any = {
    "n": "count", "time": "number", "phase": "text", "done": "count", "total": "count",
    "text": "text",
}  # fmt: skip
_PERCENTILES: Any = {"*": "number?"}
_SERVING: Any = {
    "release": "text?", "pid": "count?", "requests": "count", "errors": "count",
    "last_error": ({"message": "text", "code": "text", "*": "any"}, None),
    "latency_ms": (_PERCENTILES, None),
}  # fmt: skip
_CHANGED: Any = {
    "release?": "text?", "error?": (_ERROR, None),
    "changes?": [{"what": "text", "from": "text", "to": "text"}],
}  # fmt: skip
_DEPLOYMENT: Any = {
    "state": "text", "id?": "text", "digest?": "text?", "release?": "text?", "previous?": "text?",
    "operator?": "text?", "started_at?": "any", "state_at?": "any", "alive?": "flag",
    "policy?": ({"*": "any"}, None), "error?": (_ERROR, None),
    "health?": ({"golden?": ({"*": "any"}, None), "notes?": (["text"], None)}, None),
}  # fmt: skip
_TAKEN_BACK: Any = ({"release": "text", "at": "text", "reason": "text"}, None)
_RELEASE: Any = {
    "id": "text", "digest?": "text?", "backend?": "text?", "signer?": "text?",
    "staged_at?": "text?", "ready?": "flag", "taken_back?": _TAKEN_BACK,
}  # fmt: skip
_APP: Any = {
    "current": "text?", "previous": "text?", "releases": [_RELEASE], "taken_back?": _TAKEN_BACK,
}  # fmt: skip
_APP_STATUS: Any = {
    **_APP, "deployment": (_DEPLOYMENT, None), "history?": [{"error?": (_ERROR, None)}],
    "serving": ({"release?": "text?", "error?": _ERROR, "latency_ms?": (_PERCENTILES, None)}, None),
    "changed?": (_CHANGED, None), "error?": (_ERROR, None),
    "refused?": [{"release": "text", "code": "text", "message": "text"}],
}  # fmt: skip
_HELLO: Any = {
    "schema": "text", "version": "text?", "loader": "text?", "python": "text?",
    "machine": "text?", "numpy": "text?", "onnxruntime": "text?", "ssh_keygen": "text?",
    "backends": ["text"], "root": "text", "free_bytes": "count?", "module": "text?",
    "board_id": "text?", "l4t": "text?", "tensorrt": "text?", "memory_bytes": "count?",
}  # fmt: skip

#: By the loader's command. Those without a form here have answers of no inner form.
ANSWERS: dict[str, Any] = {
    "place": {"root": "text", "path": "text", "groups?": ["count"],
              "user?": "text", "releases?": ["text"]},
    "hello": _HELLO,
    "trust": {
        "added": "count", "removed": "count", "revoked": "count", "signers": ["text"],
        "keys": [{"identity": "text", "kind": "text", "fingerprint": "text",
                  "authority?": "flag", "valid_after?": "text?", "valid_before?": "text?"}],
        "revocations": {"kind": "text", "fingerprints": ["text"]},
        "refused": [{"app": "text", "release": "text", "role": "text", "code": "text",
                     "message": "text"}],
    },
    "missing": {"missing": ["text"]},
    "offer": {"known": "flag", "digest": "text", "app": "text", "signer": "text?",
              "missing": ["any"], "serving": "text?", "taken_back": _TAKEN_BACK,
              "deployment": (_DEPLOYMENT, None), "hello": _HELLO},
    "rollback": {
        "app": "text", "current": "text?", "previous": "text?", "from": "text?",
        "taken_back": _TAKEN_BACK,
    },
    "releases": {"apps": {"*": _APP}},
    "remove": {"removed": ["text"]},
    "status": {
        "schema": "text", "board": {"*": "any"}, "apps": {"*": _APP_STATUS},
        "store": {"blobs": "count", "bytes": "count", "partial_bytes": "count"},
        "free_bytes": "count",
    },
    "resume": {"resumed": [{"app": "text", "job": "text", "state": "text"}]},
    "serve": {"app": "text", "serving": (_SERVING, None), "taken_back": _TAKEN_BACK},
    "serve-status": {"app": "text", "serving": (_SERVING, None), "taken_back": _TAKEN_BACK},
    "serve-stop": {"app": "text", "stopped": "flag"},
    "serve-unit": {"app": "text", "unit": "text", "file": "text?", "installed": "flag",
                   "text": "text", "notes": ["text"]},
    "setup": {"state": "text", "text": "text", "sudoers": "any", "groups": "any", "script": "any"},
    "bench": BENCH,
    "job-start": _JOB,
    "job-list": {"jobs": [_JOB_ROW]},
    "job-watch": {"state": "text", "events": [_EVENT], "next": "count",
                  "ended": "flag"},
    "job-cancel": {"state": "text"},
    "job-remove": {"removed": ["text"]},
    "probe": {
        "module": "text?", "board_id": "text?", "l4t": "text?", "cuda": "text?", "python": "text?",
        "numpy": "text?", "onnxruntime": "text?", "ssh_keygen": "text?", "cudla": "text?",
        "cuda_driver": "text?", "compute_capability": "text?", "trtexec": ({"path": "text"}, None),
        "tensorrt": {**_FLAVOURS, "python": _FLAVOURS},
        "dla": {"cores": "count?", "devices": ["text"], "compiler": "text?"},
        "power": {"mode": "text?", "id": "any", "modes": ([{"name": "text", "*": "any"}], None),
                  "clocks": ({"*": {"locked?": "flag", "*": "any"}}, None)},
        "disk_free": "count", "memory": {"available": "count?"}, "user": {"root": "flag"},
        "groups": ["text"], "notes": ["text"],
        "docker": ({"path": "text", "version": "text?", "runtimes": (["text"], None)}, None),
        "fingerprint": _FINGERPRINT, "root": "text",
    },
}  # fmt: skip

_TENSOR: Any = {"digest": "text", "dtype": "text", "shape": ["count"]}
_ENGINE: Any = {
    "key": "text", "kind": "text", "engine": "text", "full": "text?", "bytes": "count",
    "stripped": "flag", "version_compatible": "flag", "lean_embedded": "flag", "refit": "text",
    "dla_core": "count?", "attempts": [{"*": "any"}], "log": "text?", "inspector": "text?",
    "io": [{"name": "text", "mode": "text", "dtype": "text", "shape": ["any"], "*": "any"}],
}  # fmt: skip

#: What jobs make, by its schema.
RESULTS: dict[str, Any] = {
    "edgekit.build.result/1": {
        "engines": [_ENGINE], "tensorrt": "text", "builder": "text", "notes": ["text"],
        "fingerprint": _FINGERPRINT,
        "golden": [{"seed": "count", "lane?": "count?", "outputs": {"*": _TENSOR}}],
    },
    "edgekit.deployment/1": {
        **_DEPLOYMENT, "release": "text", "previous": "text?", "fallback?": "text?",
        "refit?": ({"*": "any"}, None), "changed?": "flag",
    },
}  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,), "count": (int,), "number": (int, float), "flag": (bool,),
}  # fmt: skip

# beyond these arithmetic overflows; nan is not within any
_LARGEST_VALUES = {"count": 2**63, "number": 1e100}
_FAILED = 4
_NOT_RUNNABLE = (126, 127)
_SIGNALLED = 128
_LONGEST_EXCERPT = 2000
# the board's codes that are about what was shipped rather than about the board
_BUNDLE = ("bundle.", "manifest.", "engine.", "blob.", "weights.")
# a board's own hints are for who works on it; here they name what is at hand here. BOARD is for
# who knows what the user calls the board
_HINTS = {
    "bundle.unsigned": "sign it: deploy.sign_with in the configuration names a key",
    "bundle.unknown-signer": "deploy with --trust-key, or edgekit trust BOARD --add KEY.pub: the "
    "board then believes what that key signs",
    "serve.running": "edgekit serve BOARD status --app {where} says how it is, stop ends it",
}
_LONGEST_LINE = 1 << 20
_SILENT_S = 20.0
_END_S = 20.0


def misshapen(value: object, form: Any, where: str = "") -> str:
    """Where a value is not of a form: its name and what it should be; empty where it is."""
    if isinstance(form, tuple):
        return "" if value is None else misshapen(value, form[0], where)
    if isinstance(form, str):
        return "" if _is(value, form) else f"{where}: expected {form.rstrip('?')}"
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where}: expected a list"
        found = (misshapen(one, form[0], f"{where}[{n}]") for n, one in enumerate(value))
        return next(filter(None, found), "")
    if not isinstance(value, dict):
        return f"{where}: expected an object"
    return _object(value, form, where)


def _object(value: dict[str, Any], form: dict[str, Any], where: str) -> str:
    known = {name.rstrip("?"): name for name in form if name != "*"}
    for name, field in known.items():
        at = f"{where}.{name}" if where else name
        if name in value:
            fault = misshapen(value[name], form[field], at)
        else:
            # what the answer itself lacks is reported where it is read
            fault = "" if not where or field != name else f"{at}: is not there"
        if fault:
            return fault
    if "*" in form:
        for name in value.keys() - known.keys():
            fault = misshapen(value[name], form["*"], f"{where}.{name[:80]}")
            if fault:
                return fault
    return ""


def _is(value: object, form: str) -> bool:
    if value is None:
        return form.endswith("?") or form == "any"
    form = form.rstrip("?")
    if form == "any":
        return True
    if form != "flag" and isinstance(value, bool):
        return False
    if form in _LARGEST_VALUES and isinstance(value, (int, float)):
        return (
            isinstance(value, _TYPES[form])
            and -_LARGEST_VALUES[form] <= value <= _LARGEST_VALUES[form]
        )
    return isinstance(value, _TYPES[form])


def document(done: Completed, where: str, python: str, command: str = "") -> dict[str, Any]:
    """Returns the one JSON document of a command that succeeded.

    Args:
        done: What the command left.
        where: The board's name.
        python: The interpreter that was called, for the message when it is not there.
        command: The loader's command, whose answers have a form (see above).

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: Any other failure of the board's, or no answer that can be read.
    """
    if done.status != 0:
        raise failure(done, where, python)
    answer = _parse(done.out)
    if answer is None:
        raise BoardError(
            f"the board's answer is not JSON: {_excerpt(done.out) or 'nothing'}",
            code="board.protocol",
            where=where,
            hint="does a start-up file of the board's shell print something?",
        )
    form = ANSWERS.get(command, {})
    if command == "job-result":
        form = RESULTS.get(str(answer.get("schema")), {})
    fault = misshapen(answer, form)
    if fault:
        raise protocol_error(
            f"the board's answer to {command} is not sound: {plain(fault, 300)}", where
        )
    return _Answer(answer, where)


def failure(done: Completed, where: str, python: str) -> BoardError:
    """Returns the error that a command with a status other than 0 stands for."""
    failed = _failed(done.out) if done.status == _FAILED else None
    if failed is not None:
        field = {name: plain(text, _LONGEST_EXCERPT) for name, text in write(failed).items()}
        kind = BundleError if field["code"].startswith(_BUNDLE) else BoardError
        return kind(
            field["message"],
            code=field["code"],
            where=f"{where}: {field['where']}" if field["where"] else where,
            hint=_hint(field),
        )
    if done.status in _NOT_RUNNABLE:
        return BoardError(
            f"cannot run {python} on the board: {_excerpt(done.err)}",
            code="board.no-python",
            where=where,
            hint="install Python 3.8 or newer there, or name it with `python:`",
        )
    if _SIGNALLED < done.status < _SIGNALLED + 65:
        return BoardError(
            "the command was killed on the board",
            code="board.killed",
            where=where,
            hint="see `dmesg` on the board: most often it ran out of memory",
        )
    return BoardError(
        f"the board's loader ended with status {done.status}: {_excerpt(done.err)}",
        code="board.loader-failed",
        where=where,
        hint="run the command with --debug and report it, if the board's Python is sound",
    )


def _hint(field: dict[str, str]) -> str:
    ours = _HINTS.get(field["code"])
    return field["hint"] if ours is None else ours.format(where=field["where"])


def _failed(out: bytes) -> Failure | None:
    try:
        return read(Failed, _parse(out)).error
    except DeviceError:
        return None


def _parse(out: bytes) -> dict[str, Any] | None:
    # what a login shell prints first is passed over: the document is the last line
    for text in (out, out.strip().rpartition(b"\n")[2]):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


class _Answer(dict[str, Any]):
    """A board's document: what it lacks is the board's fault and not ours."""

    def __init__(self, found: dict[str, Any], where: str) -> None:
        super().__init__(found)
        self._where = where

    def __missing__(self, key: str) -> Any:
        raise protocol_error(f"the board's answer has no {key!r}", self._where)


def protocol_error(message: str, where: str) -> BoardError:
    """Returns the error of a board whose answer is none of this protocol's."""
    return BoardError(
        message,
        code="board.protocol",
        where=where,
        hint="use the loader and the edgekit of the same version",
    )


def _excerpt(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return plain(lines[-1], 300) if lines else ""


class StagedOutput:
    """Takes output as it comes: passes on the stages in it, collects the rest.

    Args:
        on_stage: Called with each stage's name and the seconds that are left at least (None: not
            known), in the transport's thread.
        most_out: Bytes that are collected; more are dropped, so that no answer is left.
    """

    def __init__(
        self, on_stage: Callable[[str, float | None], None], most_out: int = MOST_OUT
    ) -> None:
        self._on_stage = on_stage
        self._most = most_out
        self._line = bytearray()
        self._retained = bytearray()

    def put(self, data: bytes) -> None:
        """Takes a piece; b"" at the end."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._add(part)
            self._end()
        self._add(rest)
        if not data:
            self._end()

    def _add(self, part: bytes) -> None:
        if len(self._retained) + len(self._line) + len(part) <= self._most:
            self._line += part

    def _end(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        if line.startswith(b'{"stage"'):
            try:
                said = json.loads(line)
                self._on_stage(str(said["stage"])[:40], _seconds(said.get("left_s")))
                return
            except (ValueError, KeyError, RecursionError):
                pass  # none of ours: the answer's reader judges it
        self._retained += line + b"\n"

    def completed(self, done: Completed) -> Completed:
        """The command's end with the answer that was collected."""
        return Completed(done.status, bytes(self._retained), done.err)


def _seconds(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and 0 <= value < 1e9 else None  # type: ignore[operator, arg-type]


def take_samples(
    run: Callable[..., Completed],
    on_sample: Callable[[dict[str, Any]], bool],
    where: str,
    python: str,
    interval_s: float,
) -> None:
    """Runs a command that prints a JSON document a line; ``on_sample`` gets each as it comes.

    ``run`` takes the arguments of ``Transport.run`` but for the command, which watches its input
    and ends when ``on_sample`` returns False, or when this call or this machine does.

    Raises:
        BoardError: The command failed, was silent for long or printed what is no sample; the
            connection was cut.
    """
    reader = _Lines(on_sample, where, interval_s + _SILENT_S)
    done = run(stdin=reader.until_enough(), timeout=_END_S, on_output=reader.put)
    if reader.error is not None:
        raise failure(Completed(done.status, reader.error, done.err), where, python)
    if not reader.enough and done.status != 0:
        raise failure(done, where, python)


class _Lines:
    """What came, cut into lines in the calling thread."""

    def __init__(
        self, on_sample: Callable[[dict[str, Any]], bool], where: str, silent_s: float
    ) -> None:
        self.enough = False
        self.error: bytes | None = None
        self._on_sample = on_sample
        self._where = where
        self._silent_s = silent_s
        self._came: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.put = self._came.put

    def until_enough(self) -> Iterator[bytes]:
        """The command's input: nothing, and its end when there was enough."""
        rest = b""
        while True:
            try:
                chunk = self._came.get(timeout=self._silent_s)
            except queue.Empty:
                raise BoardError(
                    f"the board said nothing for {self._silent_s:g} s",
                    code="board.timeout",
                    where=self._where,
                    hint="see what the board is busy with, then run the same command again",
                ) from None
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise protocol_error("the board's line has no end", self._where)
            for line in whole:
                if not self._one(line):
                    return
                yield b""

    def _one(self, line: bytes) -> bool:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return True  # what a login shell prints first
        if not isinstance(found, dict):
            return True
        if "error" in found:
            self.error = line
            return True
        if fault := misshapen(found, SAMPLE_LINE):
            text = f"the board's sample is not sound: {plain(fault, 300)}"
            raise protocol_error(text, self._where)
        self.enough = not self._on_sample(found)
        return not self.enough
