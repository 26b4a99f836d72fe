"""Commands about boards and their releases: ``doctor``, ``status``, ``releases``, ``rollback``,
``remove`` and ``trust``; and shared functions of commands for several boards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from edgekit import api
from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli.commands import argument
from edgekit.cli.output import (
    WIDE,
    console,
    mark_printed,
    print_json,
    progress,
    say,
    terminal_format,
)
from edgekit.errors import EdgekitError, EnvironmentLack, GateError, UsageError
from edgekit.text import counted
from edgekit.text import printable as harmless

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table
    from rich.text import Text

    from edgekit.api import (
        AppStatus,
        BoardRow,
        Doctor,
        Doctors,
        Failed,
        HistoryEntry,
        LastError,
        ListedApp,
        ListedRelease,
        Removal,
        Selftests,
        ServingStatus,
        Setup,
        Setups,
        ShownDeployment,
        Status,
        TrustingBoard,
    )

    Row = TypeVar("Row", bound=BoardRow)


# users copy ids and times from tables: they are never truncated, even in a narrow terminal
_COLUMN_WIDTHS = {
    "release": 19,
    "serves": 19,
    "previous": 19,
    "since": 20,
    "last deployment": 20,
}

boards_argument = argument(
    "wheres",
    "YAML configurations, USER@HOST:PORT or aliases of ~/.ssh/config.",
    metavar="WHERE...",
    nargs=-1,
    required=True,
)
app_option = click.option("--app", help="The application; a configuration's own by default.")

#: Options of the connection to boards: ``root``, ``python`` and ``accept_host_key``.
host_options = o.combine(
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
"""Messages by the states of a setup that leave the board in another state than requested."""
_NOTHING_RUNS = "runtime"  # the check of a board that cannot run bundles of any backend
_ROLES = {"current": "serves", "previous": "the one before", "kept": "kept"}


def print_boards(document: Any, rows: Sequence[BoardRow], json: bool) -> None:
    """Prints the document if requested, and raises the error of the first failed board."""
    if json:
        print_json(document)
    # the document is printed first: it has the boards that answered
    lost = [row.cause for row in rows if row.cause is not None]
    if lost:
        raise mark_printed(lost[0])


def print_each_board(
    document: Any, rows: Sequence[Row], json: bool, text: Callable[[Row], str]
) -> None:
    """Prints a line for each board, or the document, and raises the first failed board's error.

    Args:
        document: The document.
        rows: Its boards.
        json: True to print the document.
        text: Returns the text of a board that did not fail.
    """
    error_shown = False
    for board in rows:
        if json or (board.error is not None and not error_shown):
            # the command's final error is printed at its end
            error_shown = error_shown or board.error is not None
            continue
        say(f"{board.board}: {text(board) if board.error is None else board.error.message}")
    print_boards(document, rows, json)


def failure_row(board: BoardRow, boards: Sequence[BoardRow]) -> tuple[str, str]:
    """Returns a board's failure, and its reason (empty for the first, whose error ends the
    command).
    """
    first = next(row for row in boards if row.error is not None)
    how = "failed" if board.reachable else "not reached"
    return how, "-" if board is first or board.error is None else board.error.message


def table(*columns: str) -> Table:
    """Returns a table in the commands' common style, without truncation."""
    from rich.table import Column, Table

    made = [Column(name, overflow="fold", min_width=_COLUMN_WIDTHS.get(name)) for name in columns]
    return Table(*made, box=None, pad_edge=False)


def show(rows: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table and lines below it.

    A row is a single line if stdout is no terminal, or too narrow for a word per column.
    """
    from rich.measure import Measurement

    screen = console(width=None if terminal_format()[0] else WIDE)
    options = screen.options.update(width=WIDE)  # otherwise rich limits the width to the terminal's
    # columns narrower than their words cannot be read
    if Measurement.get(screen, options, rows).minimum > screen.width:
        screen = console(width=WIDE)
    screen.print(rows)
    for note in notes:
        screen.print(plain_text(note), soft_wrap=True)


def last_error(found: LastError | None) -> str:
    """Returns a server's last error, empty if there is none."""
    return "" if found is None else f"{found.at} {found.message} ({found.code})"


def plain_text(value: object) -> Text:
    """Returns text from a board, without terminal control characters."""
    from rich.text import Text

    # a line stays a single line in a table
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
@o.output_options
def doctor_command(
    host: str | None,
    config: str | None,
    root: str,
    python: str,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    setup: bool,
    undo: bool,
    yes: bool,
    selftest: bool,
    out: Path | None,
) -> None:
    _check_doctor_options(host, setup=setup, undo=undo, yes=yes, selftest=selftest, out=out)
    reached: dict[str, Any] = {"root": root, "python": python, "accept_host_key": accept_host_key}
    found: Doctors | Setups | Selftests
    unfit: EdgekitError | None = None
    if host is None or not (setup or selftest):
        found = examined = api.doctor(host, config, **reached)
        for board in () if json else examined.reached:
            _show_checks(board)
        unfit = _unfit_error([board for board in examined.reached if not board.ok], json)
    elif setup:
        found = prepared = api.set_up(
            host,
            config,
            undo=undo,
            agree=lambda board, text: yes or _confirm_changes(json),
            on_text=lambda board, text: None if json else print(f"{board}: {text}"),
            **reached,
        )
        unfit = _unprepared_error([board for board in prepared.reached if not board.ok], json)
    else:
        found = tested = api.selftest(
            host,
            config,
            out=out,
            progress=progress(quiet or json),
            on_note=lambda text: click.echo(text, err=True),
            **reached,
        )
        for answered in () if json else tested.reached:
            counts = (f"{count} {name}" for name, count in answered.counts.items() if count)
            print(f"{answered.name}: {', '.join(counts)}; the answers are in {answered.file}")
            failed = [item.id for item in answered.items if item.status == "failed"]
            if failed:
                print(f"failed (recorded in the file): {', '.join(failed)}")
    if json:
        print_json(found.boards[0] if len(found.boards) == 1 else found)
    for lost in () if json else found.lost:
        say(f"{lost.board.name}: not reached: {lost.cause.message}")
    if found.lost:
        raise mark_printed(found.lost[0].cause)
    if unfit is not None:
        raise unfit


def _check_doctor_options(host: str | None, **options: object) -> None:
    """Refuses options that would have no effect."""
    if host is None and (given := [name for name, value in options.items() if value]):
        raise UsageError(
            f"--{given[0]} needs a board", hint="edgekit doctor USER@HOST, or a configuration"
        )
    if options["setup"] and options["selftest"]:
        raise UsageError("--setup and --selftest cannot be used together")
    for option, needed in (("undo", "setup"), ("yes", "setup"), ("out", "selftest")):
        if options[option] and not options[needed]:
            raise UsageError(f"--{option} needs --{needed}")


def _show_checks(document: Doctor) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in document.checks:
        mark, style = _MARKS[check.status]
        text = check.found + (f"\n-> {check.fix}" if check.fix else "")
        table.add_row(Text(mark, style), check.what, text)
    # a name may have [brackets], which are rich's markup
    screen.print(f"{document.board.name}: {document.board.note}", markup=False)
    screen.print(table)
    can = document.can
    if can is None:
        return
    words = [f"backends {', '.join(can.backends) or 'none'}"]
    if can.loads:
        words.append(f"loads plans with {', '.join(can.loads)}")
    if can.dla_cores:
        words.append(f"{can.dla_cores} DLA cores")
    if can.standalone:
        words.append("standalone loadables")
    if can.power_modes:
        words.append(f"power modes {', '.join(can.power_modes)}")
    screen.print(f"Supports: {'; '.join(words)}.", markup=False, highlight=False)


def _unfit_error(documents: list[Doctor], json: bool) -> EdgekitError | None:
    if not documents:
        return None
    lacks = [
        (document.board.name, check)
        for document in documents
        for check in document.checks
        if check.status == "missing"
    ]
    # worse than any missing part: it is exit 3 (environment), the others exit 1
    nothing = [(name, check) for name, check in lacks if check.id == _NOTHING_RUNS]
    error: EdgekitError
    if nothing:
        error = EnvironmentLack(
            nothing[0][1].found,
            code="board.nothing-runs",
            where=", ".join(name for name, _ in nothing),
            hint=nothing[0][1].fix,
        )
    else:
        error = GateError(
            f"missing: {', '.join(check.what for _, check in lacks)}",
            code="doctor.missing",
            where=", ".join(document.board.name for document in documents),
            hint="follow the steps in the lines above",
        )
    return mark_printed(error) if json else error


def _unprepared_error(documents: list[Setup], json: bool) -> EdgekitError | None:
    if not documents:
        return None
    error = GateError(
        "; ".join(dict.fromkeys(NOT_PREPARED[document.state] for document in documents)),
        code="doctor.not-prepared",
        where=", ".join(document.board.name for document in documents),
        hint="follow the steps in the lines above",
    )
    return mark_printed(error) if json else error


def _confirm_changes(json: bool) -> bool:
    if json or not sys.stdin.isatty():
        print("no change was applied; run again with --yes to apply", file=sys.stderr)
        return False
    return click.confirm("Apply these changes?", default=False, err=True)


@commands.command(
    "status",
    "edgekit status nvidia@10.0.0.7\nedgekit status configs/resnet50-orin.yaml --json\n"
    "edgekit status lab-1 lab-2 --app resnet50",
)
@boards_argument
@app_option
@host_options
@o.output_options
def status_command(
    wheres: tuple[str, ...], app: str | None, json: bool, quiet: bool, verbose: bool, **reached: Any
) -> None:
    found = api.status(*wheres, app=app, **reached)
    if not json:
        _show_status(found, verbose)
    print_boards(found, found.boards, json)


def _show_status(document: Status, verbose: bool) -> None:
    rows = table("board", "app", "serves", "previous", "last deployment", "server")
    notes: list[str] = []
    for board in document.boards:
        name = board.board
        if board.device is None:
            away, why = failure_row(board, document.boards)
            rows.add_row(plain_text(name), "-", away, "-", plain_text(why), "-")
            continue
        if board.power:
            notes.append(f"{name}: {board.power}")
        if not board.apps:
            rows.add_row(plain_text(name), "-", "nothing", "-", "-", "-")
        for app, facts in board.apps.items():
            cells = (
                name,
                app,
                facts.current or "nothing",
                facts.previous or "-",
                _deployment_cell(facts),
                _server_cell(facts.serving),
            )
            rows.add_row(*map(plain_text, cells))
            notes += [
                f"{name}: {app}: {text}" for text in _status_notes(facts, board.again, verbose)
            ]
        if verbose:
            store = board.store
            notes.append(
                f"{name}: {counted(store.blobs, 'blob')}, {store.bytes:,} bytes, of "
                f"partial downloads {store.partial_bytes:,} bytes; {board.free_bytes:,} "
                "bytes free"
            )
    show(rows, notes)


def _last_rollback(facts: AppStatus) -> HistoryEntry | None:
    """Returns the manual or server's rollback after the last deployment, or None."""
    deployment, last = facts.deployment, facts.history[-1] if facts.history else None
    if last is None or last.state != "rolled-back":
        return None
    # a deployment in progress is shown instead
    ended = deployment is None or deployment.state in ("committed", "rolled-back", "failed")
    back = deployment is None or last.id != deployment.id
    return last if ended and back else None


def _deployment_cell(facts: AppStatus) -> str:
    if (back := _last_rollback(facts)) is not None:
        return f"{back.state} {back.state_at}"
    found = facts.deployment
    if found is None:
        return "none"
    text = f"{found.state} {found.state_at}"
    return f"{text}, by {found.operator or 'an unknown operator'}" if found.alive else text


def _server_cell(found: ServingStatus | Failed | None) -> str:
    if found is None:
        return "none"
    if (error := getattr(found, "error", None)) is not None:
        return str(error.message)
    serving = cast("ServingStatus", found)
    speed = f", p50 {serving.latency_ms.p50:.3g} ms" if serving.latency_ms else ""
    counts = (counted(serving.requests, "request"), counted(serving.errors, "error"))
    return f"{', '.join(counts)}{speed}"


def _status_notes(facts: AppStatus, again: str, verbose: bool) -> list[str]:
    found = []
    deployment: ShownDeployment | None = facts.deployment
    back = _last_rollback(facts)
    if back is not None:
        why = back.error.message if back.error else "asked for"
        found.append(f"rolled back at {back.state_at} from {back.release}: {why}")
    if deployment is not None and deployment.error is not None:
        error = deployment.error
        found.append(f"{deployment.state}: {error.message} ({error.code})")
    if facts.error is not None:
        found.append(facts.error.message + (f" ({facts.error.hint})" if facts.error.hint else ""))
    for refusal in facts.refused:
        found.append(
            f"{refusal.release} can no longer be loaded: {refusal.message} "
            f"({_remedy_command(refusal.code)})"
        )
    changes = getattr(facts.changed, "changes", ())
    if changes:
        text = "; ".join(f"{change.what} {change.before} -> {change.now}" for change in changes)
        found.append(
            f"the board has changed: {text}; {facts.current} cannot be loaded until it "
            "is deployed again (edgekit deploy CONFIG)"
        )
    serving = getattr(facts.serving, "release", None)
    # a server that was not reloaded since the switch
    if serving not in (None, facts.current):
        found.append(f"the server answers with {serving}")
    if last := last_error(getattr(facts.serving, "last_error", None)):
        found.append(f"the server's last error: {last}")
    if deployment is not None and deployment.alive and deployment.job:
        found.append(f"follow the deployment with: edgekit jobs attach {deployment.job} {again}")
    if verbose:
        for line in facts.history:
            found.append(
                f"{line.state_at} {line.state} {line.release}"
                + (f": {line.error.message}" if line.error else "")
            )
    return found


@commands.command(
    "releases",
    "edgekit releases nvidia@10.0.0.7\nedgekit releases configs/resnet50-orin.yaml",
)
@boards_argument
@app_option
@host_options
@o.output_options
def releases_command(
    wheres: tuple[str, ...], app: str | None, json: bool, quiet: bool, verbose: bool, **reached: Any
) -> None:
    found = api.releases(*wheres, app=app, **reached)
    if not json:
        rows = table("board", "app", "release", "", "bundle", "signed by", "since")
        notes: list[str] = []
        for board in found.boards:
            if board.error is not None:
                cells = (board.board, "-", "-", *failure_row(board, found.boards))
                rows.add_row(*map(plain_text, (*cells, "-", "-")))
            for name, facts in board.apps.items():
                for release in facts.releases:
                    cells = (
                        board.board,
                        name,
                        release.id,
                        _release_mark(release, facts),
                        release.digest[:12],
                    )
                    more = (release.signer or "nobody", release.staged_at)
                    rows.add_row(*map(plain_text, (*cells, *more)))
                    if why := release.refused:
                        notes.append(
                            f"{board.board}: {name}: {release.id} can no longer be loaded: "
                            f"{why.message} ({_remedy_command(why.code)})"
                        )
                    if back := release.taken_back:
                        notes.append(
                            f"{board.board}: {name}: {release.id} was rolled back at "
                            f"{back.at}: {back.reason}"
                        )
        show(rows, notes)
    print_boards(found, found.boards, json)


def _remedy_command(code: str) -> str:
    """Returns the command that makes a board accept a release that it refuses to load."""
    trusting = ("bundle.unsigned", "bundle.unknown-signer", "bundle.revoked-signer")
    return "edgekit trust" if code in trusting else "edgekit deploy"


def _release_mark(release: ListedRelease, facts: ListedApp) -> str:
    role = "" if release.ready else "not ready"
    for mark, which in (("serves", facts.current), ("previous", facts.previous)):
        role = mark if release.id == which else role
    refused = "loads no more" if release.refused else ""
    back = "taken back" if release.taken_back else ""
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
@o.output_options
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
    found = api.rollback(where, app=app, reason=reason, dry_run=dry_run, check=False, **reached)

    def text(board: Any) -> str:
        change = f"{board.before} -> {board.now or 'nothing'}"
        return f"would roll back: {change}" if dry_run else change

    print_each_board(found, found.boards, json, text)


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
@o.output_options
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
    if release is None and not (dry_run or yes):
        # the question lists what would be removed, so that the user sees a wrong --app
        _agree_to_remove(api.remove(*wheres, app=app, dry_run=True, **reached), json)
    found = api.remove(*wheres, app=app, release=release, dry_run=dry_run, **reached)
    whole = f"application {found.app} and all its releases: "

    def text(board: Any) -> str:
        gone = ", ".join(board.removed)
        words = gone if release is not None else whole + (gone or "it had no releases")
        return f"{'would remove' if dry_run else 'removed'} {words}"

    print_each_board(found, found.boards, json, text)


def _agree_to_remove(planned: Removal, json: bool) -> None:
    """Asks for confirmation to remove an application with all its releases.

    Raises:
        UsageError: "remove.all": there is no terminal for the question, or the answer is no.
    """
    counts = [(board.board, len(board.removed)) for board in planned.boards]
    where = ", ".join(f"{counted(n, 'release')} on {name}" for name, n in counts if n)
    if not where:
        return  # no release is removed, and the board reports the reason
    text = f"application {planned.app} would be removed with {where}"
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
@click.option("--list", "listing", is_flag=True, help="Only list the keys (the default).")
@click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST.")
@click.option("--python", default="python3", help="Python on the board, for a HOST.")
@o.accept_host_key
@o.output_options
def trust_command(
    where: str,
    root: str,
    python: str,
    accept_host_key: bool,
    listing: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    changes = {name: value for name, value in options.items() if value}
    if listing and changes.keys() - {"identity", "force"}:
        raise UsageError("--list cannot be combined with changes")
    found = api.trust(where, root=root, python=python, accept_host_key=accept_host_key, **changes)
    if not json:
        lost = [row for row in found.boards if row.error is not None]
        for board in found.boards:
            if board.error is None:
                _show_trust(cast("TrustingBoard", board), bool(changes))
            elif board is not lost[0]:  # the first error ends the command
                say(f"{board.board}: {': '.join(failure_row(board, found.boards))}")
    print_boards(found, found.boards, json)


def _show_trust(board: TrustingBoard, changes: bool) -> None:
    counts = {"added": board.added, "removed": board.removed, "revoked": board.revoked}
    text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    may = len(board.signers)
    keys = counted(may, "key") if may else "no keys"
    say(f"{board.board}: {text or ('nothing changed' if changes else keys)}")
    revoked = board.revocations
    for key in board.keys:
        times = "".join(
            f", {word} {time}"
            for word, time in (("from", key.valid_after), ("until", key.valid_before))
            if time
        )
        gone = ", revoked" if key.fingerprint in revoked.fingerprints else ""
        say(f"  {key.identity}  {key.kind} {key.fingerprint}{times}{gone}")
    if not board.keys:
        say("  no key is trusted: the board accepts no bundle")
    if revoked.kind == "krl":
        say("  revoked keys are in the board's KRL")
    for fingerprint in revoked.fingerprints:
        say(f"  revoked: {fingerprint}")
    for refusal in board.refused:
        role = _ROLES.get(refusal.role, refusal.role)
        say(
            f"  {refusal.app}/{refusal.release} ({role}) can no longer be loaded: {refusal.message}"
        )
    if any(refusal.role == "current" for refusal in board.refused):
        say("  deploy a release signed with a trusted key")
