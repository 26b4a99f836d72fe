"""Commands about a model, without a board: ``init``, ``targets``, ``check``, ``explain`` and
``rewrite``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from edgekit import api
from edgekit.cli import commands, completion
from edgekit.cli import options as o
from edgekit.cli import output as output_module
from edgekit.cli.commands import argument
from edgekit.cli.output import (
    console,
    mark_printed,
    print_json,
    say,
    show_page,
    terminal_format,
)
from edgekit.cli.planning import parse_names
from edgekit.errors import UsageError


@commands.command("init", "edgekit init model.onnx --target jetson-agx-orin-64gb")
@argument("model", "ONNX file or builtin:NAME.", shell_complete=completion.models)
@click.option(
    "-t",
    "--target",
    default="jetson-agx-orin-64gb",
    show_default=True,
    help="Board.",
    shell_complete=completion.targets,
)
@o.batch
@click.option(
    "-o",
    "--output",
    type=o.OUTPUT,
    help="File to write (default: NAME.yaml in the current folder).",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@o.json
@o.quiet
@o.debug
def init_command(
    model: str,
    target: str,
    batch: int | None,
    output: Path | None,
    force: bool,
    json: bool,
    quiet: bool,
) -> None:
    made = api.init(model, target, output, batch=batch, overwrite=force)
    if json:
        print_json(made)
    elif not quiet:
        print(f"{made.path}\nnext: edgekit run {made.path}")


@commands.command("targets", "edgekit targets --json")
@o.json
@o.debug
def targets_command(json: bool) -> None:
    found = api.list_targets()
    if json:
        print_json(found)
        return
    from rich.table import Table

    table = Table("name", "DLA", "TensorRT", "power modes", box=None, pad_edge=False)
    for board in found.targets:
        dla = f"{board.dla_cores} x {board.dla_generation}" if board.dla_cores else "none"
        table.add_row(board.name, dla, board.tensorrt, ", ".join(board.power_modes))
    console().print(table)


@commands.command(
    "rewrite",
    "edgekit rewrite model.onnx -t jetson-agx-orin-64gb -o out.onnx\nedgekit rewrite "
    "model.onnx -t jetson-agx-orin-64gb --disable gemm-to-conv --record rewrite.json\n"
    "edgekit rewrite --list\nedgekit rewrite model.onnx --verify out.onnx",
)
@o.optional_model
@o.target
@click.option("-o", "--save", type=o.OUTPUT, help="Write the rewritten model to this file.")
@click.option(
    "--record",
    type=o.FILE,
    help="Write a record of the applied rewrites and their proofs to this file.",
)
@o.precision
@click.option(
    "--enable",
    metavar="NAMES",
    help="Use only these rewrites (A,B), or all or none.",
    shell_complete=completion.rewrites,
)
@click.option(
    "--disable",
    metavar="NAMES",
    help="Leave out these rewrites (A,B).",
    shell_complete=completion.rewrites,
)
@click.option(
    "--allow-approx",
    metavar="NAME",
    multiple=True,
    shell_complete=completion.rewrites,
    help="Allow a rewrite that changes results; repeatable.",
)
@click.option(
    "--data",
    type=o.FILE,
    help="Calibration data, on which the error of approximations is measured.",
)
@click.option("--list", "listed", is_flag=True, help="List all rewrites with their reasons.")
@click.option(
    "--verify",
    type=o.FILE,
    metavar="FILE",
    help="Repeat the proofs of a record, a rewritten model or a bundle.",
)
@click.option(
    "--trust-unsigned",
    is_flag=True,
    help="With --verify: accept a bundle that is not signed by a known key.",
)
@o.tensorrt
@o.cut_or_torch
@o.leave
@o.output_options
def rewrite_command(
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
    part: api.ModelPart,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    writing = {
        "--save": save,
        "--record": record,
        "--precision": precision,
        "--enable": enable,
        "--disable": disable,
        "--allow-approx": allow_approx,
        "--data": data,
        "--tensorrt": tensorrt,
        "--leave": part.leave,
    }
    checking = {"--trust-unsigned": trust_unsigned}
    if listed:
        _refuse_combination("--list", {**writing, **checking, "--verify": verify, "MODEL": model})
        _print_list(json)
        return
    if model is None:
        raise UsageError("Missing argument 'MODEL'.", hint="edgekit rewrite --help")
    if verify is not None:
        _refuse_combination("--verify", writing)
        verified = api.verify_rewrites(
            model,
            verify,
            shapes=part.static_shapes,
            batch=part.batch,
            outputs=part.outputs,
            trust_unsigned=trust_unsigned,
            progress=output_module.progress(quiet, verbose),
        )
        _print_verified(verified, json)
        return
    _refuse_combination("rewriting", checking)
    document = api.rewrite(
        model,
        save,
        record,
        progress=output_module.progress(quiet, verbose),
        target=target,
        precision=precision,
        tensorrt=tensorrt,
        model=part,
        rewrite={
            "enable": enable
            if enable in (None, "all", "none")
            else parse_names("--enable", enable),
            "disable": parse_names("--disable", disable) or None,
            "allow_approx": list(allow_approx) or None,
        },
        # absolute: a path in a configuration is relative to its file, an option to the current
        # folder
        calibration={"data": None if data is None else str(data.absolute())},
    )
    if json:
        print_json(document)
        return
    from edgekit.reports.terminal.rewriting import rewrite_text

    show_page(rewrite_text(document, width=terminal_format()[0] or 100))
    for path in (save, record):
        if path is not None:
            say(f"written to {path}")


def _refuse_combination(option: str, others: Mapping[str, object]) -> None:
    given = [name for name, value in others.items() if value]
    if given:
        raise UsageError(
            f"{option} cannot be combined with {' or '.join(given)}", hint="edgekit rewrite --help"
        )


def _print_list(json: bool) -> None:
    document = api.list_rewrites()
    if json:
        print_json(document)
        return
    from edgekit.reports.terminal.rewriting import rewrite_list_text

    show_page(rewrite_list_text(document))


def _print_verified(document: api.Verified, json: bool) -> None:
    error = document.refusal()
    if json:
        print_json(document)
    else:
        from edgekit.reports.terminal.rewriting import verified_text

        show_page(verified_text(document, width=terminal_format()[0] or 100))
    if error is not None:
        raise mark_printed(error)
