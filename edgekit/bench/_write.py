"""Writes documents so that a reader sees the old file or the whole new one."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from edgekit.errors import EnvironmentLack

__all__ = ["write_json", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text under a temporary name in the same folder and renames it.

    Raises:
        EnvironmentLack: The folder cannot be made or written (code "file.write").
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        # mkstemp makes it private; the umask decides about ordinary files
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise EnvironmentLack(
            f"cannot write the file: {error.strerror or error}",
            code="file.write", where=str(path), hint="choose a folder that can be written",
        ) from error  # fmt: skip
    except BaseException:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, document: Any) -> None:
    """Writes one JSON document (no NaN or infinity: ValueError) with a trailing newline."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_text(path, text + "\n")
