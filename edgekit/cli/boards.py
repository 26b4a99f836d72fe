"""Commands about boards and what they hold: ``doctor``, ``status``, ``releases``, ``rollback``,
``remove`` and ``trust``; and what all commands that take several boards share.
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli.commands import argument
from edgekit.cli.jobs import follow, jobs_arguments
from edgekit.cli.output import WIDE, console, mark_printed, print_json, say, terminal_format
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, GateError, UsageError
from edgekit.files import read_file
from edgekit.text import counted
from edgekit.text import plain as harmless

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from edgekit.config.loader import Config
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.boards.status import BoardAnswer


# ids and times are copied from tables: however narrow the terminal, they stay whole
_COLUMN_WIDTHS = {
    "release": 19, "serves": 19, "previous": 19, "since": 20, "last deployment": 20,
}  # fmt: skip

boards_argument = argument(
    "wheres",
    "YAML configurations, USER@HOST:PORT or aliases of ~/.ssh/config.",
    metavar="WHERE...",
    nargs=-1,
    required=True,
)
app_option = click.option("--app", help="The application; a configuration's own by default.")

#: How boards are reached, as ``root``, ``python`` and ``accept_host_key``.
host_options = o.all_of(
    click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST."),
    click.option("--python", default="python3", help="Python on the board, for a HOST."),
    o.accept_host_key,
)
_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "missing": ("MISSING", "bold red")}
NOT_PREPARED = {
    "shown": "nothing was changed",
    "by-hand": "sudo needs a password on the board; nothing was changed yet",
    "failed": "the board could not be prepared",
}
"""By the states of a setup after which the board is not as it was asked for: how to say so."""
_NO_CHANGE = ("identity", "force", "listing")
_ROLES = {"current": "serves", "previous": "the one before", "kept": "kept"}


def print_boards(document: dict[str, Any], answered: Sequence[BoardAnswer], json: bool) -> None:
    """Prints the document where it is wanted, and fails as the first board did that failed."""
    if json:
        print_json(document)
    lost = [one.error for one in answered if one.error is not None]
    if lost:
        raise mark_printed(lost[0])


def print_each_board(
    document: dict[str, Any],
    answered: Sequence[BoardAnswer],
    json: bool,
    text: Callable[[dict[str, Any]], str],
) -> None:
    """Prints a line for each board, or the document, and fails as the first that failed.

    Args:
        document: With "boards".
        answered: The same boards, in the same order.
        json: Whether the document is wanted.
        text: What is said of a board that did not fail.
    """
    error_shown = False
    for board, one in zip(document["boards"], answered, strict=True):
        if json or (one.error is not None and not error_shown):
            # the error that the command ends with is printed at its end
            error_shown = error_shown or one.error is not None
            continue
        say(f"{one.board}: {text(board) if one.error is None else one.error.message}")
    print_boards(document, answered, json)


def failing(board: Mapping[str, Any], boards: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Returns how a board failed, and why unless the command's end says it: that of the first."""
    first = next(one for one in boards if one["error"] is not None)
    how = "failed" if board["reachable"] else "not reached"
    return how, "-" if board is first else str(board["error"]["message"])


def table(*columns: str) -> Table:
    """Returns a table as the other commands have them; nothing in it is cut."""
    from rich.table import Column, Table

    made = [Column(name, overflow="fold", min_width=_COLUMN_WIDTHS.get(name)) for name in columns]
    return Table(*made, box=None, pad_edge=False)


def show(rows: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table and lines below it.

    A row is one line where stdout is no terminal, or one that is too narrow for a word a column.
    """
    from rich.measure import Measurement

    screen = console(width=None if terminal_format()[0] else WIDE)
    options = screen.options.update(width=WIDE)  # or nothing is wider than the terminal
    if Measurement.get(screen, options, rows).minimum > screen.width:
        screen = console(width=WIDE)
    screen.print(rows)
    for note in notes:
        screen.print(plain(note), soft_wrap=True)


def last_error(serving: Mapping[str, Any]) -> str:
    """Returns what a server's last error was, empty without one."""
    found = serving.get("last_error")
    if not isinstance(found, Mapping):
        return str(found or "")
    at, code = (str(found.get(name) or "") for name in ("at", "code"))
    return f"{f'{at} ' if at else ''}{found.get('message')}{f' ({code})' if code else ''}"


def plain(value: object) -> Text:
    """Returns text of a board's, which says nothing to the terminal but itself."""
    from rich.text import Text

    # in a table a line stays one
    return Text(harmless("" if value is None else str(value)).replace("\n", " "))


@commands.command(
    "doctor",
    "edgekit doctor\nedgekit doctor nvidia@10.0.0.7\n"
    "edgekit doctor lab configs/resnet50-orin.yaml\n"
    "edgekit doctor nvidia@10.0.0.7 --setup",
)
@argument(
    "host",
    "USER@HOST:PORT, an alias of ~/.ssh/config, a board of CONFIG, or a configuration; "
    "this machine without one.",
    required=False,
)
@argument("config", "YAML configuration to check the board against.", required=False)
@click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST.")
@click.option("--python", default="python3", help="Python on the board, for a HOST.")
@click.option("--setup", is_flag=True, help="Let the account set power modes and read clocks.")
@click.option("--undo", is_flag=True, help="With --setup: undo it.")
@click.option("--yes", is_flag=True, help="With --setup: do not ask for confirmation.")
@click.option(
    "--selftest",
    is_flag=True,
    help="Run the self-test: checks that still have to be confirmed on a board.",
)
@click.option(
    "-o",
    "--out",
    type=o.OUTPUT,
    help="With --selftest: file for the answers (edgekit-selftest.json).",
)
@o.accept_host_key
@o.talk
def doctor_command(
    host: str | None,
    config: str | None,
    root: str,
    python: str,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    if host is None:
        _examine_workstation(options, json)
        return
    from edgekit.config.loader import open_config
    from edgekit.pipeline.boards.addresses import boards_of, is_config, open_client

    wanted = open_config(config) if config else open_config(host) if is_config(host) else None
    _check_doctor_options(options)
    boards = boards_of(host, wanted, root=root, python=python)
    documents: list[dict[str, Any]] = []
    lost: list[EdgekitError] = []
    for board in boards:
        try:
            with open_client(board, accept_host_key=accept_host_key) as client:
                if options["setup"]:
                    documents.append(set_up(client, options, json))
                elif options["selftest"]:
                    again = _jobs_arguments_of(host, wanted, board, accept_host_key)
                    out = _selftest_file(options["out"], board, len(boards) > 1)
                    documents.append(selftest(client, out, quiet or json, json, again))
                else:
                    documents.append(_examine(client, wanted, json))
        except (BoardError, EnvironmentLack) as error:
            _no_board_of(config, wanted, board, error)
            if len(boards) == 1:
                raise
            # a board that does not answer hides none of the others
            lost.append(error)
            documents.append(_unreached_document(board, error, json))
    if json:
        print_json(documents[0] if len(documents) == 1 else {"boards": documents})
    if lost:
        raise mark_printed(lost[0])
    bad = [one for one in documents if not one["ok"]]
    if bad:
        raise _unfit(bad, json)


def _examine_workstation(options: dict[str, Any], json: bool) -> None:
    from edgekit.pipeline.boards.workstation import examine_workstation

    if given := [name for name, value in options.items() if value]:
        raise UsageError(
            f"--{given[0]} needs a board", hint="edgekit doctor USER@HOST, or a configuration"
        )
    document = examine_workstation()
    if json:
        print_json(document)
    else:
        _show_checks(document)
    if not document["ok"]:
        raise _unfit([document], json)


def _check_doctor_options(options: dict[str, Any]) -> None:
    """Refuses options that would do nothing."""
    if options["setup"] and options["selftest"]:
        raise UsageError("--setup and --selftest cannot be used together")
    for option, needed in (("undo", "setup"), ("yes", "setup"), ("out", "selftest")):
        if options[option] and not options[needed]:
            raise UsageError(f"--{option} needs --{needed}")


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


def _unreached_document(board: Board, error: EdgekitError, json: bool) -> dict[str, Any]:
    if not json:
        say(f"{board.name}: not reached: {error.message}")
    facts = {"name": board.name, "kind": board.kind, "note": ""}
    return {"schema": "edgekit.doctor/1", "board": facts, "ok": False, **error.to_json()}


def _jobs_arguments_of(
    host: str, wanted: Config | None, board: Board, accept_host_key: bool
) -> str:
    """Returns how ``edgekit jobs`` names the board."""
    if wanted is not None and board.name in (one.name for one in wanted.file.deploy.boards):
        return jobs_arguments(wanted.path, board, len(wanted.file.deploy.boards) > 1)
    return jobs_arguments(host, board, False, accept_host_key)


def _selftest_file(out: Path | None, board: Board, several: bool) -> Path:
    path = out or Path("edgekit-selftest.json")
    return path.with_name(f"{path.stem}-{board.name}{path.suffix}") if several else path


def _examine(client: BoardClient, config: Any, json: bool) -> dict[str, Any]:
    from edgekit.pipeline.boards.doctor import examine

    probe = client.probe()
    board = {"name": client.name, "kind": client.kind, "note": client.note}
    document = {
        "schema": "edgekit.doctor/1",
        "board": board,
        **examine(probe, config),
        "probe": probe,
    }
    if not json:
        _show_checks(document)
    return document


def _show_checks(document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in document["checks"]:
        mark, style = _MARKS[check["status"]]
        text = check["found"] + (f"\n-> {check['fix']}" if check["fix"] else "")
        table.add_row(Text(mark, style), check["what"], text)
    screen.print(f"{document['board']['name']}: {document['board']['note']}", markup=False)
    screen.print(table)
    can = document.get("can")
    if can is None:
        return
    words = [f"backends {', '.join(can['backends']) or 'none'}"]
    if can["loads"]:
        words.append(f"loads plans with {', '.join(can['loads'])}")
    if can["dla_cores"]:
        words.append(f"{can['dla_cores']} DLA cores")
    if can["standalone"]:
        words.append("standalone loadables")
    if can["power_modes"]:
        words.append(f"power modes {', '.join(can['power_modes'])}")
    screen.print(f"Supports: {'; '.join(words)}.", markup=False, highlight=False)


def _unfit(documents: list[dict[str, Any]], json: bool) -> EdgekitError:
    from edgekit.pipeline.boards.doctor import NOTHING_RUNS

    names = ", ".join(one["board"]["name"] for one in documents)
    lacks = [c["what"] for one in documents for c in one.get("checks", ()) if
             c["status"] == "missing"]  # fmt: skip
    error: EdgekitError
    dead = [
        one["board"]["name"]
        for one in documents
        if any(check["id"] == NOTHING_RUNS.id for check in one.get("checks", ()))
    ]
    if dead:
        error = EnvironmentLack(
            NOTHING_RUNS.found,
            code="board.nothing-runs",
            where=", ".join(dead),
            hint=NOTHING_RUNS.fix,
        )
    elif lacks:
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
    return mark_printed(error) if json else error


# What ``edgekit doctor`` does beyond looking: prepares a board, and runs its self-test.


def set_up(client: BoardClient, options: dict[str, Any], json: bool) -> dict[str, Any]:
    """Shows what would change, asks for confirmation, and does it.

    Returns:
        ``edgekit.setup/1``; "ok" says whether the board is now as requested.
    """
    undo = options["undo"]
    shown = client.setup(undo=undo, apply=False)
    if not json:
        print(f"{client.name}: {shown['text']}")
    if shown["state"] == "shown" and (options["yes"] or _agreed(json)):
        shown = client.setup(undo=undo, apply=True)
        if not json:
            print(f"{client.name}: {shown['text']}")
    return {"schema": "edgekit.setup/1", "ok": shown["state"] not in NOT_PREPARED, **shown,
            "board": {"name": client.name, "kind": client.kind, "note": client.note}}  # fmt: skip


def _agreed(json: bool) -> bool:
    if json or not sys.stdin.isatty():
        print("nothing was changed; run again with --yes to apply", file=sys.stderr)
        return False
    return click.confirm("Apply these changes?", default=False, err=True)


def selftest(client: BoardClient, out: Path, quiet: bool, json: bool, again: str) -> dict[str, Any]:
    """Runs the board's self-test, follows it and writes its answers.

    Args:
        client: The board.
        out: The file of the answers.
        quiet: Show no progress.
        json: Print nothing.
        again: What follows ``edgekit jobs attach ID`` so that it is the same board.
    """
    from edgekit.pipeline.boards.selftest import finished, start, write_answers

    started = start(client)
    result = follow(client, started["job"], quiet=quiet, again=again)
    document = finished(result, client)
    path = write_answers(document, out)
    if not json:
        counts = document["counts"]
        text = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        print(f"{client.name}: {text}; the answers are in {path}")
        failed = [item["id"] for item in document["items"] if item["status"] == "failed"]
        if failed:
            print(f"failed (recorded in the file): {', '.join(failed)}")
    return {**document, "ok": True, "file": str(path)}


@commands.command(
    "status",
    "edgekit status nvidia@10.0.0.7\nedgekit status configs/resnet50-orin.yaml --json\n"
    "edgekit status lab-1 lab-2 --app resnet50",
)
@boards_argument
@app_option
@host_options
@o.talk
def status_command(
    wheres: tuple[str, ...], app: str | None, json: bool, quiet: bool, verbose: bool, **reached: Any
) -> None:
    from edgekit.pipeline.boards.status import status_document

    document, answered = status_document(wheres, app, **reached)
    if not json:
        _show_status(document, [one.again for one in answered], verbose)
    print_boards(document, answered, json)


def _show_status(document: dict[str, Any], again: list[str], verbose: bool) -> None:
    rows = table("board", "app", "serves", "previous", "last deployment", "server")
    notes: list[str] = []
    for board, words in zip(document["boards"], again, strict=True):
        name = board["board"]
        if board["error"] is not None:
            away, why = failing(board, document["boards"])
            rows.add_row(plain(name), "-", away, "-", plain(why), "-")
            continue
        if board.get("power"):
            notes.append(f"{name}: {board['power']}")
        if not board["apps"]:
            rows.add_row(plain(name), "-", "nothing", "-", "-", "-")
        for app, facts in board["apps"].items():
            cells = (name, app, facts["current"] or "nothing", facts["previous"] or "-",
                     _deployment(facts), _server(facts["serving"]))  # fmt: skip
            rows.add_row(*map(plain, cells))
            notes += [f"{name}: {app}: {text}" for text in _status_notes(facts, words, verbose)]
        if verbose:
            store = board["store"]
            notes.append(
                f"{name}: {counted(store['blobs'], 'blob')}, {store['bytes']:,} bytes, of "
                f"partial downloads {store['partial_bytes']:,} bytes; {board['free_bytes']:,} "
                "bytes free"
            )
    show(rows, notes)


def _went_back(facts: dict[str, Any]) -> dict[str, Any] | None:
    """The roll back by hand, or by a server, that came after the last deployment."""
    deployment, lines = facts["deployment"] or {}, facts.get("history") or [{}]
    last: dict[str, Any] = lines[-1]
    ended = deployment.get("state") in (None, "committed", "rolled-back", "failed")
    back = last.get("state") == "rolled-back" and last.get("id") != deployment.get("id")
    return last if ended and back else None


def _deployment(facts: dict[str, Any]) -> str:
    found = _went_back(facts) or facts["deployment"]
    if found is None:
        return "none"
    text = f"{found['state']} {found.get('state_at') or ''}".rstrip()
    if found.get("alive"):
        text += f", by {found.get('operator') or 'an unknown operator'}"
    return text


def _server(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    if "error" in found:
        return str(found["error"].get("message"))
    latency = (found.get("latency_ms") or {}).get("p50")
    speed = f", p50 {latency:.3g} ms" if isinstance(latency, (int, float)) else ""
    return f"{found.get('requests')} requests, {found.get('errors')} errors{speed}"


def _status_notes(facts: dict[str, Any], again: str, verbose: bool) -> list[str]:
    found = []
    deployment = facts["deployment"] or {}
    back = _went_back(facts)
    if back:
        why = (back.get("error") or {}).get("message") or "asked for"
        found.append(f"rolled back at {back.get('state_at')} from {back.get('release')}: {why}")
    error = deployment.get("error")
    if error:
        found.append(f"{deployment['state']}: {error.get('message')} ({error.get('code')})")
    if facts.get("error"):
        hint = facts["error"].get("hint")
        found.append(str(facts["error"].get("message")) + (f" ({hint})" if hint else ""))
    for one in facts.get("refused", ()):
        found.append(
            f"{one['release']} can no longer be loaded: {one['message']} ({_mending(one)})"
        )
    changes = (facts.get("changed") or {}).get("changes") or ()
    if changes:
        text = "; ".join(f"{one['what']} {one['from']} -> {one['to']}" for one in changes)
        found.append(
            f"the board has changed: {text}; {facts['current']} cannot be loaded until it "
            "is deployed again (edgekit deploy CONFIG)"
        )
    serving = facts["serving"] or {}
    if serving.get("release") not in (None, facts["current"]):
        found.append(f"the server answers with {serving['release']}")
    if last := last_error(serving):
        found.append(f"the server's last error: {last}")
    job = deployment.get("job")
    if deployment.get("alive") and job:
        found.append(f"follow the deployment with: edgekit jobs attach {job} {again}")
    if verbose:
        for line in facts.get("history", ()):
            why = (line.get("error") or {}).get("message")
            found.append(
                f"{line.get('state_at')} {line.get('state')} {line.get('release')}"
                + (f": {why}" if why else "")
            )
    return found


@commands.command(
    "releases",
    "edgekit releases nvidia@10.0.0.7\nedgekit releases configs/resnet50-orin.yaml",
)
@boards_argument
@app_option
@host_options
@o.talk
def releases_command(
    wheres: tuple[str, ...], app: str | None, json: bool, quiet: bool, verbose: bool, **reached: Any
) -> None:
    from edgekit.pipeline.boards.status import releases_document

    document, answered = releases_document(wheres, app, **reached)
    if not json:
        rows = table("board", "app", "release", "", "bundle", "signed by", "since")
        notes: list[str] = []
        for board in document["boards"]:
            if board["error"] is not None:
                cells = (board["board"], "-", "-", *failing(board, document["boards"]))
                rows.add_row(*map(plain, (*cells, "-", "-")))
            for name, facts in board["apps"].items():
                for one in facts["releases"]:
                    cells = (board["board"], name, one["id"], _release_mark(one, facts),
                             str(one["digest"])[:12])  # fmt: skip
                    more = (one["signer"] or "nobody", one["staged_at"])
                    rows.add_row(*map(plain, (*cells, *more)))
                    if why := one.get("refused"):
                        notes.append(
                            f"{board['board']}: {name}: {one['id']} can no longer be loaded: "
                            f"{why['message']} ({_mending(why)})"
                        )
                    if back := one.get("taken_back"):
                        notes.append(
                            f"{board['board']}: {name}: {one['id']} was rolled back at "
                            f"{back['at']}: {back['reason']}"
                        )
        show(rows, notes)
    print_boards(document, answered, json)


def _mending(refusal: dict[str, Any]) -> str:
    """The command after which a board takes a release that it refuses to load."""
    trusting = ("bundle.unsigned", "bundle.unknown-signer", "bundle.revoked-signer")
    return "edgekit trust" if refusal["code"] in trusting else "edgekit deploy"


def _release_mark(release: dict[str, Any], facts: dict[str, Any]) -> str:
    role = "" if release["ready"] else "not ready"
    for mark, which in (("serves", "current"), ("previous", "previous")):
        role = mark if release["id"] == facts[which] else role
    refused = "loads no more" if release.get("refused") else ""
    back = "taken back" if release.get("taken_back") else ""
    return ", ".join(filter(None, (role, back, refused)))


@commands.command(
    "rollback",
    "edgekit rollback configs/resnet50-orin.yaml\n"
    "edgekit rollback nvidia@10.0.0.7 --app resnet50 --reason 'too many false alarms'",
)
@argument("where", "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config.")
@app_option
@click.option("--reason", help="Reason, kept in the board's history.")
@o.dry_run
@host_options
@o.talk
def rollback_command(
    where: str,
    app: str | None,
    reason: str | None,
    dry_run: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **reached: Any,
) -> None:
    from edgekit.pipeline.boards.status import app_of, rollback_document

    document, answered = rollback_document(
        [where], app_of(where, app), reason, dry_run=dry_run, **reached
    )

    def text(board: dict[str, Any]) -> str:
        change = f"{board['from']} -> {board['to'] or 'nothing'}"
        return f"would roll back: {change}" if dry_run else change

    print_each_board(document, answered, json, text)


@commands.command(
    "remove",
    "edgekit remove nvidia@10.0.0.7 --app resnet50 --release 000003-1f2e3d4c5b6a\n"
    "edgekit remove nvidia@10.0.0.7 --app resnet50 --dry-run\n"
    "edgekit remove nvidia@10.0.0.7 --app resnet50 --yes",
)
@boards_argument
@app_option
@click.option("--release", help="Remove only this release; it must not be the current one.")
@o.dry_run
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation when all releases would be removed."
)
@host_options
@o.talk
def remove_command(
    wheres: tuple[str, ...],
    app: str | None,
    release: str | None,
    dry_run: bool,
    yes: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **reached: Any,
) -> None:
    from edgekit.pipeline.boards.status import remove_document

    if release is None and not (dry_run or yes):
        planned, _ = remove_document(wheres, app, dry_run=True, **reached)
        _agree_to_remove(planned, json)
    document, answered = remove_document(wheres, app, release, dry_run=dry_run, **reached)
    whole = f"application {document['app']} and all its releases: "

    def text(board: dict[str, Any]) -> str:
        gone = ", ".join(board["removed"])
        words = gone if release is not None else whole + (gone or "it had no releases")
        return f"{'would remove' if dry_run else 'removed'} {words}"

    print_each_board(document, answered, json, text)


def _agree_to_remove(planned: dict[str, Any], json: bool) -> None:
    """Asks for confirmation that an application goes with all its releases.

    Raises:
        UsageError: "remove.all": there is no terminal to ask on, or the answer is no.
    """
    counts = [(board["board"], len(board["removed"])) for board in planned["boards"]]
    where = ", ".join(f"{counted(n, 'release')} on {name}" for name, n in counts if n)
    if not where:
        return  # nothing goes, and why says the board
    text = f"application {planned['app']} would be removed with {where}"
    if json or not sys.stdin.isatty():
        raise UsageError(
            f"{text}; nothing was removed",
            code="remove.all",
            hint="--yes removes them, --dry-run only lists them, --release ID removes one",
        )
    if not click.confirm(f"{text}. Remove it?", default=False, err=True):
        raise UsageError("nothing was removed", code="remove.all")


@commands.command(
    "trust",
    "edgekit trust nvidia@10.0.0.7 --add new.pub --identity ci@example.com\n"
    "edgekit trust nvidia@10.0.0.7 --revoke old.pub --remove old.pub\n"
    "edgekit trust configs/resnet50-orin.yaml --list",
)
@argument("where", "USER@HOST:PORT, an alias of ~/.ssh/config, or a YAML configuration.")
@click.option("--add", multiple=True, type=o.FILE, help="Public key that may sign; repeatable.")
@click.option("--identity", help="Identity for the keys of --add (default: the key's comment).")
@click.option(
    "--valid-after", metavar="DATE", help="With --add: the key is valid from then, YYYYMMDD[HHMM]."
)
@click.option(
    "--valid-before",
    metavar="DATE",
    help="With --add: the key is valid until then, YYYYMMDD[HHMM].",
)
@click.option(
    "--remove",
    multiple=True,
    metavar="KEY",
    help="Key to remove: fingerprint, identity or key file.",
)
@click.option(
    "--force", is_flag=True, help="With --remove or --signers: allow removing the last key."
)
@click.option("--revoke", multiple=True, type=o.FILE, help="Public key to revoke for good.")
@click.option("--signers", type=o.FILE, help="allowed_signers file that replaces the board's.")
@click.option("--revocations", type=o.FILE, help="KRL or list of keys that replaces the board's.")
@click.option(
    "--list", "listing", is_flag=True, help="List the keys and change nothing (the default)."
)
@click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST.")
@click.option("--python", default="python3", help="Python on the board, for a HOST.")
@o.accept_host_key
@o.talk
def trust_command(
    where: str,
    root: str,
    python: str,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    from edgekit.pipeline.boards.addresses import boards_of, fill_hint, open_client

    changes = _changes(options)
    documents: list[dict[str, Any]] = []
    lost: list[EdgekitError] = []
    for board in boards_of(where, root=root, python=python):
        answers = False
        try:
            with open_client(board, accept_host_key=accept_host_key) as client:
                answers = True
                documents.append(_change(client, changes))
        except (BoardError, EnvironmentLack) as error:
            fill_hint(error, where, board)
            lost.append(error)
            documents.append({"board": board.name, "reachable": answers, **error.to_json()})
        # what the command ends with is said then
        if not json and (documents[-1]["error"] is None or len(lost) > 1):
            _show_trust(documents[-1], documents, any(changes.values()))
    if json:
        print_json({"schema": "edgekit.trust/1", "boards": documents})
    if lost:
        raise mark_printed(lost[0])


def _changes(options: dict[str, Any]) -> dict[str, Any]:
    """The request to the board; every file is read before the first board is changed."""
    from edgekit.bundles.sign import allowed_signers_line

    given = {name for name, value in options.items() if value and name not in _NO_CHANGE}
    if options["listing"] and given:
        raise UsageError("--list cannot be combined with changes")
    if given & {"valid_after", "valid_before"} and not options["add"]:
        raise UsageError("--valid-after and --valid-before need --add")
    if options["identity"] and not options["add"]:
        raise UsageError("--identity needs --add")
    if options["force"] and not given & {"remove", "signers"}:
        raise UsageError("--force needs --remove or --signers")
    times = {"after": options["valid_after"], "before": options["valid_before"]}
    changes: dict[str, Any] = {
        "lines": [
            allowed_signers_line(path, options["identity"], times) for path in options["add"]
        ],
        "remove": [_key_of(word) for word in options["remove"]],
        "revoke": [_trust_text(path).strip() for path in options["revoke"]],
    }
    if options["force"]:
        changes["force"] = True
    if options["signers"]:
        lines = [line.strip() for line in _trust_text(options["signers"]).splitlines()]
        changes["signers"] = [line for line in lines if line and not line.startswith("#")]
    if options["revocations"]:
        changes["revocations"] = base64.b64encode(
            _read_public_key_file(options["revocations"])
        ).decode("ascii")
    return changes


def _key_of(word: str) -> str:
    """A key's line where a file is named; fingerprints and identities stay."""
    with contextlib.suppress(OSError, ValueError):
        if Path(word).expanduser().is_file():
            return _trust_text(Path(word)).strip()
    return word


def _trust_text(path: Path) -> str:
    return _read_public_key_file(path).decode("utf-8", "replace")


def _read_public_key_file(path: Path) -> bytes:
    """A file's bytes; those of a private key go to no board."""
    from edgekit.bundles.sign import LARGEST_KEY, refuse_private

    try:
        data = read_file(path.expanduser(), LARGEST_KEY)
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror or error}", code="sign.no-key", where=str(path)
        ) from error
    refuse_private(data.decode("utf-8", "replace"), str(path))
    return data


def _change(client: BoardClient, changes: dict[str, Any]) -> dict[str, Any]:
    return {"board": client.name, "reachable": True, "error": None, **client.trust(**changes)}


def _count(keys: int) -> str:
    return f"{keys or 'no'} key{'' if keys == 1 else 's'}"


def _show_trust(document: dict[str, Any], documents: list[dict[str, Any]], changes: bool) -> None:
    name = document["board"]
    if document["error"] is not None:
        say(f"{name}: {': '.join(failing(document, documents))}")
        return
    text = ", ".join(
        f"{document[what]} {what}" for what in ("added", "removed", "revoked") if document[what]
    )
    may = len(document["signers"])
    say(f"{name}: {text or ('nothing changed' if changes else _count(may))}")
    revoked = document["revocations"]
    for key in document["keys"]:
        times = "".join(
            f", {word} {key[field]}"
            for word, field in (("from", "valid_after"), ("until", "valid_before"))
            if key[field]
        )
        gone = ", revoked" if key["fingerprint"] in revoked["fingerprints"] else ""
        say(f"  {key['identity']}  {key['kind']} {key['fingerprint']}{times}{gone}")
    if not document["keys"]:
        say("  no key is trusted: the board accepts no bundle")
    if revoked["kind"] == "krl":
        say("  revoked keys are in the board's KRL")
    for fingerprint in revoked["fingerprints"]:
        say(f"  revoked: {fingerprint}")
    for one in document["refused"]:
        role = _ROLES.get(one["role"], one["role"])
        say(f"  {one['app']}/{one['release']} ({role}) can no longer be loaded: {one['message']}")
    if any(one["role"] == "current" for one in document["refused"]):
        say("  deploy a release signed with a trusted key")
