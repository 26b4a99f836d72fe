"""``edgekit build``: cuts the network at the plan's borders and builds every segment."""

from __future__ import annotations

from typing import Any

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("build", "Example: edgekit build configs/resnet50-orin.yaml")
@o.config
@o.outputs
@o.missing
@o.force
@o.talk
def command(
    config: str, outputs: list[str] | None, missing: str | None, json: bool, **settings: Any
) -> None:
    options = {"model": {"outputs": outputs}, "calibration": {"missing": missing}}
    with o.open_pipeline(config, options, **settings) as pipeline:
        document = pipeline.build()
    if json:
        o.print_json(document)
        return
    accuracy = document["accuracy"]
    print(
        f"{len(document['segments'])} segments, backend {document['backend']}; against FP32: "
        f"cosine {accuracy['cosine']:.6f}, top-1 agreement {accuracy['top1_agreement']:.0%}"
    )
    o.say(f"  on {accuracy['data']}")
    o.say_notes(document)
