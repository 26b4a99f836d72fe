"""The error of every failure on the board: a code, a message, the place and a hint."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Dict, Iterable, Iterator

if TYPE_CHECKING:
    from os import PathLike

EXIT_FAILED = 4
_SCARCE = 64 << 10

# errors of a full disk, a full quota, and a size limit of the file system or process
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DeviceError(Exception):
    """A failure with a stable code; the command line turns it into JSON and exit status 4.

    Args:
        message: The fault, in one line.
        code: Stable identifier such as ``bundle.bad-signature``.
        where: The bundle, release, tensor or file with the fault.
        hint: What to do about the fault.
    """

    def __init__(self, message: str, *, code: str, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.where = where
        self.hint = hint

    def to_json(self) -> Dict[str, Dict[str, str]]:
        """Returns ``{"error": {"code", "message", "where", "hint"}}``."""
        fields = {
            "code": self.code,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
        }
        return {"error": fields}

    def __str__(self) -> str:
        text = "{}: {}".format(self.where, self.message) if self.where else self.message
        return "{}\n  hint: {}".format(text, self.hint) if self.hint else text


def family(code: str) -> str:
    """Returns the first part of a code, its subject: "board" of "board.disk-full"."""
    return code.partition(".")[0]


@contextmanager
def map_os_errors(where: str) -> Iterator[None]:
    """Turns an OSError inside the block into a DeviceError about ``where``.

    Raises:
        DeviceError: "board.disk-full", "board.permission" or "board.io".
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise DeviceError(
                "no space left on the board: {}".format(reason),
                code="board.disk-full",
                where=where,
                hint="free space on the board, or remove old releases with gc --keep 1",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise DeviceError(
                "not permitted: {}".format(reason),
                code="board.permission",
                where=where,
                hint="give the user write access there, or use another --root",
            ) from error
        raise DeviceError(reason, code="board.io", where=where) from error


def refuse_full(folder: PathLike[str]) -> None:
    """Raises DeviceError "board.disk-full" if the disk of ``folder`` has no space for a file."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return
    free = facts.f_bavail * facts.f_frsize
    if free < _SCARCE or (facts.f_files and not facts.f_favail):
        with map_os_errors(os.fspath(folder)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def listed(texts: Iterable[str], most: int = 12, between: str = ", ") -> str:
    """Returns the first texts and the number of the others: "a, b and 3 more"."""
    every = list(texts)
    left = len(every) - most
    return between.join(every[:most]) + (" and {} more".format(left) if left > 0 else "")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 sample", "2,000 samples"."""
    return "{:,} {}{}".format(number, noun, "" if number == 1 else "s")
