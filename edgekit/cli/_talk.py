"""How commands print: documents, text and progress, as the terminal can show them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from edgekit._plain import printable_output, unfiltered, write_page

if TYPE_CHECKING:
    from rich.console import Console

    from edgekit.errors import EdgekitError
    from edgekit.pipeline import Progress

__all__ = [
    "Interrupted",
    "console",
    "figures",
    "paper",
    "print_json",
    "printed",
    "progress",
    "say",
    "say_accuracy",
    "say_more",
    "say_notes",
    "say_page",
    "say_rows",
]

_ROWS = 10


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after which the command has printed its document, which says so."""


def print_json(document: Any) -> None:
    """Prints the one document of ``--json``."""
    import json

    # DEL is the one character that JSON leaves raw, and the boundary's escape of it is JSON's
    say(json.dumps(document, allow_nan=False))


def say(text: str) -> None:
    """Prints text for people, whoever wrote some of it (see :mod:`edgekit._plain`)."""
    with printable_output():
        print(text)


def say_page(text: str) -> None:
    """Prints a page of ``edgekit.report``, with its colours."""
    write_page(f"{text}\n")


def say_notes(document: Mapping[str, Any]) -> None:
    """Says what a document notes for people."""
    for note in document["notes"]:
        say(f"note: {note}")


def figures(accuracy: Mapping[str, Any]) -> str:
    """Returns how near the whole is to FP32, in one line."""
    return (
        f"against FP32: cosine {accuracy['cosine']:.6f}, "
        f"top-1 agreement {accuracy['top1_agreement']:.0%}"
    )


def say_accuracy(accuracy: Mapping[str, Any], *, emulated: bool) -> None:
    """Says on what data an accuracy is, and what the figures of the whole hide."""
    from edgekit.build import parts_told

    say(f"  on {accuracy['data']}" + (", emulated on this CPU" if emulated else ""))
    for told in parts_told(accuracy):
        say(f"  {told}")


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


def printed(error: EdgekitError) -> EdgekitError:
    """Marks an error whose command has printed its JSON document already."""
    error.printed = True
    return error


def paper() -> tuple[int | None, bool]:
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
    from edgekit.cli._console import PlainConsole, Unpadded

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


def progress(quiet: bool, verbose: bool = False) -> Progress:
    """Returns progress on stderr, or none."""
    from edgekit.pipeline import Quiet as Silent
    from edgekit.pipeline import Terminal

    if quiet:
        return Silent()
    return Terminal(console(stderr=True), verbose=verbose)
