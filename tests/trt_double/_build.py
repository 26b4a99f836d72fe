"""Builder.build_serialized_network: rules, progress, log lines and the plan."""

import os
import threading
from typing import Any

from ._behaviour import plays
from ._build_log import log_build
from ._plan_facts import facts_of, model_of
from ._plan_format import write
from ._play_base import emit
from ._play_cache import host_memory, time_layers
from ._play_config import flag_names, held
from ._rules import failures
from ._stub_loadable import stub_loadable

_FREE = {"CONSTANT"}  # weights of their neighbours: neither device runs them


def placement(network: Any, config: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Layers on DLA, on GPU, and of these the ones that DLA was asked for and cannot run."""
    on_dla, on_gpu, refused = [], [], []
    state, settings = config._s, network._s.double.settings
    weak = not network._s.strongly_typed
    slow = weak and not {"FP16", "INT8"} & set(flag_names(config))
    narrow = set() if weak else _narrow(network)
    for layer in network._s.layers:
        if layer._s.kind_name in _FREE:
            continue
        requested = state.device_types.get(id(layer), state.default_device_type).name == "DLA"
        fits = not slow and (weak or id(layer) in narrow) and settings.can_run_on_dla(layer)
        if requested and settings.dla_cores and fits:
            on_dla.append(layer)
        else:
            on_gpu.append(layer)
            if requested:
                refused.append(layer)
    return on_dla, on_gpu, refused


def _narrow(network: Any) -> set[int]:
    """The strongly typed layers that compute in a type that DLAs have, by their `id`.

    Floats count as INT8 as far as they only come from DequantizeLinear: those layers fuse up to
    the next QuantizeLinear.
    """
    found: set[int] = set()
    codes: set[int] = set()  # tensors whose values are codes times a scale
    for layer in network._s.layers:
        outputs = {id(one) for one in layer._s.outputs}
        kind = layer._s.kind_name
        if kind in ("QUANTIZE", "DEQUANTIZE", *_FREE):
            found.add(id(layer))
            codes |= outputs
        elif any(one._s.dtype.name in ("HALF", "INT8") for one in layer._s.outputs):
            found.add(id(layer))
        elif layer._s.inputs and all(id(one) in codes for one in layer._s.inputs):
            found.add(id(layer))
            codes |= outputs
    return found


@plays("Builder", "build_serialized_network")
def _build(this: Any, network: Any, config: Any, kernel_text: Any = None) -> Any:
    double, logger = this._s.double, this._s.logger
    double.builds.append(flag_names(config))
    double.held.append(held(config))
    on_dla, on_gpu, refused = placement(network, config)
    if "VERSION_COMPATIBLE" in flag_names(config) and not config._s.plugins_to_serialize:
        for layer in on_gpu:
            if layer._s.kind_name in ("PLUGIN_V2", "PLUGIN_V3"):
                double.offend(f"VERSION_COMPATIBLE without the library of {layer._s.name}'s plugin")
    scales = _calibrate(network, config)
    log_build(double, logger, config, on_dla, on_gpu, refused)
    reasons = list(failures(network, config, (on_dla, on_gpu, refused)))
    if reasons:
        text = f"IBuilder::buildSerializedNetwork: Error Code 4: Internal Error ({reasons[0]})"
        emit(double, logger, "ERROR", reasons[0] if "Safe DLA" in reasons[0] else text)
        recorder = this._s.error_recorder
        if recorder is not None:
            code = double.factory.classes["ErrorCodeTRT"].__members__["INTERNAL_ERROR"]
            recorder.report_error(code, reasons[0])
        return None
    if not _progress(config, len(network._s.layers)):
        emit(double, logger, "ERROR", "Build was cancelled by the progress monitor")
        return None
    strict = "ERROR_ON_TIMING_CACHE_MISS" in flag_names(config) and config._s.timing_cache
    fresh = time_layers(config, network._s.layers, may_time=not strict)
    if strict and fresh:
        emit(double, logger, "ERROR", f"Error Code 2: {fresh} tactics are not in the timing cache")
        return None
    emit(
        double,
        logger,
        "VERBOSE",
        f"{fresh} layers were timed, the others taken from the timing cache",
    )
    network._s.built = True
    facts = facts_of(network, config, on_dla, scales)
    standalone = config._s.engine_capability.name == "DLA_STANDALONE"
    if standalone and os.environ.get("EDGEKIT_CUDLA"):
        data = stub_loadable(facts["io"])
    else:
        data = write(double.build, facts, model_of(network, facts), standalone)
    emit(double, logger, "INFO", f"Total Weights Memory: {len(data)} bytes")
    return host_memory(double, data)


def _calibrate(network: Any, config: Any) -> dict[str, float]:
    """Scales by tensor from the calibrator's cache, as the builder asks for it."""
    calibrator = getattr(config._s, "int8_calibrator", None)
    if calibrator is None or "INT8" not in flag_names(config):
        return {}
    double = network._s.double
    calibrator.get_batch_size()
    cache = calibrator.read_calibration_cache()
    if cache is None:
        names = [one._s.name for one in network._s.inputs]
        if calibrator.get_batch(names) is None:
            emit(double, config._s.logger, "ERROR", "Calibration failure: no data and no cache")
        return {}
    return read_cache(bytes(memoryview(cache)).decode())


def read_cache(text: str) -> dict[str, float]:
    """Scales by tensor name of a calibration cache: 8 hex digits, a big-endian float32."""
    import struct

    scales = {}
    for line in text.splitlines()[1:]:
        name, _, digits = line.rpartition(":")
        if name:
            scales[name.strip()] = struct.unpack(">f", bytes.fromhex(digits.strip()))[0]
    return scales


def _progress(config: Any, layers: int) -> bool:
    """Runs the phases on another thread, as the builder's own threads do; False when cancelled."""
    monitor = getattr(config._s, "progress_monitor", None)
    if monitor is None:
        return True
    outcome: list[bool] = []

    def report() -> None:
        monitor.phase_start("Building Engine", None, 2)  # a null pointer in C++
        going = True
        for step, phase in enumerate(("Graph Optimization", "Timing Tactics")):
            monitor.phase_start(phase, "Building Engine", layers)
            for number in range(layers):
                if not monitor.step_complete(phase, number):
                    going = False
                    break
            monitor.phase_finish(phase)
            if not going or not monitor.step_complete("Building Engine", step):
                going = False
                break
        monitor.phase_finish("Building Engine")
        outcome.append(going)

    thread = threading.Thread(target=report, name="builder")
    thread.start()
    thread.join()
    return bool(outcome and outcome[0])
