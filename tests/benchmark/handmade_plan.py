"""A hand-made plan in the shape of ResNet-50's: 123 layers, the stem and head on the GPU."""

from __future__ import annotations

from typing import Any

from edgekit.benchmark.measurement import (
    read_measurement,
)
from edgekit.benchmark.trace.run import trace_document
from edgekit.dla.verdicts import MemoryNeed
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.plan import PlacedLayer, Plan, PlannedLoadable, PredictedCost, Share
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.protocol.codec import read

MIB = 1 << 20
BLOCKS = (3, 4, 6, 3)


def _chain() -> list[tuple[str, str, str]]:
    """Returns name, kind and operator of each layer in graph order."""
    found = [
        ("conv1", "CONVOLUTION", "Conv"),
        ("relu1", "ACTIVATION", "Relu"),
        ("pool1", "POOLING", "MaxPool"),
    ]
    for stage, blocks in enumerate(BLOCKS, start=2):
        for block in range(blocks):
            at = f"stage{stage}/block{block}"
            for part in "abc":
                found.append((f"{at}/conv_{part}", "CONVOLUTION", "Conv"))
                if part != "c":
                    found.append((f"{at}/relu_{part}", "ACTIVATION", "Relu"))
            if block == 0:
                found.append((f"{at}/conv_shortcut", "CONVOLUTION", "Conv"))
            found.append((f"{at}/add", "ELEMENTWISE", "Add"))
            found.append((f"{at}/relu", "ACTIVATION", "Relu"))
    found += [
        ("gap", "REDUCE", "GlobalAveragePool"),
        ("flatten", "SHUFFLE", "Flatten"),
        ("fc", "CONVOLUTION", "Gemm"),
        ("prob", "SOFTMAX", "Softmax"),
    ]
    return found


def network() -> Network:
    """Returns a chain of layers; every tensor is ``NAME_out`` of one shape."""
    layers, tensors, previous = [], {"x": Tensor("x", (1, 3, 224, 224), "float32")}, "x"
    for name, kind, op in _chain():
        out = f"{name}_out"
        tensors[out] = Tensor(out, (1, 64, 56, 56), "float32")
        macs = 33_000_000 if kind == "CONVOLUTION" else 0
        layers.append(
            Layer(
                name, kind, op, (f"node/{name}",), (f"node/{name}",), (previous,), (out,), macs=macs
            )
        )
        previous = out
    return Network("resnet50", tuple(layers), tensors, ("x",), (previous,))


def _placed(core: int) -> tuple[PlacedLayer, ...]:
    rows, segment, device = [], -1, ""
    for name, kind, _ in _chain():
        gpu = name in ("conv1", "relu1", "pool1", "flatten", "prob")
        here = "GPU" if gpu else f"DLA{core}"
        if here != device:
            segment, device = segment + 1, here
        time = {"CONVOLUTION": 41.3, "POOLING": 18.0, "REDUCE": 12.5}.get(kind, 0.0)
        rows.append(
            PlacedLayer(
                name,
                (f"node/{name}",),
                here,
                "int8" if kind != "SOFTMAX" else "fp16",
                segment,
                time * (0.3 if gpu else 1.0),
                time * 11.0,
            )
        )
    return tuple(rows)


def plan(variants: int = 1) -> Plan:
    """Returns the plan; with two variants frames alternate between the DLA cores."""
    cores = range(variants)
    loadables = []
    for core in cores:
        for segment in sorted({p.segment for p in _placed(core) if p.device != "GPU"}):
            members = tuple(p.name for p in _placed(core) if p.segment == segment)
            loadables.append(PlannedLoadable(core, members, MemoryNeed(MIB, 64 * MIB, 32 * MIB)))
    return Plan(
        target="jetson-agx-orin-64gb",
        power_mode="MAXN",
        precision="int8",
        tensorrt="10.3",
        layers=_placed(0),
        loadables=tuple(loadables),
        pools={"managed_sram": MIB, "local_dram": 64 * MIB, "global_dram": 32 * MIB},
        transitions=4,
        predicted=PredictedCost(2412.0, 414.6, 21_400.0, 96.0),
        objective="gpu_time",
        optimal=True,
        bound=96.0,
        gap=0.0,
        plans=tuple(Share(1 / variants, _placed(core)) for core in cores),
        baselines={
            "gpu_only": PredictedCost(618.0, 1618.0, 17_900.0, 618.0),
            "tensorrt_auto": PredictedCost(2630.0, 380.2, 23_800.0, 131.0),
            "best_cut": None,
        },
        model_error="predicted by a model with a median error of 12 % on published measurements",
    )


def measurement(*, pipelined: bool = False, profile: bool = True) -> dict[str, Any]:
    """Returns what the board's loader would send for the plan."""
    order = list(dict.fromkeys((p.segment, p.device) for p in _placed(0)))
    events, at = [], 0.0
    for frame in range(3):
        for segment, device in order:
            duration = 9000.0 if device != "GPU" else 800.0
            events.append(
                {
                    "frame": frame,
                    "lane": 0,
                    "index": segment,
                    "device": device,
                    "start_us": at,
                    "duration_us": duration,
                }
            )
            at += duration + 11.0
    nodes = []
    for placed in _placed(0):
        for node in (f"node/{placed.name}", f"{placed.name}_out#raw#Round"):
            nodes.append(
                {"lane": 0, "index": placed.segment, "node": node, "op": "Conv", "median_us": 80.0}
            )
    samples = [20.0 + 0.05 * ((7 * i) % 23) for i in range(150)]
    return {
        "schema": "edgekit.device.bench/1",
        "release": "000001-0123456789ab",
        "backend": "reference",
        "clock": "cpu-measured",
        "warmup_ms": 200.0,
        "iterations": 150,
        "duration_s": 3.09,
        "throughput_qps": 48.5,
        "latency_ms": {
            "min": 20.0,
            "mean": 20.5,
            "median": 20.55,
            "p90": 21.0,
            "p95": 21.05,
            "p99": 21.1,
            "max": 21.1,
        },
        "samples_ms": samples,
        "pipelined": {"frames": 150, "throughput_qps": 61.0} if pipelined else None,
        "segments": [
            {
                "lane": 0,
                "index": segment,
                "device": device,
                "layers": [],
                "latency_ms": {"mean": 9.0 if device != "GPU" else 0.8},
            }
            for segment, device in order
        ],
        "events": events,
        "pipelined_events": _overlapping(order) if pipelined else [],
        "nodes": nodes if profile else None,
        "environment": {"machine": "x86_64", "onnxruntime": "1.31.0"},
    }


def measured(*, pipelined: bool = False, profile: bool = True, **changes: Any) -> Measurement:
    """Returns what ``measurement`` sends, with changes, as it is read."""
    sent = measurement(pipelined=pipelined, profile=profile)
    return read(Measurement, {**sent, **changes})


def trace(plan: Plan | None, sent: dict[str, Any] | None, **options: Any) -> dict[str, Any]:
    """Returns the trace of what a loader sent, as its file has it."""
    found = None if sent is None else read_measurement(sent)
    return trace_document(plan, found, **options).to_json()


def _overlapping(order: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """Returns three frames that start one after the other while the DLA is still busy."""
    return [
        {
            "frame": frame,
            "lane": 0,
            "index": segment,
            "device": device,
            "start_us": 900.0 * frame + 9000.0 * segment,
            "duration_us": 850.0,
        }
        for frame in range(3)
        for segment, device in order
    ]
