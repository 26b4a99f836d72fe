"""Incomplete blobs: ``partial/<sha256>`` has the bytes received so far and a single writer at a
time; a thread makes complete blobs durable while others still arrive.

After an interrupted transfer the bytes stay, and the next transfer continues after them. They are
not trusted: the whole blob is hashed before it gets its name in the store.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import resource
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import Buffer, fsync_folder, open_locked, workspace
from edgekit_device.protocol.codec import is_digest
from edgekit_device.store.root import Root

# longer than the allowed silence of a connection (``store.transfer``): the lock's holder is alive
_WAIT_S = 60.0
# bytes that may wait for the disk before the receiver waits too
_MOST_BYTES = 64 << 20
_MOST_BLOBS = 4096

# small blobs are made durable together: this many bytes at a time, more while the disk is busy
_GATHER_BYTES = 8 << 20
_GATHER_BLOBS = 1024
_BLOCK = 512 << 10


def _partial_folder(root: Path) -> Path:
    return root / "partial"


def received_bytes(root: Path, digest: str) -> int:
    """Returns the number of the blob's bytes that are stored in the installation ``root``."""
    try:
        return os.stat(str(_partial_folder(root) / digest)).st_size
    except FileNotFoundError:
        return 0


def partials(root: Path) -> List[Tuple[str, int]]:
    """Returns digest and bytes of every incomplete blob."""
    found = []
    folder = _partial_folder(root)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_digest(path.name):
            with contextlib.suppress(FileNotFoundError):  # it was just completed
                found.append((path.name, path.stat().st_size))
    return found


class Partial:
    """A blob's partial file, open and locked.

    Attributes:
        path: Path of the file.
        handle: Descriptor of the open file.
        size: Its bytes when it was opened.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.size = os.fstat(handle).st_size

    @classmethod
    def open(cls, root: Path, digest: str, wait_s: float = _WAIT_S) -> "Partial":
        """Opens the blob's part, empty if it is new; others wait until it is closed.

        Raises:
            DeviceError: "board.busy" if another channel holds it for more than ``wait_s`` seconds.
        """
        path = _partial_folder(root) / digest
        handle = open_locked(path, wait_s)
        if handle is None:
            raise DeviceError(
                "another transfer is already sending this blob",
                code="board.busy",
                where=path.name,
                hint="wait until it ends, then try again",
            )
        return cls(path, handle)

    def __enter__(self) -> "Partial":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlocks the file for other writers; removes it if it is empty."""
        try:
            # no links: ``drop`` has removed the name
            facts = os.fstat(self.handle)
            if facts.st_size == 0 and facts.st_nlink:
                self.path.unlink()
        finally:
            os.close(self.handle)

    def drop(self) -> None:
        """Removes the bytes."""
        self.path.unlink()


def hash_start(handle: int, count: int) -> "hashlib._Hash":
    """Returns the SHA-256 object of a file's first ``count`` bytes, to be continued.

    Raises:
        OSError: The file has fewer bytes.
    """
    found = hashlib.sha256()
    block = memoryview(bytearray(min(_BLOCK, count)))
    hashed = 0
    while hashed < count:
        # preadv: the file's own position belongs to the writer
        got = os.preadv(handle, [block[: count - hashed]], hashed)
        if not got:
            raise OSError(errno.EIO, "the kept part became shorter")
        found.update(block[:got])
        hashed += got
    return found


_Blob = Tuple[str, Union[Buffer, Partial], int]


class BlobWriter:
    """Writes verified blobs; all are in the store when the block has ended without an error.

    If the block ends with an error, the blobs added before are stored nevertheless.

    Bytes are made durable first, then names, then folders: a name in the store means complete
    bytes. Many blobs wait for the disk together, since the first fsync also writes most of the
    others.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._waiting: List[_Blob] = []
        self._under_way: List[_Blob] = []
        self._bytes = [0, 0]  # bytes of waiting blobs, and of blobs being written
        self._changed = threading.Condition()
        self._over = False
        self._error: Optional[BaseException] = None
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> "BlobWriter":
        return self

    def __exit__(self, kind: Any, *exc: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        waiting, self._waiting = self._waiting, []
        if self._error is None:
            self._store(waiting)  # a few small blobs: no thread was needed
        else:
            _close(waiting)
            if kind is None:
                raise self._error

    def add(self, digest: str, data: Buffer) -> None:
        """Adds a whole blob from memory."""
        self._add((digest, data, len(data)))

    def finish(self, digest: str, partial: Partial, size: int) -> None:
        """Adds a part that is complete, and closes it."""
        self._add((digest, partial, size))

    def _add(self, blob: _Blob) -> None:
        with self._changed:
            # checked before adding, else a blob larger than the bound would wait for itself
            while self._error is None and (
                self._bytes[0] + self._bytes[1] >= _MOST_BYTES
                or len(self._waiting) + len(self._under_way) >= _MOST_BLOBS
            ):
                self._changed.wait()
            self._waiting.append(blob)
            self._bytes[0] += blob[2]
            if self._error is not None:
                raise self._error
            if self._gather():
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, daemon=True)
                    self._thread.start()
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._gather() and not self._over:
                    self._changed.wait()
                if not self._waiting:
                    return
                # the receiver fills the next list while this one is written
                self._under_way, self._waiting = self._waiting, []
                self._bytes = [0, self._bytes[0]]
            try:
                self._store(self._under_way)
            except BaseException as error:
                self._error = error
            with self._changed:
                self._under_way = []
                self._bytes[1] = 0
                self._changed.notify_all()
                if self._error is not None:
                    return

    def _gather(self) -> bool:
        return self._bytes[0] >= _GATHER_BYTES or len(self._waiting) >= _GATHER_BLOBS

    def _store(self, blobs: List[_Blob]) -> None:
        if not blobs:
            return
        store = self._root.store
        small = {digest: data for digest, data, _ in blobs if not isinstance(data, Partial)}
        parts = [(digest, part, size) for digest, part, size in blobs if isinstance(part, Partial)]
        with ExitStack() as stack, map_os_errors(str(store.folder)):
            stack.callback(_close, blobs)
            names = {digest: str(part.path) for digest, part, _ in parts}
            if small:
                work = stack.enter_context(workspace(self._root.folder))
                names.update(_write_all(work, small))
            for _, part, size in parts:
                # an earlier transfer may have left more bytes than the blob has
                if os.fstat(part.handle).st_size != size:
                    os.ftruncate(part.handle, size)
            for _, part, _ in parts:
                os.fsync(part.handle)
            folders = sorted({store.path(digest).parent for digest in names})
            new = [folder for folder in folders if not folder.is_dir()]
            for folder in new:
                folder.mkdir(parents=True, exist_ok=True)
            for digest, name in names.items():
                # only now, when all bytes are durable: a name in the store means complete bytes
                os.replace(name, str(store.path(digest)))
            for folder in [*folders, *([store.folder, self._root.folder] if new else [])]:
                fsync_folder(folder)


def _write_all(work: Path, blobs: Dict[str, Buffer]) -> Dict[str, str]:
    """Writes files durably and returns their names; limits the number of open files."""
    digests = list(blobs)
    # a quarter of the process's limit of open files; partial files need the rest
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = _GATHER_BLOBS
    if limit != resource.RLIM_INFINITY:
        most = min(most, limit // 4 + 1)
    for start in range(0, len(digests), most):
        with ExitStack() as opened:
            handles = []
            for digest in digests[start : start + most]:
                handles.append(_write_file(str(work / digest), blobs[digest]))
                opened.callback(os.close, handles[-1])
            for handle in handles:
                os.fsync(handle)
    return {digest: str(work / digest) for digest in digests}


def _write_file(name: str, data: Buffer) -> int:
    """Writes a file and returns its open descriptor; starts the disk's write without waiting."""
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        # starts the writing of dirty pages: the fsync that follows waits less
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _close(blobs: List[_Blob]) -> None:
    for _, source, _ in blobs:
        if isinstance(source, Partial):
            source.close()
