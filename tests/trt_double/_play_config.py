"""Builder and IBuilderConfig: what is set, checked as the headers say."""

from typing import Any

from ._behaviour import plays
from ._play_base import emit

_KIB = 1024
_MIB = 1024 * _KIB
# NvInfer.h of 10.7: each DLA pool is a power of 2 of at least 4 KiB, else the call has no effect
_DLA_POOLS = {
    "DLA_MANAGED_SRAM": _MIB,
    "DLA_LOCAL_DRAM": 1024 * _MIB,
    "DLA_GLOBAL_DRAM": 512 * _MIB,
}
_HIGHEST_LEVEL = 5
# NvInferRuntime.h of 10.7: cuBLAS and cuDNN are "disabled by default"
_DEFAULT_SOURCES = ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")
_EXCLUSIVE = {"REFIT", "REFIT_IDENTICAL", "REFIT_INDIVIDUAL"}
_POOLS = {"WORKSPACE": 1 << 36, "TACTIC_DRAM": 1 << 35, "TACTIC_SHARED_MEMORY": 1 << 30}


def _member(this: Any, enum: str, name: str) -> Any:
    return this._s.double.factory.classes[enum].__members__[name]


def _mask(this: Any, enum: str, *names: str) -> int:
    return sum(1 << int(_member(this, enum, name)) for name in names)


def flag_names(config: Any) -> list[str]:
    """Names of the set builder flags, in the order of their numbers."""
    found: dict[int, str] = {}
    for name, member in config._s.double.factory.classes["BuilderFlag"].__members__.items():
        if name != "WEIGHTLESS" and config._s.flags & (1 << int(member)):
            found.setdefault(int(member), name)
    return [found[key] for key in sorted(found)]


def held(config: Any) -> dict[str, Any]:
    """What a configuration has beside flags: numbers, members by name, pools in bytes."""
    state = config._s
    sources = state.double.factory.classes["TacticSource"].__members__
    tiling = getattr(state, "tiling_optimization_level", None)
    return {
        "builder_optimization_level": state.builder_optimization_level,
        "max_aux_streams": state.max_aux_streams,
        "tactic_sources": sorted(
            n for n, m in sources.items() if state.tactic_sources >> int(m) & 1
        ),
        "preview": sorted(state.preview),
        "tiling": tiling and tiling.name,
        "l2_limit_for_tiling": state.l2_limit_for_tiling,
        "profiling_verbosity": state.profiling_verbosity.name,
        "pools": dict(state.pools),
    }


@plays("Builder", "__init__")
def _builder(this: Any, logger: Any) -> None:
    this._s.logger = logger
    this._s.max_threads = 4
    this._s.error_recorder = None


@plays("Builder", "get num_DLA_cores")
def _cores(this: Any) -> int:
    return int(this._s.double.settings.dla_cores)


@plays("Builder", "create_network")
def _create_network(this: Any, flags: int) -> Any:
    double = this._s.double
    kinds = double.factory.classes["NetworkDefinitionCreationFlag"].__members__
    explicit = kinds.get("EXPLICIT_BATCH")
    known = sum(1 << int(member) for member in set(kinds.values()))
    if flags & ~known:
        text = f"createNetworkV2: Error Code 3: API Usage Error ({flags:#x} has unknown flags)"
        emit(double, this._s.logger, "ERROR", text)
        return None
    if double.build < (10,) and not flags & (1 << int(explicit)):
        double.offend("create_network without EXPLICIT_BATCH before TensorRT 10")
    strong = kinds.get("STRONGLY_TYPED")
    if double.build >= (11,):
        flags |= 1 << int(strong)
    strongly = strong is not None and bool(flags & (1 << int(strong)))
    return double.factory.new(
        "INetworkDefinition",
        flags=flags,
        strongly_typed=strongly,
        logger=this._s.logger,
        layers=[],
        inputs=[],
        outputs=[],
        tensors={},
        weights={},
        refittable=set(),
        plugins={},
        model=None,
        name="",
        error_recorder=None,
        built=False,
    )


@plays("Builder", "create_builder_config")
def _create_config(this: Any) -> Any:
    new = this._s.double.factory.new(
        "IBuilderConfig", logger=this._s.logger, pools={}, builder=this
    )
    _reset(new)
    return new


@plays("IBuilderConfig", "reset")
def _reset(this: Any) -> None:
    state = this._s
    kinds = state.double.factory.classes
    state.flags = 1 << int(kinds["BuilderFlag"].__members__["TF32"])
    state.default_device_type = _member(this, "DeviceType", "GPU")
    state.DLA_core = -1
    state.device_types = {}
    state.engine_capability = _member(this, "EngineCapability", "STANDARD")
    state.profiling_verbosity = _member(this, "ProfilingVerbosity", "LAYER_NAMES_ONLY")
    state.hardware_compatibility_level = _member(this, "HardwareCompatibilityLevel", "NONE")
    for name, value in (
        ("int8_calibrator", None),
        ("progress_monitor", None),
        ("builder_optimization_level", 3),
        ("avg_timing_iterations", 1),
        ("max_aux_streams", -1),
        ("profile_stream", 0),
        ("plugins_to_serialize", []),
        ("quantization_flags", 0),
        ("max_num_tactics", -1),
        ("l2_limit_for_tiling", 0),
    ):
        setattr(state, name, value)
    if "TilingOptimizationLevel" in kinds:
        state.tiling_optimization_level = _member(this, "TilingOptimizationLevel", "NONE")
    state.tactic_sources = _mask(this, "TacticSource", *_DEFAULT_SOURCES)
    # on from 10.0 on, and not to be changed then; the other was on in TensorRT for RTX 1.7
    state.preview = {"PROFILE_SHARING_0806"} if (10,) <= state.double.build < (11,) else set()
    state.preview |= {"RUNTIME_ACTIVATION_RESIZE_10_10"} if state.double.build >= (11,) else set()
    state.pools = dict(_DLA_POOLS) | _POOLS
    state.profiles = []
    state.timing_cache = None
    state.calibration_profile = None


@plays("IBuilderConfig", "set_flag")
def _set_flag(this: Any, flag: Any) -> None:
    if flag.name == "EXCLUDE_LEAN_RUNTIME" and "VERSION_COMPATIBLE" not in flag_names(this):
        _usage(this, "setFlag", "kEXCLUDE_LEAN_RUNTIME can only be set if kVERSION_COMPATIBLE is")
        return
    if flag.name in _EXCLUSIVE and (others := set(flag_names(this)) & (_EXCLUSIVE - {flag.name})):
        for name in others:
            this._s.flags &= ~(1 << int(_member(this, "BuilderFlag", name)))
        text = "kREFIT, kREFIT_INDIVIDUAL and kREFIT_IDENTICAL are mutually exclusive."
        emit(this._s.double, this._s.logger, "WARNING", f"Unset previous flag because {text}")
    this._s.flags |= 1 << int(flag)


@plays("IBuilderConfig", "clear_flag")
def _clear_flag(this: Any, flag: Any) -> None:
    if flag.name == "VERSION_COMPATIBLE" and "EXCLUDE_LEAN_RUNTIME" in flag_names(this):
        _usage(this, "setFlags", "!flags[BuilderFlag::kEXCLUDE_LEAN_RUNTIME]")
        return
    this._s.flags &= ~(1 << int(flag))


def _usage(this: Any, function: str, condition: str) -> None:
    text = f"IBuilderConfig::{function}: Error Code 3: API Usage Error (Parameter check failed, "
    emit(this._s.double, this._s.logger, "ERROR", f"{text}condition: {condition})")


@plays("IBuilderConfig", "set builder_optimization_level")
def _set_level(this: Any, value: int) -> None:
    if value < 0:
        _usage(this, "setBuilderOptimizationLevel", "level >= 0")
        return
    this._s.builder_optimization_level = min(value, _HIGHEST_LEVEL)


@plays("IBuilderConfig", "get_flag")
def _get_flag(this: Any, flag: Any) -> bool:
    return bool(this._s.flags & (1 << int(flag)))


@plays("IBuilderConfig", "set DLA_core")
def _set_core(this: Any, value: int) -> None:
    this._s.DLA_core = value


@plays("IBuilderConfig", "set_device_type")
def _set_device(this: Any, layer: Any, device_type: Any) -> None:
    this._s.device_types[id(layer)] = device_type


@plays("IBuilderConfig", "get_device_type")
def _get_device(this: Any, layer: Any) -> Any:
    return this._s.device_types.get(id(layer), this._s.default_device_type)


@plays("IBuilderConfig", "is_device_type_set")
def _device_is_set(this: Any, layer: Any) -> bool:
    return id(layer) in this._s.device_types


@plays("IBuilderConfig", "can_run_on_DLA")
def _can_run(this: Any, layer: Any) -> bool:
    settings = this._s.double.settings
    return bool(settings.dla_cores and settings.can_run_on_dla(layer))


@plays("IBuilderConfig", "set_memory_pool_limit")
def _set_pool(this: Any, pool: Any, pool_size: int) -> None:
    if pool.name in _DLA_POOLS and (pool_size < 4 * _KIB or pool_size & (pool_size - 1)):
        this._s.double.offend(f"{pool.name} of {pool_size} bytes: at least 4 KiB and a power of 2")
        emit(
            this._s.double,
            this._s.logger,
            "ERROR",
            f"setMemoryPoolLimit: {pool.name} is not a power of 2",
        )
        return
    this._s.pools[pool.name] = pool_size


@plays("IBuilderConfig", "get_memory_pool_limit")
def _get_pool(this: Any, pool: Any) -> int:
    return int(this._s.pools[pool.name])


@plays("IBuilderConfig", "set_tactic_sources")
def _set_sources(this: Any, tactic_sources: int) -> bool:
    # TensorRT for RTX takes bits that it has no source for
    this._s.tactic_sources = tactic_sources
    return True


@plays("IBuilderConfig", "get_tactic_sources")
def _get_sources(this: Any) -> int:
    return int(this._s.tactic_sources)


@plays("IBuilderConfig", "set_preview_feature")
def _set_preview(this: Any, feature: Any, enable: bool) -> None:
    if feature.name == "PROFILE_SHARING_0806" and this._s.double.build >= (10,):
        return  # "the default value for this flag is on and can not be changed"
    (this._s.preview.add if enable else this._s.preview.discard)(feature.name)


@plays("IBuilderConfig", "get_preview_feature")
def _get_preview(this: Any, feature: Any) -> bool:
    return feature.name in this._s.preview


@plays("IBuilderConfig", "set max_aux_streams")
def _set_streams(this: Any, value: int) -> None:
    if value < 0:
        emit(this._s.double, this._s.logger, "WARNING", "setMaxAuxStreams: nbStreams is negative")
        return
    this._s.max_aux_streams = value


@plays("IBuilderConfig", "set l2_limit_for_tiling")
def _set_l2(this: Any, value: int) -> None:
    if this._s.tiling_optimization_level.name == "NONE":
        this._s.double.offend("l2_limit_for_tiling without a tiling_optimization_level")
    this._s.l2_limit_for_tiling = value


@plays("IBuilderConfig", "set_calibration_profile")
def _calibration_profile(this: Any, profile: Any) -> bool:
    # "must be valid or be nullptr. kMIN and kMAX values are overwritten by kOPT" (guide, 9)
    for name, (_, best, _) in list(profile._s.shapes.items()):
        profile._s.shapes[name] = [best, best, best]
    this._s.calibration_profile = profile
    return True


@plays("IBuilderConfig", "add_optimization_profile")
def _add_profile(this: Any, profile: Any) -> int:
    for name, shapes in (*profile._s.shapes.items(), *profile._s.values.items()):
        ranks = {len(one) for one in shapes}
        sizes = zip(*shapes, strict=False)
        if len(ranks) > 1 or any(not low <= best <= high for low, best, high in sizes):
            text = f"Invalid optimization profiles for input tensors {name}: MIN<=OPT<=MAX"
            emit(this._s.double, this._s.logger, "ERROR", text)
            return -1
    this._s.profiles.append(profile)
    return len(this._s.profiles) - 1


@plays("IBuilderConfig", "get num_optimization_profiles")
def _num_profiles(this: Any) -> int:
    return len(this._s.profiles)


@plays("Builder", "create_optimization_profile")
def _create_profile(this: Any) -> Any:
    state = {"shapes": {}, "values": {}, "extra_memory_target": 1.0}
    return this._s.double.factory.new("IOptimizationProfile", **state)


@plays("IOptimizationProfile", "set_shape")
def _set_shape(this: Any, input: str, min: Any, opt: Any, max: Any) -> None:
    shapes = [list(one) for one in (min, opt, max)]
    this._s.shapes[input] = shapes


@plays("IOptimizationProfile", "set_shape_input")
def _set_values(this: Any, input: str, min: Any, opt: Any, max: Any) -> None:
    this._s.values[input] = [list(one) for one in (min, opt, max)]


@plays("IOptimizationProfile", "get_shape_input")
def _get_values(this: Any, input: str) -> list[list[int]]:
    return list(this._s.values.get(input, ()))


@plays("IOptimizationProfile", "get_shape")
def _get_shape(this: Any, input: str) -> list[Any]:
    shapes = this._s.shapes.get(input, ())
    return [this._s.double.factory.classes["Dims"](one) for one in shapes]
