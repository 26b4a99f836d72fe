"""One engine: its attempts in order, what the one that succeeded gave, and its result entry."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.build.attempt import ATTEMPT, CRASHED, PLUGINS, BuilderLog, isolated
from edgekit_device.build.builder import build_attempt, calibration_of, timing_file
from edgekit_device.build.config import refit_kind
from edgekit_device.build.inspection import (
    generation_of,
    plan_facts,
    reformats,
    requested_io,
    summary,
)
from edgekit_device.build.network import model_file
from edgekit_device.build.request import Attempt, BuildJobRequest, BuiltEngine, EngineSpec
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import LOG, JobCancelled, JobContext
from edgekit_device.processes import Report
from edgekit_device.tensorrt.bindings import find
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.versions import show

# what other flags may mend: the builder's refusal or death, and a plan that is of no use here
_NEXT = (ATTEMPT, PLUGINS, CRASHED, "build.no-memory", "board.no-memory")
_NEXT_KINDS = ("engine.", "refit.", "tensorrt.")
_TEXT_EVERY_S = 1.0
_NO_FACTS: Dict[str, Any] = {
    "weights": {}, "inspector": "", "full": None, "full_bytes": None, "notes": []
}  # fmt: skip


class EngineBuild:
    """Builds a request's engines one by one."""

    def __init__(
        self, context: JobContext, request: BuildJobRequest, board: Mapping[str, str]
    ) -> None:
        self.context = context
        self.request = request
        self.board = board
        self.generation = generation_of(board["module"])

    def engine(self, spec: EngineSpec, notes: List[str]) -> Dict[str, Any]:
        """Builds one engine; returns its entry of the result.

        Raises:
            DeviceError: "build.failed" with the cause of every attempt, or what no other attempt
                can mend.
            JobCancelled: The job was cancelled.
        """
        began, tries = time.monotonic(), []
        for index, attempt in enumerate(spec.attempts):
            self.context.check_cancelled()
            start = time.monotonic()
            try:
                entry = self._attempt(spec, index, attempt, notes)
                error: Optional[DeviceError] = None
            except DeviceError as raised:
                if not _has_next(raised):
                    raise
                error = raised
                self.context.log("attempt {} at {} failed: {}".format(index, spec.key, raised))
            tries.append(
                {
                    "flags": list(attempt.flags),
                    "ok": error is None,
                    "seconds": round(time.monotonic() - start, 3),
                    "error": None if error is None else error.message,
                    "code": None if error is None else error.code,
                }
            )
            if error is None:
                if attempt.gives_up:
                    notes.append("{}: {}".format(spec.key, attempt.gives_up))
                seconds = round(time.monotonic() - began, 3)
                return dict(entry, attempt=index, attempts=tries, seconds=seconds)
        raise DeviceError(
            "all attempts at {} failed: {}".format(
                spec.key,
                _causes(tries),
            ),
            code="build.failed",
            where=spec.key,
            hint="`edgekit jobs log` shows the builder's full output; to ask for less, set "
            "build.strip: false and build.version_compatible: false",
        )

    def _attempt(
        self, spec: EngineSpec, index: int, attempt: Attempt, notes: List[str]
    ) -> Dict[str, Any]:
        phase = "build {}".format(spec.key)
        if len(spec.attempts) > 1:
            phase += ", attempt {} of {}".format(index + 1, len(spec.attempts))
        self.context.progress(phase, 0, 0)

        def build(on_progress: Report) -> Dict[str, Any]:
            return self._build(spec, index, _on_progress(on_progress, phase))

        made = isolated(self.context, build)
        facts = dict(_NO_FACTS, io=requested_io(spec, self._scales(spec), self.generation))
        if not spec.standalone:
            self.context.progress(phase, 0, 0, "loading the plan")
            facts = isolated(self.context, lambda _: self._facts(spec, made))
        text = facts["inspector"]
        stored = self.context.store(text.encode("utf-8")) if text else None
        return entry_of(spec, made, facts, stored, notes)

    def _build(
        self, spec: EngineSpec, index: int, on_progress: Callable[..., None]
    ) -> Dict[str, Any]:
        """In the child: builds, stores, answers."""
        context, attempt = self.context, spec.attempts[index]
        trt = find("full")
        handle = os.open(
            str(context.folder / LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

        def write(line: str) -> None:
            os.write(handle, (line + "\n").encode("utf-8", "backslashreplace"))

        cached = timing_file(context.root.folder, self.board)
        timing = cached if self.request.timing_cache else None
        cache = context.blob(spec.calibration) if spec.calibration is not None else None
        log = BuilderLog(trt, write)
        built = build_attempt(
            trt, log, spec, attempt, model=self._model(spec), cache=cache, timing=timing,
            on_progress=on_progress, cancelled=context.cancelled,
        )  # fmt: skip
        return self._stored(spec, built, log, trt)

    def _stored(
        self, spec: EngineSpec, built: BuiltEngine, log: BuilderLog, trt: Any
    ) -> Dict[str, Any]:
        version = self.board["tensorrt"] or str(trt.__version__)
        if not spec.standalone:
            # four parts, which modules say from 10.14 on; plans have the header from 8.6 on
            with suppress(DeviceError):
                version = show(read_header(built.data, spec.key))
        return {
            "engine": self.context.store(built.data),
            "bytes": len(built.data),
            "tensorrt": version,
            "flags": list(built.flags),
            "can_run_on_dla": built.can_run_on_dla,
            "unmapped": built.unmapped,
            "timing_cache": built.timing_cache,
            "log": self.context.store(log.text().encode("utf-8", "backslashreplace")),
            "notes": built.notes,
        }

    def _facts(self, spec: EngineSpec, made: Mapping[str, Any]) -> Dict[str, Any]:
        """In a child: loads the plan."""
        found = plan_facts(
            find("full"),
            self.context.blob(made["engine"]),
            spec,
            made["flags"],
            model=self._model(spec),
            scales=self._scales(spec),
            dla=self.generation,
            temporary=self.context.work,
        )
        return {
            "io": found.io,
            "weights": found.weights,
            "inspector": found.inspector,
            "full": None if found.full is None else self.context.store(found.full),
            "full_bytes": None if found.full is None else len(found.full),
            "notes": found.notes,
        }

    def _model(self, spec: EngineSpec) -> Path:
        store = self.context.root.store
        data = {name: store.path(digest) for name, digest in spec.data.items()}
        return model_file(self.context.work / spec.key, store.path(spec.model), data)

    def _scales(self, spec: EngineSpec) -> Dict[str, float]:
        cache = self.context.blob(spec.calibration) if spec.calibration is not None else None
        return calibration_of(spec, cache)


def _causes(tries: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for number, one in enumerate(tries, 1):
        parts.append(
            "({}) {}: {}".format(number, " ".join(one["flags"]) or "no flags", one["error"])
        )
    return "; ".join(parts)


def _has_next(error: DeviceError) -> bool:
    if isinstance(error, JobCancelled) or error.code == "job.cancelled":
        return False
    return error.code in _NEXT or error.code.startswith(_NEXT_KINDS)


def _on_progress(on_progress: Report, phase: str) -> Callable[[int, int, str], None]:
    """Passes texts on at most once a second: each one is an event that is stored."""
    last: List[Tuple[str, float]] = [("", 0.0)]

    def report(done: int, total: int, text: str) -> None:
        known, when = last[0]
        now = time.monotonic()
        if text != known and (now - when >= _TEXT_EVERY_S or not total):
            last[0] = (text, now)
        else:
            text = ""
        on_progress(phase, done, total, text)

    return report


def entry_of(
    spec: EngineSpec,
    made: Mapping[str, Any],
    facts: Mapping[str, Any],
    inspector: Optional[str],
    notes: List[str],
) -> Dict[str, Any]:
    """The entry of an engine that was built, without what its attempts add.

    Args:
        spec: The engine.
        made: What the attempt gave.
        facts: From loading the plan, or from the request.
        inspector: Digest of the inspector's JSON, None without.
        notes: Gets a sentence for each irregularity.
    """
    flags = made["flags"]
    text = facts["inspector"]
    layers: List[Dict[str, str]] = []
    odd: List[str] = []
    if not spec.standalone:
        layers, odd = summary(text)
    # what goes from one segment to the next in a format that both have; a reformat to LINEAR is no
    # surprise: the network's own tensors have it, and borders whose format the GPU lacks
    formatted = [
        io.name for io in (*spec.inputs, *spec.outputs) if io.formats and "LINEAR" not in io.formats
    ]
    notes.extend(made["notes"])
    notes.extend(facts["notes"])
    notes.extend("{}: {}".format(spec.key, text) for text in odd)
    compatible = "VERSION_COMPATIBLE" in flags
    return {
        "key": spec.key,
        "kind": spec.kind,
        "engine": made["engine"],
        "full": facts["full"],
        "bytes": made["bytes"],
        "full_bytes": facts["full_bytes"],
        "tensorrt": made["tensorrt"],
        "flags": flags,
        "stripped": "STRIP_PLAN" in flags,
        "version_compatible": compatible,
        "lean_embedded": compatible and "EXCLUDE_LEAN_RUNTIME" not in flags,
        "refit": refit_kind(flags),
        "dla_core": spec.dla_core,
        "weights": facts["weights"],
        "io": facts["io"],
        "can_run_on_dla": made["can_run_on_dla"],
        "unmapped": made["unmapped"],
        "layers": layers,
        "reformats": reformats(text, formatted),
        "inspector": inspector,
        "log": made["log"],
        "timing_cache": made["timing_cache"],
    }
