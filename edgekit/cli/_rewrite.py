"""``edgekit rewrite``: exact rewrites that make a network fit the DLA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._plan_options import names
from edgekit.errors import UsageError

__all__ = ["command"]


@o.command(
    "rewrite",
    "edgekit rewrite model.onnx -t jetson-agx-orin-64gb -o out.onnx\nedgekit rewrite "
    "model.onnx -t jetson-agx-orin-64gb --disable global-max-pool --record rewrite.json\n"
    "edgekit rewrite --list\nedgekit rewrite model.onnx --verify out.onnx",
)
@o.optional_model
@o.target
@click.option("-o", "--save", type=o.FILE, help="Write the rewritten model here.")
@click.option("--record", type=o.FILE, help="Write here what was applied, with its proofs.")
@o.precision
@click.option("--enable", metavar="NAMES", help="Only these rewrites (A,B), or all or none.")
@click.option("--disable", metavar="NAMES", help="All but these rewrites (A,B).")
@click.option(
    "--allow-approx",
    metavar="NAME",
    multiple=True,
    help="Allow a rewrite that changes results; repeatable.",
)
@click.option("--data", type=o.FILE, help="Calibration data: what approximations change is of it.")
@click.option("--list", "listed", is_flag=True, help="All rewrites, with their reasons.")
@click.option(
    "--verify",
    type=o.FILE,
    metavar="FILE",
    help="Repeat the proofs of a --record, a rewritten model or a bundle.",
)
@click.option(
    "--trust-unsigned", is_flag=True, help="With --verify: a bundle that no known key signed."
)
@o.tensorrt
@o.cut
@o.talk
def command(
    model: str | None,
    target: str | None,
    save: Path | None,
    record: Path | None,
    precision: str | None,
    enable: str | None,
    disable: str | None,
    allow_approx: tuple[str, ...],
    data: Path | None,
    listed: bool,
    verify: Path | None,
    trust_unsigned: bool,
    tensorrt: str | None,
    part: dict[str, Any],
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    writing = {"--save": save, "--record": record, "--precision": precision, "--enable": enable,
               "--disable": disable, "--allow-approx": allow_approx, "--data": data,
               "--tensorrt": tensorrt}  # fmt: skip
    checking = {"--trust-unsigned": trust_unsigned}
    if listed:
        _alone("--list", {**writing, **checking, "--verify": verify, "MODEL": model})
        _list(json)
        return
    if model is None:
        raise UsageError("Missing argument 'MODEL'.", hint="edgekit rewrite --help")
    if verify is not None:
        _alone("--verify", writing)
        part["trust_unsigned"] = trust_unsigned
        _verify(model, verify, part, json, o.progress(quiet, verbose))
        return
    _alone("rewriting", checking)
    options = {
        "target": target,
        "precision": precision,
        "tensorrt": tensorrt,
        "model": part,
        "rewrite": {
            "enable": _chosen(enable),
            "disable": names("--disable", disable) or None,
            "allow_approx": list(allow_approx) or None,
        },
        "calibration": {"data": None if data is None else str(data.absolute())},
    }
    from edgekit.rewrite import collector_held

    opened = o.open_pipeline(model, options, quiet=quiet, verbose=verbose)
    # judging before and after makes as many objects as rewriting does
    with collector_held(), opened as pipeline:
        document = pipeline.rewrite(save, record)
    if json:
        o.print_json(document)
        return
    from edgekit.report import rewrite_text

    width, colour = o.paper()
    o.say_page(rewrite_text(document, width=width or 100, colour=colour))
    for path in (save, record):
        if path is not None:
            o.say(f"written to {path}")


def _chosen(text: str | None) -> str | list[str] | None:
    """``--enable`` as the configuration has it."""
    if text in (None, "all", "none"):
        return text
    return names("--enable", text)


def _alone(option: str, others: dict[str, Any]) -> None:
    given = [name for name, value in others.items() if value]
    if given:
        raise UsageError(
            f"{option} takes no {' and no '.join(given)}", hint="edgekit rewrite --help"
        )


def _list(json: bool) -> None:
    from edgekit.rewrite import rewrite_list

    document = {"schema": "edgekit.rewrite-list/1", "rewrites": rewrite_list()}
    if json:
        o.print_json(document)
        return
    from edgekit.report import rewrite_list_text

    width, colour = o.paper()
    o.say_page(rewrite_list_text(document, width=width or 80, colour=colour))


def _verify(model: str, record: Path, part: dict[str, Any], json: bool, progress: Any) -> None:
    from edgekit.pipeline import verify_rewrites
    from edgekit.rewrite import refusal

    document = verify_rewrites(model, record, **part, progress=progress)
    error = refusal(document)
    if json:
        o.print_json(document)
    else:
        from edgekit.report import verified_text

        width, colour = o.paper()
        o.say_page(verified_text(document, width=width or 100, colour=colour))
    if error is not None:
        raise o.printed(error)
