"""The correct classes of a bundle's samples, from a user's file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit.text import counted
from edgekit_device.arrays.classes import class_shape

MOST_BYTES = 16 << 20


def read_labels(path: Path, cases: int, shape: Sequence[int]) -> list[list[int]]:
    """Reads a class number per line, in the order of the calibration inputs.

    Args:
        path: The file; empty lines and text after a ``#`` are ignored.
        cases: Number of sample inputs.
        shape: Shape of the network's first output, which determines the number of classes.

    Returns:
        For each case, a class for each element of the batch.

    Raises:
        DataError: "data.labels".
    """
    found = class_shape(shape)
    if found is None:
        raise _bad_labels(
            path,
            f"the first output has shape {list(shape)}, not one class per input",
            "labels work only for classification networks; leave them out",
        )
    rows, classes = found
    labels: list[int] = []
    for number, line in enumerate(label_lines(path), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not text.isdecimal() or not text.isascii() or len(text) > 9 or int(text) >= classes:
            raise _bad_labels(
                path,
                f"line {number}: {text[:40]!r} is not one of the {classes} classes",
                "write one class number per line, starting at 0",
            )
        labels.append(int(text))
    if len(labels) < cases * rows:
        raise _bad_labels(
            path,
            f"{counted(len(labels), 'label')} for {counted(cases * rows, 'input')}",
            "write one for each, or lower deploy.health.samples",
        )
    return [labels[n * rows : (n + 1) * rows] for n in range(cases)]


def label_lines(path: Path) -> list[str]:
    """Returns the lines of a file of labels, without the network.

    Raises:
        DataError: "data.labels".
    """
    try:
        return read_file(path, MOST_BYTES).decode("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _bad_labels(
            path, f"it cannot be read: {error}", "write one class number per line"
        ) from error


def _bad_labels(path: Path, message: str, hint: str) -> DataError:
    return DataError(message, code="data.labels", where=str(path), hint=hint)
