"""The reference backend: a plan's segments as ONNX models with the target's numerics, without
weights.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable

import numpy as np
import onnx

from edgekit.placement.segments import Segment, SegmentedPlan
from edgekit.quantize.scales import Scales
from edgekit.reference.artefacts import Artefacts, EngineSegment
from edgekit.reference.numerics import Numerics, decide
from edgekit.reference.segment_model import emit
from edgekit.reference.weights import WeightStore


def build_reference(
    plan: SegmentedPlan,
    scales: Scales | None,
    *,
    progress: Callable[[int, int], None] | None = None,
    store: WeightStore | None = None,
) -> Artefacts:
    """Builds stripped engines for every lane of a plan.

    Args:
        plan: The FP32 model with placement, precision and segment by layer; of a model with opaque
            layers the part before these is built.
        scales: INT8 scales; INT8 layers whose tensors lack a scale run in FP16, which ``notes``
            reports.
        progress: Called with (segments done, segments in all).
        store: Weights of the model (before opaque layers) that other builds transformed and that
            are used again; the result includes these weights.

    Returns:
        Artefacts whose engines need only ONNX Runtime and the weights.

    Raises:
        BuildError: The model's opset is too old.
    """
    runnable = plan.runnable
    graph = runnable.graph
    store = store or WeightStore(runnable.model)
    total = sum(len(cuts) for cuts in runnable.variants)
    engines: dict[str, bytes] = {}
    lanes = []
    # lanes mostly have the same notes
    notes: dict[str, None] = {}
    done = 0
    for share, cuts in zip(runnable.plan.plans, runnable.variants, strict=True):
        numerics = decide(graph, cuts, scales, alone=len(runnable.variants) == 1)
        notes.update(dict.fromkeys(_notes(numerics)))
        segments = []
        for index, segment in enumerate(cuts):
            data = emit(runnable.model, segment, numerics, store)
            digest = hashlib.sha256(data).hexdigest()
            # by digest: lanes share engines of equal segments
            engines[digest] = data
            segments.append(_segment(index, segment, digest))
            done += 1
            if progress is not None:
                progress(done, total)
        lanes.append((share.share, tuple(segments)))
    return Artefacts(
        backend="reference",
        lanes=tuple(lanes),
        engines=engines,
        weights=store.weights,
        values=store.values,
        fingerprint=reference_fingerprint(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        notes=tuple(notes),
        functions=runnable.model.plugins,
    )


def reference_fingerprint() -> dict[str, str]:
    """Returns the requirements of engines that this machine builds."""
    import onnxruntime

    return {
        "backend": "reference",
        "runtime": "onnxruntime",
        "runtime_version": onnxruntime.__version__,
        "machine": platform.machine(),
    }


def _segment(index: int, segment: Segment, digest: str) -> EngineSegment:
    return EngineSegment(
        index=index,
        device=segment.device,
        layers=segment.layers,
        inputs=segment.inputs,
        outputs=segment.outputs,
        engine=digest,
    )


def _notes(numerics: Numerics) -> list[str]:
    if not numerics.unscaled:
        return []
    unit, tensors = next(iter(numerics.unscaled.items()))
    return [
        f"{len(numerics.unscaled)} INT8 layers run in FP16 because a tensor has no scale, "
        f"such as {unit!r} ({', '.join(tensors[:3])})"
    ]


def full_engine(artefacts: Artefacts, engine: str) -> bytes:
    """Returns an engine with its weights inside, less than 2 GB: the unstripped build.

    Args:
        artefacts: The build.
        engine: SHA-256 of an engine in ``artefacts.engines``.
    """
    proto = onnx.ModelProto.FromString(artefacts.engines[engine])
    stubs = [
        tensor
        for tensor in proto.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]
    for stub in stubs:
        stub.ClearField("external_data")
        stub.ClearField("data_location")
        digest = artefacts.weights[stub.name].digest
        stub.raw_data = np.ascontiguousarray(artefacts.values[digest]).tobytes()
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
