"""``edgekit fleet``: a release for many boards, in waves; deploy, status, pause, resume, abort,
rollback and export for Ansible.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from edgekit import api
from edgekit.cli import options as o
from edgekit.cli import output
from edgekit.cli.commands import Command, argument, write_examples
from edgekit.cli.output import Interrupted, console, mark_printed, print_json, progress, say_notes
from edgekit.errors import BoardError, EdgekitError, GateError, UsageError
from edgekit.interrupts import handle_interrupts
from edgekit.reports.text import Page
from edgekit.text import counted, sentence
from edgekit.timeouts import ROLLOUT_RETRIES_S

if TYPE_CHECKING:
    from rich.console import Console

    from edgekit.api import (
        AnsibleBoard,
        AnsibleHead,
        AnsibleRun,
        AppliedBoard,
        Failure,
        FleetBoards,
        FleetListing,
        FleetRollout,
        InventoryBoard,
        Rehearsal,
        RolloutBoard,
        RolloutHead,
    )


inventory_option = click.option(
    "-i", "--inventory", required=True, type=o.FILE, help="YAML of boards, or Ansible's inventory."
)
select_option = click.option(
    "--select", "selector", help="Boards by label: 'site=a,kind!=xavier,!spare', or name=cam-*."
)
state_option = click.option(
    "--state", type=o.FILE, help="Folder for rollout state (fleet/ in edgekit's cache)."
)
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Only show which boards would be changed; connect to none."
)
rollout_argument = argument("rollout", "The rollout's name; edgekit fleet status lists them.")
optional_rollout_argument = argument("rollout", "The rollout's name.", required=False)
_ORDER = ("failed", "rolled-back", "offline", "skipped", "aborted", "running", "pending", "done")
_TROUBLE = ("failed", "rolled-back", "offline", "skipped", "aborted")
# digits of a digest, as many as in a release's name
_DIGITS = 12
_SECONDS = click.FloatRange(min=0, max=30 * 86400)
#: Features that Ansible does not support, by parameter.
_SSH_ALONE = {
    "soak_s": "--soak",
    "deadline_s": "--deadline",
    "offline": "--offline",
    "min_reached": "--min-reached",
    "accept_host_key": "--accept-host-key",
}


def _parallel_option(default: int) -> Callable[..., Any]:
    return click.option(
        "--parallel",
        type=click.IntRange(1, 256),
        default=default,
        show_default=True,
        help="Boards to work on at the same time.",
    )


#: Options of a rollout's progress, as fields of ``edgekit.fleet.waves.RolloutSettings``, and its
#: operator.
_rollout_options = o.combine(
    click.option(
        "--max-failures",
        "budget",
        default="0",
        show_default=True,
        help="Failed boards allowed in a wave, N or P%; above that, the wave is rolled back.",
    ),
    _parallel_option(8),
    click.option(
        "--soak",
        "soak_s",
        type=_SECONDS,
        default=0,
        help="Seconds to watch a wave before the next one starts.",
    ),
    click.option(
        "--deadline",
        "deadline_s",
        type=_SECONDS,
        default=int(ROLLOUT_RETRIES_S),
        show_default=True,
        help="Seconds to keep retrying a board that cannot be reached.",
    ),
    click.option(
        "--offline",
        type=click.Choice(("skip", "fail")),
        default="skip",
        show_default=True,
        help="How to count a board that was never reached.",
    ),
    click.option(
        "--min-reached",
        default="80%",
        show_default=True,
        help="Boards to reach, N or P%; with fewer the rollout pauses at its end (exit 1).",
    ),
    click.option(
        "--driver",
        type=click.Choice(("ssh", "ansible")),
        default="ssh",
        show_default=True,
        help="How to deploy: ssh (this process) or ansible (ansible-playbook with the export).",
    ),
)


class _Actions(click.Group):
    """The group of the actions; a mistyped action's error names the nearest one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in self.commands:
            from difflib import get_close_matches

            near = get_close_matches(cmd_name, self.commands, 1)
            raise UsageError(
                f"No such action {cmd_name!r}." + (f" Did you mean {near[0]!r}?" if near else ""),
                hint=f"actions: {', '.join(self.commands)}",
            )
        return self.commands[cmd_name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Actions (each has its own --help)"):
            formatter.write_dl([(name, found.help or "") for name, found in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.epilog)


@click.group(
    "fleet",
    cls=_Actions,
    epilog="edgekit fleet deploy configs/resnet50-orin.yaml --inventory fleet.yaml --canary 2",
    invoke_without_command=True,
)
@click.pass_context
def fleet_command(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        context.exit(UsageError.exit_code)


def _action(
    name: str, summary: str, example: str
) -> Callable[[Callable[..., None]], click.Command]:
    """Returns the decorator that makes a function the action ``name``."""

    def decorate(function: Callable[..., None]) -> click.Command:
        made = click.command(name, cls=Command, help=summary, epilog=example)(function)
        fleet_command.add_command(made)
        return made

    return decorate


# Shared by the actions of ``edgekit fleet``: options, and the driver's signals.


def _console(quiet: bool) -> Console | None:
    """Returns the console for a rollout's reports, or None."""
    return None if quiet else console(stderr=True)


class Stops:
    """Records Ctrl-C (or SIGTERM at a shutdown): the first pauses, the second exits."""

    def __init__(self) -> None:
        self.met = False

    def __call__(self) -> bool:
        """Returns True if a signal was received."""
        return self.met


@contextlib.contextmanager
def handle_signals(say: Callable[[str], None]) -> Iterator[Stops]:
    """Handles signals while a rollout is driven, so that running deployments are awaited."""
    stopping = Stops()

    def met(number: int, frame: object) -> None:
        stopping.met = True
        # the second Ctrl-C gets the usual handler
        restore()
        say("pausing after the boards in progress; press Ctrl-C again to leave at once")

    with handle_interrupts(met) as restore:
        yield stopping


# Output and exit status of the actions of ``edgekit fleet``.


def finish(document: FleetRollout, json: bool, stopped: bool, accept_host_key: bool) -> None:
    """Prints a driven rollout and raises the error of its outcome.

    Args:
        document: The rollout.
        json: True to print the document.
        stopped: True if Ctrl-C was received.
        accept_host_key: True if unknown host keys were accepted; continuing may require it again.

    Raises:
        GateError: Too many boards failed, or another process paused or aborted it.
        KeyboardInterrupt: It was paused by Ctrl-C.
    """
    name, state = document.rollout, document.state
    goes_on = document.command("resume", *(("--accept-host-key",) if accept_host_key else ()))
    if json:
        print_json(document)
    else:
        _show_one(document)
    if stopped:
        text = f"{state}; continue with: {goes_on}" if _is_unfinished(document) else state
        click.echo(text, err=True)
        raise Interrupted
    if failure := document.failure:
        raise mark_printed(_failure_error(failure, GateError))
    if state in ("paused", "aborted"):
        done = f"{document.counts.get('done', 0)} of {counted(len(document.boards), 'board')}"
        hint = f"continue with: {goes_on}"
        # an aborted rollout cannot be continued, and finished boards keep the new release
        if state == "aborted":
            hint = f"roll back with: {document.command('rollback')}"
        raise mark_printed(
            GateError(
                f"{name} was {state} after {done}",
                code=f"fleet.{state}",
                where=name,
                hint=hint,
            )
        )


def _failure_error(failure: Failure, kind: type[EdgekitError]) -> EdgekitError:
    return kind(failure.message, code=failure.code, where=failure.where, hint=failure.hint)


def finish_ansible(document: AnsibleRun, json: bool) -> None:
    """Prints Ansible's recap and raises the error of its outcome.

    Args:
        document: Ansible's run.
        json: True to print the document.

    Raises:
        GateError: Not all boards have the release.
        BoardError: Ansible failed before all boards were processed.
        KeyboardInterrupt: Ctrl-C stopped it.
    """
    if json:
        print_json(document)
    else:
        _show_ansible(document)
    if document.state == "interrupted":
        click.echo(document.goes_on, err=True)
        raise Interrupted
    if failure := document.failure:
        raise mark_printed(
            _failure_error(failure, GateError if failure.code == "fleet.failures" else BoardError)
        )


def _show_ansible(document: AnsibleRun, *, every: bool = False) -> None:
    output.say(f"{document.rollout}: {document.state}: {_counts_text(document.counts)}")
    rows = [row for row in document.boards if every or row.state != "ok"]
    cells = [(row.board, str(row.wave), row.state, _error_text(row)) for row in rows]
    for line in _columns(("board", "wave", "state", "why"), cells) if rows else ():
        output.say(f"  {line}")
    say_notes(document)


def show_boards(document: FleetBoards) -> None:
    """Prints a table of the releases that an inventory's boards serve."""
    output.say(f"{counted(len(document.boards), 'board')}: {_counts_text(document.counts)}")
    cells = []
    for board in document.boards:
        seen = "now" if board.state == "reached" else _age_text(board.age_s)
        why = _error_text(board)
        for app in board.apps:
            wave = f"{app.rollout} {app.wave} {app.state}" if app.rollout else "-"
            digest = (app.digest or "")[:_DIGITS]
            # "-" is unknown, "nothing" is known
            release = app.release or ("-" if digest or board.seen_at is None else "nothing")
            cells.append(
                (board.board, app.app, wave, release, digest or "-", app.since or "-", seen, why)
            )
        if not board.apps:
            nothing = "-" if board.seen_at is None else "nothing"
            cells.append((board.board, "-", "-", nothing, "-", "-", seen, why))
    heads = ("board", "app", "wave", "release", "digest", "since", "seen", "why")
    for line in _columns(heads, cells):
        output.say(line)


def _age_text(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def show(document: FleetRollout, *, every: bool = False) -> None:
    """Prints a rollout's current state: its waves, and the failed boards with reasons.

    Args:
        document: The rollout.
        every: True to also print healthy boards.
    """
    _show_one(document, every=every)
    if failure := document.failure:
        output.say(f"failed: {failure.message}")
        output.say(f"  {failure.hint}")
    _print_remaining(document)


def show_all(listing: FleetListing) -> None:
    """Prints all rollouts, the newest first, each with the reason of a failure."""
    rows: list[RolloutHead | AnsibleHead] = [*listing.rollouts, *listing.ansible]
    if not rows:
        output.say("no rollouts yet")
        return
    rows.sort(key=lambda row: row.updated_at, reverse=True)
    own = {row.rollout for row in listing.rollouts}
    cells = [
        (
            row.rollout,
            "ssh" if row.rollout in own else "ansible",
            row.state,
            row.updated_at,
            _counts_text(row.counts),
        )
        for row in rows
    ]
    lines = _columns(("rollout", "driver", "state", "changed", "boards"), cells)
    output.say(lines[0])
    for row, line in zip(rows, lines[1:], strict=True):
        output.say(line)
        if failure := row.failure:
            output.say(f"  {failure.message}")
        if row.rollout in own:
            _print_remaining(cast("RolloutHead", row))


def _is_unfinished(row: RolloutHead) -> bool:
    return row.state in ("running", "rolling-back", "paused")


def _print_remaining(row: RolloutHead) -> None:
    """Prints how to continue a rollout that waits for an operator."""
    if _is_unfinished(row) and not row.driven:
        why = "" if row.state == "paused" else "no process is running it: "
        output.say(f"  {why}continue with: {row.resume_command}")
    elif row.state == "done" and "skipped" in row.counts:
        output.say(f"  retry skipped boards with: {row.command('resume')}")


def _show_one(document: FleetRollout, *, every: bool = False) -> None:
    driven = ", running now" if document.driven else ""
    output.say(f"{document.rollout}: {document.state}{driven}: {_counts_text(document.counts)}")
    for wave in document.waves:
        text = _counts_text(wave.counts)
        output.say(f"  wave {wave.wave}: {counted(wave.boards, 'board')}: {text}")
    rows = [row for row in document.boards if every or row.error or row.state in _TROUBLE]
    # trouble first
    rows.sort(key=lambda row: _ORDER.index(row.state))
    if rows:
        cells = [(row.board, row.state, _served_release(row), _error_text(row)) for row in rows]
        for line in _columns(("board", "state", "serves", "why"), cells):
            output.say(f"  {line}")
    say_notes(document)


def _served_release(row: RolloutBoard) -> str:
    if row.serves is None:
        return "-"
    release = row.release if row.state == "done" else None
    return release or row.serves[:_DIGITS] or "nothing"


def _error_text(row: RolloutBoard | AnsibleBoard | InventoryBoard | AppliedBoard) -> str:
    return f"{row.error.code}: {row.error.message}" if row.error else ""


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns heads and rows as lines without truncation; the last column may be long."""
    page = Page()
    page.table(heads, rows)
    return str(page).split("\n")


@_action(
    "deploy",
    "Deploy a release to the boards of an inventory, wave by wave.",
    "edgekit fleet deploy configs/resnet50-orin.yaml -i fleet.yaml --canary 2\n"
    "edgekit fleet deploy configs/resnet50-orin.yaml -i fleet.yaml --select site=a "
    "--waves 5,25%,100% --max-failures 5% --soak 60\n"
    "edgekit fleet deploy configs/resnet50-orin.yaml -i fleet.yaml --driver ansible --parallel 25",
)
@o.config
@inventory_option
@select_option
@click.option(
    "--canary",
    type=click.IntRange(min=0),
    default=0,
    help="Boards in a first wave before all others.",
)
@click.option(
    "--waves",
    default="10%,50%,100%",
    show_default=True,
    help="Total boards reached after each wave, as counts or percent.",
)
@_rollout_options
@click.option("--name", help="Name of the rollout (default: application and time).")
@click.option("--bundle", type=o.FILE, help="Install this bundle instead of building one.")
@_dry_run
@o.again
@state_option
@o.board_options
@o.output_options
def fleet_deploy_command(
    config: str,
    inventory: Path,
    selector: str | None,
    canary: int,
    waves: str,
    name: str | None,
    bundle: Path | None,
    dry_run: bool,
    again: bool,
    state: Path | None,
    accept_host_key: bool,
    trust_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    budget: str,
    parallel: int,
    soak_s: float,
    deadline_s: float,
    offline: Literal["skip", "fail"],
    min_reached: str,
    driver: Literal["ssh", "ansible"],
) -> None:
    ansible = driver == "ansible" and not dry_run
    if ansible:
        _refuse_ssh_alone(click.get_current_context(), accept_host_key)
    silent = quiet or json
    # a dry run deploys nothing, and Ansible handles Ctrl-C itself
    drives = not (dry_run or ansible)
    with (
        handle_signals(lambda text: click.echo(text, err=True))
        if drives
        else contextlib.nullcontext() as stopped
    ):
        found = api.rollout(
            config,
            inventory,
            name=name,
            selector=selector,
            canary=canary,
            waves=waves,
            bundle=bundle,
            trust_key=trust_key,
            parallel=parallel,
            budget=budget,
            soak_s=soak_s,
            deadline_s=deadline_s,
            offline=offline,
            min_reached=min_reached,
            again=again,
            dry_run=dry_run,
            ansible=ansible,
            on_text=(lambda line: None) if quiet else (lambda line: click.echo(line, err=True)),
            stopped=stopped or (lambda: False),
            state=state,
            accept_host_key=accept_host_key,
            console=_console(silent),
            verbose=verbose,
            progress=progress(silent, verbose),
        )
    if dry_run:
        _show_dry_run(cast("Rehearsal", found), json)
    elif stopped is None:
        finish_ansible(cast("AnsibleRun", found), json)
    else:
        finish(cast("FleetRollout", found), json, stopped.met, accept_host_key)


def _show_dry_run(document: Rehearsal, json: bool) -> None:
    if json:
        print_json(document)
        return
    rows, app = document.boards, document.app
    what = f"get {app}" if document.action == "deploy" else f"roll {app} back"
    output.say(f"{counted(len(rows), 'board')} would {what}; nothing was changed")
    if document.min_reached:
        output.say(f"  done when at least {document.min_reached} of them are reached")

    def short(digest: str | None) -> str:
        return "-" if digest is None else digest[:_DIGITS] or "nothing"

    cells = [
        (row.board, str(row.wave), row.host, short(row.before), short(row.after)) for row in rows
    ]
    for line in _columns(("board", "wave", "host", "serves", "would serve"), cells) if rows else ():
        output.say(f"  {line}")


def _refuse_ssh_alone(context: click.Context, accept_host_key: bool) -> None:
    for parameter, option in _SSH_ALONE.items():
        # a default is no request: only options that were typed are refused
        if context.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option} is not supported by --driver ansible",
                code="fleet.ansible-option",
                hint='pin the key in the inventory, `host_key: "SHA256:..."`, or connect once '
                "with ssh, which saves it"
                if parameter == "accept_host_key"
                else "leave it out, or use --driver ssh",
            )


@_action(
    "status",
    "Show the state of rollouts, or the release that each board of an inventory serves.",
    "edgekit fleet status\nedgekit fleet status resnet50-20260601-120000 --boards\n"
    "edgekit fleet status --inventory fleet.yaml --select site=a",
)
@optional_rollout_argument
@click.option("--boards", is_flag=True, help="Show every board, not only those with problems.")
@click.option(
    "-i",
    "--inventory",
    type=o.FILE,
    help="Ask these boards for their served releases; an unreachable board keeps its last answer.",
)
@select_option
@_parallel_option(16)
@state_option
@o.accept_host_key
@o.json
@o.debug
def fleet_status_command(
    rollout: str | None,
    boards: bool,
    inventory: Path | None,
    selector: str | None,
    parallel: int,
    state: Path | None,
    accept_host_key: bool,
    json: bool,
) -> None:
    if inventory is not None:
        if rollout is not None:
            raise UsageError(
                "give a rollout or --inventory, not both",
                hint=f"edgekit fleet status {rollout}, or edgekit fleet status -i {inventory}",
            )
        found = api.fleet_boards(
            inventory,
            selector=selector,
            parallel=parallel,
            state=state,
            accept_host_key=accept_host_key,
        )
        if json:
            print_json(found)
        else:
            show_boards(found)
        return
    if selector is not None:
        raise UsageError("--select needs --inventory", hint="edgekit fleet status -i fleet.yaml")
    if rollout is None:
        listing = api.rollouts(state=state)
        if json:
            print_json(listing)
        else:
            show_all(listing)
        return
    document = api.rollout_status(rollout, state=state)
    if json:
        print_json(document)
    elif document.schema == "edgekit.fleet/1":
        show(cast("FleetRollout", document), every=boards)
    else:
        run = cast("AnsibleRun", document)
        _show_ansible(run, every=boards)
        if failure := run.failure:
            output.say(f"failed: {failure.message}")
        output.say(f"  {run.goes_on}")


@_action(
    "apply",
    "Bring boards to the releases that the inventory names for them.",
    "edgekit fleet apply -i fleet.yaml\n"
    "edgekit fleet apply -i fleet.yaml --select site=a --max-failures 0 -q",
)
@inventory_option
@select_option
@_parallel_option(8)
@click.option(
    "--max-failures",
    "most_failed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Failed boards after which no further board is begun.",
)
@state_option
@o.board_options
@o.output_options
def fleet_apply_command(
    inventory: Path,
    selector: str | None,
    parallel: int,
    most_failed: int,
    state: Path | None,
    accept_host_key: bool,
    trust_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    with handle_signals(lambda text: click.echo(text, err=True)) as stopped:
        found = api.apply_releases(
            inventory,
            selector=selector,
            parallel=parallel,
            most_failed=most_failed,
            state=state,
            trust_key=trust_key,
            stopped=stopped,
            accept_host_key=accept_host_key,
            console=_console(quiet or json),
            verbose=verbose,
        )
    if json:
        print_json(found)
    elif found.failure or not quiet:
        output.say(f"{counted(len(found.boards), 'board')}: {_counts_text(found.counts)}")
        rows = [row for row in found.boards if row.state != "current"]
        cells = [
            (
                row.board,
                row.app,
                row.state,
                row.wanted[:_DIGITS],
                row.release or "-",
                _error_text(row),
            )
            for row in rows
        ]
        heads = ("board", "app", "state", "meant", "release", "why")
        for line in _columns(heads, cells) if rows else ():
            output.say(f"  {line}")
    # a Ctrl-C after the last board stopped nothing
    if stopped.met and found.state == "stopped":
        raise Interrupted
    if failure := found.failure:
        raise mark_printed(_failure_error(failure, GateError))


def _print_requested(document: FleetRollout, json: bool) -> None:
    if json:
        print_json(document)
    else:
        output.say(f"{document.rollout}: {document.requested}")


@_action(
    "pause",
    "Stop a rollout after the boards in progress.",
    "edgekit fleet pause resnet50-20260601-120000",
)
@rollout_argument
@state_option
@o.json
@o.debug
def fleet_pause_command(rollout: str, state: Path | None, json: bool) -> None:
    _print_requested(api.pause_rollout(rollout, state=state), json)


@_action(
    "resume",
    "Continue a rollout, even after this machine was restarted.",
    "edgekit fleet resume resnet50-20260601-120000",
)
@rollout_argument
@state_option
@o.accept_host_key
@o.output_options
def fleet_resume_command(
    rollout: str,
    state: Path | None,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    silent = quiet or json
    with handle_signals(lambda text: click.echo(text, err=True)) as stopped:
        document = api.resume_rollout(
            rollout,
            stopped=stopped,
            state=state,
            accept_host_key=accept_host_key,
            console=_console(silent),
            verbose=verbose,
            progress=progress(silent, verbose),
        )
    finish(document, json, stopped.met, accept_host_key)


@_action(
    "abort",
    "End a rollout; finished boards keep the new release.",
    "edgekit fleet abort resnet50-20260601-120000",
)
@rollout_argument
@state_option
@o.json
@o.debug
def fleet_abort_command(rollout: str, state: Path | None, json: bool) -> None:
    _print_requested(api.abort_rollout(rollout, state=state), json)


@_action(
    "rollback",
    "Roll the boards of a rollout back to their previous release.",
    "edgekit fleet rollback resnet50-20260601-120000 --wave 1",
)
@rollout_argument
@click.option("--wave", type=click.IntRange(min=1), help="Only this wave.")
@_dry_run
@state_option
@o.accept_host_key
@o.output_options
def fleet_rollback_command(
    rollout: str,
    wave: int | None,
    dry_run: bool,
    state: Path | None,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    if dry_run:
        found = api.roll_back_rollout(rollout, wave=wave, dry_run=True, state=state)
        _show_dry_run(cast("Rehearsal", found), json)
        return
    silent = quiet or json
    with handle_signals(lambda text: click.echo(text, err=True)) as stopped:
        document = api.roll_back_rollout(
            rollout,
            wave=wave,
            stopped=stopped,
            state=state,
            accept_host_key=accept_host_key,
            console=_console(silent),
            verbose=verbose,
            progress=progress(silent, verbose),
        )
    finish(cast("FleetRollout", document), json, stopped.met, accept_host_key)


@_action(
    "export",
    "Export a rollout for Ansible: inventory, playbooks and role.",
    "edgekit fleet export ansible rollout -c configs/resnet50-orin.yaml -i fleet.yaml "
    "--max-failures 5%",
)
@argument("what", "ansible.", type=click.Choice(["ansible"]))
@argument("folder", "Folder to write.", type=o.FILE)
@click.option("-c", "--config", required=True, help="YAML configuration.")
@click.option(
    "-i",
    "--inventory",
    type=o.FILE,
    help="YAML file of boards (default: the configuration's boards).",
)
@click.option("--select", "selector", help="Boards by label: 'site=a,kind!=xavier'.")
@click.option("--bundle", type=o.FILE, help="Use this bundle instead of building one.")
@click.option("--canary", type=click.IntRange(min=0), default=0, help="Boards in the first wave.")
@click.option(
    "--waves",
    default="10%,50%,100%",
    show_default=True,
    help="Total boards reached after each wave.",
)
@click.option(
    "--max-failures",
    "budget",
    default="0",
    show_default=True,
    help="Failed boards allowed in a wave: 5%.",
)
@o.output_options
def fleet_export_command(
    what: str,
    folder: Path,
    config: str,
    inventory: Path | None,
    selector: str | None,
    bundle: Path | None,
    json: bool,
    **settings: Any,
) -> None:
    quiet, verbose = settings.pop("quiet"), settings.pop("verbose")
    found = api.export_rollout(
        folder,
        config,
        inventory=inventory,
        selector=selector,
        bundle=bundle,
        progress=progress(quiet, verbose),
        **settings,
    )
    if json:
        print_json(found)
        return
    waves = ", ".join(map(str, found.waves))
    output.say(f"{found.folder}: {counted(found.boards, 'board')} in waves of {waves}")
    for app, digest in found.bundles:
        output.say(f"  {app} {digest[:12]}")
    output.say(f"  cd {shlex.quote(found.folder)} && ansible-playbook deploy.yml")
    output.say(
        "  a wave with more failures is rolled back; roll back earlier waves with: "
        "ansible-playbook rollback.yml"
    )
    for note in found.notes:
        output.say(f"note: {sentence(note)}")
