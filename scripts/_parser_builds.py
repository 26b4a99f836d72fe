"""Builds edgekit's own strongly typed models with NVIDIA's builder, as a board's job does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from _parser_network import Difference

from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.network.writing import save
from edgekit.quantize.qdq.to_explicit import to_qdq
from edgekit_device.build.attempt import BuilderLog
from edgekit_device.build.builder import STEPS, build_attempt
from edgekit_device.build.request import Attempt, EngineSpec, IoSpec, LayerSpec
from edgekit_device.errors import DeviceError

__all__ = ["BUILT", "FLAGS", "build", "typed"]

#: The exports that are built: of each way of writing layers one.
BUILT = (
    "resnet18", "mobilenet_v3_small", "yolo11n", "hf_segformer_b0", "timm_deit_tiny_patch16_224",
    "lstm", "keras_mobilenet", "ppocr_v4_detection",
)  # fmt: skip
#: Builder flags that need no GPU, by attempt.
FLAGS = ((), ("VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"))
_SCALE = 0.05  # of every tensor: what is built depends on where the scales stand alone


def typed(model: Model, precision: str) -> Model:
    """The model in FP16, or with Q/DQ nodes around what runs in INT8."""
    network = layers(model)
    floats = [name for name, tensor in network.tensors.items() if tensor.dtype == "float32"]
    scales = dict.fromkeys(floats, _SCALE) if precision == "int8" else {}
    return to_qdq(model, network, scales)


def build(trt: Any, log: BuilderLog, name: str, model: Model, folder: Path) -> list[Difference]:
    """Builds a typed model with each of :data:`FLAGS`; what is not as a job expects."""
    path = folder / "typed.onnx"
    save(model, path)
    spec = _spec(model)
    found = []
    for flags in FLAGS:
        progress: list[tuple[int, int]] = []
        try:
            built = build_attempt(
                trt, log, spec, Attempt(flags, ""), model=path, cache=None, timing=None,
                on_progress=lambda done, total, text: progress.append((done, total)),  # noqa: B023
                cancelled=lambda: False,
            )  # fmt: skip
        except DeviceError as error:
            found.append(Difference("build", error.code, "a plan", error.message[:300], name))
            continue
        facts = {
            "bytes": bool(built.data),
            "flags": built.flags,
            "unmapped": built.unmapped,
            "notes": built.notes,
            "progress": progress[-1],
        }
        expected: dict[str, object] = {
            "bytes": True, "flags": flags, "unmapped": [], "notes": [], "progress": (STEPS, STEPS),
        }  # fmt: skip
        found += [
            Difference("build", fact, str(expected[fact]), str(value)[:300], name)
            for fact, value in facts.items()
            if value != expected[fact]
        ]
    return found


def _spec(model: Model) -> EngineSpec:
    network, graph = layers(model), model.graph

    def ends(names: tuple[str, ...]) -> tuple[IoSpec, ...]:
        return tuple(IoSpec(name, graph.dtype(name), tuple(graph.shape(name))) for name in names)

    return EngineSpec(
        key="lane0", kind="plan", model="0" * 64, device="GPU", gpu_fallback=False,
        typing="strong", precisions=(), calibration=None, pools={}, constraints="none",
        refit_individual=(), profiles=(), attempts=(Attempt((), ""),),
        inputs=ends(network.inputs), outputs=ends(network.outputs),
        layers=tuple(
            LayerSpec(x.name, x.builder_name, tuple(x.nodes), x.kind, "GPU", "fp16")
            for x in network.layers
        ),
    )  # fmt: skip
