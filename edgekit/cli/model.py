"""Commands about a model, without a board: ``init``, ``targets``, ``check``, ``explain`` and
``rewrite``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli import output as output_module
from edgekit.cli.commands import argument
from edgekit.cli.output import (
    Heartbeat,
    console,
    mark_printed,
    print_json,
    say,
    say_page,
    show_page,
    terminal_format,
)
from edgekit.cli.planning import parse_names
from edgekit.errors import GateError, UsageError
from edgekit.text import percent

if TYPE_CHECKING:
    from edgekit.pipeline.steps.check import CheckResult


@commands.command("init", "edgekit init model.onnx --target jetson-agx-orin-64gb")
@argument("model", "ONNX file or builtin:NAME.")
@click.option("-t", "--target", default="jetson-agx-orin-64gb", show_default=True, help="Board.")
@o.batch
@click.option("--output", type=o.FILE, help="File to write (NAME.yaml beside the model).")
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
    from edgekit.config.template import write_template

    path = write_template(model, target, output, batch=batch, overwrite=force)
    if json:
        print_json({"schema": "edgekit.init/1", "path": str(path)})
    elif not quiet:
        print(f"{path}\nnext: edgekit run {path}")


@commands.command("targets", "edgekit targets --json")
@o.json
@o.debug
def targets_command(json: bool) -> None:
    from edgekit.targets.loader import get, names

    boards = [get(name) for name in names()]
    if json:
        rows = [
            {
                "name": b.name,
                "title": b.title,
                "dla_cores": b.dla.cores,
                "dla_generation": b.dla.generation,
                "tensorrt": b.tensorrt,
                "power_modes": list(b.power_modes),
            }
            for b in boards
        ]
        print_json({"schema": "edgekit.targets/1", "targets": rows})
        return
    from rich.table import Table

    table = Table("name", "DLA", "TensorRT", "power modes", box=None, pad_edge=False)
    for b in boards:
        dla = f"{b.dla.cores} x {b.dla.generation}" if b.dla.cores else "none"
        table.add_row(b.name, dla, b.tensorrt, ", ".join(b.power_modes))
    console().print(table)


def _number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):  # which is in every range
        raise click.BadParameter("nan is no percentage")
    return value


@commands.command(
    "check",
    "edgekit check model.onnx --target jetson-agx-orin-64gb\n"
    "edgekit check model.onnx -t jetson-agx-xavier --precision fp16 --fail-under 90\n"
    "edgekit check model.onnx -t jetson-agx-orin-64gb --layer /fc/Gemm",
)
@o.model
@o.target
@o.precision
@o.tensorrt
@click.option("--jetpack", help="JetPack release, e.g. 6.2, instead of a TensorRT release.")
@click.option("--power-mode", help="NVIDIA's name, e.g. MAXN, 30W; for the prediction.")
@click.option("--cache", type=o.FILE, help="Calibration cache: INT8 only where it has a scale.")
@o.cut
@click.option("--by-layer", is_flag=True, help="One line a layer.")
@click.option("--layer", metavar="NAME", help="All about a layer, ONNX node or loadable.")
@click.option("--sparsity", is_flag=True, help="2:4 sparsity by convolution; reads the weights.")
@click.option("--compare-log", type=o.FILE, help="Compare with a TensorRT or trtexec build log.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    callback=_number,
    help="Exit 1 below this percentage of MACs on the DLA.",
)
@click.option(
    "--max-loadables", type=click.IntRange(min=0), help="Exit 1 with more loadables than this."
)
@o.talk
def check_command(
    model: str,
    target: str | None,
    precision: str | None,
    tensorrt: str | None,
    jetpack: str | None,
    power_mode: str | None,
    cache: Path | None,
    part: dict[str, Any],
    by_layer: bool,
    layer: str | None,
    sparsity: bool,
    compare_log: Path | None,
    fail_under: float | None,
    max_loadables: int | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.collector import collector_held

    with collector_held():  # the modules make many objects too
        from edgekit.pipeline.named_check import check_named

    if by_layer + sparsity + (layer is not None) + (compare_log is not None) > 1:
        raise UsageError(
            "--by-layer, --layer, --sparsity and --compare-log each print something else",
            hint="give one",
        )
    with Heartbeat("check", quiet=quiet) as beat:
        result = check_named(
            model,
            jetpack=jetpack,
            target=target,
            precision=precision,
            tensorrt=tensorrt,
            power_mode=power_mode,
            model=part,
            calibration={"cache": None if cache is None else str(cache.absolute())},
            on_note=beat,
        )
        beat("writing the answer")
        document = _check_request(result, layer, sparsity, compare_log)
    if not json:
        say_page(_check_text(document, by_layer, verbose))
    elif isinstance(document, dict):
        print_json(document)
    else:
        print_json({**result.document, "compare": document.to_json()})
    _gates(result.document, fail_under, max_loadables, json)


def _check_request(result: CheckResult, layer: str | None, sparsity: bool, log: Path | None) -> Any:
    """Returns the document to print, or the comparison with a log."""
    if layer is not None:
        from edgekit.pipeline.steps.check import layer_document

        return layer_document(result, layer)
    if sparsity:
        from edgekit.pipeline.steps.check import sparsity_document

        return sparsity_document(result)
    if log is not None:
        from edgekit.buildlog.comparison import compare
        from edgekit.buildlog.reading import read_log

        return compare(result.network, result.judgement, read_log(log), target=result.target)
    return result.document


def _check_text(document: Any, by_layer: bool, verbose: bool) -> str:
    from edgekit.reports.terminal.buildlog import render_comparison
    from edgekit.reports.terminal.check import (
        check_layers,
        check_one_layer,
        sparsity_text,
        summary_check,
    )

    width, colour = terminal_format()
    if not isinstance(document, dict):
        return render_comparison(document, verbose=verbose)
    if document["schema"].startswith("edgekit.layer/"):
        return check_one_layer(document, width=width or 80, colour=colour)
    if document["schema"].startswith("edgekit.sparsity/"):
        return sparsity_text(document, width=width, colour=colour)
    if by_layer:
        return check_layers(document, width=width, colour=colour)
    return summary_check(document, width=min(width or 80, 80), colour=colour)


def _gates(
    document: dict[str, Any], fail_under: float | None, max_loadables: int | None, json: bool
) -> None:
    more = "check without --json tells"  # which has been printed otherwise
    share = document["summary"]["dla_macs_fraction"]
    if fail_under is not None and 100 * share < fail_under:
        known = "known " if document.get("unknown_cost") else ""
        # as the verdict above says it, with the digits that it takes to be below the limit
        digits = next((n for n in range(1, 6) if round(100 * share, n) < fail_under), 6)
        raise mark_printed(
            GateError(
                f"{percent(share, digits)} of the {known}MACs would run on the DLA, "
                f"below {fail_under:g} %",
                code="check.below-threshold",
                where=document["model"],
                hint=f"{more} why the rest cannot, and which fixes help" if json else "",
            )
        )
    count = document["loadables"]
    if max_loadables is not None and count > max_loadables:
        raise mark_printed(
            GateError(
                f"{count} loadable{'' if count == 1 else 's'}, more than {max_loadables}",
                code="check.too-many-loadables",
                where=document["model"],
                hint=f"{more} which layers split the network" if json else "",
            )
        )


@commands.command(
    "explain",
    "edgekit explain convolution.cbuf\nedgekit explain pooling\nedgekit explain Gather",
)
@argument("rule", "A rule's id, as check prints it, a family of rules, or an ONNX operator.")
@o.json
@o.debug
def explain_command(rule: str, json: bool) -> None:
    from edgekit.dla.explanation import explain

    found = explain(rule)
    if json:
        kinds = {"id": "rule", "operator": "operator"}
        kind = next((kind for key, kind in kinds.items() if key in found), "family")
        schema = f"edgekit.{kind}/1"
        print_json({"schema": schema, **found})
        return
    from edgekit.reports.terminal.check import rule_text

    width, colour = terminal_format()
    say_page(rule_text(found, width=min(width or 80, 80), colour=colour))


@commands.command(
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
        _verify(model, verify, part, json, output_module.progress(quiet, verbose))
        return
    _alone("rewriting", checking)
    options = {
        "target": target,
        "precision": precision,
        "tensorrt": tensorrt,
        "model": part,
        "rewrite": {
            "enable": _chosen(enable),
            "disable": parse_names("--disable", disable) or None,
            "allow_approx": list(allow_approx) or None,
        },
        "calibration": {"data": None if data is None else str(data.absolute())},
    }
    from edgekit.collector import collector_held

    # judging before and after makes as many objects as rewriting does, the modules many too
    with (
        collector_held(),
        o.open_pipeline(model, options, quiet=quiet, verbose=verbose) as pipeline,
    ):
        document = pipeline.rewrite(save, record)
    if json:
        print_json(document)
        return
    from edgekit.reports.terminal.rewriting import rewrite_text

    show_page(rewrite_text(document, width=terminal_format()[0] or 100))
    for path in (save, record):
        if path is not None:
            say(f"written to {path}")


def _chosen(text: str | None) -> str | list[str] | None:
    """``--enable`` as the configuration has it."""
    if text in (None, "all", "none"):
        return text
    return parse_names("--enable", text)


def _alone(option: str, others: dict[str, Any]) -> None:
    given = [name for name, value in others.items() if value]
    if given:
        raise UsageError(
            f"{option} takes no {' and no '.join(given)}", hint="edgekit rewrite --help"
        )


def _list(json: bool) -> None:
    from edgekit.rewriting.catalogue import rewrite_list

    document = {"schema": "edgekit.rewrite-list/1", "rewrites": rewrite_list()}
    if json:
        print_json(document)
        return
    from edgekit.reports.terminal.rewriting import rewrite_list_text

    show_page(rewrite_list_text(document))


def _verify(model: str, record: Path, part: dict[str, Any], json: bool, progress: Any) -> None:
    from edgekit.pipeline.rewrite_proofs import verify_rewrites
    from edgekit.rewriting.provenance.verification import refusal

    document = verify_rewrites(model, record, **part, progress=progress)
    error = refusal(document)
    if json:
        print_json(document)
    else:
        from edgekit.reports.terminal.rewriting import verified_text

        show_page(verified_text(document, width=terminal_format()[0] or 100))
    if error is not None:
        raise mark_printed(error)
