"""``edgekit calibrate``: measures INT8 scales on this machine, lists the calibration data, measures
INT8's sensitivity by layer, and handles calibration caches (show, diff, merge) and Q/DQ models
(from-qdq, to-qdq).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from edgekit import api
from edgekit.cli import options as o
from edgekit.cli.commands import argument, command
from edgekit.cli.output import (
    mark_printed,
    print_json,
    progress,
    say,
    say_more,
    say_notes,
    say_page,
    say_rows,
    show_page,
    terminal_format,
)
from edgekit.errors import GateError, UsageError
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.api import CacheDifference, ReadCache, WrittenScales

_OPTIONS = o.combine(
    click.option(
        "--data",
        help="Folder of images, .npz, .npy, folder of these, or python:module:function; "
        "synthetic when absent.",
    ),
    click.option("--count", type=int, help="Use at most this many samples (16)."),
    click.option(
        "--pick",
        help="Which samples to use when there are more: first (the default) or spread (evenly).",
    ),
    click.option("--preset", help="Preprocess images as for imagenet, yolo, tf or caffe."),
    click.option(
        "--resize",
        help="How images are resized: cover (the default), letterbox, stretch, a size, or "
        "HEIGHTxWIDTH.",
    ),
    click.option("--crop", help="Centre crop: a share such as 0.875, a size, or HEIGHTxWIDTH."),
    click.option("--pad", help="Colour of a letterbox's bars (114)."),
    click.option(
        "--interpolation", help="Resize filter: nearest, bilinear, bicubic, lanczos or area."
    ),
    click.option("--color", help="Colour order: RGB, BGR or gray."),
    click.option("--scale", type=float, help="Factor for pixel values 0 to 255 (1/255)."),
    click.option("--mean", help="Mean per channel, after --scale: 0.485,0.456,0.406."),
    click.option("--std", help="Standard deviation per channel, after --scale."),
    click.option("--layout", help="Layout of image data: NCHW or NHWC."),
    click.option(
        "--skip-broken", is_flag=True, default=None, help="Skip images that cannot be read."
    ),
)
sensitivity_options = o.combine(
    click.option(
        "--sensitivity",
        is_flag=True,
        help="Rank the layers by the accuracy that INT8 costs in each.",
    ),
    click.option(
        "--accuracy",
        metavar="METRIC=MIN",
        help="With --sensitivity: propose the fewest layers to keep in FP16 for this accuracy "
        "against FP32 (cosine, snr_db, top1_agreement or boxes).",
    ),
    click.option(
        "--write-config", type=o.FILE, help="Write a configuration with the proposal to this file."
    ),
)
_ROWS_SHOWN = 20
_REFUSALS_SHOWN = 10


def _parse_numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--{option} {text!r} is not a list of numbers", hint=f"--{option} 0.485,0.456,0.406"
        ) from None


def _parse_size(_option: str, text: str) -> Any:
    """Parses a size, HEIGHTxWIDTH, a fraction, or a word of the configuration's schema."""
    # whole numbers before fractions: 1 is a pixel, 1.0 the whole side
    for parse in (int, lambda t: [int(side) for side in t.lower().split("x")], float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def _parse_colour(option: str, text: str) -> Any:
    found = [int(v) if v.is_integer() else v for v in _parse_numbers(option, text)]
    return found if len(found) > 1 else found[0]


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "resize": _parse_size,
    "crop": _parse_size,
    "pad": _parse_colour,
    "mean": _parse_numbers,
    "std": _parse_numbers,
}


@dataclass(frozen=True)
class CalibrationOptions:
    """Keys of a configuration's "calibration" section; None if not given."""

    data: str | None
    count: int | None
    pick: str | None
    preset: str | None
    resize: str | float | list[int] | None
    crop: str | float | list[int] | None
    pad: float | list[float] | None
    interpolation: str | None
    color: str | None
    scale: float | None
    mean: list[float] | None
    std: list[float] | None
    layout: str | None
    skip_broken: bool | None
    cache: str | None = None
    method: str | None = None
    missing: str | None = None


def data_options(function: Any) -> Any:
    """Adds the options of calibration data to a command, as ``inputs`` (without cache and
    method).
    """
    keys = [field.name for field in fields(CalibrationOptions) if field.default is MISSING]

    @wraps(function)
    def with_inputs(**given: Any) -> Any:
        own = {key: given.pop(key) for key in keys}
        for key, parse in _PARSERS.items():
            if own[key] is not None:
                own[key] = parse(key, own[key])
        if own["data"] and not api.is_function(own["data"]):
            # a path in the configuration would be relative to its file
            own["data"] = os.path.realpath(own["data"])
        return function(inputs=CalibrationOptions(**own), **given)

    return _OPTIONS(with_inputs)


def sensitivity_wanted(
    sensitivity: bool, accuracy: str | None, write_config: Path | None, save: Path | None
) -> tuple[str | None, float | None]:
    """Returns metric and minimum of ``--accuracy``, both None if not given.

    Raises:
        UsageError: The options contradict each other, or ``accuracy`` is not METRIC=MIN.
    """
    if not sensitivity and (accuracy or write_config):
        raise UsageError(
            f"{'--accuracy' if accuracy else '--write-config'} needs --sensitivity",
            hint="add --sensitivity",
        )
    if sensitivity and save is not None:
        raise UsageError(
            "--sensitivity cannot be combined with --save",
            hint="run edgekit calibrate --save separately; it reuses the measured scales",
        )
    if accuracy is None:
        return None, None
    return api.accuracy_limit(accuracy)


def show_sensitivity(document: api.SensitivityRanking, *, json: bool) -> None:
    """Prints the document.

    Raises:
        GateError: Its proposal does not reach the accuracy.
    """
    if json:
        print_json(document)
    else:
        from edgekit.reports.terminal.quantization import sensitivity_text

        show_page(sensitivity_text(document, width=terminal_format()[0] or 100))
        if document.file:
            say(f"written to {document.file}")
        elif document.config:
            say(document.config.rstrip())
    if document.shortfall:
        error = GateError(
            f"{document.shortfall} ({document.data})",
            code="accuracy.below-gate",
            hint="calibrate on more or better data, or lower the limit",
        )
        raise mark_printed(error) if json else error


@command(
    "calibrate",
    "edgekit calibrate model.onnx -t jetson-agx-orin-64gb --data images/ --save calib.cache",
)
@o.model
@o.target
@o.tensorrt
@data_options
@click.option(
    "--method",
    help="auto (the default: measures all and takes the best), entropy, minmax, percentile or mse.",
)
@click.option(
    "-o", "--save", type=o.OUTPUT, help="Write a TensorRT calibration cache to this file."
)
@sensitivity_options
@o.cut_or_torch
@partial(o.leave, hidden=True)
@o.force
@o.reports
def calibrate_command(
    model: str,
    target: str | None,
    tensorrt: str | None,
    method: str | None,
    inputs: CalibrationOptions,
    save: Path | None,
    sensitivity: bool,
    accuracy: str | None,
    write_config: Path | None,
    part: api.ModelPart,
    json: bool,
    **settings: Any,
) -> None:
    gate = sensitivity_wanted(sensitivity, accuracy, write_config, save)
    settings |= {
        "target": target,
        "tensorrt": tensorrt,
        "precision": "int8",
        "model": part,
        "calibration": replace(inputs, method=method),
    }
    if sensitivity:
        ranking = api.sensitivity(model, *gate, write_config=write_config, **settings)
        show_sensitivity(ranking, json=json)
        return
    document = api.calibrate(model, save, **settings)
    if json:
        print_json(document)
        return
    found = counted(len(document.scales), "scale")
    none = f"; {counted(n, 'tensor')} without one" if (n := len(document.without)) else ""
    print(f"{found} by {document.method} from {document.data}{none}")
    if document.changes:
        from edgekit.reports.terminal.quantization import changes_text

        width, colour = terminal_format()
        say_page(changes_text(document.changes, width=width or 100, colour=colour))
    say_notes(document)
    if document.written is not None:
        print(f"written to {save}: {_describe_written(document.written)}")


def _describe_written(found: WrittenScales) -> str:
    parts = []
    if found.without:
        parts.append(f"{found.without} without a scale (written as 0)")
    if found.original:
        parts.append(f"{found.original} of tensors before rewriting")
    return ", ".join([counted(found.tensors, "tensor"), *parts])


@calibrate_command.action(
    "show",
    "Show a calibration cache and, with a model, which scales are missing.",
    "edgekit calibrate show calib.cache --model model.onnx",
    "Show each tensor's scale and range in a calibration cache. With --model also "
    "show which layers write and read it, which tensors lack a scale, and which "
    "entries are not in the network.",
)
@argument("cache", "Calibration cache.", type=o.FILE)
@click.option("--model", help="ONNX file or builtin:NAME to compare the cache with.")
@o.sizes
@o.output_options
def show(
    cache: Path,
    model: str | None,
    part: api.ModelPart,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    document = api.show_cache(
        cache, model, shapes=part.static_shapes, batch=part.batch, outputs=part.outputs
    )
    if json:
        print_json(document)
        return
    say(f"{document.header}, {counted(len(document.tensors), 'tensor')}")
    with_model = model is not None
    head = ["tensor", "scale", "amax", *(["written by", "read by"] if with_model else [])]
    rows = []
    for row in document.tensors:
        cells = [row.name, f"{row.scale:.7g}", f"{row.amax:.5g}"]
        if with_model:
            readers = ", ".join(row.readers) if row.known else "no such tensor"
            # no layer reads tensors inside merged moves
            source = "(input)" if row.readers else "(inside a layer)"
            cells += [row.writer or (source if row.known else ""), readers]
        rows.append(cells)
    _say_table(head, rows)
    if with_model:
        _print_model(cast("ReadCache", document))
    say_notes(document)


def _print_model(document: ReadCache) -> None:
    for row in document.inferred:
        say(f"inferred: {row.name} {row.scale:.7g} ({row.source})")
    for lack in document.missing:
        say(f"missing: {lack.tensor}, needed by {', '.join(lack.layers)}")
    if not document.missing:
        say("no other scales are missing" if document.without else "no scales are missing")
    # TensorRT made up these names: the model has no such tensors
    if document.unnamed:
        say(f"{document.unnamed} entries of TensorRT's unnamed layers are not compared")


@calibrate_command.action(
    "diff",
    "Compare two calibration caches; exit code 1 if they differ.",
    "edgekit calibrate diff old.cache new.cache --tolerance 0.05",
    "Compare two calibration caches: tensors added, removed and changed; exit code 1 if they "
    "differ.",
)
@argument("first", "Calibration cache.", type=o.FILE)
@argument("second", "Second calibration cache.", type=o.FILE)
@click.option(
    "--tolerance",
    type=float,
    default=0.0,
    help="Treat scales as equal if their ratio is within 1 + TOLERANCE.",
)
@click.option("--ignore-header", is_flag=True, help="Ignore the headers.")
@o.output_options
def diff(
    first: Path,
    second: Path,
    tolerance: float,
    ignore_header: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    document = api.diff_caches(first, second, tolerance=tolerance, headers=not ignore_header)
    if json:
        print_json(document)
    else:
        _print_diff(document, all_rows=verbose)
    if not document.same:
        # as diff(1): scripts read the exit status
        raise mark_printed(GateError("the calibration caches differ", code="cache.differ"))


def _print_diff(document: CacheDifference, *, all_rows: bool) -> None:
    old, new = document.headers
    if old != new:
        say(f"header   {old} -> {new}")
    rows = [[f"- {r.name}", f"{r.scale:.7g}", "", ""] for r in document.removed]
    rows += [[f"+ {r.name}", "", f"{r.scale:.7g}", ""] for r in document.added]
    for row in document.changed:
        ratio = "" if row.ratio is None else f"x {row.ratio:.4g}"
        rows.append([f"~ {row.name}", f"{row.old:.7g}", f"{row.new:.7g}", ratio])
    shown = rows if all_rows else rows[:_ROWS_SHOWN]
    if rows:
        _say_table(["tensor", "old", "new", "ratio"], shown)
    say_more(len(rows) - len(shown))
    say(
        f"{len(document.added)} added, {len(document.removed)} removed, "
        f"{len(document.changed)} changed, {document.equal} equal"
    )


@calibrate_command.action(
    "merge",
    "Merge and edit calibration caches into one.",
    "edgekit calibrate merge backbone.cache head.cache -o all.cache --policy error\n"
    "edgekit calibrate merge calib.cache -o calib.cache --tensorrt 10.3 --set conv1_out=6.5 "
    "--drop '(Unnamed*' --rename input:0=input",
    "Merge calibration caches, or edit a single one. Tensors are dropped first, "
    "then renamed, then set. The output may be one of the inputs.",
)
@argument("caches", "Calibration caches.", type=o.FILE, nargs=-1, required=True)
@click.option("-o", "--out", type=o.OUTPUT, required=True, help="File to write.")
@click.option(
    "--policy",
    type=click.Choice(["last", "first", "max", "error"]),
    default="last",
    help="Which scale wins when several caches have a tensor: last (the default), first "
    "or the largest; error fails if they differ.",
)
@click.option(
    "--set", "amax", multiple=True, metavar="NAME=AMAX", help="Set a tensor's range; repeatable."
)
@click.option("--drop", multiple=True, metavar="GLOB", help="Drop tensors; repeatable.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a tensor; repeatable.")
@click.option("--tensorrt", help="TensorRT release for the header, e.g. 10.3.")
@o.output_options
def merge(
    caches: tuple[Path, ...],
    out: Path,
    policy: str,
    amax: tuple[str, ...],
    drop: tuple[str, ...],
    rename: tuple[str, ...],
    tensorrt: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    document = api.merge_caches(
        caches, out, policy=policy, amax=amax, drop=drop, rename=rename, tensorrt=tensorrt
    )
    if json:
        print_json(document)
        return
    say(f"{document.header}, {counted(document.tensors, 'tensor')}, written to {out}")
    conflicts = document.conflicts
    if conflicts:
        more = f" and {len(conflicts) - 1} more" if conflicts[1:] else ""
        say(f"scales differ for {conflicts[0]!r}{more}; kept by policy {policy}")
    say_notes(document)


def _say_table(head: list[str], rows: list[list[str]]) -> None:
    from edgekit.reports.terminal.layout import table

    show_page(table(head, rows, " rr"))


@calibrate_command.action(
    "from-qdq",
    "Split a Q/DQ model into a plain model, a cache and precisions.",
    "edgekit calibrate from-qdq qdq.onnx -t jetson-agx-orin-64gb -o plain.onnx --save "
    "calib.cache --precisions layers.txt --precisions precisions.json",
    "Convert a Q/DQ model to implicit INT8, which the DLA needs up to TensorRT "
    "10.7: a plain model, a calibration cache with its scales and the list of FP16 "
    "layers. edgekit plan and run do this automatically.",
)
@argument("model", "ONNX file with QuantizeLinear and DequantizeLinear nodes.")
@o.target
@o.tensorrt
@click.option("-o", "--out", type=o.OUTPUT, help="Write the plain model to this file.")
@click.option("--save", type=o.FILE, help="Write a TensorRT calibration cache to this file.")
@click.option(
    "--precisions",
    type=o.FILE,
    multiple=True,
    help="Write the FP16 layers to this file, for trtexec --layerPrecisions or as "
    ".json; repeatable.",
)
@click.option(
    "--unequal",
    type=click.Choice(["refuse", "largest"]),
    default="refuse",
    help="How to handle a tensor that is quantised with several scales (refuse).",
)
@click.option(
    "--tied",
    is_flag=True,
    help="Write the largest scale for all tensors among which the builder shares one scale, as "
    "edgekit calibrate MODEL --save does.",
)
@o.sizes
@o.output_options
def from_qdq(
    model: str,
    target: str | None,
    tensorrt: str | None,
    out: Path | None,
    save: Path | None,
    precisions: tuple[Path, ...],
    unequal: str,
    tied: bool,
    part: api.ModelPart,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    document = api.from_qdq(
        model,
        out=out,
        cache=save,
        precisions=precisions,
        target=target,
        tensorrt=tensorrt,
        unequal=unequal,
        tied=tied,
        shapes=part.static_shapes,
        batch=part.batch,
        outputs=part.outputs,
    )
    if json:
        print_json(document)
        return
    say(
        f"{counted(document.quantizers, 'scale')} of Q/DQ nodes, "
        f"{len(document.propagated)} derived, "
        f"{counted(document.weights, 'quantised constant')}"
    )
    rows = [f"{r.tensor}: {r.scale:.7g} ({r.rule})" for r in document.propagated]
    say_rows(rows, verbose=verbose)
    if document.missing:
        say(f"no scale: {', '.join(document.missing)}")
        say(f"FP16: {', '.join(document.fp16_nodes)}")
    else:
        say("no scales are missing")
    say_notes(document)
    files = document.files
    for path in (files.model, files.cache, *files.precisions):
        if path is not None:
            say(f"written to {path}")
    if document.trtexec:
        say(f"build with: {document.trtexec}")


@calibrate_command.action(
    "to-qdq",
    "Turn a plain model and its scales into a Q/DQ model.",
    "edgekit calibrate to-qdq model.onnx -t jetson-agx-orin-64gb --cache calib.cache -o qdq.onnx",
    "Add Q/DQ nodes to a plain model, which INT8 on the DLA needs from TensorRT "
    "11.4.1 on. The scales are measured or read from a calibration cache. edgekit "
    "plan and run do this automatically.",
)
@o.model
@o.target
@o.tensorrt
@click.option(
    "-o", "--out", type=o.OUTPUT, required=True, help="Write the Q/DQ model to this file."
)
@click.option("--cache", type=o.FILE, help="TensorRT calibration cache with the scales.")
@data_options
@click.option(
    "--method",
    help="auto (the default: measures all and takes the best), entropy, minmax, percentile or mse.",
)
@o.missing
@click.option(
    "--weights",
    type=click.Choice(["per_channel", "per_tensor"]),
    default="per_channel",
    help="Scales of weights: per_tensor or per_channel (one for each output channel).",
)
@click.option(
    "--float16/--float32",
    default=True,
    help="Type of the layers that are not INT8 (FP16, with casts; a DLA has no FP32).",
)
@o.cut_or_torch
@o.force
@o.output_options
def to_qdq(
    model: str,
    target: str | None,
    tensorrt: str | None,
    out: Path,
    cache: Path | None,
    inputs: CalibrationOptions,
    method: str | None,
    missing: str | None,
    weights: str,
    float16: bool,
    part: api.ModelPart,
    json: bool,
    force: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    document = api.to_qdq(
        model,
        out,
        weights=weights,
        float16=float16,
        force=force,
        progress=progress(quiet, verbose),
        target=target,
        tensorrt=tensorrt,
        model=part,
        calibration=replace(
            inputs,
            cache=os.path.realpath(cache) if cache else None,
            method=method,
            missing=missing,
        ),
    )
    if json:
        print_json(document)
        return
    say(
        f"{counted(document.activations, 'activation')} and "
        f"{counted(document.weights, 'constant')} between Q/DQ nodes, "
        f"{counted(document.casts, 'cast')}, opset {document.opset}; scales: "
        f"{document.method}, {document.data}"
    )
    check = document.check
    say(
        f"TensorRT {document.tensorrt} on {document.target}: {check.dla_layers} of "
        f"{counted(check.layers, 'layer')} could run on the DLA, "
        f"{check.int8_layers} in INT8, {counted(check.loadables, 'loadable')} (where "
        "TensorRT takes them as they are, edgekit check counts the "
        f"{counted(check.qdq_nodes, 'Q/DQ node')} as layers, too: "
        f"{check.layers + check.qdq_nodes})"
    )
    rows = [f"GPU: {row.layer} ({row.rule})" for row in check.gpu]
    say_rows(rows, verbose=verbose)
    fp16 = document.fp16_layers
    if fp16:
        say(f"FP16: {listed(fp16, len(fp16) if verbose else _REFUSALS_SHOWN)}")
    say_notes(document)
    say(f"written to {document.file}")
    say(f"build with: {document.trtexec}")
