"""Why a build fails: flags that exclude each other, DLA rules, INT8 without ranges.

Each rule gives the text logged at ERROR; `build` then returns None as TensorRT does. The texts in
quotes are real ones; the others say which rule it was.
"""

from collections.abc import Iterator
from typing import Any

from ._io_formats import misplaced
from ._play_config import flag_names

_WEAK = (
    "FP16",
    "BF16",
    "INT8",
    "FP8",
    "INT4",
    "FP4",
    "OBEY_PRECISION_CONSTRAINTS",
    "PREFER_PRECISION_CONSTRAINTS",
)
_DLA_IN = {"HALF": {"DLA_LINEAR", "DLA_HWC4", "CHW16"}, "INT8": {"DLA_LINEAR", "DLA_HWC4", "CHW32"}}
_DLA_OUT = {"HALF": {"DLA_LINEAR", "CHW16"}, "INT8": {"DLA_LINEAR", "CHW32"}}


def formats(double: Any, mask: int) -> list[str]:
    """Names of the formats in a tensor's mask."""
    return [
        name
        for name, member in double.factory.classes["TensorFormat"].__members__.items()
        if mask & (1 << int(member))
    ]


def failures(
    network: Any, config: Any, where: tuple[list[Any], list[Any], list[Any]]
) -> Iterator[str]:
    """Why this build fails; `where` is `placement`'s answer."""
    on_dla, on_gpu, refused = where
    double, state = network._s.double, config._s
    flags = set(flag_names(config))
    if double.settings.broken:
        yield double.settings.broken
    for wanted in double.settings.failing:
        have = flags | ({"DLA"} if on_dla else set()) | {state.engine_capability.name}
        if set(wanted) <= have:
            yield f"Error Code 10: Internal Error ({' + '.join(sorted(wanted))} does not work)"
    yield from _flags(network, flags)
    if state.hardware_compatibility_level.name != "NONE":
        yield "Hardware compatibility is not supported on this platform"
    if not network._s.layers or not network._s.outputs:
        yield "Network must have at least one output"
    for tensor in network._s.inputs:
        given = [
            one._s.values if tensor._s.is_shape_tensor else one._s.shapes for one in state.profiles
        ]
        open_ = tensor._s.is_shape_tensor or -1 in tensor._s.shape_values
        if open_ and not (given and all(tensor._s.name in names for names in given)):
            yield (
                "Network has dynamic or shape inputs, but no optimization profile has been defined."
            )
    yield from _profiles(network, state.profiles)
    yield from _int8(network, config, flags)
    standalone = state.engine_capability.name == "DLA_STANDALONE"
    dla = state.default_device_type.name == "DLA" or on_dla
    if dla and not 0 <= max(state.DLA_core, 0) < double.settings.dla_cores:
        yield f"Cannot create DLA engine, {double.settings.dla_cores} not available"
    if standalone:
        yield from _standalone(network, config, flags, on_gpu)
    else:
        yield from misplaced(network, bool(on_dla))
    if not standalone and refused and "GPU_FALLBACK" not in flags:
        yield f"DLA: layer {refused[0]._s.name} cannot run on DLA and GPU fallback is not enabled."


def _profiles(network: Any, profiles: list[Any]) -> Iterator[str]:
    """A profile has the rank and the fixed sizes of its inputs."""
    for tensor in network._s.inputs:
        own = list(tensor._s.shape_values)
        for profile in profiles:
            for shape in profile._s.shapes.get(tensor._s.name, ()):
                fits = len(shape) == len(own) and all(
                    a in (-1, b) for a, b in zip(own, shape, strict=True)
                )
                if not fits:
                    yield f"Invalid optimization profile for input {tensor._s.name}: {shape}"
                    return


def _flags(network: Any, flags: set[str]) -> Iterator[str]:
    if {"OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"} <= flags:
        yield "kOBEY_PRECISION_CONSTRAINTS and kPREFER_PRECISION_CONSTRAINTS exclude each other."
    strong = network._s.strongly_typed
    if strong and (weak := sorted(flags & set(_WEAK))):
        yield f"Strongly typed networks do not take the flags {', '.join(weak)}."
    if "WEIGHT_STREAMING" in flags and not strong:
        yield "kWEIGHT_STREAMING needs a strongly typed network."


def _int8(network: Any, config: Any, flags: set[str]) -> Iterator[str]:
    if "INT8" not in flags or any(one._s.kind_name == "QUANTIZE" for one in network._s.layers):
        return
    if getattr(config._s, "int8_calibrator", None) is not None:
        return
    bare = [one for one in (*network._s.inputs, *network._s.outputs) if one._s.range is None]
    if bare:
        yield (
            "Calibration failure occurred with no scaling factors detected. This could be due to "
            "no int8 calibrator or insufficient custom scales for network layers."
        )


def _standalone(network: Any, config: Any, flags: set[str], on_gpu: list[Any]) -> Iterator[str]:
    double, state = network._s.double, config._s
    if "GPU_FALLBACK" in flags:
        double.offend("DLA_STANDALONE with GPU_FALLBACK")
        yield "Safe DLA: GPU fallback cannot be used with EngineCapability::kDLA_STANDALONE."
    if "DIRECT_IO" not in flags:
        double.offend("DLA_STANDALONE without DIRECT_IO")
    forbidden = {"STRIP_PLAN", "REFIT", "REFIT_IDENTICAL", "REFIT_INDIVIDUAL", "VERSION_COMPATIBLE"}
    if flags & forbidden:
        names = ", ".join(sorted(flags & forbidden))
        yield f"EngineCapability::kDLA_STANDALONE does not take {names}."
    if state.default_device_type.name != "DLA":
        yield "EngineCapability::kDLA_STANDALONE needs DLA as the default device type."
    for tensors, legal in ((network._s.inputs, _DLA_IN), (network._s.outputs, _DLA_OUT)):
        for tensor in tensors:
            names = formats(double, tensor._s.allowed_formats) if tensor._s.formats_set else []
            kind = tensor._s.dtype.name
            if len(names) != 1:
                double.offend(f"standalone: tensor {tensor._s.name} needs exactly one format")
            if -1 in tensor._s.shape_values:
                yield f"DLA: tensor {tensor._s.name} has dynamic dimensions"
            if not set(names) <= legal.get(kind, set()) or not names:
                yield (
                    f"I/O formats for safe DLA capability are restricted to fp16/int8:dla_linear, "
                    f"fp16/int8:hwc4, fp16:chw16 or int8:chw32 ({tensor._s.name}: {kind} {names})"
                )
            if kind == "INT8" and tensor._s.range is None:
                double.offend(f"standalone: INT8 tensor {tensor._s.name} has no dynamic range")
    if on_gpu:
        yield "Safe DLA is enabled but not all layers are running on DLA."
