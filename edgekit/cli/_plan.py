"""``edgekit plan``: places every layer and says what it costs."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o
from edgekit.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "plan",
        epilog="Examples: edgekit plan configs/resnet50-orin.yaml; edgekit plan model.onnx "
        "-t jetson-agx-orin-64gb --objective throughput --dla-cores 0,1",
    )(plan)


def plan(
    model: Annotated[str, typer.Argument(help="YAML configuration, ONNX file or builtin:NAME.")],
    target: o.Target = None,
    precision: o.Precision = None,
    power_mode: Annotated[str | None, typer.Option(help="NVIDIA's name, e.g. MAXN, 30W.")] = None,
    objective: Annotated[
        str | None, typer.Option(help="latency, throughput, period, energy or gpu_time.")
    ] = None,
    dla_cores: Annotated[str | None, typer.Option(help="0, 0,1 or none.")] = None,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--no-gpu", help="--no-gpu: standalone, DLA only.")
    ] = None,
    tensorrt: o.TensorRT = None,
    shape: o.Shape = None,
    outputs: o.Outputs = None,
    force: o.Force = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Place layers on GPU and DLA and predict latency, throughput and energy."""
    options = {
        "target": target,
        "precision": precision,
        "power_mode": power_mode,
        "tensorrt": tensorrt,
        "model": {"shapes": o.shapes_of(shape) or None, "outputs": outputs},
        "placement": {"objective": objective, "dla_cores": _cores(dla_cores), "gpu": gpu},
        "build": {"mode": "standalone" if gpu is False else None},
    }
    with o.open_pipeline(model, options, force=force, quiet=quiet, verbose=verbose) as pipeline:
        result = pipeline.plan()
    if json:
        o.print_json(result.to_json())
    else:
        from edgekit.report import summary_plan

        o.stdout_console().print(summary_plan(result))


def _cores(text: str | None) -> list[int] | None:
    if text is None:
        return None
    if text.strip().lower() == "none":
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        message = f"--dla-cores {text!r} is not a list of cores"
        raise UsageError(message, hint="--dla-cores 0,1 or --dla-cores none") from None
