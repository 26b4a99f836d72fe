"""A plugin's folder of sources, as a board compiles it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit_device.build.plugin_source import MAX_SOURCE, CompileRequest

CMAKE = "CMakeLists.txt"
_MOST_FILES = 4096
# build outputs and hidden files are not sources; a folder with this file is CMake's build folder
_LEFT_OUT = ("__pycache__", "edgekit-out")
_BUILD = "CMakeCache.txt"


@dataclass(frozen=True)
class PluginSource:
    """A folder's files, by path in it.

    Attributes:
        name: The operator.
        files: The bytes of each file.
    """

    name: str
    files: Mapping[str, bytes]

    def request(self) -> tuple[CompileRequest, dict[str, bytes]]:
        """Returns the request that compiles them, and its blobs by SHA-256."""
        digests = {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}
        blobs = {digests[path]: data for path, data in self.files.items()}
        return CompileRequest(self.name, digests), blobs


def read_source(folder: Path, name: str, where: str) -> PluginSource:
    """Reads a plugin's folder.

    Args:
        folder: It has a ``CMakeLists.txt``. A link in it must lead to a file of the folder.
        name: The operator.
        where: The place that names it, for errors.

    Raises:
        DataError: "plugin.source": it is no such folder, is too large, or a link leaves the folder.
    """

    def refused(why: str) -> DataError:
        return DataError(
            f"the plugin's source {folder.name} {why}",
            code="plugin.source",
            where=where,
            hint="model.plugins: source is a folder with its CMakeLists.txt and sources, at most "
            f"{MAX_SOURCE >> 20} MiB",
        )

    if not folder.is_dir():
        raise refused("is not a folder")
    if not (folder / CMAKE).is_file():
        raise refused(f"has no {CMAKE}")
    files: dict[str, bytes] = {}
    top, left = folder.resolve(), MAX_SOURCE
    try:
        for path in _files(folder):
            inside = path.relative_to(folder).as_posix()
            if not path.resolve().is_relative_to(top):
                raise refused(f"has a link that leads out of it: {inside}")
            if not stat.S_ISREG(path.stat().st_mode):
                raise refused(f"has something that is no file: {inside}")
            if path.stat().st_size > left or len(files) >= _MOST_FILES:
                raise refused(f"is larger than {MAX_SOURCE >> 20} MiB or {_MOST_FILES:,} files")
            files[inside] = read_file(path, left)
            left -= len(files[inside])
    except OSError as error:
        raise refused(f"cannot be read: {error}") from error
    return PluginSource(name, files)


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder in a fixed order, without build outputs."""
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if name in _LEFT_OUT or name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            if not (path / _BUILD).exists():
                yield from _files(path)
        else:
            yield path
