"""Files that a reader sees whole: the old one or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import EnvironmentLack

__all__ = ["replacing", "write_atomically"]


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``path``; it is renamed when the block ends well.

    Args:
        path: The file; its folder is there. Where it is a link, the file behind it is replaced.
        private: Whether only its owner may read it; otherwise the umask decides.

    Raises:
        OSError: The folder is missing or cannot be written, or ``path`` is no regular file (a
            device, a pipe, a folder).
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "it is there and is no regular file")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if not private:
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """As :func:`replacing`, makes the folder, and says what is wrong as edgekit does.

    Raises:
        EnvironmentLack: The folder cannot be made or written (code "file.write").
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise EnvironmentLack(
            f"cannot write the file: {error.strerror or error}",
            code="file.write",
            where=str(path),
            hint="free space there, or choose a folder that can be written (EDGEKIT_CACHE, --out)",
        ) from error
