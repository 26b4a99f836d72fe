"""``edgekit build``: builds the engines of a plan, here or on the configuration's boards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit._listed import counted
from edgekit.cli import _options as o

__all__ = ["command"]


@o.command(
    "build",
    "edgekit build configs/resnet50-orin.yaml\nedgekit build my-board.yaml --strict",
)
@o.config
@o.cut
@o.missing
@o.strict
@o.force
@o.boards
@o.talk
def command(
    config: str,
    part: dict[str, Any],
    missing: str | None,
    strict: bool | None,
    json: bool,
    **settings: Any,
) -> None:
    options = {
        "model": part,
        "calibration": {"missing": missing},
        "build": {"strict": strict},
    }
    with o.open_pipeline(config, options, **settings) as pipeline:
        document = pipeline.build()
    if json:
        o.print_json(document)
        return
    count = counted(len(document["segments"]), "segment")
    told = pipeline.work.accuracy_told(document["accuracy"], o.figures(document["accuracy"]))
    print(f"{count}, backend {document['backend']}; {told}")
    o.say_accuracy(document["accuracy"], emulated=bool(document["boards"]))
    for board in document["boards"]:
        _show(board)
    o.say_notes(document)


def _show(board: Mapping[str, Any]) -> None:
    """Prints what a board built."""
    print(f"{board['board']}: built with TensorRT {board['tensorrt']} ({board['builder']})")
    for one in board["engines"]:
        facts = [f"{one['bytes']:,} bytes", f"{one['seconds']:.0f} s"]
        if one["stripped"]:
            full = one["full_bytes"]
            told = "full size not known" if full is None else f"{full:,} with its weights"
            facts.insert(1, f"stripped, {told}")
        if one["version_compatible"]:
            facts.append("version compatible")
        print(f"  {one['key']}: {', '.join(facts)}")
    plan = board["plan"]
    if plan["same"]:
        print("  as planned: layers, devices and loadables")
    else:
        print(f"  {len(plan['differences'])} differences from the plan, listed as notes")
