"""Every failure that a user can cause, as a tree of exceptions, each with the exit status of the
command: message, code, the place of the error, the expectation and the remedy.

EdgekitError            code, message, where, hint, exit status
    ├── UsageError          2   a command's arguments
    ├── ConfigError         2   the YAML file; carries every problem at once
    ├── ModelError          2   the ONNX file or its contents
    ├── DataError           2   calibration data, weights, profiles
    ├── GateError           1   the work was done and the result is negative
    ├── EnvironmentLack     3   no board, no TensorRT, no OpenSSH
    ├── BoardError          4   a board answered and failed, or was refused
    │   └── BundleError     4   a bundle that is unsigned, tampered with or does not fit
    └── BuildError          4   a backend failed

Lower layers' exceptions (onnx, paramiko, onnxruntime, OSError) are mapped to these where they
first occur, so that no command ever shows a traceback without ``--debug``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.expansion import redact, redact_document

if TYPE_CHECKING:
    from edgekit.error_document import ErrorDocument, StatedError


#: Codes of a board that no longer answers: its state is unknown.
LOST_CODES = ("board.connection-lost", "board.silent", "board.timeout")
#: Codes of a board that cannot be reached now.
UNREACHABLE_CODES = ("board.unreachable", *LOST_CODES)

# longer than any part of a path
_LONG = re.compile(r"[^\s/]{257,}")
_SHOWN = 64


def _shorten(text: str) -> str:
    """Returns the text with words of more than 256 characters cut, and their length."""
    return _LONG.sub(lambda found: f"{found[0][:_SHOWN]}... ({len(found[0]):,} characters)", text)


class EdgekitError(Exception):
    """A failure with a stable code, a place and a remedy.

    Args:
        message: The error in one line; without a full stop; very long words are cut.
        code: Stable identifier such as ``model.truncated``; scripts match on it.
        where: ``file:line:column``, a node name or a host; empty if there is none.
        hint: The expectation and the remedy.
    """

    exit_code = 2
    default_code = "error"

    def __init__(self, message: str, *, code: str = "", where: str = "", hint: str = "") -> None:
        message = _shorten(message)
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.where = where
        self.hint = _shorten(hint)
        #: True if the command has already printed its JSON document with the failure.
        self.printed = False
        #: The remedy as options of the command line, which adds them to the hint.
        self.options = ""
        #: Lines that are shown to people below the message.
        self.details: tuple[str, ...] = ()
        #: More parts of the JSON document, next to "error": see ``ErrorDocument``.
        self.extra: dict[str, Any] = {}

    def put_in(self, place: str) -> None:
        """Adds an outer place in front of the error's place: a network, a shape."""
        self.where = f"{place}: {self.where}" if self.where else place

    def stated(self) -> StatedError:
        """Returns the part "error" of the document."""
        from edgekit.error_document import StatedError

        return StatedError(self.code, redact(self.message), redact(self.where), redact(self.hint))

    def document(self) -> ErrorDocument:
        """Returns the document of a command that failed with this error."""
        from edgekit.error_document import ErrorDocument, ErrorParts
        from edgekit_device.protocol.codec import read

        parts = read(ErrorParts, redact_document(self.extra))
        return ErrorDocument(error=self.stated(), **vars(parts))

    def to_json(self) -> dict[str, Any]:
        """Returns the contract's ``{"error": {"code", "message", "where", "hint"}}``."""
        from edgekit_device.protocol.codec import write

        return dict(write(self.document()))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        text = "\n  ".join((text, *self.details))
        return redact(f"{text}\n  hint: {self.hint}" if self.hint else text)


@contextmanager
def within(place: str) -> Iterator[None]:
    """Adds ``place`` in front of the place of an error in the block."""
    try:
        yield
    except EdgekitError as error:
        error.put_in(place)
        raise


class UsageError(EdgekitError):
    """The arguments of a command are wrong or exclude each other."""

    default_code = "usage"


class Problem(NamedTuple):
    """A fault of a configuration file; ``where`` is file:line:column."""

    message: str
    where: str
    hint: str = ""


class ConfigError(EdgekitError):
    """A configuration file is wrong; carries all its problems."""

    default_code = "config.invalid"

    def __init__(self, problems: list[Problem], *, code: str = "") -> None:
        problems = [
            p._replace(message=_shorten(p.message), hint=_shorten(p.hint)) for p in problems
        ]
        first = problems[0]
        super().__init__(first.message, code=code, where=first.where, hint=first.hint)
        self.problems = tuple(problems)

    def stated(self) -> StatedError:
        """Adds ``problems``, every fault found."""
        from edgekit.error_document import StatedProblem

        problems = tuple(
            StatedProblem(redact(p.message), redact(p.where), redact(p.hint)) for p in self.problems
        )
        return replace(super().stated(), problems=problems)

    def __str__(self) -> str:
        lines = []
        for p in self.problems:
            lines.append(f"{p.where}: {p.message}" + (f"\n  hint: {p.hint}" if p.hint else ""))
        return redact("\n".join(lines))


class ModelError(EdgekitError):
    """The ONNX model is missing, broken or not supported by edgekit."""

    default_code = "model.invalid"


class DataError(EdgekitError):
    """Data that the user gave (calibration inputs, weights, a profile) does not fit."""

    default_code = "data.invalid"


class GateError(EdgekitError):
    """The work was done and the result is negative (accuracy, regression, coverage)."""

    exit_code = 1
    default_code = "gate.failed"


class EnvironmentLack(EdgekitError):
    """This machine or the network lacks a part that the step needs."""

    exit_code = 3
    default_code = "environment.missing"


class BoardError(EdgekitError):
    """A board was reached and failed, or its answer was refused."""

    exit_code = 4
    default_code = "board.failed"


class BundleError(BoardError):
    """A bundle is unsigned, tampered with, incomplete or made for something else."""

    default_code = "bundle.refused"


class BuildError(EdgekitError):
    """A backend could not build a part of the plan."""

    exit_code = 4
    default_code = "build.failed"
