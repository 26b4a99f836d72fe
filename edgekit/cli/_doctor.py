"""``edgekit doctor``: what a board has, lacks and can do; prepares it where asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument
from edgekit.errors import EdgekitError, GateError, UsageError

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["command"]

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "missing": ("MISSING", "bold red")}


@o.command(
    "doctor",
    "Examples: edgekit doctor nvidia@10.0.0.7; edgekit doctor lab configs/resnet50-orin.yaml; "
    "edgekit doctor nvidia@10.0.0.7 --setup",
)
@argument(
    "host", "USER@HOST:PORT, an alias of ~/.ssh/config, a board of CONFIG, or a configuration."
)
@argument("config", "YAML configuration that the board should serve.", required=False)
@click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST.")
@click.option("--python", default="python3", help="Python on the board, for a HOST.")
@click.option("--setup", is_flag=True, help="Let the account set power modes and read clocks.")
@click.option("--undo", is_flag=True, help="With --setup: take that back.")
@click.option("--yes", is_flag=True, help="With --setup: do not ask.")
@click.option("--selftest", is_flag=True, help="Run there what was never seen on hardware.")
@click.option("-o", "--out", type=o.FILE, help="With --selftest: the file (edgekit-selftest.json).")
@o.accept_host_key
@o.talk
def command(
    host: str,
    config: str | None,
    root: str,
    python: str,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **wish: Any,
) -> None:
    from edgekit.config import open_config
    from edgekit.pipeline._hosts import boards_of, is_config, open_client

    wanted = open_config(config) if config else open_config(host) if is_config(host) else None
    if wish["undo"] and not wish["setup"]:
        raise UsageError("--undo goes with --setup")
    documents = []
    for board in boards_of(host, wanted, root=root, python=python):
        with open_client(board, accept_host_key=accept_host_key) as client:
            if wish["setup"]:
                documents.append(_setup(client, wish, json))
            elif wish["selftest"]:
                documents.append(_selftest(client, wish["out"], quiet or json, json))
            else:
                documents.append(_examine(client, wanted, json))
    if json:
        o.print_json(documents[0] if len(documents) == 1 else {"boards": documents})
    bad = [one for one in documents if not one["ok"]]
    if bad:
        raise _unfit(bad, json)


def _examine(client: BoardClient, config: Any, json: bool) -> dict[str, Any]:
    from edgekit.pipeline._doctor import examine

    probe = client.probe()
    board = {"name": client.name, "kind": client.kind, "note": client.note}
    document = {
        "schema": "edgekit.doctor/1",
        "board": board,
        **examine(probe, config),
        "probe": probe,
    }
    if not json:
        _show(document)
    return document


def _show(document: dict[str, Any]) -> None:
    from rich.table import Table

    screen = o.console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in document["checks"]:
        mark, style = _MARKS[check["status"]]
        text = check["found"] + (f"\n-> {check['fix']}" if check["fix"] else "")
        table.add_row(f"[{style}]{mark}[/]", check["what"], _plain(text))
    screen.print(f"{document['board']['name']}: {document['board']['note']}", markup=False)
    screen.print(table)
    can = document["can"]
    words = [f"backends {', '.join(can['backends']) or 'none'}"]
    if can["loads"]:
        words.append(f"loads plans with {', '.join(can['loads'])}")
    if can["dla_cores"]:
        words.append(f"{can['dla_cores']} DLA cores")
    if can["standalone"]:
        words.append("standalone loadables")
    if can["power_modes"]:
        words.append(f"power modes {', '.join(can['power_modes'])}")
    screen.print(f"It can: {'; '.join(words)}.", markup=False, highlight=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _setup(client: BoardClient, wish: dict[str, Any], json: bool) -> dict[str, Any]:
    """Shows what would change, asks, and does it."""
    undo = wish["undo"]
    shown = client.setup(undo=undo, apply=False)
    if not json:
        print(f"{client.name}: {shown['text']}")
    if shown["state"] == "shown" and (wish["yes"] or _agreed(json)):
        shown = client.setup(undo=undo, apply=True)
        if not json:
            print(f"{client.name}: {shown['text']}")
    return {"schema": "edgekit.setup/1", "ok": shown["state"] != "failed", **shown,
            "board": {"name": client.name, "kind": client.kind, "note": client.note}}  # fmt: skip


def _agreed(json: bool) -> bool:
    import sys

    if json or not sys.stdin.isatty():
        print("nothing was changed; --yes does it", file=sys.stderr)
        return False
    return click.confirm("Do it?", default=False, err=True)


def _selftest(client: BoardClient, out: Path | None, quiet: bool, json: bool) -> dict[str, Any]:
    from edgekit.cli._jobs import follow
    from edgekit.pipeline._selftest import finished, start, write_answers

    started = start(client)
    follow(client, started["job"], quiet=quiet)
    document = finished(client.job_result(started["job"]), client)
    path = write_answers(document, out or Path("edgekit-selftest.json"))
    if not json:
        counts = document["counts"]
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        print(f"{client.name}: {told}; the answers are in {path}")
    return {**document, "ok": True, "file": str(path)}


def _unfit(documents: list[dict[str, Any]], json: bool) -> EdgekitError:
    names = ", ".join(one["board"]["name"] for one in documents)
    lacks = [c["what"] for one in documents for c in one.get("checks", ()) if
             c["status"] == "missing"]  # fmt: skip
    error: EdgekitError = GateError(
        f"missing: {', '.join(lacks)}" if lacks else "the board could not be prepared",
        code="doctor.missing",
        where=names,
        hint="the lines above say what to do",
    )
    return o.printed(error) if json else error
