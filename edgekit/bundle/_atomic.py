"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import UsageError

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside ``path``; what is made there takes its place at the end.

    Raises:
        UsageError: "write.failed"; the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if temporary.is_dir() and path.is_dir():
            # a folder cannot be renamed over another: the old one steps aside first
            aside = temporary.with_name(temporary.name + ".old")
            path.rename(aside)
            temporary.rename(path)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(temporary, path)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror or error}",
            code="write.failed",
            where=str(path),
            hint="check the folder's rights and the free space",
        ) from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
