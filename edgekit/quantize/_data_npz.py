"""The arrays of a .npy or .npz file, read row by row; never with pickle: data must not run code."""

from __future__ import annotations

import contextlib
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from edgekit._files import regular
from edgekit.errors import DataError
from edgekit.quantize._data_rows import Rows, shown

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BROKEN", "Member", "members", "refused"]

#: What reading a broken file raises.
BROKEN = (
    OSError, ValueError, EOFError, KeyError, TypeError, NotImplementedError, RuntimeError,
    OverflowError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

# ZIP, local file header (PKWARE's APPNOTE.TXT, 4.3.7): its size, and where two lengths stand
_LOCAL_HEADER = 30
_LENGTHS = 26
_ENCRYPTED = 1
# a compressed array in Fortran order cannot be streamed; up to this it is read whole
_WHOLE_BYTES = 1 << 28


@dataclass(frozen=True, eq=False, slots=True)
class Member:
    """An array in a file.

    Attributes:
        path: The file.
        dtype: Its type.
        shape: Its shape.
        fortran: Whether its first axis is the fastest.
        offset: Where its data begin: in the file, or in the decompressed member.
        packed: Its name in the archive when it is compressed there.
    """

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    packed: str | None = None

    @contextlib.contextmanager
    def opened(self, rows: Rows, name: str) -> Iterator[Callable[[int], np.ndarray]]:
        """Gives a function from ascending row numbers to rows of input ``name``."""
        import numpy as np

        if self.fortran and self.packed is None:
            array = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, "F")
            yield lambda index: rows.take(name, array, index)
            return
        shape = rows.shape(name)
        size = math.prod(shape) * self.dtype.itemsize
        with self._stream() as stream:
            stream.seek(self.offset)
            if self.fortran:
                data = np.frombuffer(_exactly(stream, self._bytes), self.dtype)
                loaded = data.reshape(self.shape, order="F")
                yield lambda index: rows.take(name, loaded, index)
                return

            def read(index: int) -> np.ndarray:
                # in a compressed member it decompresses and drops what lies between
                stream.seek(self.offset + index * size)
                return np.frombuffer(_exactly(stream, size), self.dtype).reshape(shape)

            # not by memory map: what was read would count as this process's memory
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

    def check(self, room: int) -> None:
        """Refuses what would run code, lacks data, or would fill the memory.

        Args:
            room: Bytes that there are for it.

        Raises:
            ValueError: With the reason.
        """
        if self.dtype.hasobject:
            raise ValueError("it holds Python objects, which are never read: they could run code")
        if self._bytes > room:
            raise ValueError("it is truncated")
        if self.fortran and self.packed is not None and self._bytes > _WHOLE_BYTES:
            raise ValueError(
                "a large compressed array in Fortran order would have to be read whole: save "
                "numpy.ascontiguousarray of it"
            )


def members(path: Path, only: str) -> dict[str, Member]:
    """Returns the arrays of a file by name; that of an .npy is called ``only``.

    Raises:
        OSError: And others of ``BROKEN``: it cannot be read.
    """
    size = regular(path).stat().st_size
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            member = Member(path, *_header(file), file.tell())
        member.check(size - member.offset)
        return {only: member}
    found = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.flag_bits & _ENCRYPTED:
                raise ValueError("the archive is encrypted")
            with archive.open(info) as stream:
                header, offset = _header(stream), stream.tell()
            if info.compress_type == zipfile.ZIP_STORED:
                file.seek(info.header_offset + _LENGTHS)
                name, extra = struct.unpack("<HH", file.read(4))
                offset += info.header_offset + _LOCAL_HEADER + name + extra
                member = Member(path, *header, offset)
                member.check(size - offset)
            else:
                member = Member(path, *header, offset, info.filename)
                member.check(info.file_size - offset)
            found[info.filename.removesuffix(".npy")] = member
    return found


def refused(path: Path, error: Exception, where: str = "") -> DataError:
    """Returns the error for a file that cannot be read."""
    text = str(error).strip() or type(error).__name__
    return DataError(
        f"cannot read the arrays: {text.splitlines()[0]}",
        code="data.unreadable",
        where=where or shown(path),
        hint="write it with numpy.savez or numpy.save, without object arrays",
    )


def _header(file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], bool]:
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:  # 3.0 is for structured types with names beyond Latin-1
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not for plain arrays")
    try:
        shape, fortran, dtype = read(file)
    except BROKEN:
        raise
    except Exception as error:  # it is parsed as Python, which fails in many ways
        raise ValueError("its header is damaged") from error
    return dtype, shape, fortran


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("it is truncated")
    return data
