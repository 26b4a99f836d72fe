"""Caches the bytecode of a loader's modules next to the loader, because Python caches none of what
it imports from a zip and compiling takes half of a small command.

The cache lies next to the loader, in ``bin/__pycache__``, and is hashed with what it is for: the
loader, whose name is of its digest, the module and the Python. What is cut off, altered, for
something else or another account's is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER
from types import ModuleType
from typing import Any, Callable, Dict, Optional
from zipimport import zipimporter

_FOLDER = "__pycache__"
_STEM, _END = "edgekit_device-", ".pyz"
_HEX = 16
_DIGEST = 32
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def keep_bytecode() -> None:
    """From now on this package's modules come from the cache, which is filled as they are imported.

    Only for a loader in a ``bin`` that is named by its digest: others may change under their name.
    """
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is None:
        return
    folder, name = os.path.split(os.path.abspath(archive))
    stem = name[: -len(_END)]
    if os.path.basename(folder) != "bin" or stem + _END != name:
        return
    if not stem.startswith(_STEM) or len(stem) != len(_STEM) + _HEX:
        return
    for path in sys.modules[str(__package__)].__path__:
        _use_finder(path, os.path.join(folder, _FOLDER, stem))


def _use_finder(path: str, start: str) -> None:
    finder: Any = _Finder(path, start)
    sys.path_importer_cache[path] = finder


class _Finder:
    """Finds the modules and packages of one package, and has those packages searched alike.

    Args:
        path: The package's folder in the zip.
        start: Prefix of the cached files' names.
    """

    def __init__(self, path: str, start: str) -> None:
        self._path = path
        self._zip = zipimporter(path)
        self._start = start

    def find_spec(self, fullname: str, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        """The module's, or None."""
        try:
            is_package = self._zip.is_package(fullname)
        except ImportError:
            return None
        path = os.path.join(self._path, fullname.rpartition(".")[2])
        file = os.path.join(path, "__init__.py") if is_package else path + ".py"
        loader = _Loader(fullname, file, self._zip, self._start)
        spec = ModuleSpec(fullname, loader, origin=file, is_package=is_package)
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(path)
            _use_finder(path, self._start)
        return spec


class _Loader(SourceFileLoader):
    """Has Python's own handling of bytecode read from the zip and from the cache."""

    def __init__(self, fullname: str, path: str, source: zipimporter, start: str) -> None:
        super().__init__(fullname, path)
        self._zip = source
        self._start = start
        self.archive = source.archive

    def path_stats(self, path: str) -> Dict[str, Any]:
        """The same for all: what a name in ``bin`` stands for does not change."""
        return {"mtime": 0, "size": None}

    def get_data(self, path: str) -> bytes:
        """A module's source or bytecode; OSError if it is not cached, or damaged."""
        if path == self.path:
            return self._zip.get_data(path)
        file = self._cache_path(path)
        if not _is_sound(os.lstat(os.path.dirname(file)), stat.S_ISDIR):
            raise PermissionError(file)
        # a pipe in its place is not waited for
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(file, flags)
        try:
            facts = os.fstat(handle)
            if not _is_sound(facts, stat.S_ISREG):
                raise PermissionError(file)
            data = os.read(handle, facts.st_size + 1)
        finally:
            os.close(handle)
        # a power cut may leave a name without its bytes: nothing here is synced
        if _digest(file, data[_DIGEST:]) != data[:_DIGEST]:
            raise OSError(file)
        return data[_DIGEST:]

    def set_data(self, path: str, data: Any, *, _mode: int = 0o600) -> None:
        """Caches bytecode; on a full disk the next start compiles again."""
        with contextlib.suppress(OSError):
            _write(self._cache_path(path), data)

    def _cache_path(self, path: str) -> str:
        # Python's name says the interpreter and its level of optimisation, but not the package:
        # modules of several packages have the same name
        module, tag = self.name.partition(".")[2], os.path.basename(path).partition(".")[2]
        return "{}.{}.{}".format(self._start, module, tag)


def _digest(file: str, data: bytes) -> bytes:
    """Of bytecode and of what it is for: the name says the loader, the module and the Python."""
    name = os.path.basename(file).encode("utf-8", "surrogateescape")
    return hashlib.sha256(b"\0".join((name, MAGIC_NUMBER, data))).digest()


def _is_sound(facts: os.stat_result, kind: Callable[[int], bool]) -> bool:
    """Whether it is of this kind and only its owner can write it."""
    ours = facts.st_uid in (0, os.geteuid())
    return kind(facts.st_mode) and ours and not facts.st_mode & _OTHERS


def _write(file: str, data: bytes) -> None:
    # not ``write_durably``: its syncs cost the start more than compiling, and a digest finds what a
    # power cut leaves
    _make(os.path.dirname(file))
    data = _digest(file, data) + data
    temporary = "{}.{}.tmp".format(file, os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(temporary, flags, 0o600)
    try:
        try:
            os.write(handle, data)
        finally:
            os.close(handle)
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _make(folder: str) -> None:
    """Makes the folder; what stands there and is none, or can be written by others, gives way."""
    try:
        os.mkdir(folder, 0o700)
        return
    except FileExistsError:
        facts = os.lstat(folder)
    if _is_sound(facts, stat.S_ISDIR):
        return
    if stat.S_ISDIR(facts.st_mode):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    else:
        os.unlink(folder)
    os.mkdir(folder, 0o700)
