"""``edgekit run``: every step of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgekit.cli import _options as o
from edgekit.cli import _written as written

__all__ = ["command"]


@o.command("run", "edgekit run configs/resnet50-orin.yaml")
@o.config
@o.out
@o.cut
@o.missing
@o.strict
@o.force
@o.again
@o.boards
@o.talk
@written.markdown
@written.annotate
def command(
    config: str,
    part: dict[str, Any],
    missing: str | None,
    strict: bool | None,
    json: bool,
    markdown: str | None,
    annotate: Path | None,
    **settings: Any,
) -> None:
    from edgekit.report import terminal_summary

    options = {
        "model": part,
        "calibration": {"missing": missing},
        "build": {"strict": strict},
    }
    with o.open_pipeline(config, options, **settings) as pipeline:
        result = pipeline.run()
        if annotate is not None:
            from edgekit.pipeline import write_annotated

            write_annotated(pipeline, annotate, result.report)
    if markdown is not None:
        written.write_markdown(result.report, markdown)
    if json:
        o.print_json(result.document)
    elif markdown != "-":
        terminal_summary(result.report, o.console())
