"""What trtexec's options set on the network and the config."""

import fnmatch
from pathlib import Path
from typing import Any

from ._build import read_cache

_TYPES = {"fp32": "FLOAT", "fp16": "HALF", "int8": "INT8", "int32": "INT32", "bf16": "BF16"}
_FLAGS = {
    "--fp16": "FP16",
    "--bf16": "BF16",
    "--int8": "INT8",
    "--allowGPUFallback": "GPU_FALLBACK",
    "--directIO": "DIRECT_IO",
    "--versionCompatible": "VERSION_COMPATIBLE",
    "--excludeLeanRuntime": "EXCLUDE_LEAN_RUNTIME",
    "--stripWeights": "STRIP_PLAN",
    "--refit": "REFIT",
    "--allowWeightStreaming": "WEIGHT_STREAMING",
}
_POOLS = {
    "workspace": "WORKSPACE",
    "dlaSRAM": "DLA_MANAGED_SRAM",
    "dlaLocalDRAM": "DLA_LOCAL_DRAM",
    "dlaGlobalDRAM": "DLA_GLOBAL_DRAM",
    "tacticSharedMem": "TACTIC_SHARED_MEMORY",
}
_STANDALONE = (
    "I/O formats for safe DLA capability are restricted to fp16/int8:dla_linear, fp16/int8:hwc4, "
    "fp16:chw16 or int8:chw32"
)


def configure(
    trt: Any, builder: Any, network: Any, config: Any, options: dict[str, list[str]]
) -> str:
    """Sets everything; why the setup fails, or nothing."""
    flags = trt.BuilderFlag.__members__
    for option, flag in _FLAGS.items():
        if option in options:
            config.set_flag(flags[flag])
    verbosity = options.get("--profilingVerbosity", [""])[0].upper()
    if verbosity:
        config.profiling_verbosity = trt.ProfilingVerbosity.__members__[verbosity]
    if "--builderOptimizationLevel" in options:
        config.builder_optimization_level = int(options["--builderOptimizationLevel"][0])
    for item in _items(options, "--memPoolSize"):
        name, _, size = item.rpartition(":")
        config.set_memory_pool_limit(
            trt.MemoryPoolType.__members__[_POOLS[name]], int(float(size) * 2**20)
        )
    for option in ("--precisionConstraints",):
        if options.get(option, ["none"])[0] != "none":
            config.set_flag(flags[f"{options[option][0].upper()}_PRECISION_CONSTRAINTS"])
    problem = _dla(trt, builder, config, options)
    if not problem:
        problem = _formats(trt, network, options)
    if problem:
        return problem
    _layers(trt, network, config, options)
    _shapes(builder, network, config, options)
    _int8(trt, network, config, options)
    if "--timingCacheFile" in options:
        path = Path(options["--timingCacheFile"][0])
        data = path.read_bytes() if path.exists() else b""
        config.set_timing_cache(config.create_timing_cache(data), False)
    return ""


def _items(options: dict[str, list[str]], option: str) -> list[str]:
    return [
        item.strip("'") for value in options.get(option, []) for item in value.split(",") if item
    ]


def _dla(trt: Any, builder: Any, config: Any, options: dict[str, list[str]]) -> str:
    standalone = "--buildDLAStandalone" in options
    if "--useDLACore" not in options:
        return "--buildDLAStandalone needs --useDLACore" if standalone else ""
    core = int(options["--useDLACore"][0])
    if core >= builder.num_DLA_cores:
        return f"Cannot create DLA engine, {builder.num_DLA_cores} not available"
    flags = trt.BuilderFlag.__members__
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = core
    if "PREFER_PRECISION_CONSTRAINTS" in flags:
        if "--precisionConstraints" not in options:
            config.set_flag(flags["PREFER_PRECISION_CONSTRAINTS"])
        if "--int8" not in options and "--stronglyTyped" not in options:
            config.set_flag(flags["FP16"])
    if standalone:
        if "--allowGPUFallback" in options:
            return "GPU fallback cannot be used with --buildDLAStandalone"
        if "--inputIOFormats" not in options or "--outputIOFormats" not in options:
            return _STANDALONE
        config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    if "--allowGPUFallback" not in options:
        config.set_flag(flags["DIRECT_IO"])
    return ""


def _formats(trt: Any, network: Any, options: dict[str, list[str]]) -> str:
    names = {one.lower(): one for one in trt.TensorFormat.__members__} | {"chw": "LINEAR"}
    sides = (
        ("--inputIOFormats", [network.get_input(i) for i in range(network.num_inputs)]),
        ("--outputIOFormats", [network.get_output(i) for i in range(network.num_outputs)]),
    )
    for option, tensors in sides:
        items = _items(options, option)
        if not items:
            continue
        if len(items) not in (1, len(tensors)):
            return f"The number of {option} must match the number of tensors or be one."
        for tensor, item in zip(tensors, items * (len(tensors) // len(items)), strict=True):
            kind, _, forms = item.partition(":")
            if trt._double.build < (11,):
                tensor.dtype = trt.DataType.__members__[_TYPES[kind]]
            tensor.allowed_formats = sum(
                1 << int(trt.TensorFormat.__members__[names[form]]) for form in forms.split("+")
            )
    return ""


def _layers(trt: Any, network: Any, config: Any, options: dict[str, list[str]]) -> None:
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    for option in ("--layerDeviceTypes", "--layerPrecisions", "--layerOutputTypes"):
        for item in _items(options, option):
            pattern, _, value = item.rpartition(":")
            exact = [one for one in layers if one.name == pattern]
            for layer in exact or [one for one in layers if fnmatch.fnmatch(one.name, pattern)]:
                if option == "--layerDeviceTypes":
                    config.set_device_type(layer, trt.DeviceType.__members__[value])
                elif option == "--layerPrecisions":
                    layer.precision = trt.DataType.__members__[_TYPES[value]]
                else:
                    for index, one in enumerate(value.split("+")[: layer.num_outputs]):
                        layer.set_output_type(index, trt.DataType.__members__[_TYPES[one]])


def _shapes(builder: Any, network: Any, config: Any, options: dict[str, list[str]]) -> None:
    found: dict[str, dict[str, list[int]]] = {}
    for which in ("min", "opt", "max"):
        for item in _items(options, f"--{which}Shapes"):
            name, _, sizes = item.rpartition(":")
            found.setdefault(name, {})[which] = [int(one) for one in sizes.split("x")]
    if found:
        profile = builder.create_optimization_profile()
        for name, one in found.items():
            profile.set_shape(name, one["min"], one["opt"], one["max"])
        config.add_optimization_profile(profile)


def _int8(trt: Any, network: Any, config: Any, options: dict[str, list[str]]) -> None:
    if "--int8" not in options:
        return
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    tensors += [network.get_output(i) for i in range(network.num_outputs)]
    if "--calib" not in options:
        for tensor in tensors:  # "Calibration: Dynamic": ranges that trtexec makes up
            tensor.set_dynamic_range(-4.0, 4.0)
        return
    cache = Path(options["--calib"][0]).read_bytes()

    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: list[str]) -> None:
            return None

        def read_calibration_cache(self) -> bytes:
            return cache

    config.int8_calibrator = Calibrator()
    scales = read_cache(cache.decode())
    for tensor in tensors:
        if tensor.dtype == trt.DataType.INT8 and tensor.name in scales:
            reach = 127 * scales[tensor.name]
            tensor.set_dynamic_range(-reach, reach)
