"""The right classes of the samples that travel with a bundle: ``deploy.health.labels``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgekit._files import regular
from edgekit._listed import counted
from edgekit.errors import DataError
from edgekit_device._deviation import classes_of

__all__ = ["read_labels"]

_MOST_BYTES = 16 << 20


def read_labels(path: Path, cases: int, shape: Sequence[int]) -> list[list[int]]:
    """Reads a class number a line, in the order of the calibration inputs.

    Args:
        path: The file; empty lines and what follows a ``#`` are passed over.
        cases: Inputs that travel.
        shape: Of the network's first output: what it is of classes follows from it.

    Returns:
        For each case a class for each of the batch.

    Raises:
        DataError: "data.labels".
    """
    found = classes_of(shape)
    if found is None:
        raise _bad(path, f"the first output, {list(shape)}, is not one class for each input",
                   "labels are for networks that classify; leave labels out")  # fmt: skip
    rows, classes = found
    try:
        with regular(path).open(encoding="utf-8") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except (OSError, ValueError) as error:
        raise _bad(path, f"it cannot be read: {error}", "write a class number a line") from error
    labels: list[int] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not text.isdecimal() or not text.isascii() or len(text) > 9 or int(text) >= classes:
            raise _bad(path, f"line {number}: {text[:40]!r} is no class of {classes}",
                       "write a class number a line, from 0 on")  # fmt: skip
        labels.append(int(text))
    if len(labels) < cases * rows:
        raise _bad(path, f"{counted(len(labels), 'label')} for {counted(cases * rows, 'input')}",
                   "write one for each, or lower deploy.health.samples")  # fmt: skip
    return [labels[n * rows : (n + 1) * rows] for n in range(cases)]


def _bad(path: Path, message: str, hint: str) -> DataError:
    return DataError(message, code="data.labels", where=str(path), hint=hint)
