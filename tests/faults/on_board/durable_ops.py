# ruff: noqa: UP031, RUF005, B008
"""Watches a process's durable operations below one folder: counts, records, and ends it at one.

Standard library of Python 3.8 only, and nothing of edgekit: it is put on a board's interpreter by
``sitecustomize`` beside it, or installed by the forked boards of ``zygote``. Several processes
share one log; a lock makes each operation and its record one step, so that the log is the order in
which things happened.

The log's lines are JSON lists [kind, ...]; inodes are numbers of the file system:
    ["op", name, path]                       before each operation; its index is the moment's number
    ["link", folder inode, name, inode]      an entry came to be (file, folder, symlink, hard link)
    ["rename", folder, name, folder, name, inode]
    ["unlink", folder, name]
    ["file", inode, digest]                  fsync of a file: its bytes are in the pool
    ["folder", inode]                        fsync of a folder
    ["tree", {path: [kind, inode, what, mode, mtime]}]   before an operation, when asked for
"""

import builtins
import fcntl
import hashlib
import io
import json
import os
import signal
import stat
import threading

__all__ = ["VARIABLE", "Watch", "install", "install_from_environment", "tree_of"]

VARIABLE = "EDGEKIT_TEST_FAULTS"
_WRITES = os.O_WRONLY | os.O_RDWR


class Watch:
    """The log of one folder, and what is to happen at which operation.

    Args:
        root: The folder; what lies elsewhere is not watched.
        log: The log's folder; made before by whoever starts the processes.
        kill_at: Number of the operation before which this process ends by SIGKILL; None for never.
        cut_at: The same, and every process that watches ends at its next operation.
        trees: Whether the folder's whole state is recorded before each operation.
        at: Instead of by a number, the moment is told as [operation, file's name, how many of it
            come first]: kill_at or cut_at is then any number.
    """

    def __init__(self, root, log, kill_at=None, cut_at=None, trees=False, at=None):
        self.root = os.path.realpath(root)
        self.log, self.kill_at, self.cut_at, self.trees = log, kill_at, cut_at, trees
        self.at = at
        self.calls = Calls()
        self._mutex = threading.RLock()
        self._depth = 0

    def here(self, path, dir_fd=None):
        """The path below the root with its folder's links followed; None when it is elsewhere."""
        if isinstance(path, int):
            try:
                return self._below(os.readlink("/proc/self/fd/%d" % path))
            except OSError:
                return None
        path = os.fsdecode(path)
        if dir_fd is not None and not os.path.isabs(path):
            path = os.path.join(os.readlink("/proc/self/fd/%d" % dir_fd), path)
        folder, name = os.path.split(os.path.abspath(path))
        return self._below(os.path.join(os.path.realpath(folder), name))

    def _below(self, path):
        return path if path == self.root or path.startswith(self.root + "/") else None

    def step(self, name, path, act, record):
        """Does one operation: counts it, ends here if it is the one, does it, records it."""
        with self._mutex:
            if self._depth:  # an operation inside an operation is part of it
                return act()
            self._depth += 1
            handle = self.calls.os_open(
                os.path.join(self.log, "log"), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600
            )
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                number = self._count("count")
                if self._is_reported(name, path):
                    self.kill_at = self.kill_at and number
                    self.cut_at = self.cut_at and number
                cut = os.path.join(self.log, "cut")
                if number == self.cut_at:
                    os.close(self.calls.os_open(cut, os.O_WRONLY | os.O_CREAT, 0o600))
                if self.trees or number == self.cut_at:
                    self._write(handle, ["tree", tree_of(self.root, self.log, self.calls)])
                if number in (self.kill_at, self.cut_at) or os.path.exists(cut):
                    os.kill(os.getpid(), signal.SIGKILL)
                self._write(handle, ["op", name, os.path.relpath(path, self.root)])
                self.calls.write_count(os.path.join(self.log, "count"), number + 1)
                result = act()
                for line in record(result):
                    self._write(handle, line)
                return result
            finally:
                self._depth -= 1
                os.close(handle)

    def _is_reported(self, name, path):
        if self.at is None or [name, os.path.basename(path)] != self.at[:2]:
            return False
        before = self._count("told")
        self.calls.write_count(os.path.join(self.log, "told"), before + 1)
        return before == self.at[2]

    def _count(self, which):
        try:
            with self.calls.open(os.path.join(self.log, which)) as file:
                return int(file.read() or 0)
        except FileNotFoundError:
            return 0

    def _write(self, handle, line):
        os.write(handle, (json.dumps(line, separators=(",", ":")) + "\n").encode("ascii"))


class Calls:
    """The operations as they were before anything watched them."""

    def __init__(self):
        self.open, self.os_open = builtins.open, os.open

    def write_count(self, path, number):
        with self.open(path, "w") as file:
            file.write(str(number))


def tree_of(root, log, calls):
    """The folder's state as a program sees it: {path below it: [kind, inode, what, mode, mtime]}.

    ``what`` is a file's digest in the pool, a link's target, or "".
    """
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [""] + folders + files if folder == root else folders + files:
            path = os.path.join(folder, name) if name else folder
            try:
                facts = os.lstat(path)
                if stat.S_ISLNK(facts.st_mode):
                    kind, what = "link", os.readlink(path)
                elif stat.S_ISDIR(facts.st_mode):
                    kind, what = "folder", ""
                elif stat.S_ISREG(facts.st_mode):
                    kind, what = "file", pool(log, path, calls)
                else:
                    continue  # sockets
            except FileNotFoundError:
                continue
            where = os.path.relpath(path, root)
            mode = stat.S_IMODE(facts.st_mode)
            found[where] = [kind, facts.st_ino, what, mode, facts.st_mtime]
    return found


def pool(log, path, calls):
    """Keeps a file's bytes under their digest; returns it."""
    with calls.open(path, "rb") as file:
        data = file.read()
    digest = hashlib.sha256(data).hexdigest()
    retained = os.path.join(log, "pool", digest)
    if not os.path.exists(retained):
        with calls.open(retained + ".%d" % os.getpid(), "wb") as file:
            file.write(data)
        os.rename(retained + ".%d" % os.getpid(), retained)
    return digest


def _inode(path):
    return os.lstat(path).st_ino


def _entry(watch, path):
    """Where an entry lies: its folder's inode and its name."""
    folder, name = os.path.split(path)
    return [_inode(folder), name]


def install(watch):
    """Puts the watch on this process's functions of ``os``, ``open`` and ``io``."""
    _watch_folders(watch)
    _watch_renames(watch)
    _watch_files(watch)
    _watch_syncs(watch)


def _replace(name, wrapped):
    original = getattr(os, name)
    for group in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_fd):
        if original in group:
            group.add(wrapped)
    setattr(os, name, wrapped)


def _watch_folders(watch):
    def gone(name):
        original = getattr(os, name)

        def call(path, *rest, **named):
            where = watch.here(path, named.get("dir_fd"))
            if where is None:
                return original(path, *rest, **named)

            def record(_):
                return [["unlink"] + _entry(watch, where)]

            return watch.step(name, where, lambda: original(path, *rest, **named), record)

        _replace(name, call)

    def made(name, position):
        original = getattr(os, name)

        def call(*arguments, **named):
            where = watch.here(arguments[position], named.get("dir_fd"))
            if where is None:
                return original(*arguments, **named)

            def record(_):
                return [["link"] + _entry(watch, where) + [_inode(where)]]

            return watch.step(name, where, lambda: original(*arguments, **named), record)

        _replace(name, call)

    for name in ("unlink", "remove", "rmdir"):
        gone(name)
    made("mkdir", 0)
    made("symlink", 1)
    made("link", 1)


def _watch_renames(watch):
    for name in ("rename", "replace"):

        def call(source, target, _name=name, _original=getattr(os, name), **named):
            old = watch.here(source, named.get("src_dir_fd"))
            new = watch.here(target, named.get("dst_dir_fd"))
            if new is None or old is None:
                return _original(source, target, **named)
            entry = _entry(watch, old)

            def record(_):
                return [["rename"] + entry + _entry(watch, new) + [_inode(new)]]

            return watch.step(_name, new, lambda: _original(source, target, **named), record)

        _replace(name, call)


def _watch_files(watch):
    original_os_open, original_open = os.open, builtins.open

    def opened(where, act):
        fresh = not os.path.lexists(where)

        def record(_):
            return [["link"] + _entry(watch, where) + [_inode(where)]] if fresh else []

        return watch.step("open", where, act, record)

    def os_open(path, flags, mode=0o777, **named):
        where = watch.here(path, named.get("dir_fd")) if flags & _WRITES else None
        if where is None or flags & getattr(os, "O_TMPFILE", 0) == os.O_TMPFILE:
            return original_os_open(path, flags, mode, **named)
        return opened(where, lambda: original_os_open(path, flags, mode, **named))

    def any_open(file, mode="r", *rest, **named):
        writes = set(mode) & set("wax+")
        where = watch.here(file) if writes and not isinstance(file, int) else None
        if where is None or named.get("opener") is not None:
            return original_open(file, mode, *rest, **named)
        return opened(where, lambda: original_open(file, mode, *rest, **named))

    _replace("open", os_open)
    builtins.open = any_open
    io.open = any_open


def _watch_syncs(watch):
    for name in ("fsync", "fdatasync"):

        def call(file, _name=name, _original=getattr(os, name)):
            number = file if isinstance(file, int) else file.fileno()
            where = watch.here(number)
            if where is None:
                return _original(file)

            def record(_):
                facts = os.fstat(number)
                if stat.S_ISDIR(facts.st_mode):
                    return [["folder", facts.st_ino]]
                if facts.st_nlink == 0 or not stat.S_ISREG(facts.st_mode):
                    return []
                path = "/proc/self/fd/%d" % number
                return [["file", facts.st_ino, pool(watch.log, path, watch.calls)]]

            return watch.step(_name, where, lambda: _original(file), record)

        _replace(name, call)


def install_from_environment():
    """Watches as the JSON object of the variable says: the arguments of ``Watch``."""
    text = os.environ.get(VARIABLE)
    if text:
        given = json.loads(text)
        shift = given.pop("clock_s", 0)
        if shift:
            shift_clock(shift)
        if given:
            install(Watch(**given))


def shift_clock(seconds):
    """Sets this process's wall clock apart from the machine's; other clocks stay."""
    import time

    original = time.time
    time.time = lambda: original() + seconds
    gmtime, localtime = time.gmtime, time.localtime
    time.gmtime = lambda secs=None: gmtime(time.time() if secs is None else secs)
    time.localtime = lambda secs=None: localtime(time.time() if secs is None else secs)
