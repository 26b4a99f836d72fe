"""``edgekit fleet bench``: measures what serves on each of an inventory's boards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _fleet_options as f
from edgekit.cli import _options as o
from edgekit.cli._commands import action
from edgekit.cli._fleet import ACTIONS
from edgekit.errors import BoardError

__all__ = ["command"]


@action(
    ACTIONS["bench"][1],
    "edgekit fleet bench configs/resnet50-orin.yaml -i fleet.yaml --select kind=orin",
)
@o.config
@f.inventory
@f.select
@click.option("--parallel", type=click.IntRange(1, 256), default=8, show_default=True,
              help="Boards that are measured at a time.")  # fmt: skip
@o.accept_host_key
@o.talk
def command(
    config: str,
    inventory: Path,
    selector: str | None,
    parallel: int,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.fleet import bench

    document = bench(
        config, inventory, selector=selector, parallel=parallel, accept_host_key=accept_host_key,
        tell=None if quiet or json else lambda text: click.echo(text, err=True),
    )  # fmt: skip
    if json:
        o.print_json(document)
    else:
        _show(document)
    failed = [row for row in document["boards"] if row["error"]]
    if failed:
        error = failed[0]["error"]
        raise o.printed(
            BoardError(
                f"{len(failed)} of {counted(len(document['boards']), 'board')} not measured: "
                f"{error['message']}",
                code=error["code"],
                where=failed[0]["board"],
                hint=error["hint"],
            )
        )


def _show(document: dict[str, Any]) -> None:
    from edgekit.bench import percentile_cell

    rows = document["boards"]
    width = max(len(row["board"]) for row in rows)
    o.say(f"{'board':<{width}}  {'median ms':>10}  {'p99 ms':>10}  {'per second':>10}  verdict")
    for row in rows:
        if row["error"]:
            o.say(f"{row['board']:<{width}}  {row['error']['message']}")
            continue
        latency = row["latency_ms"]
        p99 = percentile_cell(latency["p99"], "p99", row["iterations"])
        o.say(
            f"{row['board']:<{width}}  {latency['median']:>10.3f}  {p99:>10}  "
            f"{row['throughput_qps']:>10.1f}  {row['verdict']['status']}"
        )
    for line in _reasons(rows):
        o.say(line)
    o.say_notes(document)
    for kind in document["kinds"]:
        o.say(f"kind {kind['kind'] or '-'}: {counted(kind['boards'], 'board')}, median of medians "
              f"{kind['median_ms']:.3f} ms, slowest {kind['slowest']} "
              f"({kind['slowest_ms']:.3f} ms)")  # fmt: skip


def _reasons(rows: list[dict[str, Any]]) -> list[str]:
    """What speaks against measurements, each once with the boards that it is about."""
    boards: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for reason in () if row["error"] else row["verdict"]["reasons"]:
            boards.setdefault((reason["code"], reason["remedy"]), []).append(row["board"])
    return [
        f"{code} on {', '.join(dict.fromkeys(names))}: {remedy}"
        for (code, remedy), names in boards.items()
    ]
