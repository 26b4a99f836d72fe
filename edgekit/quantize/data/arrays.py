"""Calibration data in .npy and .npz files, read row by row; never with pickle, since data must
not run code.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from edgekit.errors import DataError
from edgekit.files import regular_file
from edgekit.quantize.data.rows import DataRow, RowLayout, path_text, read_ahead
from edgekit.text import first_line
from edgekit_device.arrays.npz import MOST_ARRAYS, read_header
from edgekit_device.files import map_file
from edgekit_device.zips import zip_entries

#: Errors raised when reading a broken file.
BROKEN = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

# ZIP, local file header (PKWARE's APPNOTE.TXT, 4.3.7): its size, and the offset of two lengths
_LOCAL_HEADER = 30
_LENGTHS = 26
_ENCRYPTED = 1
# a compressed array in Fortran order cannot be streamed; up to this size it is read whole
_WHOLE_BYTES = 1 << 28
ARRAY_SUFFIXES = frozenset({".npy", ".npz"})


@dataclass(frozen=True, eq=False, slots=True)
class Member:
    """An array in a file.

    Attributes:
        path: The file.
        shape: Its shape.
        fortran: True if its first axis is the fastest.
        dtype: Its type.
        offset: Start of its data, in bytes: in the file, or in the decompressed member.
        packed: Its name in the archive if it is compressed there; else None.
    """

    path: Path
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    offset: int
    packed: str | None = None

    @contextlib.contextmanager
    def opened(self, rows: RowLayout, name: str) -> Iterator[Callable[[int], np.ndarray]]:
        """Yields a function from ascending row numbers to rows of input ``name``."""
        if self.fortran and self.packed is None:
            # in Fortran order the values of a row are scattered over the file
            array = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, "F")
            yield lambda index: rows.take(name, array, index)
            return
        shape = rows.shape(name)
        size = math.prod(shape) * self.dtype.itemsize
        with self._stream() as stream:
            stream.seek(self.offset)
            if self.fortran:
                data = np.frombuffer(_read_exactly(stream, self._bytes), self.dtype)
                loaded = data.reshape(self.shape, order="F")
                yield lambda index: rows.take(name, loaded, index)
                return

            def read(index: int) -> np.ndarray:
                # in a compressed member seek decompresses and drops the rows between
                stream.seek(self.offset + index * size)
                return np.frombuffer(_read_exactly(stream, size), self.dtype).reshape(shape)

            # not by memory map: pages read would count as this process's memory
            yield read

    @contextlib.contextmanager
    def _stream(self) -> Iterator[IO[bytes]]:
        if self.packed is None:
            with self.path.open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.packed) as stream:
                yield stream

    @property
    def _bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self, limit: int) -> None:
        """Refuses an array that could run code, is truncated, or would fill the memory.

        Args:
            limit: Number of bytes of its data in the file.

        Raises:
            ValueError: With the reason.
        """
        if self.dtype.hasobject:
            raise ValueError("Python objects are not read, because they could run code")
        if self._bytes > limit:
            raise ValueError("it is truncated")
        if self.fortran and self.packed is not None and self._bytes > _WHOLE_BYTES:
            raise ValueError(
                "a large compressed array in Fortran order cannot be read in parts: save "
                "numpy.ascontiguousarray(array)"
            )


def members(path: Path, only: str) -> dict[str, Member]:
    """Returns the arrays of a file by name; the array of an .npy is named ``only``.

    Raises:
        OSError: The file cannot be read; also other errors of ``BROKEN``.
    """
    size = regular_file(path).stat().st_size
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            member = Member(path, *read_header(file), file.tell())
        member.check(size - member.offset)
        return {only: member}
    for _ in zip_entries(map_file(path), MOST_ARRAYS):
        pass  # checked before zipfile creates an object for each
    found = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.flag_bits & _ENCRYPTED:
                raise ValueError("the archive is encrypted")
            with archive.open(info) as stream:
                header, offset = read_header(stream), stream.tell()
            if info.compress_type == zipfile.ZIP_STORED:
                file.seek(info.header_offset + _LENGTHS)
                # read here, because the central directory may have an extra field of another length
                name, extra = struct.unpack("<HH", file.read(4))
                offset += info.header_offset + _LOCAL_HEADER + name + extra
                member = Member(path, *header, offset)
                member.check(size - offset)
            else:
                member = Member(path, *header, offset, info.filename)
                member.check(info.file_size - offset)
            found[info.filename.removesuffix(".npy")] = member
    return found


def unreadable(path: Path, error: Exception, where: str = "") -> DataError:
    """Returns the error for a file that cannot be read."""
    return DataError(
        f"cannot read the arrays: {first_line(error, type(error).__name__)}",
        code="data.unreadable",
        where=where or path_text(path),
        hint="save it with numpy.savez or numpy.save, without object arrays",
    )


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("it is truncated")
    return data


class Arrays:
    """The rows of one or several .npy or .npz files, in sequence.

    Headers are read at once, rows when they are requested. Rows of a compressed archive are read
    from the decompressor's stream, so that no file is ever in memory as a whole.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        rows: RowLayout,
        *,
        enough: int | None = None,
        beside: Collection[str] = (),
    ) -> None:
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
            found = _open(path, rows, beside)
            counts = {name: _count(rows, name, member, path) for name, member in found.items()}
            if len(set(counts.values())) > 1:
                raise DataError(
                    f"the arrays hold different numbers of samples: {counts}",
                    code="data.shape",
                    where=path_text(path),
                    hint="give every input the same number",
                )
            self._files.append((path, found))
            self._starts.append(total)
            total += min(counts.values())
        self.size = total
        if total == 0:
            raise DataError(
                "the data contain no sample",
                code="data.empty",
                where=path_text(self._files[0][0]) if self._files else "",
                hint="put samples along the first axis",
            )

    def rows(self, picks: Iterable[int]) -> Iterator[DataRow]:
        """Yields rows; see ``Source``."""
        reader = _ArrayReader(self._rows, self._files, self._starts)
        with contextlib.closing(reader):
            # a single worker, because a compressed member can only be read forward
            window = 2 * self._rows.batch
            yield from read_ahead(reader.row, picks, workers=1, window=window)


class _ArrayReader:
    """Reads ascending rows with one file open at a time."""

    def __init__(
        self, rows: RowLayout, files: list[tuple[Path, dict[str, Member]]], starts: list[int]
    ) -> None:
        self._rows = rows
        self._files = files
        self._starts = starts
        self._open = -1
        self._stack = contextlib.ExitStack()
        self._views: dict[str, Callable[[int], np.ndarray]] = {}

    def row(self, index: int) -> DataRow:
        number = bisect.bisect_right(self._starts, index) - 1
        path, found = self._files[number]
        inside = index - self._starts[number]
        where = f"{path_text(path)}[{inside}]"
        try:
            if number != self._open:
                self.close()
                self._views = {
                    name: self._stack.enter_context(member.opened(self._rows, name))
                    for name, member in found.items()
                }
                self._open = number
            # a copy of a view, so that the rest is freed
            return DataRow({n: np.array(view(inside)) for n, view in self._views.items()}, where)
        except BROKEN as error:
            raise unreadable(path, error, where) from error

    def close(self) -> None:
        self._views = {}
        self._open = -1
        self._stack.close()


def _open(path: Path, rows: RowLayout, beside: Collection[str]) -> dict[str, Member]:
    try:
        every = members(path, next(iter(rows.specs)))
    except BROKEN as error:
        raise unreadable(path, error) from error
    found = {name: member for name, member in every.items() if name not in beside}
    single = path.suffix.lower() == ".npy" and len(rows.specs) > 1
    if set(found) != set(rows.specs) or single:
        raise DataError(
            f"the file has {', '.join(map(repr, found)) or 'no arrays'}",
            code="data.inputs",
            where=path_text(path),
            hint=f"the model's inputs are {', '.join(map(repr, rows.specs))}: "
            + (
                "give the arrays these names"
                if path.suffix.lower() == ".npz"
                else "save named arrays as .npz"
            ),
        )
    return {name: found[name] for name in rows.specs}


def _count(rows: RowLayout, name: str, member: Member, path: Path) -> int:
    where = f"{path_text(path)}:{name}"
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
