"""Modules of a loader that a host has placed are compiled once for each Python, not at each start.

Python keeps no bytecode of what it imports from a zip, and compiling is half of a small command.
What is kept lies beside the loader, in ``bin/__pycache__``, under its name, which is of its digest;
what is cut off, altered or another account's is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any, Dict, Optional
from zipimport import zipimporter

__all__ = ["keep_bytecode"]

_FOLDER = "__pycache__"
_STEM, _END = "edgekit_device-", ".pyz"
_HEX = 16
_DIGEST = 32
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def keep_bytecode() -> None:
    """From now on this package's modules are taken from what is kept, and kept where it lacks.

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
        finder: Any = _Finder(path, os.path.join(folder, _FOLDER, stem))
        sys.path_importer_cache[path] = finder


class _Finder:
    """Finds this package's modules.

    Args:
        path: The package's folder in the zip.
        start: What the names of kept files begin with.
    """

    def __init__(self, path: str, start: str) -> None:
        self._path = path
        self._zip = zipimporter(path)
        self._start = start

    def find_spec(self, fullname: str, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        """The module's, or None."""
        try:
            self._zip.is_package(fullname)
        except ImportError:
            return None
        file = os.path.join(self._path, fullname.rpartition(".")[2] + ".py")
        spec = ModuleSpec(fullname, _Loader(fullname, file, self._zip, self._start), origin=file)
        spec.has_location = True
        return spec


class _Loader(SourceFileLoader):
    """Has Python's own handling of bytecode read from the zip and from what is kept."""

    def __init__(self, fullname: str, path: str, source: zipimporter, start: str) -> None:
        super().__init__(fullname, path)
        self._zip = source
        self._start = start
        self.archive = source.archive

    def path_stats(self, path: str) -> Dict[str, Any]:
        """The same for all: what a name in ``bin`` stands for does not change."""
        return {"mtime": 0, "size": None}

    def get_data(self, path: str) -> bytes:
        """A module's source or bytecode; OSError where it is not kept, or not soundly."""
        if path == self.path:
            return self._zip.get_data(path)
        handle = os.open(self._kept(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            facts = os.fstat(handle)
            if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & _OTHERS:
                raise PermissionError(path)
            data = os.read(handle, facts.st_size + 1)
        finally:
            os.close(handle)
        # a power cut may leave a name without its bytes: nothing here is synced
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            raise OSError(path)
        return data[_DIGEST:]

    def set_data(self, path: str, data: Any, *, _mode: int = 0o600) -> None:
        """Keeps bytecode; without room for it the next start compiles again."""
        with contextlib.suppress(OSError):
            _write(self._kept(path), hashlib.sha256(data).digest() + data)

    def _kept(self, path: str) -> str:
        # Python's name: of the module, the interpreter and its level of optimisation
        return "{}.{}".format(self._start, os.path.basename(path))


def _write(file: str, data: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(file), 0o700)
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
