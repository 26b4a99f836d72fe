"""Calibration data in NumPy's files, read row by row."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import DataError
from edgekit.quantize._data_npz import BROKEN, Member, members, refused
from edgekit.quantize._data_rows import Row, Rows, ahead, shown

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ARRAY_SUFFIXES", "Arrays"]

ARRAY_SUFFIXES = frozenset({".npy", ".npz"})


class Arrays:
    """The rows of one .npy or .npz file, or of several one after the other.

    Of a file, headers are read at once and rows when they are asked for, of a compressed archive
    from the decompressor's stream, so that no file is ever in memory as a whole.
    """

    def __init__(self, paths: Iterable[Path], rows: Rows, *, enough: int | None = None) -> None:
        """Reads the headers of files until they hold ``enough`` rows.

        Raises:
            DataError: A file cannot be read or does not fit.
        """
        self._rows = rows
        self._files: list[tuple[Path, dict[str, Member]]] = []
        self._starts: list[int] = []
        self.size: int | None
        total = 0
        for path in paths:
            if enough is not None and total >= enough:
                break
            found = _open(path, rows)
            counts = {name: _count(rows, name, member, path) for name, member in found.items()}
            if len(set(counts.values())) > 1:
                raise DataError(
                    f"the arrays hold different numbers of samples: {counts}",
                    code="data.shape",
                    where=shown(path),
                    hint="every input needs the same number",
                )
            self._files.append((path, found))
            self._starts.append(total)
            total += min(counts.values())
        self.size = total
        if total == 0:
            raise DataError(
                "there is no sample in the data",
                code="data.empty",
                where=shown(self._files[0][0]) if self._files else "",
                hint="put samples along the first axis",
            )

    def rows(self, picks: Iterable[int]) -> Iterator[Row]:
        """Yields rows; see ``Source``."""
        reader = _Reader(self._rows, self._files, self._starts)
        with contextlib.closing(reader):
            window = 2 * self._rows.batch
            yield from ahead(reader.row, picks, workers=1, window=window)


class _Reader:
    """Reads ascending rows with one file open at a time."""

    def __init__(
        self, rows: Rows, files: list[tuple[Path, dict[str, Member]]], starts: list[int]
    ) -> None:
        self._rows = rows
        self._files = files
        self._starts = starts
        self._open = -1
        self._stack = contextlib.ExitStack()
        self._views: dict[str, Callable[[int], np.ndarray]] = {}

    def row(self, index: int) -> Row:
        import numpy as np

        number = bisect.bisect_right(self._starts, index) - 1
        path, found = self._files[number]
        inside = index - self._starts[number]
        where = f"{shown(path)}[{inside}]"
        try:
            if number != self._open:
                self.close()
                self._views = {
                    name: self._stack.enter_context(member.opened(self._rows, name))
                    for name, member in found.items()
                }
                self._open = number
            # a copy of a view, so that the rest is let go
            return Row({n: np.array(view(inside)) for n, view in self._views.items()}, where)
        except BROKEN as error:
            raise refused(path, error, where) from error

    def close(self) -> None:
        self._views = {}
        self._open = -1
        self._stack.close()


def _open(path: Path, rows: Rows) -> dict[str, Member]:
    try:
        found = members(path, next(iter(rows.specs)))
    except BROKEN as error:
        raise refused(path, error) from error
    single = path.suffix.lower() == ".npy" and len(rows.specs) > 1
    if set(found) != set(rows.specs) or single:
        raise DataError(
            f"the file has {', '.join(map(repr, found)) or 'no arrays'}",
            code="data.inputs",
            where=shown(path),
            hint=f"the model's inputs are {', '.join(map(repr, rows.specs))}: "
            + (
                "name the arrays as these" if path.suffix.lower() == ".npz" else "name them in .npz"
            ),
        )
    return {name: found[name] for name in rows.specs}


def _count(rows: Rows, name: str, member: Member, path: Path) -> int:
    import numpy as np

    where = f"{shown(path)}:{name}"
    count = rows.count(name, member.shape)
    if count is None:
        raise DataError(
            f"the array has shape {list(member.shape)}",
            code="data.shape",
            where=where,
            hint=rows.hint(name),
        )
    dtype = rows.specs[name][0]
    if not np.can_cast(member.dtype, dtype, casting="same_kind"):
        raise DataError(
            f"input {name!r} has type {member.dtype}",
            code="data.dtype",
            where=where,
            hint=f"the model expects {dtype}",
        )
    return count
