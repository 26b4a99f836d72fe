"""The builder's configuration: flags by name, devices, precisions, memory, timing; and the
calibrator that returns INT8 scales from a calibration cache.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from edgekit_device.build.network import MappedLayers
from edgekit_device.build.request import EngineSpec, ProfileShapes, ProfileValues
from edgekit_device.errors import DeviceError, listed
from edgekit_device.versions import parse_version, tensorrt_number

_PRECISION_FLAGS = {"fp16": "FP16", "int8": "INT8"}
_CONSTRAINTS = {"prefer": "PREFER_PRECISION_CONSTRAINTS", "obey": "OBEY_PRECISION_CONSTRAINTS"}
_TYPES = {"fp32": "FLOAT", "fp16": "HALF", "int8": "INT8"}
_FLOATS = ("FLOAT", "HALF", "INT8", "BF16")

# layers whose types the builder cannot choose
_TYPED = (
    "CONSTANT",
    "SHAPE",
    "CAST",
    "QUANTIZE",
    "DEQUANTIZE",
    "ASSERTION",
    "CONDITION",
    "CONDITIONAL_INPUT",
    "CONDITIONAL_OUTPUT",
    "ITERATOR",
    "LOOP_OUTPUT",
    "RECURRENCE",
    "TRIP_LIMIT",
    "PLUGIN",
    "PLUGIN_V2",
    "PLUGIN_V3",
    "NON_ZERO",
)
_HEADER = re.compile(r"TRT-(\d{1,9})-(\w+)\s*\Z")
# the builder's warning about an INT8 tensor, 8.x to 10.x
_MISSING = re.compile(r"Missing scale and zero-point for tensor (.+?)(?:, expect fall back|\Z)")
_ALGORITHM = "EntropyCalibration2"


def set_flags(
    trt: Any, config: Any, spec: EngineSpec, flags: Sequence[str], notes: List[str]
) -> Tuple[str, ...]:
    """Sets the attempt's flags and the flags that the engine requires.

    A flag that the release lacks or TensorRT refuses is left out with a note: only TensorRT's log
    reports that REFIT, REFIT_IDENTICAL and REFIT_INDIVIDUAL exclude each other (the last counts),
    and that EXCLUDE_LEAN_RUNTIME needs VERSION_COMPATIBLE.

    Returns:
        The names of the flags that TensorRT has set.
    """
    wanted = [*flags]
    weak = spec.typing == "weak"
    if weak:
        wanted += [_PRECISION_FLAGS[p] for p in spec.precisions if p in _PRECISION_FLAGS]
        # only with precisions: the flag constrains these
        if spec.constraints in _CONSTRAINTS and spec.precisions:
            wanted.append(_CONSTRAINTS[spec.constraints])
    if spec.standalone:
        wanted.append("DIRECT_IO")
    if spec.dla_core is not None and spec.gpu_fallback and not spec.standalone:
        wanted.append("GPU_FALLBACK")
    set_names: List[str] = []
    # TensorRT takes EXCLUDE_LEAN_RUNTIME only after VERSION_COMPATIBLE
    wanted.sort(key=lambda name: name == "EXCLUDE_LEAN_RUNTIME")
    for name in dict.fromkeys(wanted):
        if name == "STRONGLY_TYPED":
            continue  # a flag of the network, not of the builder
        if hasattr(trt.BuilderFlag, name):
            config.set_flag(getattr(trt.BuilderFlag, name))
            set_names.append(name)
        else:
            notes.append("{}: this TensorRT has no {}, so it is not set".format(spec.key, name))
    taken = [name for name in set_names if config.get_flag(getattr(trt.BuilderFlag, name))]
    notes.extend(
        "{}: TensorRT does not take {} with {}".format(
            spec.key, name, listed(taken) or "no other flag"
        )
        for name in set_names
        if name not in taken
    )
    return tuple(taken)


def set_basics(trt: Any, builder: Any, config: Any, spec: EngineSpec, notes: List[str]) -> None:
    """Sets devices of the whole network, the DLA's memory pools and the default verbosity.

    Raises:
        DeviceError: "build.no-dla": the board does not have the core.
    """
    # without details the inspector gives only names, and not which layers run on the DLA
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    for name, size in spec.pools.items():
        if hasattr(trt.MemoryPoolType, name):
            pool = getattr(trt.MemoryPoolType, name)
            config.set_memory_pool_limit(pool, size)
            # a size that is not a power of 2 of at least 4 KiB has no effect on a DLA's pool
            if config.get_memory_pool_limit(pool) != size:
                notes.append("{}: TensorRT rejects {} of {} bytes".format(spec.key, name, size))
        else:
            notes.append("{}: this TensorRT has no memory pool {}".format(spec.key, name))
    if spec.dla_core is None:
        return
    cores = builder.num_DLA_cores
    if spec.dla_core >= cores:
        raise DeviceError(
            "the engine needs DLA core {}, but TensorRT finds {} here".format(spec.dla_core, cores),
            code="build.no-dla",
            where=spec.key,
            hint="`edgekit doctor` shows this board's DLA cores and compiler; TensorRT 10.8 to "
            "11.3 have no DLA",
        )
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = spec.dla_core
    if spec.standalone:
        config.engine_capability = trt.EngineCapability.DLA_STANDALONE


def set_devices(trt: Any, config: Any, spec: EngineSpec, mapped: MappedLayers) -> None:
    """Sets each layer's device as in the plan; layers that are not in the plan run on the GPU.

    A loadable has only its DLA, so no devices are set.
    """
    if spec.dla_core is None or spec.standalone:
        return
    for entry in mapped.layers:
        # set for every layer, since the network's default device is the DLA
        on_dla = mapped.device.get(entry.index) == "DLA"
        config.set_device_type(entry.layer, trt.DeviceType.DLA if on_dla else trt.DeviceType.GPU)


def can_run(config: Any, spec: EngineSpec, mapped: MappedLayers) -> Dict[str, bool]:
    """Calls ``can_run_on_DLA`` for every layer of the plan; returns the answers by name."""
    if spec.dla_core is None:
        return {}
    return {
        name: all(bool(config.can_run_on_DLA(entry.layer)) for entry in entries)
        for name, entries in mapped.work().items()
    }


def set_precisions(trt: Any, spec: EngineSpec, mapped: MappedLayers) -> int:
    """Sets the plan's precision and the output types of each layer that computes in floats.

    An INT8 layer's output is INT8 if all its readers are INT8 layers. The builder chooses the type
    at the border to another precision and inside an INT8 layer that it split: no scale is known
    there. The network's own outputs have their requested type.

    Returns:
        The number of layers that were set.
    """
    if spec.typing != "weak" or not spec.precisions:
        return 0
    readers: Dict[str, List[int]] = {}
    for entry in mapped.layers:
        for name in entry.inputs:
            readers.setdefault(name, []).append(entry.index)
    outputs = {io.name for io in spec.outputs}
    count = 0
    # parts of an INT8 layer are left to the builder: no scale is known for tensors inside a node
    float_parts = {index: part for index, part in mapped.parts.items() if part.precision != "int8"}
    for index, ours in {**mapped.ours, **float_parts}.items():
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
            specs = [mapped.ours.get(index) for index in readers.get(tensor.name, [])]
            all_int8 = bool(specs) and all(
                spec is not None and spec.precision == "int8" for spec in specs
            )
            if ours.precision == "int8" and not all_int8:
                continue
            entry.layer.set_output_type(n, kind)
    return count


def _computes_floats(layer: Any) -> bool:
    # only the first input: further ones may be indices, sizes or conditions
    tensors = [layer.get_input(n) for n in range(layer.num_inputs)][:1]
    tensors += [layer.get_output(n) for n in range(layer.num_outputs)]
    return all(_is_float(tensor) for tensor in tensors if tensor is not None)


def _is_float(tensor: Any) -> bool:
    return tensor.dtype.name in _FLOATS and not tensor.is_shape_tensor


def set_profiles(
    trt: Any, builder: Any, config: Any, spec: EngineSpec, flags: Sequence[str]
) -> None:
    """Adds the request's optimisation profiles; INT8 is calibrated at the first profile's optimum.

    Raises:
        DeviceError: "build.profile".
    """
    for number, ranges in enumerate(spec.profiles):
        values = spec.values[number] if number < len(spec.values) else {}
        profile = builder.create_optimization_profile()
        for name, sizes in ranges.items():
            profile.set_shape(name, sizes.min, sizes.opt, sizes.max)
        for name, given in values.items():
            profile.set_shape_input(name, given.min, given.opt, given.max)
        # only this call's result reports errors: set_shape always returns None
        if config.add_optimization_profile(profile) < 0:
            raise DeviceError(
                "TensorRT rejects optimisation profile {}{}".format(
                    number, _describe_disorder({**ranges, **values})
                ),
                code="build.profile",
                where=spec.key,
                hint="every open dimension of every input needs min <= opt <= max",
            )
    if not spec.profiles:
        return
    if parse_version(str(trt.__version__)) < (10,) and hasattr(
        trt.PreviewFeature, "PROFILE_SHARING_0806"
    ):
        # several frames in flight need a context each; on by default since 10.0 (NvInfer.h)
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    if spec.calibration is not None and "INT8" in flags:
        profile = builder.create_optimization_profile()
        for name, sizes in spec.profiles[0].items():
            profile.set_shape(name, sizes.opt, sizes.opt, sizes.opt)
        for name, given in (spec.values or ({},))[0].items():
            profile.set_shape_input(name, given.opt, given.opt, given.opt)
        # removed with implicit INT8, in 11.0
        if hasattr(config, "set_calibration_profile") and not config.set_calibration_profile(
            profile
        ):
            raise DeviceError(
                "TensorRT rejects the first profile's optimum as its calibration profile",
                code="build.profile",
                where=spec.key,
            )


def _describe_disorder(ranges: Mapping[str, Union[ProfileShapes, ProfileValues]]) -> str:
    """Returns a text that names the inputs whose sizes or values are not in order."""
    wrong = [
        "{!r} has min {}, opt {} and max {}".format(
            name[:80], list(shapes.min), list(shapes.opt), list(shapes.max)
        )
        for name, shapes in ranges.items()
        if not len(shapes.min) == len(shapes.opt) == len(shapes.max)
        or any(
            not low <= best <= high
            for low, best, high in zip(shapes.min, shapes.opt, shapes.max)  # noqa: B905 (Python 3.8)
        )
    ]
    return ": " + "; ".join(wrong) if wrong else ""


def mark_refittable(network: Any, names: Sequence[str], key: str, notes: List[str]) -> List[str]:
    """Marks weights as refittable one by one; returns the weights that TensorRT refused."""
    if not names:
        return []
    if not hasattr(network, "mark_weights_refittable"):
        notes.append("{}: this TensorRT cannot mark single weights as refittable".format(key))
        return list(names)
    return [name for name in names if not network.mark_weights_refittable(name)]


def refit_kind(flags: Sequence[str]) -> str:
    """Returns the weights with which a plan of these flags can be refitted; STRIP_PLAN alone
    implies identical weights.
    """
    kinds: Mapping[str, str] = {
        "REFIT": "any",
        "REFIT_INDIVIDUAL": "individual",
        "REFIT_IDENTICAL": "identical",
        "STRIP_PLAN": "identical",
    }
    return next((kind for flag, kind in kinds.items() if flag in flags), "none")


def adapt_cache(cache: bytes, version: str) -> bytes:
    """Returns the cache with the header that this release's IInt8EntropyCalibrator2 writes.

    Raises:
        DeviceError: "build.calibration": it is not a calibration cache.
    """
    first, separator, rest = cache.partition(b"\n")
    if not separator or not _HEADER.match(first.decode("utf-8", "replace")):
        raise DeviceError(
            "not a calibration cache: it does not begin with TRT-VERSION-ALGORITHM",
            code="build.calibration",
        )
    header = "TRT-{}-{}".format(tensorrt_number(parse_version(version)), _ALGORITHM)
    return header.encode("ascii") + b"\n" + rest


def read_scales(cache: bytes) -> Dict[str, float]:
    """Returns scales by tensor name, read as by trtexec: a line is split at its last colon.

    Raises:
        DeviceError: "build.calibration".
    """
    found = {}
    # the first line is the header; names of tensors need not be UTF-8
    for number, line in enumerate(cache.decode("utf-8", "surrogateescape").split("\n")[1:], 2):
        if not line.strip():
            continue
        name, colon, digits = line.rpartition(":")
        try:
            if not colon:
                raise ValueError
            # the bits of a float32 in hexadecimal, such as 3c010a14
            found[name] = struct.unpack(">f", struct.pack(">I", int(digits, 16)))[0]
        except (ValueError, struct.error) as error:
            raise DeviceError(
                "line {} of the calibration cache is not a tensor and its scale".format(number),
                code="build.calibration",
            ) from error
    return found


def missing_scales(messages: Sequence[str]) -> List[str]:
    """Returns the tensors without a scale, from the builder's warnings."""
    found = (_MISSING.search(" ".join(text.split())) for text in messages)
    return list(dict.fromkeys(match.group(1) for match in found if match))


def calibrator(trt: Any, cache: bytes, on_request: Callable[[List[str]], None]) -> Optional[Any]:
    """Returns an IInt8EntropyCalibrator2 without data that only has ``cache``; None if the release
    has no such class.

    Args:
        trt: TensorRT's module.
        cache: The calibration cache.
        on_request: Called with the network's inputs if TensorRT calibrates after all, that is, did
            not use the cache. It must not raise: TensorRT discards exceptions of these methods.
    """
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        return None

    class CacheCalibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]  # known only when it runs
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: List[str]) -> Optional[List[int]]:
            on_request(list(names))
            # ends the calibration: there is no data
            return None

        def read_calibration_cache(self) -> bytes:
            return cache

        def write_calibration_cache(self, cache: Any) -> None:
            # there are no new results to write: there is no data
            return None

    return CacheCalibrator()
