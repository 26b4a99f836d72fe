"""Files that a reader sees whole: the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import EnvironmentLack

__all__ = ["write_atomically"]


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside ``path``; it is renamed when the block ends well.

    Raises:
        EnvironmentLack: The folder cannot be made or written (code "file.write").
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        # mkstemp makes it private; the umask decides about ordinary files
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        raise EnvironmentLack(
            f"cannot write the file: {error.strerror or error}",
            code="file.write",
            where=str(path),
            hint="free space there, or choose a folder that can be written (EDGEKIT_CACHE, --out)",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
