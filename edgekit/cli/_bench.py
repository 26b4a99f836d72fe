"""``edgekit bench``: measures the deployed release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._bench_options import bench_options
from edgekit.cli._written import markdown as markdown_option
from edgekit.cli._written import write_markdown
from edgekit.errors import GateError, UsageError

__all__ = ["command"]


@o.command(
    "bench",
    "edgekit bench configs/resnet50-orin.yaml --power-mode MAXN --lock-clocks\n"
    "edgekit bench model.onnx -t jetson-agx-orin-64gb --duration 10 --streams 2 --with-trtexec\n"
    "edgekit bench config.yaml --inputs frames.npz --require-valid --json\n"
    "edgekit bench edgekit-out/bench.json --tegrastats board.log",
)
@o.model
@o.target
@o.precision
@bench_options
@click.option(
    "--tegrastats", type=o.FILE,
    help="Measure nothing: MODEL is a bench.json, which gets this log's power and energy.",
)  # fmt: skip
@click.option("--require-valid", is_flag=True, help="Exit with 1 when the verdict is INVALID.")
@o.cut
@o.out
@o.boards
@o.talk
@markdown_option
def command(
    model: str,
    target: str | None,
    precision: str | None,
    bench: dict[str, Any],
    tegrastats: Path | None,
    require_valid: bool,
    part: dict[str, Any],
    json: bool,
    markdown: str | None,
    **settings: Any,
) -> None:
    options = {"target": target, "precision": precision, "model": part, "bench": bench}
    if tegrastats is not None:
        document = _beside(model, tegrastats)
    else:
        with o.open_pipeline(model, options, **settings) as pipeline:
            document = pipeline.bench()
    if markdown is not None:
        write_markdown(document, markdown)
    if json:
        o.print_json(document)
    elif markdown != "-":
        _show(document, ["bench"] if tegrastats is not None else list(document["files"]))
    if require_valid and document["verdict"]["status"] != "VALID":
        raise o.printed(_invalid(document))


def _beside(model: str, log: Path) -> dict[str, Any]:
    from edgekit.pipeline._beside import with_tegrastats

    if not model.lower().endswith(".json"):
        raise UsageError(
            f"--tegrastats goes with what was measured, not with {model}",
            hint="edgekit bench bench.json --tegrastats FILE",
        )
    return with_tegrastats(Path(model), log)


def _invalid(document: dict[str, Any]) -> GateError:
    reasons = document["verdict"]["reasons"]
    return GateError(
        f"the measurement is INVALID: {'; '.join(one['message'] for one in reasons)}",
        code=reasons[0]["code"],
        where=document["name"],
        hint="; ".join(dict.fromkeys(one["remedy"] for one in reasons)),
    )


def _show(document: dict[str, Any], written: list[str]) -> None:
    from edgekit.report import bench_text

    width, colour = o.paper()
    o.say_page(bench_text(document, width=width, colour=colour))
    for name in written:
        o.say(f"{name}: {Path(document['files'][name])}")
