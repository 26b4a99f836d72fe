"""A hand-made run: the facts of a whole pipeline over the hand-made plan."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import TypeAdapter

from edgekit.benchmark.document import Bench, BoardName, bench_document
from edgekit.benchmark.trace.chrome import Trace
from edgekit.bundles.files import PackedBundle
from edgekit.dla.verdicts import Judgement, LayerVerdict
from edgekit.documents import Coded
from edgekit.error_document import FinishedStep, VerdictReason
from edgekit.pipeline.run import STEP_NAMES as STEPS
from edgekit.quantize.scales import Scales
from edgekit.reports.facts import RunFacts
from edgekit.reports.schema import (
    Accuracy,
    RefitAnswer,
    ReportedRewrite,
)
from edgekit.rewriting.graph import Applied
from edgekit.targets.loader import get
from edgekit.tensorrt.built import BoardBuild
from tests.benchmark import handmade_plan

REASON = VerdictReason(
    "softmax.orin-axis",
    "SoftMax over 1000 elements is not for the DLA",
    "axis 1, 1000 elements",
    "axes up to 1024 on TensorRT 8.6 and later",
    "TensorRT documentation, DLA supported layers",
    "leave the SoftMax out of the model and apply it on the CPU",
)
SHUFFLE = VerdictReason(
    "shuffle.flatten",
    "Flatten changes the number of dimensions",
    "4 to 2 dimensions",
    "4 dimensions",
    "TensorRT documentation, DLA supported layers",
    "keep the 1x1 spatial dimensions and flatten on the CPU",
)
PARTS: dict[str, Any] = {
    "accuracy": Accuracy | None,
    "bundle": Annotated[PackedBundle, Coded()] | None,
    "refit": RefitAnswer | None,
    "bench": Bench | None,
    "board": BoardName | None,
    "built": tuple[Annotated[BoardBuild, Coded()], ...],
    "rewrites": tuple[Annotated[ReportedRewrite, Coded()], ...],
    "steps": tuple[Annotated[FinishedStep, Coded()], ...],
    "trace": Trace | None,
}
CONFIG = """version: 1
name: resnet50
model: {builtin: light_resnet50, seed: 0}
target: jetson-agx-orin-64gb
power_mode: MAXN
precision: int8
placement: {objective: gpu_time, bounds: {latency_us: 3000}, dla_cores: [0]}
"""

BUILT = {
    "board": "lab<b>",
    "job": "0123456789abcdef",
    "fingerprint": {"module": "NVIDIA Jetson AGX Orin", "tensorrt": "10.3.0.30"},
    "tensorrt": "10.3.0.30",
    "engines": [
        {
            "key": "lane0",
            "bytes": 1_000_000,
            "full_bytes": 4_000_000,
            "stripped": True,
            "version_compatible": False,
            "lean_embedded": False,
            "refit": "identical",
            "dla_core": 0,
            "attempt": 1,
            "seconds": 90.0,
            "timing_cache": {},
            "attempts": [
                {"flags": ["STRIP_PLAN", "LEAN"], "ok": False, "seconds": 8.0, "error": "no"},
                {"flags": ["STRIP_PLAN"], "ok": True, "seconds": 82.0, "error": None},
            ],
        }
    ],
    "plan": {
        "schema": "edgekit.built/1",
        "engines": [],
        "same": False,
        "differences": ["gap: planned on the DLA, built on the GPU"],
    },
    "notes": [],
}


def judgement(network: Any) -> Judgement:
    """Returns verdicts: SoftMax and Flatten cannot, one pooling is disputed."""
    against = {"prob": REASON, "flatten": SHUFFLE}
    verdicts = {
        layer.name: LayerVerdict(
            layer.name not in against,
            "disputed" if layer.name == "gap" else "certain",
            (against[layer.name],) if layer.name in against else (),
        )
        for layer in network.layers
    }
    return Judgement("jetson-agx-orin-64gb", "int8", "10.3", verdicts, (), {})


def facts(**changes: Any) -> RunFacts:
    """Returns a whole run's facts; ``changes`` replaces fields, with models or with their JSON."""
    plan, network = handmade_plan.plan(), handmade_plan.network()
    whole = RunFacts(
        name="resnet50", model="builtin:light_resnet50?seed=0",
        target=get("jetson-agx-orin-64gb"), plan=plan, network=network,
        judgement=judgement(network), backend="reference",
        scales=Scales({"x": 0.02, "y": 0.1}, "entropy", "16 synthetic inputs, seed 0", "ab" * 32),
        accuracy=Accuracy.model_validate({
            "cosine": 0.998731, "snr_db": 25.42,
            "max_abs": 0.4123, "top1_agreement": 15 / 16, "inputs": 16,
            "data": "16 synthetic inputs, seed 0", "metric": "cosine", "min": 0.99, "passed": True,
            "segments": [
                {"segment": i, "device": device, "cosine": 0.9999 - i / 4000,
                 "cosine_min": 0.9998 - i / 4000, "snr_db": 36.0 - 2 * i, "exact": False,
                 "max_abs": 0.1 * (i + 1), "tensor": "y", "constant": False}
                for i, device in enumerate(("GPU", "DLA0", "GPU", "DLA0", "GPU"))
            ],
        }),
        bundle=PackedBundle(path="edgekit-out/resnet50/resnet50.ekb", bytes=27_412_345,
                           stripped_bytes=412_345, digest="9f" * 32),
        refit=RefitAnswer(bit_equal=True),
        bench=bench_document(handmade_plan.measured(pipelined=True), plan, name="resnet50"),
        board=BoardName(name="embedded", kind="sshd"),
        rewrites=(ReportedRewrite.of(Applied(
            "global-average-pool", "one loadable instead of two", "node/gap", ("node/gap",),
            ("node/gap_pool",), 2.4e-7, 1e-15, 3, 0,
        )),),
        steps=tuple(FinishedStep(name=n, status="done" if i % 3 else "reused", seconds=0.4 * i,
                                 detail="")
                    for i, n in enumerate(STEPS)),
        files={"report": "edgekit-out/resnet50/report.html",
               "trace": "edgekit-out/resnet50/trace.json",
               "bundle": "edgekit-out/resnet50/resnet50.ekb"},
        config_text=CONFIG,
        environment={"edgekit": "0.1.0", "python": "3.11.9", "runtime": {"onnxruntime": "1.31.0"}},
        notes=("No board in the configuration: deployed to an embedded sshd on this machine.",),
    )  # fmt: skip
    read = {
        name: TypeAdapter(PARTS[name]).validate_python(value) if name in PARTS else value
        for name, value in changes.items()
    }
    return dataclasses.replace(whole, **read)
