"""``edgekit calibrate show|diff|merge``: TensorRT's calibration caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument
from edgekit.errors import GateError

__all__ = ["diff", "merge", "show"]

_SHOWN = 20


@action(
    "Show a calibration cache: each tensor's scale and range; beside a model which layer writes "
    "and reads it, which tensors lack a scale, and which are none of the network's.",
    "edgekit calibrate show calib.cache --model model.onnx",
)
@argument("cache", "Calibration cache.", type=o.FILE)
@click.option("--model", help="ONNX file or builtin:NAME that the cache is for.")
@o.cut
@o.talk
def show(
    cache: Path,
    model: str | None,
    part: dict[str, Any],
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.pipeline import show_document

    document = show_document(cache, model, **part)
    if json:
        o.print_json(document)
        return
    o.say(f"{document['header']}, {counted(len(document['tensors']), 'tensor')}")
    beside = model is not None
    rows = [["tensor", "scale", "amax", *(["written by", "read by"] if beside else [])]]
    for row in document["tensors"]:
        cells = [row["name"], f"{row['scale']:.7g}", f"{row['amax']:.5g}"]
        if beside:
            readers = ", ".join(row["readers"]) if row["known"] else "no such tensor"
            # what lies within merged moves is read by no layer
            source = "(input)" if row["readers"] else "(inside a layer)"
            cells += [row["writer"] or (source if row["known"] else ""), readers]
        rows.append(cells)
    o.say(_table(rows))
    if beside:
        _tell_model(document)
    _notes(document)


def _tell_model(document: dict[str, Any]) -> None:
    for row in document["inferred"]:
        o.say(f"inferred: {row['name']} {row['scale']:.7g} ({row['from']})")
    for lack in document["missing"]:
        o.say(f"missing: {lack['tensor']}, needed by {', '.join(lack['layers'])}")
    if not document["missing"]:
        o.say("no other scale is missing" if document["without"] else "no scale is missing")
    if document["unnamed"]:
        o.say(f"{document['unnamed']} of TensorRT's unnamed layers are left aside")


@action(
    "Compare two calibration caches: tensors added, removed and changed; exit code 1 if they "
    "differ.",
    "edgekit calibrate diff old.cache new.cache --tolerance 0.05",
)
@argument("first", "Calibration cache.", type=o.FILE)
@argument("second", "Calibration cache to compare with it.", type=o.FILE)
@click.option("--tolerance", type=float, default=0.0, help="Scales within 1 + TOLERANCE are equal.")
@click.option("--ignore-header", is_flag=True, help="Compare the scales alone.")
@o.talk
def diff(
    first: Path,
    second: Path,
    tolerance: float,
    ignore_header: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.pipeline import diff_document

    document = diff_document(first, second, tolerance=tolerance, headers=not ignore_header)
    if json:
        o.print_json(document)
    else:
        _tell_diff(document, all_rows=verbose)
    if not document["same"]:
        raise o.printed(GateError("the calibration caches differ", code="cache.differ"))


def _tell_diff(document: dict[str, Any], *, all_rows: bool) -> None:
    old, new = document["headers"]
    if old != new:
        o.say(f"header   {old} -> {new}")
    rows = [[f"- {r['name']}", f"{r['scale']:.7g}", "", ""] for r in document["removed"]]
    rows += [[f"+ {r['name']}", "", f"{r['scale']:.7g}", ""] for r in document["added"]]
    for row in document["changed"]:
        ratio = "" if row["ratio"] is None else f"x {row['ratio']:.4g}"
        rows.append([f"~ {row['name']}", f"{row['old']:.7g}", f"{row['new']:.7g}", ratio])
    shown = rows if all_rows else rows[:_SHOWN]
    if rows:
        o.say(_table([["tensor", "old", "new", "ratio"], *shown]))
    o.say_more(len(rows) - len(shown))
    o.say(
        f"{len(document['added'])} added, {len(document['removed'])} removed, "
        f"{len(document['changed'])} changed, {document['equal']} equal"
    )


@action(
    "Merge and edit calibration caches; a single one is edited. Dropping comes first, then "
    "renaming, then setting. The output may be one of the inputs.",
    "edgekit calibrate merge backbone.cache head.cache -o all.cache --policy error\n"
    "edgekit calibrate merge calib.cache -o calib.cache --tensorrt 10.3 --set conv1_out=6.5 "
    "--drop '(Unnamed*' --rename input:0=input",
)
@argument("caches", "Calibration caches.", type=o.FILE, nargs=-1, required=True)
@click.option("-o", "--out", type=o.FILE, required=True, help="File to write.")
@click.option(
    "--policy",
    type=click.Choice(["last", "first", "max", "error"]),
    default="last",
    help="Which scale counts where several caches have a tensor: that of the last cache (the "
    "default) or the first, the largest; or differing ones are an error.",
)
@click.option(
    "--set", "amax", multiple=True, metavar="NAME=AMAX", help="Set a tensor's range; repeatable."
)
@click.option("--drop", multiple=True, metavar="GLOB", help="Leave tensors out; repeatable.")
@click.option(
    "--rename", multiple=True, metavar="OLD=NEW", help="Call a tensor otherwise; repeatable."
)
@click.option("--tensorrt", help="Write the header of this TensorRT release, e.g. 10.3.")
@o.talk
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
    from edgekit.pipeline import merge_document

    document = merge_document(
        caches, out, policy=policy, amax=amax, drop=drop, rename=rename, tensorrt=tensorrt
    )
    if json:
        o.print_json(document)
        return
    o.say(f"{document['header']}, {counted(document['tensors'], 'tensor')}, written to {out}")
    conflicts = document["conflicts"]
    if conflicts:
        more = f" and {len(conflicts) - 1} more" if conflicts[1:] else ""
        o.say(f"scales differed for {conflicts[0]!r}{more}: {policy} counts")
    _notes(document)


def _notes(document: dict[str, Any]) -> None:
    o.say_notes(document)


def _table(rows: list[list[str]]) -> str:
    """Returns columns of text, numbers to the right; the last column is not filled up."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in (1, 2) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
