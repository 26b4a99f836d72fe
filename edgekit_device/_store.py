"""The content-addressed blob store: a file's name is its bytes' SHA-256.

A blob is written into a temporary folder, hashed on the way, made durable and renamed, so that a
name in the store always stands for whole and right bytes, whatever moment the power goes at.
"""

from __future__ import annotations

import functools
import hashlib
import os
import weakref
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterable, Iterator, List, Union

from ._checks import is_digest
from ._errors import DeviceError, map_os_errors
from ._files import fsync_folder

__all__ = ["Buffer", "Store", "map_file", "map_handle", "sha256"]

Buffer = Union[bytes, memoryview]
_CHUNK = 1 << 20
# <sys/mman.h> and <linux/mman.h>: the same on every architecture of Linux
_PROT_READ, _MAP_SHARED = 1, 1
_PAGE = 4096


def sha256(data: Buffer) -> str:
    """SHA-256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def map_file(path: Path) -> memoryview:
    """Maps a file read-only; the view keeps the map alive, and no descriptor stays open."""
    with path.open("rb") as file:
        return map_handle(file.fileno())


def map_handle(handle: int) -> memoryview:
    """Maps an open file read-only; the descriptor may be closed. A file of one page is read.

    Python's ``mmap`` keeps a descriptor for each map (before 3.13 it always does), and a network
    has more weights than a process may have files open. Maps are bounded too (65,530 in Linux).

    Raises:
        OSError: As mmap(2).
    """
    import ctypes

    size = os.fstat(handle).st_size
    if size <= _PAGE:
        return memoryview(os.pread(handle, size, 0))
    libc = _calls()
    address = libc.mmap(None, size, _PROT_READ, _MAP_SHARED, handle, 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    held = (ctypes.c_ubyte * size).from_address(address)
    unmap = weakref.finalize(held, libc.munmap, address, size)
    unmap.atexit = False  # other threads may read it until the process is gone
    return memoryview(held).cast("B").toreadonly()


@functools.lru_cache(maxsize=1)
def _calls() -> Any:
    import ctypes

    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found


class Store:
    """Blobs under ``folder``/<2 hex>/<sha256>."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where the blob lies, or would lie."""
        if not is_digest(digest):
            raise DeviceError("not a SHA-256", code="blob.bad-digest", where=repr(digest)[:80])
        return self.folder / digest[:2] / digest

    def has(self, digest: str) -> bool:
        """Whether the blob is there (its bytes were right when it was written)."""
        return self.path(digest).is_file()

    def size(self, digest: str) -> int:
        """The blob's bytes; -1 when it is not there."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return -1

    def read(self, digest: str) -> memoryview:
        """Maps the blob; its bytes are not hashed again here.

        Raises:
            DeviceError: "blob.missing".
        """
        try:
            return map_file(self.path(digest))
        except FileNotFoundError as error:
            raise DeviceError(
                "the blob is not in the store",
                code="blob.missing",
                where=digest,
                hint="deploy the bundle again; what is missing is sent",
            ) from error

    def missing(self, digests: Iterable[str], verify: bool = False) -> List[str]:
        """The digests whose blobs are not there; renews the time of those that are.

        With ``verify``, blobs are hashed and those that rotted are removed and reported.
        """
        absent = []
        for digest in dict.fromkeys(digests):
            path = self.path(digest)
            if not path.is_file():
                absent.append(digest)
                continue
            if verify and sha256(map_file(path)) != digest:
                path.unlink()
                absent.append(digest)
                continue
            self.renew(digest)
        return absent

    def renew(self, digest: str) -> None:
        """Makes the blob young again, so that a collection leaves it alone."""
        with map_os_errors(str(self.folder)):
            os.utime(self.path(digest))

    def receive(self, digest: str, size: int, source: BinaryIO, work: Path) -> None:
        """Reads ``size`` bytes from ``source`` into the store, through the folder ``work``.

        Raises:
            DeviceError: "transfer.truncated", "blob.digest-mismatch", "board.disk-full".
        """
        final, temporary = self.path(digest), work / digest
        with map_os_errors(str(self.folder)):
            free = os.statvfs(work).f_bavail * os.statvfs(work).f_frsize
            if size > free:
                raise DeviceError(
                    "the blob needs {} bytes, {} are free".format(size, free),
                    code="board.disk-full",
                    where=str(self.folder),
                    hint="free space there, or remove old releases with gc --keep 1",
                )
            found = hashlib.sha256()
            try:
                with temporary.open("xb") as file:
                    for chunk in _chunks(source, size, digest):
                        found.update(chunk)
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                if found.hexdigest() != digest:
                    raise DeviceError(
                        "the bytes received have another SHA-256: {}".format(found.hexdigest()),
                        code="blob.digest-mismatch",
                        where=digest,
                        hint="the bundle or the transfer is damaged; send it again",
                    )
                final.parent.mkdir(parents=True, exist_ok=True)
                os.replace(temporary, final)
                fsync_folder(final.parent)
            finally:
                if temporary.exists():
                    temporary.unlink()

    def blobs(self) -> Iterator[Path]:
        """Every blob's path."""
        for path in sorted(self.folder.glob("??/*")):
            if is_digest(path.name):
                yield path

    def usage(self) -> Dict[str, int]:
        """Number of blobs and their bytes."""
        sizes = [path.stat().st_size for path in self.blobs()]
        return {"blobs": len(sizes), "bytes": sum(sizes)}


def _chunks(source: BinaryIO, size: int, digest: str) -> Iterator[bytes]:
    left = size
    while left:
        chunk = source.read(min(_CHUNK, left))
        if not chunk:
            raise DeviceError(
                "the stream ended {} bytes early".format(left),
                code="transfer.truncated",
                where=digest,
                hint="the connection broke; deploy again, whole blobs are kept",
            )
        left -= len(chunk)
        yield chunk
