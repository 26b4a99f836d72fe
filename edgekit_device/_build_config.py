"""The builder's configuration: flags by name, devices, precisions, memory, timing."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ._build_names import Mapped
from ._build_types import EngineSpec
from ._errors import DeviceError

__all__ = [
    "can_run",
    "mark_refittable",
    "refit_kind",
    "set_basics",
    "set_devices",
    "set_flags",
    "set_precisions",
    "set_profiles",
]

_PRECISION_FLAGS = {"fp16": "FP16", "int8": "INT8"}
_CONSTRAINTS = {"prefer": "PREFER_PRECISION_CONSTRAINTS", "obey": "OBEY_PRECISION_CONSTRAINTS"}
_TYPES = {"fp32": "FLOAT", "fp16": "HALF", "int8": "INT8"}
_FLOATS = ("FLOAT", "HALF", "INT8", "BF16")
# layers whose types are not the builder's to choose
_TYPED = (
    "CONSTANT", "SHAPE", "CAST", "QUANTIZE", "DEQUANTIZE", "ASSERTION", "CONDITION",
    "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT", "ITERATOR", "LOOP_OUTPUT", "RECURRENCE",
    "TRIP_LIMIT", "PLUGIN", "PLUGIN_V2", "PLUGIN_V3", "NON_ZERO",
)  # fmt: skip
_HARDWARE = "HARDWARE_COMPATIBILITY"


def set_flags(
    trt: Any, config: Any, spec: EngineSpec, flags: Sequence[str], notes: List[str]
) -> Tuple[str, ...]:
    """Sets the attempt's flags and those that follow from the engine.

    A flag that the release lacks is left out with a note. A name that begins with
    HARDWARE_COMPATIBILITY is a level ("HARDWARE_COMPATIBILITY_AMPERE_PLUS").

    Returns:
        The names that were set.
    """
    wanted = [*flags]
    weak = spec.typing == "weak"
    if weak:
        wanted += [_PRECISION_FLAGS[p] for p in spec.precisions if p in _PRECISION_FLAGS]
        # with precisions alone: constraints need something to constrain
        if spec.constraints in _CONSTRAINTS and spec.precisions:
            wanted.append(_CONSTRAINTS[spec.constraints])
    if spec.standalone:
        wanted.append("DIRECT_IO")
    if spec.dla_core is not None and spec.gpu_fallback and not spec.standalone:
        wanted.append("GPU_FALLBACK")
    done: List[str] = []
    for name in dict.fromkeys(wanted):
        if name == "STRONGLY_TYPED":
            continue  # the network's, not the builder's
        if name.startswith(_HARDWARE):
            ok = _set_hardware(trt, config, name[len(_HARDWARE) + 1 :] or "AMPERE_PLUS")
        else:
            ok = hasattr(trt.BuilderFlag, name)
            if ok:
                config.set_flag(getattr(trt.BuilderFlag, name))
        if ok:
            done.append(name)
        else:
            notes.append("{}: this TensorRT has no {}, it is left out".format(spec.key, name))
    return tuple(done)


def _set_hardware(trt: Any, config: Any, level: str) -> bool:
    levels = getattr(trt, "HardwareCompatibilityLevel", None)
    if levels is None or not hasattr(levels, level):
        return False
    config.hardware_compatibility_level = getattr(levels, level)
    return True


def set_basics(trt: Any, builder: Any, config: Any, spec: EngineSpec, notes: List[str]) -> None:
    """Sets devices of the whole network, memory pools, verbosity and optimisation level.

    Raises:
        DeviceError: "build.no-dla": the board has not the core.
    """
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if spec.optimization_level is not None:
        # 8.5 and older have none
        if hasattr(config, "builder_optimization_level"):
            config.builder_optimization_level = spec.optimization_level
        else:
            notes.append("{}: this TensorRT has no optimisation levels".format(spec.key))
    for name, size in spec.pools.items():
        if hasattr(trt.MemoryPoolType, name):
            pool = getattr(trt.MemoryPoolType, name)
            config.set_memory_pool_limit(pool, size)
            # one that is no power of 2 of at least 4 KiB has no effect on a DLA's pool
            if config.get_memory_pool_limit(pool) != size:
                notes.append("{}: TensorRT takes no {} of {} bytes".format(spec.key, name, size))
        else:
            notes.append("{}: this TensorRT has no memory pool {}".format(spec.key, name))
    if spec.dla_core is None:
        return
    cores = builder.num_DLA_cores
    if spec.dla_core >= cores:
        raise DeviceError(
            "the engine needs DLA core {}, TensorRT finds {} here".format(spec.dla_core, cores),
            code="build.no-dla",
            where=spec.key,
            hint="`edgekit doctor` says which DLA cores and compiler this board has; "
            "TensorRT 10.8 to 11.3 have no DLA",
        )
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = spec.dla_core
    if spec.standalone:
        config.engine_capability = trt.EngineCapability.DLA_STANDALONE


def set_devices(trt: Any, config: Any, spec: EngineSpec, mapped: Mapped) -> None:
    """Puts each layer where the plan has it; what no plan names runs on the GPU.

    A loadable has nothing but its DLA, so nothing is set there.
    """
    if spec.dla_core is None or spec.standalone:
        return
    for entry in mapped.layers:
        on_dla = mapped.device.get(entry.index) == "DLA"
        config.set_device_type(entry.layer, trt.DeviceType.DLA if on_dla else trt.DeviceType.GPU)


def can_run(config: Any, spec: EngineSpec, mapped: Mapped) -> Dict[str, bool]:
    """Asks ``can_run_on_DLA`` for every layer of ours, by its name."""
    if spec.dla_core is None:
        return {}
    return {
        name: all(bool(config.can_run_on_DLA(entry.layer)) for entry in entries)
        for name, entries in mapped.work().items()
    }


def set_precisions(trt: Any, spec: EngineSpec, mapped: Mapped) -> int:
    """Sets the plan's precision, and the type of outputs, of each layer that computes in floats.

    An INT8 layer's output is INT8 where all of its readers are INT8 layers; at the border to
    another precision the builder has the choice, as it has inside of an INT8 layer that it parted:
    no scale is known there. The network's own outputs have the type that was asked for them.

    Returns:
        How many layers were set.
    """
    if spec.typing != "weak" or not spec.precisions:
        return 0
    readers: Dict[str, List[int]] = {}
    for entry in mapped.layers:
        for name in entry.inputs:
            readers.setdefault(name, []).append(entry.index)
    outputs = {io.name for io in spec.outputs}
    count = 0
    above = {index: part for index, part in mapped.parts.items() if part.precision != "int8"}
    for index, ours in {**mapped.ours, **above}.items():
        entry = mapped.layers[index]
        if entry.kind in _TYPED or not _computes_floats(entry.layer):
            continue
        kind = getattr(trt.DataType, _TYPES[ours.precision])
        entry.layer.precision = kind
        count += 1
        for n in range(entry.layer.num_outputs):
            tensor = entry.layer.get_output(n)
            if tensor is None or tensor.name in outputs or not _is_float(tensor):
                continue
            if ours.precision == "int8" and not _all_int8(mapped, readers.get(tensor.name, [])):
                continue
            entry.layer.set_output_type(n, kind)
    return count


def _computes_floats(layer: Any) -> bool:
    tensors = [layer.get_input(n) for n in range(layer.num_inputs)][:1]
    tensors += [layer.get_output(n) for n in range(layer.num_outputs)]
    return all(_is_float(tensor) for tensor in tensors if tensor is not None)


def _is_float(tensor: Any) -> bool:
    return tensor.dtype.name in _FLOATS and not tensor.is_shape_tensor


def _all_int8(mapped: Mapped, readers: Sequence[int]) -> bool:
    specs = [mapped.ours.get(index) for index in readers]
    return bool(specs) and all(spec is not None and spec.precision == "int8" for spec in specs)


def set_profiles(builder: Any, config: Any, spec: EngineSpec) -> None:
    """Adds the request's optimisation profiles.

    Raises:
        DeviceError: "build.profile".
    """
    for number, ranges in enumerate(spec.profiles):
        profile = builder.create_optimization_profile()
        for name, sizes in ranges.items():
            profile.set_shape(name, sizes["min"], sizes["opt"], sizes["max"])
        if config.add_optimization_profile(profile) < 0:
            raise DeviceError(
                "TensorRT refuses optimisation profile {}".format(number),
                code="build.profile",
                where=spec.key,
                hint="min <= opt <= max is needed for every open dimension of every input",
            )


def mark_refittable(network: Any, names: Sequence[str], key: str, notes: List[str]) -> List[str]:
    """Marks weights as refittable one by one; returns those that TensorRT did not take."""
    if not names:
        return []
    if not hasattr(network, "mark_weights_refittable"):
        notes.append("{}: this TensorRT cannot mark single weights".format(key))
        return list(names)
    return [name for name in names if not network.mark_weights_refittable(name)]


def refit_kind(flags: Sequence[str]) -> str:
    """What a plan of these flags can be refitted with; STRIP_PLAN alone implies identical ones."""
    kinds: Mapping[str, str] = {
        "REFIT": "any", "REFIT_INDIVIDUAL": "individual", "REFIT_IDENTICAL": "identical",
        "STRIP_PLAN": "identical",
    }  # fmt: skip
    return next((kind for flag, kind in kinds.items() if flag in flags), "none")
