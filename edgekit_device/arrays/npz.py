"""Reads and writes .npz safely: no pickles, no object arrays, no undeclared sizes."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, BinaryIO, Dict, Mapping, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.zips import zip_entries

if TYPE_CHECKING:
    import numpy as np


_LIMIT = 1 << 32
MOST_ARRAYS = 1 << 12
_MOST_HEADER = 10_000  # bytes; NumPy's own limit, which releases before 1.23.3 lack
_MOST_BYTES = _LIMIT + (16 << 20)  # of the file: the arrays, and the zip's own structures
_SUFFIX = ".npy"

# errors of zipfile, zlib and NumPy for invalid bytes
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    OSError,
    RuntimeError,  # an encrypted entry, or a kind of entry that zipfile does not know
    SyntaxError,
)
# by version of the .npy format: the struct of a header's length, and the header's reader
_LENGTHS = {(1, 0): "<H", (2, 0): "<I"}
_READERS = {(1, 0): "read_array_header_1_0", (2, 0): "read_array_header_2_0"}
_DATE = (1980, 1, 1, 0, 0, 0)


def read_npz(data: bytes, limit: int = _LIMIT) -> Dict[str, np.ndarray]:
    """Reads the arrays of an ``.npz``; entry names are names, never paths.

    Args:
        data: The file's bytes; of at most 4,096 arrays.
        limit: Largest size of all arrays together, in bytes.

    Raises:
        DeviceError: "npz.invalid".
    """
    found: Dict[str, np.ndarray] = {}
    try:
        for _ in zip_entries(data, MOST_ARRAYS):
            pass  # before zipfile makes an object for each
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            # the declared sizes; each array is read up to its own
            if sum(info.file_size for info in infos) > limit:
                raise _invalid("the arrays have more than {} bytes".format(limit))
            for info in infos:
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise _invalid(
                        "{!r} uses an unsupported compression".format(info.filename[:80])
                    )
                name = info.filename[: -len(_SUFFIX)]
                # zip allows a name twice; the second array would replace the first
                if not info.filename.endswith(_SUFFIX) or name in found:
                    raise _invalid("unexpected entry {!r}".format(info.filename[:80]))
                found[name] = _read_array(archive, info)
    except _BROKEN as error:
        raise _invalid(str(error)) from error
    return found


def receive_npz(stdin: BinaryIO) -> bytes:
    """Returns the ``.npz`` on stdin; raises DeviceError "npz.invalid" if it is too large."""
    # one byte more, so that a file that is too large is noticed
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
            # a fixed date for equal bytes; force_zip64, since the size is unknown before it is
            # written
            with archive.open(zipfile.ZipInfo(name + _SUFFIX, _DATE), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    import numpy as np

    with archive.open(info) as file:
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise _invalid("{} contains Python objects".format(info.filename[:80]))
        count = 1
        for size in shape:
            count *= size
        # before memory is taken: the header may declare any shape
        if count < 0 or count * dtype.itemsize > info.file_size:
            raise _invalid("{} is shorter than the size in its header".format(info.filename[:80]))
        array = np.frombuffer(file.read(count * dtype.itemsize), dtype=dtype, count=count)
    return array.reshape(shape, order="F" if fortran else "C")


def read_header(file: IO[bytes]) -> Tuple[Tuple[int, ...], bool, np.dtype]:
    """Reads the header of an ``.npy``.

    Args:
        file: The file, at its start; afterwards at the start of the array's bytes.

    Returns:
        Shape, True if the first axis is contiguous (Fortran order), and type.

    Raises:
        ValueError: It is not an ``.npy``, has an unknown version, or has a header of more than
            10,000 bytes.
    """
    import numpy as np

    version = np.lib.format.read_magic(file)
    if version not in _LENGTHS:  # 3.0 is for structured types with names beyond Latin-1
        raise ValueError("version {}.{} of the format is not supported".format(*version))
    # NumPy's readers take the length from the file themselves, so it is given to them again below
    form, read = _LENGTHS[version], getattr(np.lib.format, _READERS[version])
    length = file.read(struct.calcsize(form))
    (size,) = struct.unpack(form, length)
    if size > _MOST_HEADER:
        raise ValueError("a header has {} bytes, more than {}".format(size, _MOST_HEADER))
    try:
        found: Tuple[Tuple[int, ...], bool, np.dtype] = read(io.BytesIO(length + file.read(size)))
    except Exception as error:  # it is parsed as Python, with many possible errors
        raise ValueError("its header is damaged") from error
    return found


def _invalid(message: str) -> DeviceError:
    return DeviceError(
        "not a valid .npz: {}".format(message),
        code="npz.invalid",
        hint="make it with numpy.savez(file, **{name: array})",
    )
