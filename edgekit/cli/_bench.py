"""``edgekit bench``: measures the deployed release."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command(
    "bench",
    "Examples: edgekit bench configs/resnet50-orin.yaml; "
    "edgekit bench model.onnx -t jetson-agx-orin-64gb --duration 10",
)
@o.model
@o.target
@o.precision
@click.option("--duration", type=float, help="Measure at least this long, s.")
@click.option("--iterations", type=int, help="Measure at least this often.")
@click.option("--warmup", type=float, help="Warm-up, ms.")
@o.cut
@o.out
@o.boards
@o.talk
def command(
    model: str,
    target: str | None,
    precision: str | None,
    duration: float | None,
    iterations: int | None,
    warmup: float | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    options = {
        "target": target,
        "precision": precision,
        "model": part,
        "bench": {"duration_s": duration, "iterations": iterations, "warmup_ms": warmup},
    }
    with o.open_pipeline(model, options, **settings) as pipeline:
        document = pipeline.bench()
    if json:
        o.print_json(document)
        return
    latency = document["latency_ms"]
    print(f"{document['clock']}: median {latency['median']:.3f} ms, p99 {latency['p99']:.3f} ms, "
          f"{document['throughput_qps']:.1f} inferences/s")  # fmt: skip
    print(f"trace: {document['files']['trace']}")
