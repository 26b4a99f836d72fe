"""``edgekit plan``: places every layer and says what it costs."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.errors import UsageError

__all__ = ["command"]


@o.command(
    "plan",
    "Examples: edgekit plan configs/resnet50-orin.yaml; edgekit plan model.onnx "
    "-t jetson-agx-orin-64gb --objective throughput --dla-cores 0,1",
)
@o.model
@o.target
@o.precision
@click.option("--power-mode", help="NVIDIA's name, e.g. MAXN, 30W.")
@click.option("--objective", help="latency, throughput, period, energy or gpu_time.")
@click.option("--dla-cores", help="0, 0,1 or none.")
@click.option("--gpu/--no-gpu", default=None, help="--no-gpu: standalone, DLA only.")
@o.tensorrt
@o.cut
@o.force
@o.talk
def command(
    model: str,
    target: str | None,
    precision: str | None,
    power_mode: str | None,
    objective: str | None,
    dla_cores: str | None,
    gpu: bool | None,
    tensorrt: str | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    options = {
        "target": target,
        "precision": precision,
        "power_mode": power_mode,
        "tensorrt": tensorrt,
        "model": part,
        "placement": {"objective": objective, "dla_cores": _cores(dla_cores), "gpu": gpu},
        "build": {"mode": "standalone" if gpu is False else None},
    }
    with o.open_pipeline(model, options, **settings) as pipeline:
        result = pipeline.plan()
    if json:
        o.print_json(result.to_json())
    else:
        from edgekit.report import summary_plan

        o.console().print(summary_plan(result))


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
