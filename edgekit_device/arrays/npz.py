"""Reads and writes .npz safely: no pickles, no object arrays, no size that was not declared."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, BinaryIO, Dict, Mapping

from edgekit_device.errors import DeviceError
from edgekit_device.zips import zip_entries

if TYPE_CHECKING:
    import numpy as np


_LIMIT = 1 << 32
_MOST_ARRAYS = 1 << 12
_MOST_BYTES = _LIMIT + (16 << 20)  # of the file: the arrays, and what a zip has around them
_SUFFIX = ".npy"

# what zipfile, zlib and NumPy say to bytes that are none of theirs
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    OSError,
    RuntimeError,  # an encrypted entry, or one of a kind that zipfile does not know
    SyntaxError,
)
_DATE = (1980, 1, 1, 0, 0, 0)


def read_npz(data: bytes, limit: int = _LIMIT) -> Dict[str, np.ndarray]:
    """Reads the arrays of an ``.npz``; entry names are names, never paths.

    Args:
        data: The file's bytes; of at most 4,096 arrays.
        limit: Most bytes that all arrays together may have.

    Raises:
        DeviceError: "npz.invalid".
    """
    found: Dict[str, np.ndarray] = {}
    try:
        for _ in zip_entries(data, _MOST_ARRAYS):
            pass  # before zipfile makes an object of each
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > limit:
                raise _invalid("the arrays have more than {} bytes".format(limit))
            for info in infos:
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise _invalid(
                        "{!r} uses an unsupported compression".format(info.filename[:80])
                    )
                name = info.filename[: -len(_SUFFIX)]
                if not info.filename.endswith(_SUFFIX) or name in found:
                    raise _invalid("unexpected entry {!r}".format(info.filename[:80]))
                found[name] = _read_array(archive, info)
    except _BROKEN as error:
        raise _invalid(str(error)) from error
    return found


def receive_npz(stdin: BinaryIO) -> bytes:
    """The ``.npz`` on stdin; raises DeviceError "npz.invalid" for one that is too large."""
    data = stdin.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise _invalid("it has more than {} bytes".format(_MOST_BYTES))
    return data


def write_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Writes arrays as an uncompressed ``.npz``; the same arrays give the same bytes."""
    import numpy as np

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name + _SUFFIX, _DATE), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    import numpy as np

    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise _invalid("{} has an unknown version".format(info.filename[:80]))
        shape, fortran, dtype = readers[version](file)
        if dtype.hasobject:
            raise _invalid("{} contains Python objects".format(info.filename[:80]))
        count = 1
        for size in shape:
            count *= size
        if count < 0 or count * dtype.itemsize > info.file_size:
            raise _invalid("{} is shorter than its header says".format(info.filename[:80]))
        array = np.frombuffer(file.read(count * dtype.itemsize), dtype=dtype, count=count)
    return array.reshape(shape, order="F" if fortran else "C")


def _invalid(message: str) -> DeviceError:
    return DeviceError(
        "not a valid .npz: {}".format(message),
        code="npz.invalid",
        hint="make it with numpy.savez(file, **{name: array})",
    )
