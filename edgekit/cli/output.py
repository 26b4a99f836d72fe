"""How commands print: documents, text, notes and progress, as far as the terminal can show
them; and what a long command without numbered steps is doing, on stderr.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from edgekit.expansion import hidden_document
from edgekit.text import printable_output, sentence, unfiltered, write_page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from edgekit.api import Accuracy
    from edgekit.errors import EdgekitError
    from edgekit.reports.terminal.progress import Terminal


_ROWS = 10
WIDE = 1 << 16  # columns where stdout is no terminal
_SOON_S = 2.0  # a command that is done by then says nothing


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after which the command has printed its document, which says so."""


def print_json(document: Any) -> None:
    """Prints the one document of ``--json``: a JSON object, or what ``to_json`` makes one of."""
    if hasattr(document, "to_json"):
        document = document.to_json()
    # DEL is the one character that JSON leaves raw
    text = json.dumps(hidden_document(document), allow_nan=False).replace("\x7f", "\\u007f")
    print(text, file=unfiltered(sys.stdout))


def say(text: str) -> None:
    """Prints text for people, whoever wrote some of it (see :mod:`edgekit.text`)."""
    with printable_output():
        print(text)


def warn(text: str) -> None:
    """As :func:`say`, on stderr: stdout has what the command is asked for."""
    with printable_output():
        print(text, file=sys.stderr)


def say_page(text: str) -> None:
    """Prints a page of ``edgekit.reports``, with its colours."""
    write_page(f"{text}\n")


def show_page(page: RenderableType) -> None:
    """Prints what rich lays out; where stdout is no terminal, a row of a table is a line."""
    console(width=None if sys.stdout.isatty() else WIDE).print(page, crop=False)


def say_notes(document: Any) -> None:
    """Says what a document notes for people."""
    for note in document["notes"] if isinstance(document, Mapping) else document.notes:
        say(f"note: {sentence(note)}")


def say_accuracy(accuracy: Accuracy, *, emulated: bool) -> None:
    """Says on what data an accuracy is, and what the figures of the whole hide."""
    from edgekit.reports.terminal.quantization import accuracy_lines

    for line in accuracy_lines(accuracy, emulated=emulated):
        say(f"  {line}")


def say_rows(rows: Sequence[str], *, verbose: bool) -> None:
    """Says lines below another: the first of them, or all."""
    for row in rows if verbose else rows[:_ROWS]:
        say(f"  {row}")
    if not verbose:
        say_more(len(rows) - _ROWS, "  ")


def say_more(left: int, indent: str = "") -> None:
    """Says how many lines are left out, if any are."""
    if left > 0:
        say(f"{indent}{left} more (-v shows all)")


def mark_printed(error: EdgekitError) -> EdgekitError:
    """Marks an error whose command has printed its JSON document already."""
    error.printed = True
    return error


def terminal_format() -> tuple[int | None, bool]:
    """Returns the columns of stdout, None where it is no terminal, and whether it has colours."""
    if not sys.stdout.isatty():
        return None, False
    import shutil

    return shutil.get_terminal_size().columns, not _is_plain()


def _is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Returns a console on stdout or stderr: plain text where it is no terminal or NO_COLOR is set.

    Lines on stderr are not broken.

    Args:
        stderr: On stderr.
        width: The columns, instead of the terminal's.
    """
    from edgekit.cli.console import PlainConsole, Unpadded

    # rich itself drops the colours only and keeps bold and dim
    system: Literal["auto"] | None = None if _is_plain() else "auto"
    # rich takes 80 columns for a dumb terminal unless the height is given, too
    height = None if width is None else 25
    # it writes its own sequences, past the boundary that others' text does not pass
    stream = unfiltered(sys.stderr if stderr else sys.stdout)
    return PlainConsole(
        file=stream if stream.isatty() else cast("TextIO", Unpadded(stream)),
        stderr=stderr, soft_wrap=stderr, color_system=system, width=width, height=height,
        markup=False, emoji=False,
    )  # fmt: skip


def progress(quiet: bool, verbose: bool = False) -> Terminal:
    """Returns progress on stderr, which is silent with ``quiet``."""
    from edgekit.reports.terminal.progress import Terminal

    screen = console(stderr=True)
    screen.quiet = quiet
    return Terminal(screen, verbose=verbose)


# Progress on stderr of a command without numbered steps.


class Heartbeat:
    """While the block lasts and is long: a spinner on a terminal, elsewhere nothing.

    Call it with what is done from now on. A thread shows it, since what takes long may be one call
    of a library. rich is imported only by then, and only on a terminal: it would slow down the
    start of a short command.

    Args:
        name: The command.
        quiet: Says nothing.
    """

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name, self._text = name, ""
        self._end = threading.Event()
        shown = not quiet and sys.stderr.isatty()
        self._thread = threading.Thread(target=self._show, daemon=True) if shown else None

    def __call__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> Heartbeat:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._end.wait(_SOON_S):
            return
        from rich.text import Text

        screen = console(stderr=True)
        if not (screen.is_terminal and screen.color_system):  # a spinner moves the cursor
            return
        with screen.status("") as status:
            while not self._end.is_set():
                # rich would read a text as markup
                status.update(Text(f"{self._name}: {self._text}".removesuffix(": ")))
                self._end.wait(0.2)
