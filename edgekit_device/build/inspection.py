"""Facts about a built engine: inputs and outputs with their strides, layers with their devices,
reformats at the borders, weights, and the full plan with its weights.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.arrays.formats import VECTORS, as_nchw
from edgekit_device.build.network import DTYPE_OF_TENSORRT
from edgekit_device.build.request import (
    BuiltTensor,
    BuiltWeight,
    EngineSpec,
    InspectedLayer,
    IoSpec,
)
from edgekit_device.errors import counted
from edgekit_device.files import map_file
from edgekit_device.protocol.codec import (
    array,
    digest,
    document,
    integer,
    long_text,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)
from edgekit_device.protocol.manifest import DTYPES
from edgekit_device.tensorrt.memory import most_device_bytes
from edgekit_device.tensorrt.plugins import PluginFile
from edgekit_device.tensorrt.refit import full_plan, refit, refit_weights
from edgekit_device.tensorrt.runtimes import RuntimeChoice, deserialize
from edgekit_device.tensorrt.weights import named_weights

_MODES = {"INPUT": "input", "OUTPUT": "output"}
_DLA = "DLA"
_MAX_INSPECTOR = 1 << 30
_REFORMATS = tuple(
    "Reformatting CopyNode for Network {} ".format(what) for what in ("Input", "Output")
)

# Bytes to which a line is padded, by DLA generation: copied from ``dla/formats.yaml``, which has
# the sources; a board has no YAML reader. A test compares both.
_LINE_BYTES = {
    "DLA_LINEAR": {"1.0": 64, "2.0": 64},
    "DLA_HWC4": {"1.0": 32, "2.0": 64},
}
# channels stored for each pixel in DLA_HWC4, by the tensor's channels
_HWC4_CHANNELS = {1: 1, 3: 4, 4: 4}
# the number of channels is rounded up to a multiple of this
_CHANNEL_MULTIPLES = {"HWC": 1, "HWC8": 8, "HWC16": 16}


@document(frozen=True)
class PlanFacts:
    """Facts about a loaded plan, or about a loadable, which has only ``io``.

    Attributes:
        io: The engine's inputs and outputs.
        weights: Weights by the name that a refit takes.
        inspector: The engine inspector's JSON; "" if it returned none.
        full: Digest of the full, refitted plan; None if the plan already has its weights.
        full_bytes: Size of the full plan in bytes.
        device_bytes: Bytes of device memory that a context needs while it runs; None for a
            loadable.
        notes: Sentences for people.
    """

    io: Tuple[BuiltTensor, ...] = member(records(BuiltTensor))
    weights: Mapping[str, BuiltWeight] = member(mapping(record(BuiltWeight)), default=dict)
    inspector: str = member(text(most=_MAX_INSPECTOR), default="")
    full: Optional[str] = member(nullable(digest), default=None)
    full_bytes: Optional[int] = member(nullable(integer(0, 1 << 44)), default=None)
    device_bytes: Optional[int] = member(nullable(integer(0, 1 << 44)), default=None)
    notes: Tuple[str, ...] = member(array(long_text), default=())


def requested_io(
    spec: EngineSpec, scales: Mapping[str, float], dla: str
) -> Tuple[BuiltTensor, ...]:
    """Returns inputs and outputs as requested: for a loadable, which TensorRT cannot open.

    Args:
        spec: The engine.
        scales: Scales of the calibration cache.
        dla: DLA generation ("1.0", "2.0").
    """
    return tuple(
        _io(io.name, mode, io.dtype, io.shape, (io.formats or ("LINEAR",))[0], io, scales, dla)
        for mode, tensors in (("input", spec.inputs), ("output", spec.outputs))
        for io in tensors
    )


def plan_facts(
    trt: Any,
    plan: bytes,
    spec: EngineSpec,
    flags: Sequence[str],
    *,
    model: Path,
    scales: Mapping[str, float],
    dla: str,
    store: Callable[[bytes], str],
    temporary: Optional[Path] = None,
    plugins: Sequence[PluginFile] = (),
    plugins_embedded: bool = False,
) -> PlanFacts:
    """Loads a new plan, inspects it, and refits it if it lacks its weights.

    ``store`` stores the refitted plan and returns its digest; ``plugins`` are those that it needs.

    Raises:
        DeviceError: "engine.*", "refit.*" or "tensorrt.*": the plan cannot be used here.
    """
    # just made by this board's own TensorRT: the code in it may run
    compatible = "VERSION_COMPATIBLE" in flags
    embedded = compatible and "EXCLUDE_LEAN_RUNTIME" not in flags
    loaded = deserialize(
        trt,
        plan,
        RuntimeChoice("full", host_code=embedded or plugins_embedded),
        dla_core=spec.dla_core,
        temporary=temporary,
        plugins=plugins,
        where=spec.key,
    )
    engine = loaded.engine
    facts = PlanFacts(
        io=_engine_io(engine, spec, scales, dla), device_bytes=most_device_bytes(engine)
    )
    try:
        facts = replace(facts, inspector=inspect_text(trt, engine))
    except (
        Exception
    ) as error:  # a runtime without the inspector's types raises pybind11's own error
        facts = replace(facts, notes=("{}: no engine inspector: {}".format(spec.key, error),))
    if engine.refittable:
        facts = replace(facts, weights=_weights(trt, engine, model, spec.key))
    if "STRIP_PLAN" in flags:
        # also the proof that this board can refit the stripped plan
        refit(trt, engine, model, where=spec.key)
        full = full_plan(trt, engine, lean=embedded, compatible=compatible, where=spec.key)
        facts = replace(facts, full=store(full), full_bytes=len(full))
    return facts


def _engine_io(
    engine: Any, spec: EngineSpec, scales: Mapping[str, float], dla: str
) -> Tuple[BuiltTensor, ...]:
    requested = {io.name: io for io in (*spec.inputs, *spec.outputs)}
    found = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        dtype = engine.get_tensor_dtype(name).name
        found.append(
            _io(
                name,
                _MODES[engine.get_tensor_mode(name).name],
                DTYPE_OF_TENSORRT.get(dtype, dtype.lower()),
                tuple(engine.get_tensor_shape(name)),
                engine.get_tensor_format(name).name,
                requested.get(name),
                scales,
                dla,
            )
        )
    return tuple(found)


def _io(
    name: str,
    mode: str,
    dtype: str,
    shape: Sequence[int],
    format: str,
    requested: Optional[IoSpec],
    scales: Mapping[str, float],
    dla: str,
) -> BuiltTensor:
    scale = requested.scale if requested is not None else None
    # TensorRT computes with the cache's scale, so the loader must quantise with it
    if dtype == "int8" and scale is None:
        scale = scales.get(name)
    return BuiltTensor(
        name=name,
        mode=mode,
        dtype=dtype,
        shape=tuple(shape),
        format=format,
        strides=() if -1 in shape else strides(shape, dtype, format, dla),
        scale=scale if dtype == "int8" else None,
    )


def _weights(trt: Any, engine: Any, model: Path, where: str) -> Dict[str, BuiltWeight]:
    found = {}
    refit_facts = refit_weights(trt, engine, where)
    arrays = named_weights(map_file(model), model.parent, refit_facts)
    for name, facts in refit_facts.items():
        array = arrays.get(name)
        # before 10.0 only the model has the weights' types and shapes
        found[name] = BuiltWeight(
            dtype=facts.dtype or (str(array.dtype) if array is not None else ""),
            shape=None if array is None else array.shape,
            count=facts.count or (int(array.size) if array is not None else 0),
        )
    return found


def inspect_text(trt: Any, engine: Any) -> str:
    """Returns the inspector's JSON of a whole engine; "" if it returns none."""
    inspector = engine.create_engine_inspector()
    if inspector is None:
        return ""
    return str(inspector.get_engine_information(trt.LayerInformationFormat.JSON) or "")


def summarise(text: str) -> Tuple[Tuple[InspectedLayer, ...], List[str]]:
    """Returns the layers, and notes about parts that could not be read.

    Reads tolerantly: releases up to 10.x and 11 describe tensors differently, which is not needed
    here; without details in the build, layers are only names. A DLA's part is a single layer of the
    type "DLA"; its name alone does not show that, since Myelin's parts on the GPU have similar
    names.
    """
    if not text.strip():
        return (), ["the inspector returned an empty text"]
    try:
        # strict=False: names contain control characters (1E and 1F separate ONNX nodes)
        found = json.loads(text, strict=False)
        layers = found["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return (), ["the inspector's JSON cannot be read: {}".format(error)]
    if not isinstance(layers, list):
        return (), ["the inspector's layers are not a list"]
    described, unnamed = [], 0
    for layer in layers:
        if isinstance(layer, str):
            described.append(InspectedLayer(layer, "", ""))
        elif isinstance(layer, dict) and isinstance(layer.get("Name"), str):
            kind = str(layer.get("LayerType", ""))
            device = _DLA if kind.upper() == _DLA else "GPU" if kind else ""
            described.append(InspectedLayer(layer["Name"], kind, device))
        else:
            unnamed += 1
    notes = (
        ["the inspector returned {} without a name".format(counted(unnamed, "layer"))]
        if unnamed
        else []
    )
    return tuple(described), notes


def reformats(text: str, borders: Sequence[str]) -> Tuple[str, ...]:
    """Returns the names of layers that only reformat an input or output of the engine."""
    try:
        layers = json.loads(text, strict=False)["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    # a set: a large engine has thousands of layers
    names, found = set(borders), []
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, str):
            # names alone: "Input Tensor 0 to conv1" does not show if it is at a border
            if any(layer == prefix + name for prefix in _REFORMATS for name in names):
                found.append(layer)
            continue
        if not isinstance(layer, dict) or layer.get("LayerType") != "Reformat":
            continue
        touched = {
            tensor.get("Name")
            for side in ("Inputs", "Outputs")
            for tensor in layer.get(side) or ()
            if isinstance(tensor, dict)
        }
        if touched & names:
            found.append(str(layer.get("Name", "")))
    return tuple(found)


def strides(
    shape: Sequence[int], dtype: str, format: str, generation: str = "2.0"
) -> Tuple[int, ...]:
    """Returns strides in bytes: along each axis for LINEAR, else along N, C (or vectors of C), H
    and W.

    Empty if the format's layout is not documented.
    """
    # bfloat16, which NumPy lacks, has 2 bytes
    size = DTYPES.get(dtype, 2)
    if format == "LINEAR":
        return _dense_strides(shape, size)
    batch, channels, height, width = as_nchw(shape)
    if format in VECTORS:
        vector = VECTORS[format]
        # the last axis, inside a vector, has no stride in TensorRT's terms
        return _dense_strides((batch, -(-channels // vector), height, width, vector), size)[:4]
    if format == "DLA_LINEAR":
        line = _round_up(width * size, _LINE_BYTES[format][generation])
        return (channels * height * line, height * line, line, size)
    if format == "DLA_HWC4" and channels in _HWC4_CHANNELS:
        pixel = _HWC4_CHANNELS[channels] * size
        line = _round_up(width * pixel, _LINE_BYTES[format][generation])
    elif format in _CHANNEL_MULTIPLES:
        pixel = _round_up(channels, _CHANNEL_MULTIPLES[format]) * size
        line = width * pixel
    else:
        return ()
    return (height * line, size, line, pixel)


def _dense_strides(shape: Sequence[int], size: int) -> Tuple[int, ...]:
    found = [size]
    for length in reversed(shape[1:]):
        found.append(found[-1] * length)
    return tuple(reversed(found)) if shape else ()


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to
