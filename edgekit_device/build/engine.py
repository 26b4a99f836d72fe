"""Builds an engine: its attempts in order, the result of the successful attempt, and its entry."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from edgekit_device.build.attempt import ATTEMPT, CRASHED, PLUGINS, BuilderLog, run_isolated
from edgekit_device.build.builder import build_attempt, calibration_scales, timing_file
from edgekit_device.build.config import refit_kind
from edgekit_device.build.inspection import (
    PlanFacts,
    plan_facts,
    reformats,
    requested_io,
    summarise,
)
from edgekit_device.build.network import model_file
from edgekit_device.build.request import (
    AttemptResult,
    BuildJobRequest,
    BuiltEngine,
    EngineResult,
    EngineSpec,
    TimingCacheUse,
)
from edgekit_device.errors import DeviceError, family
from edgekit_device.jobs.job import LOG, JobCancelled, JobContext
from edgekit_device.processes import Report
from edgekit_device.protocol.codec import (
    array,
    digest,
    document,
    flag,
    integer,
    long_text,
    mapping,
    member,
    read,
    record,
    text,
)
from edgekit_device.tensorrt.bindings import find_module
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.tensorrt.plugins import PluginFile, plugin_files
from edgekit_device.versions import show

# failures that other flags may avoid: the builder's refusal or crash, and a plan unusable here
_NEXT = (ATTEMPT, PLUGINS, CRASHED, "build.no-memory", "board.no-memory")
_NEXT_FAMILIES = ("engine", "refit", "tensorrt")
_TEXT_EVERY_S = 1.0


@document(frozen=True)
class MadeEngine:
    """The result of a successful attempt, as its process stored it.

    Attributes:
        engine: Digest of the plan or the loadable.
        flags, can_run_on_dla, unmapped, timing_cache, notes, plugins_embedded, settings: As in
            ``BuiltEngine``.
        log: Digest of the builder's log.
    """

    engine: str = member(digest)
    bytes: int = member(integer(0, 1 << 44))
    tensorrt: str = member(text())
    flags: Tuple[str, ...] = member(array(text()))
    can_run_on_dla: Mapping[str, bool] = member(mapping(flag))
    unmapped: Tuple[str, ...] = member(array(text()))
    timing_cache: TimingCacheUse = member(record(TimingCacheUse))
    log: str = member(digest)
    notes: Tuple[str, ...] = member(array(long_text))
    plugins_embedded: bool = member(flag, absent=False)
    settings: Mapping[str, str] = member(mapping(text()), absent=dict)


class EngineBuild:
    """Builds a request's engines one by one."""

    def __init__(
        self, context: JobContext, request: BuildJobRequest, board: Mapping[str, str]
    ) -> None:
        self.context = context
        self.request = request
        self.board = board

    def engine(self, spec: EngineSpec, notes: List[str]) -> EngineResult:
        """Builds an engine.

        Raises:
            DeviceError: "build.failed" with the cause of every attempt, or an error that no other
                attempt can avoid.
            JobCancelled: The job was cancelled.
        """
        began = time.monotonic()
        # failed attempts too: the result has the reason why a feature was given up
        tries: List[AttemptResult] = []
        for index, attempt in enumerate(spec.attempts):
            self.context.check_cancelled()
            start = time.monotonic()
            try:
                entry = self._attempt(spec, index, notes)
                error: Optional[DeviceError] = None
            except DeviceError as raised:
                # such as a lack of a DLA: the same for every set of flags
                if not _may_retry(raised):
                    raise
                error = raised
                self.context.log("attempt {} at {} failed: {}".format(index, spec.key, raised))
            tries.append(
                AttemptResult(
                    flags=attempt.flags,
                    ok=error is None,
                    seconds=round(time.monotonic() - start, 3),
                    error=None if error is None else error.message,
                    code=None if error is None else error.code,
                )
            )
            if error is None:
                if attempt.gives_up:
                    notes.append("{}: {}".format(spec.key, attempt.gives_up))
                seconds = round(time.monotonic() - began, 3)
                return replace(entry, attempts=tuple(tries), seconds=seconds)
        causes = (
            "({}) {}: {}".format(number, " ".join(attempt.flags) or "no flags", attempt.error)
            for number, attempt in enumerate(tries, 1)
        )
        raise DeviceError(
            "all attempts at {} failed: {}".format(spec.key, "; ".join(causes)),
            code="build.failed",
            where=spec.key,
            hint="`edgekit jobs log` shows the builder's full output; to ask for less, set "
            "build.strip: false and build.version_compatible: false",
        )

    def _attempt(self, spec: EngineSpec, index: int, notes: List[str]) -> EngineResult:
        phase = "build {}".format(spec.key)
        if len(spec.attempts) > 1:
            phase += ", attempt {} of {}".format(index + 1, len(spec.attempts))
        self.context.progress(phase, 0, 0)

        def build(on_progress: Report) -> MadeEngine:
            return self._build(spec, index, _on_progress(on_progress, phase))

        made = read(MadeEngine, run_isolated(self.context, build), spec.key)
        facts = PlanFacts(requested_io(spec, self._scales(spec), self.request.dla))
        if not spec.standalone:
            self.context.progress(phase, 0, 0, "loading the plan")
            # another process: the builder's memory is free, and a crash at loading is a failed
            # attempt
            found = run_isolated(self.context, lambda _: self._inspect(spec, made))
            facts = read(PlanFacts, found, spec.key)
        text = facts.inspector
        stored = self.context.store(text.encode("utf-8")) if text else None
        return make_entry(spec, index, made, facts, stored, notes)

    def _build(self, spec: EngineSpec, index: int, on_progress: Callable[..., None]) -> MadeEngine:
        """Builds and stores an attempt; runs in the child."""
        context, attempt = self.context, spec.attempts[index]
        trt = find_module("full")
        # shared with the parent, which also writes to the job's log: each line is appended as a
        # whole
        handle = os.open(
            str(context.folder / LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

        def log_line(line: str) -> None:
            os.write(handle, (line + "\n").encode("utf-8", "backslashreplace"))

        cached = timing_file(context.root.folder, self.board, editable=spec.editable_cache)
        timing = cached if self.request.timing_cache else None
        cache = context.blob(spec.calibration) if spec.calibration is not None else None
        log = BuilderLog(trt, log_line)
        built = build_attempt(
            trt,
            log,
            spec,
            attempt,
            model=self._model(spec),
            cache=cache,
            timing=timing,
            plugins=self.plugins(),
            on_progress=on_progress,
            cancelled=context.cancelled,
        )
        return self._store(spec, built, log, trt)

    def _store(self, spec: EngineSpec, built: BuiltEngine, log: BuilderLog, trt: Any) -> MadeEngine:
        version = self.board["tensorrt"] or str(trt.__version__)
        if not spec.standalone:
            # four parts: modules report these since 10.14, plans have the header since 8.6
            with suppress(DeviceError):
                version = show(read_header(built.data, spec.key))
        return MadeEngine(
            engine=self.context.store(built.data),
            bytes=len(built.data),
            tensorrt=version,
            flags=built.flags,
            can_run_on_dla=built.can_run_on_dla,
            unmapped=tuple(built.unmapped),
            timing_cache=built.timing_cache,
            log=self.context.store(log.text().encode("utf-8", "backslashreplace")),
            notes=tuple(built.notes),
            plugins_embedded=built.plugins_embedded,
            settings=built.settings,
        )

    def plugins(self) -> Tuple[PluginFile, ...]:
        """Returns the request's plugins, with their libraries in this process's memory."""
        return plugin_files(self.request.plugins, self.context.blob)

    def _inspect(self, spec: EngineSpec, made: MadeEngine) -> PlanFacts:
        """Loads the plan and returns its facts; runs in a child."""
        return plan_facts(
            find_module("full"),
            self.context.blob(made.engine),
            spec,
            made.flags,
            model=self._model(spec),
            scales=self._scales(spec),
            dla=self.request.dla,
            store=self.context.store,
            temporary=self.context.work,
            plugins=self.plugins(),
            plugins_embedded=made.plugins_embedded,
        )

    def _model(self, spec: EngineSpec) -> Path:
        store = self.context.root.store
        data = {name: store.path(digest) for name, digest in spec.data.items()}
        return model_file(self.context.work / spec.key, store.path(spec.model), data)

    def _scales(self, spec: EngineSpec) -> Dict[str, float]:
        cache = self.context.blob(spec.calibration) if spec.calibration is not None else None
        return calibration_scales(spec, cache)


def _may_retry(error: DeviceError) -> bool:
    if isinstance(error, JobCancelled) or error.code == "job.cancelled":
        return False
    return error.code in _NEXT or family(error.code) in _NEXT_FAMILIES


def _on_progress(on_progress: Report, phase: str) -> Callable[[int, int, str], None]:
    """Returns a callback that forwards texts at most once a second: each is a stored event."""
    last: List[Tuple[str, float]] = [("", 0.0)]

    def report(done: int, total: int, text: str) -> None:
        known, when = last[0]
        now = time.monotonic()
        # a stage without a count (``total`` 0) has only its text, so that is never dropped
        if text != known and (now - when >= _TEXT_EVERY_S or not total):
            last[0] = (text, now)
        else:
            text = ""
        on_progress(phase, done, total, text)

    return report


def make_entry(
    spec: EngineSpec,
    index: int,
    made: MadeEngine,
    facts: PlanFacts,
    inspector: Optional[str],
    notes: List[str],
) -> EngineResult:
    """Returns the entry of a built engine, without its attempts and their time.

    Args:
        spec: The engine.
        index: Index of the successful attempt.
        made: The attempt's result.
        facts: Facts from loading the plan, or from the request.
        inspector: Digest of the inspector's JSON; None without.
        notes: Gets a sentence for each irregularity.
    """
    flags = made.flags
    layers, layer_notes = ((), []) if spec.standalone else summarise(facts.inspector)
    # tensors between segments in a format that both support; a reformat to LINEAR is expected: the
    # network's own tensors have it, and borders whose format the GPU lacks
    formatted = [
        io.name for io in (*spec.inputs, *spec.outputs) if io.formats and "LINEAR" not in io.formats
    ]
    notes.extend((*made.notes, *facts.notes))
    notes.extend("{}: {}".format(spec.key, text) for text in layer_notes)
    compatible = "VERSION_COMPATIBLE" in flags
    return EngineResult(
        key=spec.key,
        kind=spec.kind,
        engine=made.engine,
        full=facts.full,
        bytes=made.bytes,
        full_bytes=facts.full_bytes,
        tensorrt=made.tensorrt,
        flags=flags,
        stripped="STRIP_PLAN" in flags,
        version_compatible=compatible,
        lean_embedded=compatible and "EXCLUDE_LEAN_RUNTIME" not in flags,
        refit=refit_kind(flags),
        dla_core=spec.dla_core,
        weights=facts.weights,
        io=facts.io,
        can_run_on_dla=made.can_run_on_dla,
        unmapped=made.unmapped,
        layers=layers,
        reformats=reformats(facts.inspector, formatted),
        inspector=inspector,
        log=made.log,
        timing_cache=made.timing_cache,
        attempt=index,
        plugins_embedded=made.plugins_embedded,
        device_bytes=facts.device_bytes,
        settings=made.settings,
    )
