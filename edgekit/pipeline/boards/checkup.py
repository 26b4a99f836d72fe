"""`edgekit doctor` for every board that a user names: it inspects the board, prepares it, or runs
its self-test. A board that does not answer does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.deployment.answers import row_rule
from edgekit.deployment.board import DescribedBoard
from edgekit.deployment.doctor import Doctor, Doctors, PlannedBoard, VisitedBoards, examine
from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline.boards import addresses
from edgekit.pipeline.boards.jobs import OnNote, follow_job, jobs_arguments
from edgekit.pipeline.boards.requests import describe_board, to_failure
from edgekit.removed import FormerDict
from edgekit.targets.loader import get
from edgekit_device.board.setup import SetupAnswer
from edgekit_device.protocol.codec import array, choice, document, flag, member, record

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient
    from edgekit.deployment.selftest import Selftest, Selftests
    from edgekit.pipeline.progress import Progress


_Found = TypeVar("_Found")
_UNPREPARED = ("shown", "by-hand", "failed")
SELFTEST_FILE = Path("edgekit-selftest.json")


@document(frozen=True, kw_only=True)
class Setup(FormerDict, SetupAnswer):
    """``edgekit.setup/1``: the preparation of a board; ``ok``: it is now as requested."""

    ok: bool = member(flag)
    board: DescribedBoard = member(record(DescribedBoard))
    schema: str = member(choice("edgekit.setup/1"), default="edgekit.setup/1")


@document(frozen=True)
class Setups(VisitedBoards[Setup]):
    """``edgekit.setups/1``: the preparation of several boards; a ``Doctor`` is a failed board."""

    boards: tuple[Setup | Doctor, ...] = member(array(row_rule(Setup, Doctor)))
    schema: str = member(choice("edgekit.setups/1"), default="edgekit.setups/1")


def doctor(where: str | None = None, config: str | None = None, **settings: Any) -> Doctors:
    """Returns the checks of boards, or of this machine, for edgekit.

    Args:
        where: A configuration, a host, or a board of ``config``; None for this machine.
        config: A configuration to check the board against.
        settings: ``accept_host_key``, and ``root`` and ``python`` of a host.

    Raises:
        EnvironmentLack: The only board that was named cannot be reached.
        BoardError: The board failed.
    """
    if where is None:
        from edgekit.deployment.workstation import examine_workstation

        return Doctors((examine_workstation(),))

    def look(client: BoardClient, wanted: Config | None, board: Board, several: bool) -> Doctor:
        planned = None if wanted is None else planned_board(wanted)
        return examine(describe_board(client), client.probe(), planned)

    return Doctors(_visit_boards(where, config, look, **settings))


def planned_board(config: Config) -> PlannedBoard:
    """Returns the board that a configuration is for."""
    file = config.file
    target = get(file.target)
    return PlannedBoard(
        target=target,
        mode=target.mode(file.power_mode).name,
        bench_mode=file.bench.power_mode,
        uses_dla=file.placement.dla_cores != [],
        tensorrt=file.tensorrt,
    )


def set_up(
    where: str,
    config: str | None = None,
    *,
    undo: bool = False,
    agree: Callable[[str, str], bool] = lambda board, text: True,
    on_text: Callable[[str, str], object] = lambda board, text: None,
    **settings: Any,
) -> Setups:
    """Permits the account to set power modes and read clocks of boards.

    Args:
        where: A configuration, a host, or a board of ``config``.
        config: A configuration that names boards.
        undo: Remove the permissions instead.
        agree: Called with a board and its planned changes; returns True to apply them.
        on_text: Called with a board and the findings or changes there.
        settings: See ``doctor``.
    """

    def prepare(client: BoardClient, wanted: Config | None, board: Board, several: bool) -> Setup:
        found = client.setup(undo=undo, apply=False)
        on_text(client.name, found.text)
        # the board shows what it would change, and changes it only after consent
        if found.state == "shown" and agree(client.name, found.text):
            found = client.setup(undo=undo, apply=True)
            on_text(client.name, found.text)
        ok = found.state not in _UNPREPARED
        return Setup(**vars(found), ok=ok, board=describe_board(client))

    return Setups(_visit_boards(where, config, prepare, **settings))


def self_test(
    where: str,
    config: str | None = None,
    *,
    progress: Progress,
    on_note: OnNote,
    out: Path | None = None,
    **settings: Any,
) -> Selftests:
    """Runs the self-test of boards and writes its results.

    Args:
        where: A configuration, a host, or a board of ``config``.
        config: A configuration that names boards.
        progress: Shows the job's progress.
        on_note: Called at a Ctrl-C with the command that reattaches.
        out: File for the results; with several boards each file name has the board's name.
        settings: See ``doctor``.
    """
    from edgekit.deployment.selftest import Selftests, start_selftest, write_answers

    def test(client: BoardClient, wanted: Config | None, board: Board, several: bool) -> Selftest:
        accepts = bool(settings.get("accept_host_key"))
        again = _jobs_arguments(where, wanted, board, accepts)
        result = follow_job(client, start_selftest(client).job, progress, on_note, again=again)
        path = out or SELFTEST_FILE
        if several:
            path = path.with_name(f"{path.stem}-{board.name}{path.suffix}")
        return write_answers(result, client, path)

    return Selftests(_visit_boards(where, config, test, **settings))


def _visit_boards(
    where: str,
    config: str | None,
    visit: Callable[[BoardClient, Config | None, Board, bool], _Found],
    *,
    accept_host_key: bool = False,
    **options: Any,
) -> tuple[_Found | Doctor, ...]:
    """Returns the result of ``visit`` for each board; for a failed board its error."""
    from edgekit.config.loader import open_config

    named = config or (where if addresses.is_config(where) else None)
    wanted = None if named is None else open_config(named)
    boards = addresses.resolve_boards(where, wanted, **options)
    found: list[_Found | Doctor] = []
    for board in boards:
        try:
            with addresses.open_client(board, accept_host_key=accept_host_key) as client:
                found.append(visit(client, wanted, board, len(boards) > 1))
        except (BoardError, EnvironmentLack) as error:
            # `edgekit doctor BOARD CONFIG`: a name that is no board of the configuration is taken
            # for a host
            if config is not None and wanted is not None:
                names = [section.name for section in wanted.file.deploy.boards]
                if board.name not in names:
                    named = f"{config} names {', '.join(names) or 'no board'}"
                    error.hint = f"{error.hint}; {named}" if error.hint else named
            # the failure of a single board is the command's error; with several boards it is a row
            if len(boards) == 1:
                raise
            described = DescribedBoard(board.name, board.kind, "")
            found.append(Doctor(described, False, error=to_failure(error), cause=error))
    return tuple(found)


def _jobs_arguments(where: str, config: Config | None, board: Board, accepts: bool) -> str:
    """Returns the arguments of ``edgekit jobs`` that select the board."""
    # the configuration selects it by name, so the command needs no address
    if config is not None and board.name in (section.name for section in config.file.deploy.boards):
        return jobs_arguments(config.path, board, len(config.file.deploy.boards) > 1)
    return jobs_arguments(where, board, False, accepts)
