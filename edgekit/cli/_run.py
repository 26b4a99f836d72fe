"""``edgekit run``: every step of a configuration."""

from __future__ import annotations

from typing import Any

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("run", "Example: edgekit run configs/resnet50-orin.yaml")
@o.config
@o.out
@o.outputs
@o.missing
@o.strict
@o.force
@o.boards
@o.talk
def command(
    config: str,
    outputs: list[str] | None,
    missing: str | None,
    strict: bool | None,
    json: bool,
    **settings: Any,
) -> None:
    from edgekit.report import terminal_summary

    options = {
        "model": {"outputs": outputs},
        "calibration": {"missing": missing},
        "build": {"strict": strict},
    }
    with o.open_pipeline(config, options, **settings) as pipeline:
        result = pipeline.run()
    if json:
        o.print_json(result.document)
    else:
        terminal_summary(result.report, o.console())
