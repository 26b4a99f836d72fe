"""The directory of a zip archive, read within bounds: ``zipfile`` makes an object for every entry
before the caller can count them.

The layout is that of APPNOTE.TXT 6.3.10: 4.3.12 (central directory), 4.3.14 and 4.3.15 (its end in
ZIP64), 4.3.16 (its end), 4.5.3 (sizes in ZIP64).
"""

from __future__ import annotations

import struct
from typing import Iterator, List, NamedTuple, Tuple

from edgekit_device.files import Buffer

_END, _END_64, _LOCATOR, _HEADER = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02"
_END_BYTES, _END_64_BYTES, _LOCATOR_BYTES, _HEADER_BYTES = 22, 56, 20, 46
_MOST_COMMENT = (1 << 16) - 1
_MOST_NAME = 1 << 10
_LARGE, _ZIP64 = 0xFFFFFFFF, 1


class ZipEntry(NamedTuple):
    """An entry of the directory.

    Attributes:
        name: Name in the directory, unchanged.
        flags: General purpose bits; bit 0 means that it is encrypted.
        method: Compression method: 0 is stored, 8 deflated.
        packed: Bytes in the file.
        size: Bytes unpacked.
        offset: Offset of its local header in bytes.
    """

    name: bytes
    flags: int
    method: int
    packed: int
    size: int
    offset: int


def zip_entries(data: Buffer, most: int) -> Iterator[ZipEntry]:
    """Reads the directory of a zip archive.

    Args:
        data: The whole archive.
        most: Largest number of entries that are allowed.

    Raises:
        ValueError: It is not a zip archive or is damaged; it has more than ``most`` entries, or a
            name of more than 1,024 bytes.
    """
    at, end = _directory(memoryview(data))
    count = 0
    while at < end:
        count += 1
        # counted here: the number in the directory's end may be wrong
        if count > most:
            raise ValueError("it has more than {} entries".format(most))
        if end - at < _HEADER_BYTES or data[at : at + 4] != _HEADER:
            raise ValueError("its directory is damaged")
        flags, method = struct.unpack_from("<HH", data, at + 8)
        packed, size, name, extra, comment = struct.unpack_from("<IIHHH", data, at + 20)
        (offset,) = struct.unpack_from("<I", data, at + 42)
        if name > _MOST_NAME:
            raise ValueError("a name has {} bytes, more than {}".format(name, _MOST_NAME))
        start = at + _HEADER_BYTES
        at = start + name + extra + comment
        if at > end:
            raise ValueError("its directory is cut off")
        extra_fields = bytes(data[start + name : start + name + extra])
        size, packed, offset = _read_zip64([size, packed, offset], extra_fields)
        yield ZipEntry(bytes(data[start : start + name]), flags, method, packed, size, offset)


def _directory(data: memoryview) -> Tuple[int, int]:
    """Returns the offsets of the directory's start and end."""
    at = len(data) - _END_BYTES
    if at < 0 or data[at : at + 4] != _END:
        # a comment follows; the last signature counts, because the comment may contain another
        first = max(0, at - _MOST_COMMENT)
        at = bytes(data[first:]).rfind(_END) + first
        if at < first or len(data) - at < _END_BYTES:
            raise ValueError("it is no zip archive")
    (size,) = struct.unpack_from("<I", data, at + 12)
    locator = at - _LOCATOR_BYTES
    if locator >= 0 and data[locator : locator + 4] == _LOCATOR:
        at = locator - _END_64_BYTES
        if at < 0 or data[at : at + 4] != _END_64:
            raise ValueError("its directory's end is damaged")
        (size,) = struct.unpack_from("<Q", data, at + 40)
    if size > at:
        raise ValueError("its directory is cut off")
    return at - size, at


def _read_zip64(values: List[int], extra: bytes) -> List[int]:
    """Returns the values, with 64-bit values taken in order from the extra field."""
    while _LARGE in values and len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _ZIP64:
            wide = iter(struct.unpack_from("<{}Q".format(min(size, len(extra) - 4) // 8), extra, 4))
            return [next(wide, value) if value == _LARGE else value for value in values]
        extra = extra[4 + size :]
    return values
