"""Durable files, locks, temporary folders, memory maps, and files whose owner must be trusted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import stat
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional, Set, Tuple, Union

from edgekit_device.errors import DeviceError, map_os_errors

LOCK_WAIT_S = 60.0
_LOCK_POLL_S = 0.02

# the names of ``_open_temporary``'s files
_TEMPORARY = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\Z")
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_MOST_KEPT = 64 << 20
_CHUNK = 1 << 18  # stays in a processor's cache until it is hashed

Buffer = Union[bytes, memoryview]

# <sys/mman.h> and <linux/mman.h>: the same on every architecture of Linux
_PROT_READ, _MAP_SHARED = 1, 1
_PAGE = 4096

# linux/memfd.h: Pythons built on older systems lack the names
_MEMORY_CLOEXEC, _MEMORY_SEALING = 1, 2

# start addresses of map_handle's maps
_maps: Set[int] = set()


def fsync_folder(folder: Path) -> None:
    """Makes the folder's entries durable."""
    handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def durable_folder(folder: Path) -> None:
    """Makes a folder and its parents; each new folder's entry is durable before it is used."""
    if folder.is_dir():
        return
    durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Writes a file atomically and durably, through a temporary file in its folder.

    Temporary files that killed processes have left for this file are removed.
    """
    temporary, handle = _open_temporary(path)
    try:
        # synced first: else, after a power cut, the new name may exist without the file's bytes
        with open(handle, "wb") as file:  # locked until it is closed
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(str(temporary), str(path))
        fsync_folder(path.parent)
    finally:
        if temporary.exists():
            temporary.unlink()
    start = ".{}.".format(path.name)
    for name in os.listdir(str(path.parent)):
        # the lock of a living writer's file cannot be taken, so _remove_dead leaves it
        if name.startswith(start):
            _remove_dead(path.with_name(name))


def remove_unfinished(folder: Path) -> None:
    """Removes all temporary files that killed writers have left in a folder."""
    for name in os.listdir(str(folder)):
        if _TEMPORARY.match(name):
            _remove_dead(folder / name)


def _open_temporary(path: Path) -> Tuple[Path, int]:
    """Returns a new file next to ``path``, locked while its writer lives, and its descriptor."""
    while True:
        name = ".{}.{}-{}".format(path.name, os.getpid(), os.urandom(4).hex())
        temporary = path.with_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(str(temporary), flags, 0o600)
        # between these two steps another writer of the same file may take it for a dead writer's
        if take_lock(handle) and temporary.exists():
            return temporary, handle
        os.close(handle)


def _remove_dead(temporary: Path) -> None:
    try:
        handle = os.open(str(temporary), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if take_lock(handle):
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    finally:
        os.close(handle)


def take_lock(handle: int, wait_s: float = 0.0, *, shared: bool = False) -> bool:
    """Takes an open file's lock; returns False if it is still taken after ``wait_s`` seconds."""
    mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, mode)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_POLL_S)


def replace_link(link: Path, target: str) -> None:
    """Points the symlink ``link`` at ``target`` with one rename."""
    temporary = link.with_name(".{}.{}".format(link.name, os.getpid()))
    if temporary.is_symlink():
        temporary.unlink()
    temporary.symlink_to(target)
    os.replace(temporary, link)
    fsync_folder(link.parent)


def open_locked(path: Path, wait_s: float, *, shared: bool = False) -> Optional[int]:
    """Opens the lock file ``path``, which is created if missing, and takes its lock.

    Returns:
        The descriptor, which the caller closes; None if another process still has the lock after
        ``wait_s`` seconds.
    """
    deadline = time.monotonic() + wait_s
    while True:
        with map_os_errors(str(path)):
            durable_folder(path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(str(path), flags, 0o600)
        try:
            taken = take_lock(handle, deadline - time.monotonic(), shared=shared)
            # its last holder may have removed the file: then this lock has no effect
            if taken and _is_same_file(handle, path):
                handle, opened = -1, handle
                return opened
        finally:
            if handle >= 0:
                os.close(handle)
        if not taken:
            return None


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(str(path)))
    except FileNotFoundError:
        return False


@contextmanager
def locked(path: Path, shared: bool = False, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Holds the lock file ``path``; the kernel releases it when the process ends.

    Raises:
        DeviceError: "board.busy" if another command holds it for more than ``wait_s`` seconds.
    """
    handle = open_locked(path, wait_s, shared=shared)
    if handle is None:
        raise DeviceError(
            "another command is using this",
            code="board.busy",
            where=str(path),
            hint="wait until it ends, then try again",
        )
    try:
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Returns True if a living process holds the lock file ``path``, according to the kernel."""
    try:
        # without O_CREAT: a question makes no lock files
        handle = os.open(str(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not take_lock(handle, shared=True)
    finally:
        os.close(handle)


@contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """Yields a folder under ``root``/tmp and removes it at the end; first removes folders of dead
    commands.

    A living command holds a lock on its folder, so a folder that can be locked is abandoned.
    """
    import shutil  # imported here: it loads every archiver, which small commands do not need

    parent = root / "tmp"
    with map_os_errors(str(parent)):
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.iterdir():
            _sweep(left)
        folder, handle = _claim_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)
        os.close(handle)


def _claim_folder(parent: Path) -> Tuple[Path, int]:
    import tempfile

    # between mkdir and flock another command may remove the folder: then take a new folder
    while True:
        folder = Path(tempfile.mkdtemp(dir=str(parent)))
        try:
            handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with contextlib.suppress(FileNotFoundError):
            if take_lock(handle) and os.path.samestat(os.fstat(handle), os.stat(str(folder))):
                return folder, handle
        os.close(handle)


def _sweep(folder: Path) -> None:
    import shutil

    try:
        handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if take_lock(handle):
            shutil.rmtree(str(folder), ignore_errors=True)
    finally:
        os.close(handle)


def trusted_owners(folder: Path) -> Set[int]:
    """Returns the users that may have written a folder's files: root, this user and its owner."""
    return {0, os.geteuid(), folder.stat().st_uid}


def is_owned(facts: os.stat_result, owners: Set[int]) -> bool:
    """Returns True if no other account can have written the file with this ``stat`` result."""
    return facts.st_uid in owners and not facts.st_mode & _WRITABLE


def read_owned(path: Path, owners: Set[int]) -> Optional[bytes]:
    """Reads a file; returns None if other accounts could have written it.

    The result is a copy, so that the hashed bytes are the used bytes even if the file changes.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    handle = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or not is_owned(facts, owners):
            return None
        return file.read()


def check_kept(path: Path) -> None:
    """Refuses an installation's file or folder that other accounts could have made or can change.

    Raises:
        DeviceError: "root.link", "root.owner" or "root.writable".
        FileNotFoundError: It is missing.
    """
    _refuse_foreign(path, os.lstat(str(path)))


def read_kept(path: Path, most: int = _MOST_KEPT) -> bytes:
    """Reads a file of an installation; of a longer file the first ``most`` + 1 bytes.

    Raises:
        DeviceError: As ``check_kept``.
        OSError: It cannot be read.
    """
    # O_NOFOLLOW fails with ELOOP only: check_kept gives the error with its hint
    if os.path.islink(str(path)):
        check_kept(path)
    # O_NONBLOCK: opening a FIFO in the file's place would wait for a writer
    handle = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        _refuse_foreign(path, facts)
        # not ``most`` at once: Python allocates the memory before it reads
        return file.read(min(facts.st_size, most) + 1)


def _refuse_foreign(path: Path, facts: os.stat_result) -> None:
    if stat.S_ISLNK(facts.st_mode):
        raise DeviceError(
            "a link is in the place of a file or folder of edgekit",
            code="root.link",
            where=str(path),
            hint="remove it; only ROOT as a whole (root: PATH) and its blobs may be elsewhere",
        )
    if facts.st_uid not in trusted_owners(path.parent):
        raise DeviceError(
            "it belongs to another account (number {})".format(facts.st_uid),
            code="root.owner",
            where=str(path),
            hint="whoever can change it controls this board's releases: sudo chown -R {} {}".format(
                os.geteuid(), path
            ),
        )
    if facts.st_mode & _WRITABLE:
        raise DeviceError(
            "other accounts can change it (mode {:o})".format(facts.st_mode & 0o7777),
            code="root.writable",
            where=str(path),
            hint="whoever can change it controls this board's releases: chmod -R go-w {}".format(
                path
            ),
        )


@dataclass(frozen=True)
class Extent:
    """A file, or a part of a file.

    Attributes:
        path: The file.
        offset: Start of the part, in bytes.
        size: Size of the part in bytes; None for the whole file.
    """

    path: Path
    offset: int = 0
    size: Optional[int] = None

    def read(self, size: int) -> Tuple[Buffer, str]:
        """Copies ``size`` bytes into this process's memory and hashes them on the way.

        Returns:
            The copy and its SHA-256; the copy is empty if the file has another size.

        Raises:
            OSError: It cannot be opened or read.
        """
        with open(str(self.path), "rb", buffering=0) as file:
            handle = file.fileno()
            available = os.fstat(handle).st_size - self.offset
            if (available if self.size is None else min(self.size, available)) != size:
                return b"", ""
            if size > _CHUNK:
                return _read_hashed(handle, self.offset, size)
            data = os.pread(handle, size, self.offset)
            return data, hashlib.sha256(data).hexdigest()


def _read_hashed(handle: int, offset: int, size: int) -> Tuple[memoryview, str]:
    import mmap

    # private pages cost almost no time until they are written, unlike shared pages or a bytearray
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # AttributeError: a Python that was built without MADV_HUGEPAGE
    with contextlib.suppress(OSError, AttributeError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    view, digest, hashed = memoryview(memory), hashlib.sha256(), 0
    while hashed < size:
        chunk = view[hashed : min(hashed + _CHUNK, size)]
        count = os.preadv(handle, [chunk], offset + hashed)
        if not count:
            break  # it was truncated meanwhile: the hash differs
        digest.update(chunk[:count])
        hashed += count
    return view.toreadonly(), digest.hexdigest()


def memory_file() -> int:
    """Returns a file in memory without a name, closed on exec; it can be sealed (fcntl(2)).

    Raises:
        OSError: As memfd_create(2).
    """
    create = getattr(os, "memfd_create", None)
    if create is not None:
        found: int = create("edgekit", _MEMORY_CLOEXEC | _MEMORY_SEALING)
        return found
    import ctypes

    # glibc has it since 2.27 even if Python was built without it
    library = ctypes.CDLL(None, use_errno=True)
    made: Optional[int] = None
    if hasattr(library, "memfd_create"):
        made = library.memfd_create(b"edgekit", _MEMORY_CLOEXEC | _MEMORY_SEALING)
    if made is None or made < 0:
        raise OSError(ctypes.get_errno(), "memfd_create is not available")
    return made


@functools.lru_cache(maxsize=1)
def _mmap_functions() -> Any:
    import ctypes

    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found


def map_file(path: Path) -> memoryview:
    """Maps a file read-only; the view keeps the map alive, and no descriptor stays open."""
    with path.open("rb") as file:
        return map_handle(file.fileno())


def is_mapped(data: memoryview) -> bool:
    """Returns True if a view's bytes are in a map that :func:`map_handle` made."""
    import ctypes

    return isinstance(data.obj, ctypes.Array) and ctypes.addressof(data.obj) in _maps


def _unmap(address: int, size: int) -> None:
    _maps.discard(address)
    _mmap_functions().munmap(address, size)


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
    libc = _mmap_functions()
    address = libc.mmap(None, size, _PROT_READ, _MAP_SHARED, handle, 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # the view refers to this object, so the map lives as long as the last view
    held = (ctypes.c_ubyte * size).from_address(address)
    unmap = weakref.finalize(held, _unmap, address, size)
    unmap.atexit = False  # other threads may read it until the process ends
    _maps.add(address)
    return memoryview(held).cast("B").toreadonly()
