"""``edgekit bench``: measures the deployed release."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "bench",
        epilog="Examples: edgekit bench configs/resnet50-orin.yaml; "
        "edgekit bench model.onnx -t jetson-agx-orin-64gb --duration 10",
    )(bench)


def bench(
    model: Annotated[str, typer.Argument(help="YAML configuration, ONNX file or builtin:NAME.")],
    target: o.Target = None,
    precision: o.Precision = None,
    duration: Annotated[float | None, typer.Option(help="Measure at least this long, s.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Measure at least this often.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Warm-up, ms.")] = None,
    shape: o.Shape = None,
    outputs: o.Outputs = None,
    out: o.Out = None,
    accept_host_key: o.AcceptHostKey = False,
    trust_key: o.TrustKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Measure latency and throughput by trtexec's method and write a trace."""
    options = {
        "target": target,
        "precision": precision,
        "model": {"shapes": o.shapes_of(shape) or None, "outputs": outputs},
        "bench": {"duration_s": duration, "iterations": iterations, "warmup_ms": warmup},
    }
    with o.open_pipeline(
        model,
        options,
        out=out,
        quiet=quiet,
        verbose=verbose,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        document = pipeline.bench()
    if json:
        o.print_json(document)
        return
    latency = document["latency_ms"]
    print(f"{document['clock']}: median {latency['median']:.3f} ms, p99 {latency['p99']:.3f} ms, "
          f"{document['throughput_qps']:.1f} inferences/s")  # fmt: skip
    print(f"trace: {document['files']['trace']}")
