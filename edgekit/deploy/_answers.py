"""What a board says, read: its JSON documents, and its failures as edgekit's errors."""

from __future__ import annotations

import json
from typing import Any

from edgekit._plain import plain
from edgekit.deploy._shapes import ANSWERS, RESULTS, misshapen
from edgekit.deploy._transport import Completed
from edgekit.errors import BoardError, BundleError

__all__ = ["document", "failure", "has_document", "odd"]

_FAILED = 4
_FIELDS = ("code", "message", "where", "hint")
_NOT_RUNNABLE = (126, 127)
_SIGNALLED = 128
_MOST = 2000
# the board's codes that are about what was shipped rather than about the board
_BUNDLE = ("bundle.", "manifest.", "engine.", "blob.", "weights.")
# a board's own hints are for who works on it; here they name what is at hand here. BOARD is for
# who knows what the user calls the board
_HINTS = {
    "bundle.unsigned": "sign it: deploy.sign_with in the configuration names a key",
    "bundle.unknown-signer": "deploy with --trust-key, or edgekit trust BOARD --add KEY.pub: the "
    "board then believes what that key signs",
    "serve.running": "edgekit serve BOARD status --app {where} says how it is, stop ends it",
}


def document(done: Completed, where: str, python: str, command: str = "") -> dict[str, Any]:
    """Returns the one JSON document of a command that succeeded.

    Args:
        done: What the command left.
        where: The board's name.
        python: The interpreter that was called, for the message when it is not there.
        command: The loader's command, whose answers have a form (``_shapes``).

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: Any other failure of the board's, or no answer that can be read.
    """
    if done.status != 0:
        raise failure(done, where, python)
    answer = _parse(done.out)
    if answer is None:
        raise BoardError(
            f"the board's answer is not JSON: {_excerpt(done.out) or 'nothing'}",
            code="board.protocol",
            where=where,
            hint="does a start-up file of the board's shell print something?",
        )
    form = ANSWERS.get(command, {})
    if command == "job-result":
        form = RESULTS.get(str(answer.get("schema")), {})
    fault = misshapen(answer, form)
    if fault:
        raise odd(f"the board's answer to {command} is not sound: {plain(fault, 300)}", where)
    return _Answer(answer, where)


def failure(done: Completed, where: str, python: str) -> BoardError:
    """Returns the error that a command with a status other than 0 stands for."""
    answer = _parse(done.out) if done.status == _FAILED else None
    error = answer.get("error") if answer else None
    if isinstance(error, dict):
        field = {name: plain(str(error.get(name) or ""), _MOST) for name in _FIELDS}
        kind = BundleError if field["code"].startswith(_BUNDLE) else BoardError
        return kind(
            field["message"] or "the board failed without saying why",
            code=field["code"],
            where=f"{where}: {field['where']}" if field["where"] else where,
            hint=_hint(field),
        )
    if done.status in _NOT_RUNNABLE:
        return BoardError(
            f"cannot run {python} on the board: {_excerpt(done.err)}",
            code="board.no-python",
            where=where,
            hint="install Python 3.8 or newer there, or name it with `python:`",
        )
    if _SIGNALLED < done.status < _SIGNALLED + 65:
        return BoardError(
            "the command was killed on the board",
            code="board.killed",
            where=where,
            hint="see `dmesg` on the board: most often it ran out of memory",
        )
    return BoardError(
        f"the board's loader ended with status {done.status}: {_excerpt(done.err)}",
        code="board.loader-failed",
        where=where,
        hint="run the command with --debug and report it, if the board's Python is sound",
    )


def has_document(done: Completed) -> bool:
    """Returns whether the loader has answered, well or not: what a shell prints is no answer."""
    return _parse(done.out) is not None


def _hint(field: dict[str, str]) -> str:
    ours = _HINTS.get(field["code"])
    return field["hint"] if ours is None else ours.format(where=field["where"])


def _parse(out: bytes) -> dict[str, Any] | None:
    # what a login shell prints first is passed over: the document is the last line
    for text in (out, out.strip().rpartition(b"\n")[2]):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


class _Answer(dict[str, Any]):
    """A board's document: what it lacks is the board's fault and not ours."""

    def __init__(self, found: dict[str, Any], where: str) -> None:
        super().__init__(found)
        self._where = where

    def __missing__(self, key: str) -> Any:
        raise odd(f"the board's answer has no {key!r}", self._where)


def odd(message: str, where: str) -> BoardError:
    """Returns the error of a board whose answer is none of this protocol's."""
    return BoardError(
        message,
        code="board.protocol",
        where=where,
        hint="use the loader and the edgekit of the same version",
    )


def _excerpt(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return plain(lines[-1], 300) if lines else ""
