"""Output of commands: documents, text, notes and progress, suited to the terminal; and the current
action of a long command without numbered steps, on stderr.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from edgekit.expansion import redact_document
from edgekit.text import printable_output, sentence, unfiltered, write_page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from edgekit.api import Accuracy
    from edgekit.errors import EdgekitError
    from edgekit.reports.terminal.progress import Terminal


_ROWS = 10
WIDE = 1 << 16  # columns if stdout is no terminal
_SOON_S = 2.0  # a faster command prints no progress


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a command that has printed its document, marked as interrupted."""


def print_json(document: Any) -> None:
    """Prints the document of ``--json``: a JSON object, or an object with ``to_json``."""
    if hasattr(document, "to_json"):
        document = document.to_json()
    # DEL is the only control character that JSON does not escape
    text = json.dumps(redact_document(document), allow_nan=False).replace("\x7f", "\\u007f")
    print(text, file=unfiltered(sys.stdout))


def say(text: str) -> None:
    """Prints text for people, with foreign parts made safe (see :mod:`edgekit.text`)."""
    with printable_output():
        print(text)


def warn(text: str) -> None:
    """Prints like :func:`say`, on stderr (stdout has the command's result)."""
    with printable_output():
        print(text, file=sys.stderr)


def say_page(text: str) -> None:
    """Prints a page of ``edgekit.reports``, with its colours."""
    write_page(f"{text}\n")


def show_page(page: RenderableType) -> None:
    """Prints a page of rich; if stdout is no terminal, a table's row is a single line."""
    console(width=None if sys.stdout.isatty() else WIDE).print(page, crop=False)


def say_notes(document: Any) -> None:
    """Prints a document's notes."""
    for note in document["notes"] if isinstance(document, Mapping) else document.notes:
        say(f"note: {sentence(note)}")


def say_accuracy(accuracy: Accuracy, *, emulated: bool) -> None:
    """Prints the data of an accuracy, and details that the overall figures hide."""
    from edgekit.reports.terminal.quantization import accuracy_lines

    for line in accuracy_lines(accuracy, emulated=emulated):
        say(f"  {line}")


def say_rows(rows: Sequence[str], *, verbose: bool) -> None:
    """Prints indented lines: the first lines, or all."""
    for row in rows if verbose else rows[:_ROWS]:
        say(f"  {row}")
    if not verbose:
        say_more(len(rows) - _ROWS, "  ")


def say_more(left: int, indent: str = "") -> None:
    """Prints the number of omitted lines, if any."""
    if left > 0:
        say(f"{indent}{left} more (-v shows all)")


def mark_printed(error: EdgekitError) -> EdgekitError:
    """Marks an error whose command has already printed its JSON document."""
    error.printed = True
    return error


def terminal_format() -> tuple[int | None, bool]:
    """Returns the columns of stdout (None if it is no terminal), and True if it has colours."""
    if not sys.stdout.isatty():
        return None, False
    import shutil

    return shutil.get_terminal_size().columns, not _is_plain()


def _is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Returns a console on stdout or stderr: plain text if it is no terminal or NO_COLOR is set.

    Lines on stderr are not broken.

    Args:
        stderr: True for stderr.
        width: The columns, instead of the terminal's.
    """
    from edgekit.cli.console import PlainConsole, Unpadded

    # rich itself only drops colours and keeps bold and dim
    system: Literal["auto"] | None = None if _is_plain() else "auto"
    # rich assumes 80 columns for a dumb terminal unless the height is also given
    height = None if width is None else 25
    # it writes its own sequences, which are removed from foreign text
    stream = unfiltered(sys.stderr if stderr else sys.stdout)
    return PlainConsole(
        file=stream if stream.isatty() else cast("TextIO", Unpadded(stream)),
        stderr=stderr,
        soft_wrap=stderr,
        color_system=system,
        width=width,
        height=height,
        markup=False,
        emoji=False,
    )


def progress(quiet: bool, verbose: bool = False) -> Terminal:
    """Returns progress on stderr; no output with ``quiet``."""
    from edgekit.reports.terminal.progress import Terminal

    screen = console(stderr=True)
    screen.quiet = quiet
    return Terminal(screen, verbose=verbose)


# Progress on stderr of a command without numbered steps.


class Heartbeat:
    """Shows a spinner on a terminal during a long block.

    Call it with the current action. A thread shows it, since a single library call may take long.
    rich is only imported then, and only on a terminal, to keep short commands fast.

    Args:
        name: The command.
        quiet: No output.
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
            # the spinner must be gone before the result is printed
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
                # rich would interpret a text as markup
                status.update(Text(f"{self._name}: {self._text}".removesuffix(": ")))
                self._end.wait(0.2)
