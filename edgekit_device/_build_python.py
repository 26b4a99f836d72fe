"""One attempt at one engine through TensorRT's Python API, from 8.5 to 11.

Weakly typed (to 10.x): precision flags, a calibration cache, precisions of layers. Strongly typed
(11): all of that stands in the network's types. What a release has is asked of its module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from . import _build_config as configure
from . import _build_network as networks
from ._build_attempt import (
    check_callbacks,
    check_loadable,
    check_plugins,
    check_standalone,
    failed,
    note_missing,
)
from ._build_cache import TimingCache
from ._build_calibrator import calibrator, for_release, read_scales
from ._build_log import BuildLog
from ._build_names import Mapped, map_layers, read_layers
from ._build_progress import STEPS, monitor
from ._build_types import Attempt, Built, EngineSpec
from ._job import JobCancelled

__all__ = ["build_attempt", "calibration_of"]

_SHOWN = 10


def calibration_of(spec: EngineSpec, cache: Optional[bytes]) -> Dict[str, float]:
    """Scales by tensor of the engine's calibration cache; none without one."""
    return read_scales(cache) if cache is not None and spec.typing == "weak" else {}


def build_attempt(
    trt: Any,
    log: BuildLog,
    spec: EngineSpec,
    attempt: Attempt,
    *,
    model: Path,
    cache: Optional[bytes],
    timing: Optional[Path],
    tell: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> Built:
    """Builds the engine with one set of flags.

    Args:
        trt: TensorRT's module.
        log: Its logger is the builder's.
        spec: The engine.
        attempt: The flags.
        model: The ONNX file.
        cache: The calibration cache's bytes.
        timing: The timing cache's file; None to build without.
        tell: Told of progress as (done, total, what).
        cancelled: Whether to stop.

    Raises:
        DeviceError: "build.attempt" or "build.plugins" where other flags may help;
            "build.no-memory"; "build.parser", "build.io",
            "build.no-dla", "build.not-on-dla", "build.calibration" and others where none will.
        JobCancelled: ``cancelled`` said so.
    """
    mark = log.mark()
    scales = calibration_of(spec, cache)
    check_loadable(spec, scales)
    builder = trt.Builder(log.logger)
    network = networks.create(trt, builder, spec)
    # held to the end: the network's weights are the parser's memory
    native = "VERSION_COMPATIBLE" in attempt.flags
    parser = networks.parse(trt, network, log.logger, model, spec.key, native=native)
    if native and hasattr(parser, "get_used_vc_plugin_libraries"):  # as the flag, since 8.6
        check_plugins(spec, attempt.flags, list(parser.get_used_vc_plugin_libraries()))
    config = builder.create_builder_config()
    built = Built(b"")
    mapped = _set_up(trt, builder, network, config, spec, attempt, scales, built)
    if spec.standalone:
        check_standalone(spec, mapped, built, log.since(mark, "WEF"))
    asked: List[List[str]] = []
    held = [parser, _calibrate(trt, config, spec, cache, asked, built)]
    held.append(_watch(trt, config, log, tell, cancelled))
    kept = TimingCache(timing) if timing is not None else None
    if kept is not None:
        kept.set(config)
    try:
        memory = builder.build_serialized_network(network, config)
    except (RuntimeError, ValueError) as error:  # C++ exceptions, as the bindings translate them
        raise failed(spec, log, mark, str(error)) from error
    finally:
        log.stage = None
    if cancelled():
        raise JobCancelled
    check_callbacks(spec, log, asked, scales, mapped)
    if memory is None:
        raise failed(spec, log, mark)
    built.data = bytes(memory)
    note_missing(spec, mapped, log.since(mark, "WEF"), built)
    if kept is not None:
        kept.keep(config)
        built.timing_cache = kept.facts
        built.notes += ["{}: {}".format(spec.key, note) for note in kept.notes]
    tell(STEPS, STEPS, "built")
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
    built: Built,
) -> Mapped:
    configure.set_basics(trt, builder, config, spec, built.notes)
    built.flags = configure.set_flags(trt, config, spec, attempt.flags, built.notes)
    networks.set_io(trt, network, spec, scales)
    configure.set_profiles(builder, config, spec)
    mapped = _map(network, spec, built)
    configure.set_devices(trt, config, spec, mapped)
    configure.set_precisions(trt, spec, mapped)
    built.can_run_on_dla = configure.can_run(config, spec, mapped)
    if "REFIT_INDIVIDUAL" in built.flags:
        refused = configure.mark_refittable(network, spec.refit_individual, spec.key, built.notes)
        if refused:
            names = ", ".join(map(repr, refused[:_SHOWN]))
            built.notes.append("{}: TensorRT cannot refit {}".format(spec.key, names))
    return mapped


def _map(network: Any, spec: EngineSpec, built: Built) -> Mapped:
    mapped = map_layers(read_layers(network), spec.layers)
    built.unmapped = mapped.unmapped
    if mapped.lost:
        names = ", ".join(map(repr, mapped.lost[:_SHOWN]))
        built.notes.append(
            "{}: no layer of the builder stands for {} of the plan's: {}".format(
                spec.key, len(mapped.lost), names
            )
        )
    return mapped


def _calibrate(
    trt: Any,
    config: Any,
    spec: EngineSpec,
    cache: Optional[bytes],
    asked: List[List[str]],
    built: Built,
) -> Any:
    if cache is None or "INT8" not in built.flags:
        return None
    served = calibrator(trt, for_release(cache, str(trt.__version__)), asked.append)
    if served is None:
        built.notes.append("{}: this TensorRT takes no calibration cache".format(spec.key))
        return None
    config.int8_calibrator = served
    return served


def _watch(
    trt: Any,
    config: Any,
    log: BuildLog,
    tell: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> Any:
    def crashed(error: BaseException) -> None:
        log.crashed = log.crashed or error

    watching = monitor(trt, lambda done, name: tell(done, STEPS, name), cancelled, crashed)
    if watching is not None:
        config.progress_monitor = watching
        return watching
    stages: List[str] = []

    def stage(name: str) -> None:
        # the builder comes back to some stages for every part of the network
        if name not in stages:
            stages.append(name)
            tell(0, 0, name)

    log.stage = stage
    return None
