"""An attempt at an engine through TensorRT's Python API, from 8.5 to 11: its progress, and the
timing cache that all builds on a kind of board share.

Weakly typed (to 10.x): precision flags, a calibration cache, precisions of layers. Strongly typed
(11): the network's types determine these. A release's features are read from its module.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from edgekit_device.build import config as configure
from edgekit_device.build import network as networks
from edgekit_device.build.attempt import (
    BuilderLog,
    build_error,
    check_callbacks,
    check_loadable,
    check_plugins,
    check_standalone,
    note_missing,
)
from edgekit_device.build.config import adapt_cache, calibrator, read_scales
from edgekit_device.build.network import MappedLayers, map_layers, read_layers
from edgekit_device.build.request import (
    Attempt,
    BuiltEngine,
    EngineSpec,
    TimingCacheUse,
    request_digest,
)
from edgekit_device.build.settings import apply_settings, read_flags
from edgekit_device.errors import listed, map_os_errors
from edgekit_device.files import locked, write_durably
from edgekit_device.jobs.job import JobCancelled
from edgekit_device.tensorrt.plugins import PluginFile, library_paths

#: Number of steps of a whole build, independent of TensorRT's own count.
STEPS = 1000


def calibration_scales(spec: EngineSpec, cache: Optional[bytes]) -> Dict[str, float]:
    """Returns the scales of the engine's calibration cache by tensor; empty without a cache."""
    return read_scales(cache) if cache is not None and spec.typing == "weak" else {}


def build_attempt(
    trt: Any,
    log: BuilderLog,
    spec: EngineSpec,
    attempt: Attempt,
    *,
    model: Path,
    cache: Optional[bytes],
    timing: Optional[Path],
    plugins: Sequence[PluginFile] = (),
    on_progress: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> BuiltEngine:
    """Builds the engine with one set of flags.

    Args:
        trt: TensorRT's module.
        log: Its logger is the builder's.
        spec: The engine.
        attempt: The flags.
        model: The ONNX file.
        cache: The calibration cache's bytes; None without.
        timing: The timing cache's file; None to build without.
        plugins: Plugins that the model needs beside TensorRT's own.
        on_progress: Called with (done, total, name of the stage).
        cancelled: Returns True to stop.

    Raises:
        DeviceError: "build.attempt" or "build.plugins" if other flags may help;
            "build.no-memory"; "build.typing", "build.parser", "build.io",
            "build.no-dla", "build.not-on-dla", "build.calibration" and others if no flags help.
        JobCancelled: ``cancelled`` returned True.
    """
    mark = log.mark()
    scales = calibration_scales(spec, cache)
    check_loadable(spec, scales)
    builder = trt.Builder(log.logger)
    network = networks.create(trt, builder, spec)
    native = "VERSION_COMPATIBLE" in attempt.flags
    # kept alive to the end: the parser owns the memory of the network's weights
    parser = networks.parse(
        trt, network, log.logger, model, spec.key, native=native, plugins=plugins
    )
    if native and hasattr(parser, "get_used_vc_plugin_libraries"):  # as the flag, since 8.6
        check_plugins(spec, attempt.flags, list(parser.get_used_vc_plugin_libraries()))
    config = builder.create_builder_config()
    built = BuiltEngine(b"")
    mapped = _set_up(trt, builder, network, config, spec, attempt, scales, built)
    libraries = library_paths(plugins)
    # a version compatible plan carries the plugins' libraries; since 8.6
    compatible = "VERSION_COMPATIBLE" in built.flags
    if compatible and libraries and hasattr(config, "plugins_to_serialize"):
        config.plugins_to_serialize = libraries
        built.plugins_embedded = True
    # before the build, which takes minutes
    if spec.standalone:
        check_standalone(spec, mapped, built, log.since(mark, "WEF"))
    requested: List[List[str]] = []
    # TensorRT has only the addresses of these objects
    held = [parser, _calibrate(trt, config, spec, cache, requested, built)]
    held.append(_set_monitor(trt, config, log, on_progress, cancelled))
    timing_cache = TimingCache(timing) if timing is not None else None
    if timing_cache is not None:
        timing_cache.set(config)
    building = log.mark()
    try:
        memory = builder.build_serialized_network(network, config)
    except (RuntimeError, ValueError) as error:  # the bindings' translations of C++ exceptions
        raise build_error(spec, log, building, str(error)) from error
    finally:
        # the log outlives this build
        log.stage = None
    # a stopped build returns None like a failed build: first find out which it is
    if cancelled():
        raise JobCancelled
    # before the plan is looked at: a callback's error is the cause, whatever TensorRT reports
    check_callbacks(spec, log, requested, scales, mapped)
    if memory is None:
        # earlier refusals, such as a weight's name, are not the cause of this failure
        raise build_error(spec, log, building)
    built.data = bytes(memory)
    note_missing(spec, mapped, log.since(mark, "WEF"), built)
    if timing_cache is not None:
        timing_cache.keep(config)
        built.timing_cache = timing_cache.facts
        built.notes += ["{}: {}".format(spec.key, note) for note in timing_cache.notes]
    on_progress(STEPS, STEPS, "built")
    # ``held`` last: the other objects have addresses of its contents
    del memory, config, network, builder
    held.clear()
    return built


def _set_up(
    trt: Any,
    builder: Any,
    network: Any,
    config: Any,
    spec: EngineSpec,
    attempt: Attempt,
    scales: Dict[str, float],
    built: BuiltEngine,
) -> MappedLayers:
    configure.set_basics(trt, builder, config, spec, built.notes)
    # the flags that TensorRT has set, not those requested, decide about calibration and refit marks
    flags = configure.set_flags(trt, config, spec, attempt.flags, built.notes)
    built.settings = apply_settings(trt, config, spec.settings, spec.key, built.notes)
    built.flags = (*flags, *read_flags(trt, config, spec.settings))
    networks.set_io(trt, network, spec, scales)
    configure.set_profiles(trt, builder, config, spec, built.flags)
    mapped = _map_layers(network, spec, built)
    configure.set_devices(trt, config, spec, mapped)
    configure.set_precisions(trt, spec, mapped)
    # after devices and precisions, on which the answer depends
    built.can_run_on_dla = configure.can_run(config, spec, mapped)
    if "REFIT_INDIVIDUAL" in built.flags:
        refused = configure.mark_refittable(network, spec.refit_individual, spec.key, built.notes)
        if refused:
            names = listed(map(repr, refused))
            built.notes.append("{}: TensorRT cannot refit {}".format(spec.key, names))
    return mapped


def _map_layers(network: Any, spec: EngineSpec, built: BuiltEngine) -> MappedLayers:
    mapped = map_layers(read_layers(network), spec.layers)
    built.unmapped = mapped.unmapped
    if mapped.lost:
        names = listed(map(repr, mapped.lost))
        built.notes.append(
            "{}: the builder has no layer for {} of the plan's: {}".format(
                spec.key, len(mapped.lost), names
            )
        )
    return mapped


def _calibrate(
    trt: Any,
    config: Any,
    spec: EngineSpec,
    cache: Optional[bytes],
    requested: List[List[str]],
    built: BuiltEngine,
) -> Any:
    if cache is None or "INT8" not in built.flags:
        return None
    cache_calibrator = calibrator(trt, adapt_cache(cache, str(trt.__version__)), requested.append)
    if cache_calibrator is None:
        built.notes.append("{}: this TensorRT does not support calibration caches".format(spec.key))
        return None
    config.int8_calibrator = cache_calibrator
    return cache_calibrator


def _set_monitor(
    trt: Any,
    config: Any,
    log: BuilderLog,
    on_progress: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> Any:
    def crashed(error: BaseException) -> None:
        log.crashed = log.crashed or error

    progress_monitor = monitor(
        trt, lambda done, name: on_progress(done, STEPS, name), cancelled, crashed
    )
    if progress_monitor is not None:
        config.progress_monitor = progress_monitor
        return progress_monitor
    stages: List[str] = []

    def stage(name: str) -> None:
        # the builder repeats some stages for every part of the network
        if name not in stages:
            stages.append(name)
            on_progress(0, 0, name)

    log.stage = stage
    return None


class Phases:
    """The progress of nested phases with steps, as a single fraction that never decreases.

    A phase's current step counts as much as the furthest of its inner phases.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: Dict[str, int] = {}
        self._done: Dict[str, int] = {}
        self._parent: Dict[str, Optional[str]] = {}
        self._reached = 0

    def start(self, name: str, parent: Optional[str], steps: int) -> None:
        """Begins a phase of ``steps`` steps inside ``parent`` (None: the outermost)."""
        with self._lock:
            self._steps[name], self._done[name] = max(int(steps), 1), 0
            self._parent[name] = parent if parent in self._steps else None

    def step(self, name: str, step: int) -> None:
        """Records that step ``step`` (from 0) of a phase is complete."""
        with self._lock:
            if name in self._steps:
                # threads may report steps out of order
                self._done[name] = max(self._done[name], min(int(step) + 1, self._steps[name]))

    def finish(self, name: str) -> None:
        """Ends a phase."""
        with self._lock:
            # a phase that ends early, as after a cancellation, is not done
            for table in (self._steps, self._done, self._parent):
                table.pop(name, None)

    def steps_done(self) -> int:
        """Returns the number of ``STEPS`` that are done."""
        with self._lock:
            roots = [name for name, parent in self._parent.items() if parent is None]
            if roots:
                # several outermost phases may overlap: the furthest counts
                fraction = max(self._fraction(name, 0) for name in roots)
                self._reached = max(self._reached, min(int(fraction * STEPS), STEPS))
            return self._reached

    def _fraction(self, name: str, depth: int) -> float:
        inner = [
            self._fraction(child, depth + 1)
            for child, parent in self._parent.items()
            # limited: phases are known by name, and one inside a phase of its own name would
            # contain itself
            if parent == name and depth < 16
        ]
        done, steps = self._done[name], self._steps[name]
        if done >= steps:
            return 1.0
        return (done + max(inner, default=0.0)) / steps


def monitor(
    trt: Any,
    on_progress: Callable[[int, str], None],
    cancelled: Callable[[], bool],
    crashed: Callable[[BaseException], None],
) -> Optional[Any]:
    """Returns an IProgressMonitor; None for a release without it (before 10.0).

    Args:
        trt: TensorRT's module.
        on_progress: Called with (steps of ``STEPS``, phase) when the number of steps changes, from
            TensorRT's threads.
        cancelled: Called after every step; the build stops once it returns True.
        crashed: Called with an exception raised here, which TensorRT would discard.
    """
    if not hasattr(trt, "IProgressMonitor"):
        return None
    phases = Phases()
    last = [(-1, "")]

    def report(name: str) -> None:
        progress = (phases.steps_done(), name)
        # TensorRT reports thousands of steps, and each report here is an event of the job
        if progress[0] != last[0][0]:
            last[0] = progress
            on_progress(*progress)

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # known only when it runs
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: Optional[str], num_steps: int) -> None:
            try:
                phases.start(phase_name, parent_phase, num_steps)
                report(phase_name)
            except BaseException as error:
                crashed(error)

        def step_complete(self, phase_name: str, step: int) -> bool:
            try:
                phases.step(phase_name, step)
                report(phase_name)
                # False stops the build at this step
                return not cancelled()
            except BaseException as error:
                crashed(error)
                return False

        def phase_finish(self, phase_name: str) -> None:
            try:
                phases.finish(phase_name)
                report(phase_name)
            except BaseException as error:
                crashed(error)

    return Monitor()


# A build reads the file at its start, and at its end merges its measurements into the current file,
# so that no build waits for another and no measurement is lost.
def timing_file(root: Path, fingerprint: Mapping[str, str], *, editable: bool = False) -> Path:
    """Returns the cache's file for boards with this fingerprint.

    An editable cache has its own file: it is undocumented if a builder without the flag reads it.
    """
    ending = ".editable.cache" if editable else ".cache"
    return root / "timing" / (request_digest(dict(fingerprint)) + ending)


class TimingCache:
    """A build's use of the shared timing cache file.

    Attributes:
        facts: The use so far.
        notes: Errors of the cache; a build continues without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: List[str] = []
        self.facts = TimingCacheUse(0, 0, False)
        self._read = b""

    def set(self, config: Any) -> None:
        """Gives the file's entries to an IBuilderConfig, or an empty cache to fill."""
        self._read = self._read_file()
        self.facts = replace(self.facts, entries_bytes_before=len(self._read))
        empty = self._parse(config, b"")
        if self._read:
            cache = self._parse(config, self._read)
            # for a damaged file TensorRT makes an empty cache and only logs a warning
            filled = cache is not None and _cache_bytes(cache) != _cache_bytes(empty)
            # measurements of another device or release are refused here, never merged
            if filled and config.set_timing_cache(cache, False):
                self.facts = replace(self.facts, reused=True)
                return
            self.notes.append(
                "the timing cache is damaged or from another device; a new one is started"
            )
            self._read = b""
        if empty is None or not config.set_timing_cache(empty, False):
            self.notes.append("TensorRT made no timing cache")

    def keep(self, config: Any) -> None:
        """Merges the build's measurements into the file."""
        cache = config.get_timing_cache()
        if cache is None:
            return
        with map_os_errors(str(self.path)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        # read, merge and write under one lock: two builds that end together lose no entries
        with locked(self.path.with_suffix(".lock")):
            data = self._merge(config, _copy_bytes(cache.serialize()))
            if data:
                with map_os_errors(str(self.path)):
                    write_durably(self.path, data)
            self.facts = replace(self.facts, after=len(data))

    def _merge(self, config: Any, own: bytes) -> bytes:
        now = self._read_file()
        # the file is unchanged since the start, so this build's cache already contains it
        if not own or not now or now == self._read:
            return own
        # the builder's own cache is only read: entries are merged into a copy
        copy, others = self._parse(config, own), self._parse(config, now)
        if copy is None or others is None or not copy.combine(others, False):
            self.notes.append("another build's timing cache could not be added")
            return own
        return _copy_bytes(copy.serialize()) or own

    def _read_file(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _parse(self, config: Any, data: bytes) -> Any:
        try:
            return config.create_timing_cache(data)
        except Exception as error:  # the bindings raise RuntimeError and pybind11's own errors
            self.notes.append("the timing cache cannot be read: {}".format(error))
            return None


def _cache_bytes(cache: Any) -> bytes:
    return b"" if cache is None else _copy_bytes(cache.serialize())


def _copy_bytes(memory: Any) -> bytes:
    return bytes(memory) if memory is not None else b""
