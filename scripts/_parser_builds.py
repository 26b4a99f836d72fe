"""Builds edgekit's own strongly typed models with NVIDIA's builder, as a board's job does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from _parser_network import Difference

from edgekit.network.loading.load import load
from edgekit.network.loading.open_axes import load_open
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.network.ranges import Range
from edgekit.network.writing import save
from edgekit.quantize.qdq.to_explicit import to_open_qdq, to_qdq
from edgekit.targets.loader import get
from edgekit.tensorrt.releases import release
from edgekit.tensorrt.settings import SettingsCase, SettingValue, choose_settings
from edgekit_device.build.attempt import BuilderLog
from edgekit_device.build.builder import STEPS, build_attempt
from edgekit_device.build.request import Attempt, EngineSpec, IoSpec, LayerSpec, ProfileShapes
from edgekit_device.build.settings import Setting
from edgekit_device.errors import DeviceError

__all__ = ["BUILT", "FLAGS", "RANGES", "build", "build_range", "type_model"]

#: The exports that are built: of each way of writing layers one.
BUILT = (
    "resnet18",
    "mobilenet_v3_small",
    "yolo11n",
    "hf_segformer_b0",
    "timm_deit_tiny_patch16_224",
    "lstm",
    "keras_mobilenet",
    "ppocr_v4_detection",
)
#: Exports that are built for a range: smallest, best and largest sizes of the input.
RANGES = {
    "resnet18": ((1, 3, 64, 64), (2, 3, 224, 224), (4, 3, 256, 256)),
    "mobilenet_v3_small": ((1, 3, 64, 64), (2, 3, 224, 224), (4, 3, 256, 256)),
    "yolov8n-cls": ((1, 3, 640, 640), (2, 3, 640, 640), (4, 3, 640, 640)),
}
#: Builder flags that need no GPU, by attempt.
FLAGS = ((), ("VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"), ("WEIGHT_STREAMING",))
# settings of a configuration beside them, for the attempt of this flag
_WITH_SETTINGS = "WEIGHT_STREAMING"
_VALUES: dict[str, SettingValue] = {
    "optimization_level": 2,
    "workspace_mib": 64,
    "tactic_dram_mib": 256,
    "tactic_shared_memory_kib": 48,
    "sparsity": True,
    "tf32": False,
    "timing_cache": True,
    "editable_timing_cache": True,
    "tactic_sources": ["JIT_CONVOLUTIONS"],
    "max_aux_streams": 2,
    "tiling_optimization_level": "fast",
    "l2_limit_for_tiling_kib": 512,
    "preview_features": {"ALIASED_PLUGIN_IO_10_03": True},
    "profiling_verbosity": "none",
}
_HELD = {
    "optimization_level": "2",
    "workspace_mib": str(64 << 20),
    "tactic_dram_mib": str(256 << 20),
    "tactic_shared_memory_kib": str(48 << 10),
    "sparsity": "on",
    "tf32": "off",
    "editable_timing_cache": "on",
    "tactic_sources": "JIT_CONVOLUTIONS",
    "max_aux_streams": "2",
    "tiling_optimization_level": "FAST",
    "l2_limit_for_tiling_kib": str(512 << 10),
    "preview_features": "ALIASED_PLUGIN_IO_10_03 on",
    "profiling_verbosity": "NONE",
}
_SET_FLAGS = ("SPARSE_WEIGHTS", "EDITABLE_TIMING_CACHE")
_SCALE = 0.05  # of every tensor: the built layers depend on the places of the scales alone


def type_model(model: Model, precision: str) -> Model:
    """The model in FP16, or with Q/DQ nodes around the layers that run in INT8."""
    network = layers(model)
    floats = [name for name, tensor in network.tensors.items() if tensor.dtype == "float32"]
    scales = dict.fromkeys(floats, _SCALE) if precision == "int8" else {}
    return to_qdq(model, network, scales)


def build(trt: Any, log: BuilderLog, name: str, model: Model, folder: Path) -> list[Difference]:
    """Builds a typed model with each of :data:`FLAGS`; returns deviations from a job's result."""
    path = folder / "typed.onnx"
    save(model, path)
    plain = _make_spec(model)
    found = []
    for flags in FLAGS:
        more = _WITH_SETTINGS in flags
        spec = replace(plain, settings=_all_settings()) if more else plain
        progress: list[tuple[int, int]] = []
        try:
            built = build_attempt(
                trt,
                log,
                spec,
                Attempt(flags, ""),
                model=path,
                cache=None,
                timing=None,
                on_progress=lambda done, total, text: progress.append((done, total)),  # noqa: B023
                cancelled=lambda: False,
            )
        except DeviceError as error:
            found.append(Difference("build", error.code, "a plan", error.message[:300], name))
            continue
        facts = {
            "bytes": bool(built.data),
            "flags": built.flags,
            "settings": built.settings,
            "unmapped": built.unmapped,
            "notes": built.notes,
            "progress": progress[-1],
        }
        expected: dict[str, object] = {
            "bytes": True,
            "flags": (*flags, *_SET_FLAGS) if more else flags,
            "unmapped": [],
            "settings": _HELD if more else {},
            "notes": [],
            "progress": (STEPS, STEPS),
        }
        found += [
            Difference("build", fact, str(expected[fact]), str(value)[:300], name)
            for fact, value in facts.items()
            if value != expected[fact]
        ]
    return found


def build_range(
    trt: Any, log: BuilderLog, name: str, proto: onnx.ModelProto, precision: str, folder: Path
) -> list[Difference]:
    """Builds an export with open axes for :data:`RANGES`, typed as edgekit types it."""
    low, best, high = RANGES[name]
    value = proto.graph.input[0]
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if low[axis] != high[axis]:
            dim.dim_param = f"axis{axis}"
    for output in proto.graph.output:
        for axis, dim in enumerate(output.type.tensor_type.shape.dim):
            dim.dim_param = f"{output.name}_{axis}"
    del proto.graph.value_info[:]
    path = folder / "typed.onnx"
    onnx.save(proto, path)
    profile = {value.name: Range(low, best, high)}
    network = layers(load(path, shapes={value.name: best}))
    floats = [tensor.name for tensor in network.tensors.values() if tensor.dtype == "float32"]
    scales = dict.fromkeys(floats, _SCALE) if precision == "int8" else {}
    made = to_open_qdq(load_open(path, [profile]), network, scales)
    assert made is not None, "its opset is 13 or later"
    save(made, path)

    def ends(names: tuple[str, ...]) -> tuple[IoSpec, ...]:
        facts = (network.tensors[name] for name in names)
        return tuple(
            IoSpec(tensor.name, tensor.dtype, (-1,) * len(tensor.shape)) for tensor in facts
        )

    spec = replace(
        _engine_spec(ends(network.inputs), ends(network.outputs)),
        profiles=({value.name: ProfileShapes(low, best, high)},),
    )
    try:
        built = build_attempt(
            trt,
            log,
            spec,
            spec.attempts[0],
            model=path,
            cache=None,
            timing=None,
            on_progress=lambda done, total, text: None,
            cancelled=lambda: False,
        )
    except DeviceError as error:
        return [Difference("range", error.code, "a plan", error.message[:300], name)]
    if built.data and not built.notes:
        return []
    return [Difference("range", "notes", "[]", str(built.notes)[:300], name)]


def _all_settings() -> tuple[Setting, ...]:
    """The table's settings for every key of the newest release, with edgekit's own checks."""
    case = SettingsCase(
        on=release("11.4"),
        target=get("jetson-agx-thor"),
        typing="strong",
        precision="fp16",
        dla=False,
        kinds=("plan",),
        places={},
    )
    return choose_settings(_VALUES, case).by_kind["plan"]


def _make_spec(model: Model) -> EngineSpec:
    network, graph = layers(model), model.graph

    def ends(names: tuple[str, ...]) -> tuple[IoSpec, ...]:
        return tuple(IoSpec(name, graph.dtype(name), tuple(graph.shape(name))) for name in names)

    return replace(
        _engine_spec(ends(network.inputs), ends(network.outputs)),
        layers=tuple(
            LayerSpec(x.name, x.builder_name, tuple(x.nodes), x.kind, "GPU", "fp16")
            for x in network.layers
        ),
    )


def _engine_spec(inputs: tuple[IoSpec, ...], outputs: tuple[IoSpec, ...]) -> EngineSpec:
    return EngineSpec(
        key="lane0",
        kind="plan",
        model="0" * 64,
        device="GPU",
        gpu_fallback=False,
        typing="strong",
        precisions=(),
        calibration=None,
        pools={},
        constraints="none",
        refit_individual=(),
        profiles=(),
        attempts=(Attempt((), ""),),
        inputs=inputs,
        outputs=outputs,
        layers=(),
    )
