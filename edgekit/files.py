"""Atomic writes of files: a reader sees the old or the new file, never a part. And reads of files
from others: only regular files up to a maximum size are opened. And the folder of cached results.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from edgekit import timeouts
from edgekit.errors import EnvironmentLack
from edgekit.expansion import redact, redact_document

if TYPE_CHECKING:
    import numpy as np


_DONTNEED = 4  # MADV_DONTNEED of Linux's mman-common.h
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def cache_folder() -> Path:
    """Returns $EDGEKIT_CACHE, $XDG_CACHE_HOME/edgekit or ~/.cache/edgekit."""
    if chosen := os.environ.get("EDGEKIT_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "edgekit"


def map_array(path: Path, dtype: Any = "uint8", shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    """Returns a file's bytes as a read-only ``numpy.memmap`` that holds no descriptor.

    NumPy's own keeps a descriptor open for each map, and a network may have more weights than a
    process may have files open.

    Raises:
        OSError: The file cannot be opened or mapped.
        ValueError: Its bytes are not an array of this type and shape.
    """
    import numpy as np

    from edgekit_device.files import map_file

    kind, data = np.dtype(dtype), map_file(path)
    if shape == (-1,):
        shape = (len(data) // kind.itemsize,)
    if kind.itemsize * math.prod(shape) != len(data):
        raise ValueError(f"{len(data)} bytes are not {kind} {list(shape)}")
    array: np.ndarray = np.ndarray.__new__(np.memmap, shape, kind, buffer=data)
    # identifies the piece of the file that an array is
    vars(array).update(filename=path.resolve(), offset=0, mode="r", _mmap=data)
    return array


def forget_pages(data: np.ndarray | memoryview | bytes) -> None:
    """Frees the memory of pages of a mapped file; a later access reads them again.

    Otherwise they count as this process's until the system is short of memory. Only a read-only map
    of a file is affected.
    """
    import mmap

    import numpy as np

    from edgekit_device.files import is_mapped

    if isinstance(data, bytes):
        return
    array = np.asarray(data)
    root: Any = array
    # the base of a view of a memoryview is the memoryview, whose obj is its source
    while isinstance(under := getattr(root.base, "obj", root.base), np.ndarray):
        root = under
    mapped = isinstance(root, np.memmap) and root.mode == "r"
    if not mapped and isinstance(root.base, memoryview):
        mapped = is_mapped(root.base)
    if mapped and array.flags.c_contiguous:
        # madvise(2) takes the start of a page; what else is on the page is read again, too
        begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
        end = array.ctypes.data + array.nbytes
        _memory_functions().madvise(begin, end - begin, _DONTNEED)


@functools.cache
def _memory_functions() -> Any:
    import ctypes

    found = ctypes.CDLL(None)
    found.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


def regular_file(path: Path) -> Path:
    """Returns the path of a regular file; a pipe could block, and a device be read, for ever.

    Raises:
        OSError: There is no such file, or it is a folder, a pipe, a socket or a device.
    """
    try:
        mode = path.stat().st_mode
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a NUL character", str(path)) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    for kind, words in _KINDS:
        if kind(mode):
            raise OSError(errno.EINVAL, f"it is {words}, not a file", str(path))
    return path


def named_path(folder: Path, text: str) -> Path:
    """Returns the absolute path of a file that a file in ``folder`` names; ``~`` is expanded.

    It is the same file from any folder. A name that is a link is not resolved: it may change.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # ~name of no user
        path = Path(text)
    path = folder / path
    return path.parent.resolve() / path.name


def read_file(path: Path, largest: int) -> bytes:
    """Returns the bytes of a file from others, at most ``largest``.

    Raises:
        OSError: As raised by :func:`regular_file`; or the file is larger.
    """
    with regular_file(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest >> 20} MiB", str(path))
        # the checked size, since the file may grow meanwhile
        return file.read(size)


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file of any size, in lower-case hex.

    Raises:
        OSError: As raised by :func:`regular_file`.
    """
    import hashlib  # a check starts without it

    digest = hashlib.sha256()
    with regular_file(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Returns parsed JSON, as ``json.loads`` does with these hooks.

    For text from others. Files of users are read with ``edgekit.documents.load_json``, messages
    of the wire with ``edgekit_device.protocol.codec.parse_json``; ``json.loads`` alone is for text
    that edgekit itself wrote (its cache, lines of its processes).

    Raises:
        ValueError: The text is not JSON, or has a number that is too long: in edgekit's words,
            while Python's error names a Python setting.
        RecursionError: Arrays or objects are nested too deeply.
    """
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # each number is only checked now, because that is slow
        return json.loads(text, parse_int=_integer, **hooks)


def _integer(text: str) -> int:
    # Python 3.10 has the limit from 3.10.7 on
    most = getattr(sys, "get_int_max_str_digits", lambda: 0)()
    digits = len(text.lstrip("-"))
    if 0 < most < digits:
        raise ValueError(f"a number of {digits:,} digits")
    return int(text)


def open_stream(path: Path) -> BinaryIO:
    """Opens a file, or a pipe that another process writes to, which is read once and in order.

    Raises:
        OSError: As raised by :func:`regular_file`; or no process opened the pipe's other end within
            seconds.
    """
    try:
        if not path.is_fifo():
            return regular_file(path).open("rb")
    except ValueError:  # a NUL character
        return regular_file(path).open("rb")

    # opening blocks until there is a writer (fifo(7)), so it is done in a thread that can be left
    opened: list[BinaryIO] = []
    thread = threading.Thread(target=lambda: opened.append(path.open("rb")), daemon=True)
    thread.start()
    thread.join(timeouts.WRITER_S)
    if not opened:
        with contextlib.suppress(OSError):  # ends the waiting thread
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        thread.join(timeouts.WRITER_S)
        for file in opened:
            file.close()
        raise OSError(errno.ETIMEDOUT, "it is a pipe without a writer", str(path))
    return opened[0]


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``path``; it is renamed if the block succeeds.

    Args:
        path: The file; its folder must exist. If it is a link, the link's target is replaced.
        private: True if only its owner may read it; otherwise the umask decides, and it is
            executable if the block made it so.

    Raises:
        OSError: The folder is missing or cannot be written, or ``path`` is not a regular file (a
            device, a pipe, a folder).
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "it is there and is no regular file")
    # in the same folder: rename(2) is atomic only within a file system
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if not private:
            # mkstemp makes it private; the umask can only be read by setting it (umask(2))
            mask = os.umask(0)
            os.umask(mask)
            executable = temporary.stat().st_mode & 0o111
            temporary.chmod((0o666 | executable) & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """As :func:`replacing`, but creates the folder and raises edgekit's error.

    Raises:
        EnvironmentLack: The folder cannot be created or written (code "file.write").
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise write_error(path, "cannot write the file", error) from error


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text under a temporary name in the same folder and renames it.

    Raises:
        EnvironmentLack: The folder cannot be created or written (code "file.write").
    """
    _write(path, redact(text))


def write_json(path: Path, document: Any) -> None:
    """Writes one JSON document (no NaN or infinity: ValueError) with a trailing newline."""
    text = json.dumps(redact_document(document), ensure_ascii=False, allow_nan=False, indent=1)
    _write(path, text + "\n")


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def write_folder_atomically(path: Path) -> Iterator[Path]:
    """Yields an empty folder next to ``path``, which replaces it if the block succeeds.

    Raises:
        EnvironmentLack: The folder cannot be created or written (code "file.write").
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".tmp-") as work:
            temporary, old = Path(work, "new"), Path(work, "old")
            temporary.mkdir()
            yield temporary
            # a folder cannot be renamed over one that has files: the old folder is renamed first
            if path.is_dir():
                path.rename(old)
            try:
                temporary.rename(path)
            except OSError:
                if old.is_dir():
                    old.rename(path)
                raise
    except OSError as error:
        raise write_error(path, "cannot write the folder", error) from error


def write_error(path: Path, message: str, error: OSError) -> EnvironmentLack:
    """Returns the error of a path that cannot be written: ``message`` and the system's reason."""
    return EnvironmentLack(
        f"{message}: {error.strerror or error}",
        code="file.write",
        where=str(path),
        hint=("free space there, or " if error.errno in _FULL else "")
        + "choose a folder that can be written (EDGEKIT_CACHE, --out)",
    )
