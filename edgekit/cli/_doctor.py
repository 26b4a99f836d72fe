"""``edgekit doctor``: what a board has, lacks and can do; prepares it where asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument
from edgekit.cli._doctor_acts import NOT_PREPARED, selftest, setup
from edgekit.cli._jobs_find import words_of
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, GateError, UsageError

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.deploy import Board, BoardClient

__all__ = ["command"]

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "missing": ("MISSING", "bold red")}


@o.command(
    "doctor",
    "edgekit doctor nvidia@10.0.0.7\nedgekit doctor lab configs/resnet50-orin.yaml\n"
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
    _check_wish(wish)
    boards = boards_of(host, wanted, root=root, python=python)
    documents: list[dict[str, Any]] = []
    lost: list[EdgekitError] = []
    for board in boards:
        try:
            with open_client(board, accept_host_key=accept_host_key) as client:
                if wish["setup"]:
                    documents.append(setup(client, wish, json))
                elif wish["selftest"]:
                    again = _again(host, wanted, board, accept_host_key)
                    out = _out_of(wish["out"], board, len(boards) > 1)
                    documents.append(selftest(client, out, quiet or json, json, again))
                else:
                    documents.append(_examine(client, wanted, json))
        except (BoardError, EnvironmentLack) as error:
            _no_board_of(config, wanted, board, error)
            if len(boards) == 1:
                raise
            # a board that does not answer hides none of the others
            lost.append(error)
            documents.append(_lost(board, error, json))
    if json:
        o.print_json(documents[0] if len(documents) == 1 else {"boards": documents})
    if lost:
        raise o.printed(lost[0])
    bad = [one for one in documents if not one["ok"]]
    if bad:
        raise _unfit(bad, json)


def _check_wish(wish: dict[str, Any]) -> None:
    """Refuses options that would do nothing."""
    if wish["setup"] and wish["selftest"]:
        raise UsageError("--setup and --selftest are two things: one at a time")
    for option, needed in (("undo", "setup"), ("yes", "setup"), ("out", "selftest")):
        if wish[option] and not wish[needed]:
            raise UsageError(f"--{option} goes with --{needed}")


def _no_board_of(
    config: str | None, wanted: Config | None, board: Board, error: EdgekitError
) -> None:
    """Says which boards the configuration names, where none of them was meant and none is there."""
    if config is None or wanted is None:
        return
    names = [one.name for one in wanted.file.deploy.boards]
    if board.name not in names:
        named = f"{config} names {', '.join(names) or 'no board'}"
        error.hint = f"{error.hint}; {named}" if error.hint else named


def _lost(board: Board, error: EdgekitError, json: bool) -> dict[str, Any]:
    if not json:
        o.say(f"{board.name}: not reached: {error.message}")
    told = {"name": board.name, "kind": board.kind, "note": ""}
    return {"schema": "edgekit.doctor/1", "board": told, "ok": False, **error.to_json()}


def _again(host: str, wanted: Config | None, board: Board, accept_host_key: bool) -> str:
    """Returns how ``edgekit jobs`` names the board."""
    if wanted is not None and board.name in (one.name for one in wanted.file.deploy.boards):
        return words_of(wanted.path, board, len(wanted.file.deploy.boards) > 1)
    return words_of(host, board, False, accept_host_key)


def _out_of(out: Path | None, board: Board, several: bool) -> Path:
    path = out or Path("edgekit-selftest.json")
    return path.with_name(f"{path.stem}-{board.name}{path.suffix}") if several else path


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
    from rich.text import Text

    screen = o.console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in document["checks"]:
        mark, style = _MARKS[check["status"]]
        text = check["found"] + (f"\n-> {check['fix']}" if check["fix"] else "")
        table.add_row(Text(mark, style), check["what"], text)
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


def _unfit(documents: list[dict[str, Any]], json: bool) -> EdgekitError:
    names = ", ".join(one["board"]["name"] for one in documents)
    lacks = [c["what"] for one in documents for c in one.get("checks", ()) if
             c["status"] == "missing"]  # fmt: skip
    error: EdgekitError
    if lacks:
        error = GateError(
            f"missing: {', '.join(lacks)}",
            code="doctor.missing",
            where=names,
            hint="the lines above say what to do",
        )
    else:
        error = GateError(
            "; ".join(dict.fromkeys(NOT_PREPARED[one["state"]] for one in documents)),
            code="doctor.not-prepared",
            where=names,
            hint="the lines above say what to do",
        )
    return o.printed(error) if json else error
